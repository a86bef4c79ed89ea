// chat.c: moectl chat: one question, the answer as it comes, one line of figures; and moectl ready,
// which asks nothing.
#include <stdio.h>

#include "common/base/mem.h"
#include "ctl/client.h"

static void print_text(const char *text) {
    fputs(text, stdout);
    fflush(stdout);
}

static void print_figures(const struct answer *a) {
    double first_ms = (double)(a->first_ns - a->start_ns) / 1e6;
    double decode_s = (double)(a->last_ns - a->first_ns) / 1e9;
    printf("\n  [%u prompt + %u answer tokens, first after %.1f ms", a->prompt_tokens,
           a->completion_tokens, first_ms);
    if (decode_s > 0 && a->completion_tokens > 1)
        printf(", then %.0f tokens/s", (a->completion_tokens - 1) / decode_s);
    printf(", %s]\n", a->finish_reason);
}

int chat_command(struct ctl *c, const char *prompt) {
    struct err_text e;
    struct answer a = {.prompt = prompt,
                       .seed = c->options.seed,
                       .max_tokens = c->options.max_tokens,
                       .on_text = print_text};
    if (client_check_text("the PROMPT", prompt, &e) != 0 || client_find_model(c, &e) != 0 ||
        client_stream(c, &a, 1, 1, &e) != 0) {
        fprintf(stderr, "moectl: %s\n", e.text);
        return 1;
    }
    if (a.error[0] != '\0') {
        fprintf(stderr, "moectl: %s\n", a.error);
        return 1;
    }
    print_figures(&a);
    return 0;
}

int ready_command(struct ctl *c) {
    struct err_text e;
    char *body;
    if (client_get(c, "/ready", &body, &e) != 0) {
        fprintf(stderr, "moectl: %s\n", e.text);
        return 1;
    }
    mem_free(body);
    return 0;
}
