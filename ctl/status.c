// status.c: moectl status: asks the leader's /status and shows it, once or again and again.
//
// Exit codes: 0 the group serves, 1 the leader cannot be asked, 3 it answers and does not serve
// (any other state).
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "ctl/client.h"
#include "ctl/json_text.h"
#include "ctl/overview.h"

#define EXIT_UNREACHED 1
#define EXIT_NOT_READY 3
#define ROWS_PIPED 40 // of workers, where no terminal's height says how many
#define HEAD_LINES 15 // of everything else
#define ROWS_LEAST 4

struct screen {
    bool terminal, colour;
    unsigned n_shown;
};

static bool set_to_something(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && *value != '\0';
}

static void screen_init(struct screen *s) {
    const char *kind = getenv("TERM");
    *s = (struct screen){.terminal = isatty(STDOUT_FILENO) == 1};
    if (kind == NULL || strcmp(kind, "dumb") == 0) s->terminal = false;
    s->colour = s->terminal && !set_to_something("NO_COLOR");
}

static unsigned rows_max(const struct ctl *c, const struct screen *s) {
    struct winsize size = {0};
    if (c->options.all) return 0;
    if (!s->terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0)
        return ROWS_PIPED;
    return size.ws_row > HEAD_LINES + ROWS_LEAST ? size.ws_row - HEAD_LINES : ROWS_LEAST;
}

// A terminal is drawn over, line by line, so that it does not flicker; a pipe gets blocks.
static void show(struct screen *s, const struct buf *page, bool watching) {
    if (!watching || !s->terminal) {
        if (s->n_shown++ > 0) fputc('\n', stdout);
        fwrite(page->data, 1, page->bytes, stdout);
        fflush(stdout);
        return;
    }
    fputs(s->n_shown++ == 0 ? "\x1b[2J\x1b[H" : "\x1b[H", stdout);
    for (size_t i = 0; i < page->bytes; i++) {
        if (page->data[i] == '\n') fputs("\x1b[K", stdout);
        fputc(page->data[i], stdout);
    }
    fputs("\x1b[J", stdout);
    fflush(stdout);
}

static int draw(struct ctl *c, struct screen *s, const json_t *status) {
    struct overview_style style = {
        .rows_max = rows_max(c, s), .colour = s->colour, .places = c->options.places};
    struct buf page;
    buf_init(&page, 0);
    overview_write(&page, status, &style);
    int err = page.failed ? ERR_FATAL_NOMEM : 0;
    if (err == 0) show(s, &page, c->options.watch > 0);
    buf_finish(&page);
    return err;
}

// Asks once. *ready is set when the leader was reached.
static int ask(struct ctl *c, struct screen *s, bool *ready, struct err_text *e) {
    char *body;
    int err = client_get(c, "/status", &body, e);
    if (err != 0) return err;
    json_t *status = json_loads(body, 0, NULL);
    mem_free(body);
    const char *kind = json_string_value(json_object_get(status, "object"));
    if (kind == NULL || strcmp(kind, "moesaic.status") != 0) {
        json_decref(status);
        return err_set(e, ERR_FATAL_IO, "--url %.200s: its /status is not that of a leader",
                       c->options.url);
    }
    *ready = json_is_true(json_object_get(status, "ready"));
    err = c->options.json ? json_text_print(status) : draw(c, s, status);
    json_decref(status);
    return err == 0 ? 0 : err_set(e, err, "out of memory");
}

// Who watches wants to see the leader come back, so only the first question must be answered.
static int watch(struct ctl *c, struct screen *s, bool *ready) {
    struct waker *waker;
    struct err_text e;
    if (waker_create(c->env, &waker) != 0) return EXIT_UNREACHED;
    for (;;) {
        waker_wait(waker, env_now_ns(c->env) + c->options.watch);
        if (ask(c, s, ready, &e) == 0) continue;
        if (s->terminal) fputs("\x1b[2J\x1b[H", stdout), fflush(stdout);
        fprintf(stderr, "moectl: %s\n", e.text);
    }
}

int status_command(struct ctl *c) {
    struct err_text e;
    struct screen s;
    bool ready = false;
    screen_init(&s);
    if (ask(c, &s, &ready, &e) != 0) {
        fprintf(stderr, "moectl: %s\n", e.text);
        return EXIT_UNREACHED;
    }
    if (c->options.watch > 0) return watch(c, &s, &ready);
    return ready ? 0 : EXIT_NOT_READY;
}
