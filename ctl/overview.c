// overview.c: see overview.h. The head: the group, its queue, rates and troubles; ranks.c writes
// the table below it.
#include "ctl/overview.h"

#include <stdio.h>
#include <string.h>

#include "ctl/cell.h"
#include "ctl/places.h"
#include "ctl/ranks.h"

#define LABEL_COLUMNS 11
#define BAR_COLUMNS 30

static const char *text_at(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL ? text : "-";
}

static double number_at(const json_t *o, const char *key) {
    const json_t *n = json_object_get(o, key);
    return json_is_number(n) ? json_number_value(n) : -1;
}

// --- one line

// A line is built in a buffer of its own and cut as a whole, so that no long number breaks the
// table's width.
static void add_line(struct buf *out, const struct buf *line) {
    if (line->failed || line->data == NULL) {
        out->failed |= line->failed;
        return;
    }
    cell_text(out, line->data, cell_width(line->data) > OVERVIEW_COLUMNS ? OVERVIEW_COLUMNS : 0);
    buf_text(out, "\n");
}

static void label(struct buf *line, const char *name) {
    buf_reset(line);
    buf_format(line, "%-*s", LABEL_COLUMNS, name);
}

// As it is, as long as it is no wider than a person reads.
static void exact(char out[CELL_NUMBER_BYTES], double n) {
    if (n >= 0 && n < 1e9)
        snprintf(out, CELL_NUMBER_BYTES, "%.0f", n);
    else
        cell_count(out, n);
}

static void count(struct buf *line, const json_t *o, const char *key, const char *what) {
    char text[CELL_NUMBER_BYTES];
    exact(text, number_at(o, key));
    buf_format(line, "%s %s", text, what);
}

// A number and its noun: "1 group formed", "2 groups formed".
static void count_of(struct buf *line, double n, const char *noun, const char *rest) {
    char text[CELL_NUMBER_BYTES];
    exact(text, n);
    buf_format(line, "%s %s%s%s", text, noun, n == 1 ? "" : "s", rest);
}

static void finish_line(struct buf *out, struct buf *line) {
    while (line->bytes > 0 && line->data[line->bytes - 1] == ' ')
        line->bytes--;
    buf_add(line, "", 1);
    add_line(out, line);
}

// --- the group

static void duration(char *out, size_t cap, double s) {
    double minutes = s / 60;
    if (s < 0)
        snprintf(out, cap, "-");
    else if (s < 120)
        snprintf(out, cap, "%.0f s", s);
    else if (minutes < 120)
        snprintf(out, cap, "%.0f min", minutes);
    else if (minutes < 48 * 60)
        snprintf(out, cap, "%d h %d min", (int)(minutes / 60), (int)minutes % 60);
    else if (minutes < 1e9)
        snprintf(out, cap, "%.0f days", minutes / 1440);
    else
        snprintf(out, cap, "for ever");
}

static const char *colour_of(const char *state) {
    return strcmp(state, "ready") == 0 ? "\x1b[1;32m" : "\x1b[1;33m";
}

// The model's name takes what the fixed words leave.
static void title(struct buf *out, const json_t *status, bool colour) {
    char up[32], epoch[CELL_NUMBER_BYTES], tail[96];
    const char *state = text_at(status, "state");
    duration(up, sizeof up, number_at(status, "uptime_s"));
    exact(epoch, number_at(status, "epoch"));
    snprintf(tail, sizeof tail, "  epoch %s  up %s", epoch, up);
    unsigned build = cell_width(text_at(status, "build"));
    if (build > 32) build = 32;
    unsigned state_columns = cell_width(state) > 10 ? 10 : cell_width(state);
    unsigned fixed = 2 + state_columns + cell_width(tail) + build;
    unsigned model = cell_width(text_at(status, "model"));
    if (model > OVERVIEW_COLUMNS - 2 - fixed) model = OVERVIEW_COLUMNS - 2 - fixed;
    cell_text(out, text_at(status, "model"), model);
    buf_text(out, colour ? colour_of(state) : "");
    buf_text(out, "  ");
    cell_text(out, state, state_columns);
    buf_text(out, colour ? "\x1b[0m" : "");
    buf_text(out, tail);
    for (unsigned used = model + fixed; used < OVERVIEW_COLUMNS; used++)
        buf_text(out, " ");
    cell_text(out, text_at(status, "build"), build);
    buf_text(out, "\n");
}

static void bar(struct buf *line, double share) {
    int full = (int)(share * BAR_COLUMNS + 0.5);
    buf_text(line, "[");
    for (int i = 0; i < BAR_COLUMNS; i++)
        buf_text(line, i < full ? "#" : ".");
    buf_format(line, "] %.0f %% of the weights", share * 100);
}

static void progress(struct buf *out, struct buf *line, const json_t *status) {
    double share = number_at(status, "load_share");
    if (json_is_true(json_object_get(status, "ready"))) return;
    buf_reset(line);
    buf_text(line, text_at(status, "reason"));
    finish_line(out, line);
    if (share < 0 || share >= 1) return;
    label(line, "loading");
    bar(line, share);
    finish_line(out, line);
}

// --- numbers

static void queue(struct buf *out, struct buf *line, const json_t *status) {
    const json_t *r = json_object_get(status, "requests");
    const json_t *kv = json_object_get(status, "kv");
    double used = number_at(kv, "blocks_used"), blocks = number_at(kv, "blocks");
    label(line, "requests");
    count(line, r, "running", "running   ");
    count(line, r, "waiting", "waiting   ");
    count(line, r, "admitted", "of ");
    count(line, r, "admitted_max", "places taken");
    finish_line(out, line);
    label(line, "KV blocks");
    count(line, kv, "blocks_used", "of ");
    count(line, kv, "blocks", "used");
    if (blocks > 0 && used <= blocks) buf_format(line, " (%.1f %%)", used / blocks * 100);
    buf_text(line, ", ");
    count(line, kv, "block_tokens", "tokens each");
    finish_line(out, line);
    if (number_at(kv, "snapshots") <= 0) return; // of models that keep states alone
    label(line, "snapshots");
    count(line, kv, "snapshots_used", "of ");
    count(line, kv, "snapshots", "states kept");
    finish_line(out, line);
}

static void quantiles(struct buf *line, const json_t *o, const char *what) {
    const char *const keys[] = {"p50", "p95"};
    buf_format(line, "%s", what);
    for (int i = 0; i < 2; i++) {
        double s = number_at(o, keys[i]);
        buf_format(line, "%s %s ", i > 0 ? "," : "", keys[i]);
        if (s < 0)
            buf_text(line, "-");
        else if (s < 0.9995)
            buf_format(line, s < 0.00995 ? "%.1f ms" : "%.0f ms", s * 1e3);
        else
            buf_format(line, s < 1000 ? "%.1f s" : "%.3g s", s);
    }
    buf_text(line, "    ");
}

static void rates(struct buf *out, struct buf *line, const json_t *status) {
    const json_t *r = json_object_get(status, "recent");
    char in[CELL_NUMBER_BYTES], made[CELL_NUMBER_BYTES];
    cell_rate(in, number_at(r, "prompt_tokens_per_s"));
    cell_rate(made, number_at(r, "generation_tokens_per_s"));
    label(line, "tokens/s");
    buf_format(line, "%s in   %s out   over ", in, made);
    count(line, r, "seconds", "s");
    finish_line(out, line);
    label(line, "latency");
    quantiles(line, json_object_get(r, "first_token_s"), "first token");
    quantiles(line, json_object_get(r, "between_tokens_s"), "next");
    finish_line(out, line);
}

static double sum_of(const json_t *o, const char *const *keys) {
    double sum = 0;
    for (; *keys != NULL; keys++)
        sum += json_number_value(json_object_get(o, *keys));
    return sum;
}

static void totals(struct buf *out, struct buf *line, const json_t *status) {
    const json_t *t = json_object_get(status, "totals");
    const json_t *r = json_object_get(status, "requests");
    const json_t *m = json_object_get(status, "membership");
    static const char *const answered[] = {"stop", "length", NULL};
    static const char *const rejected[] = {"queue_full", "unavailable", "invalid", NULL};
    label(line, "totals");
    count_of(line, number_at(t, "prompt_tokens"), "token", " in   ");
    count(line, t, "generation_tokens", "out   ");
    count_of(line, number_at(t, "steps"), "step", "   ");
    count_of(line, sum_of(json_object_get(r, "finished"), answered), "answer", "");
    finish_line(out, line);
    label(line, "trouble");
    count_of(line, number_at(r, "lost"), "request", " lost with a group   ");
    buf_format(line, "%.0f rejected", sum_of(json_object_get(r, "rejected"), rejected));
    finish_line(out, line);
    label(line, "workers");
    count(line, m, "lost", "lost   ");
    count(line, m, "left", "left   ");
    count(line, m, "refused", "refused   ");
    count_of(line, number_at(m, "formed"), "group", " formed");
    finish_line(out, line);
}

static bool is_even(const json_t *l) {
    return number_at(l, "pp") <= 1 && number_at(l, "tp") <= 1;
}

// Where every worker has requests and all layers, that says it all.
static void layout(struct buf *out, struct buf *line, const json_t *l) {
    static const char *const sizes[] = {"pp", "dp", "tp", "ep", "etp"};
    if (!json_is_object(l)) return;
    label(line, "layout");
    for (int i = 0; i < 5; i++) {
        buf_format(line, "%s ", sizes[i]);
        count(line, l, sizes[i], "  ");
    }
    if (!is_even(l)) buf_text(line, "PLACE is stage.group.tp");
    finish_line(out, line);
}

void overview_write(struct buf *out, const json_t *status, const struct overview_style *style) {
    struct buf line;
    buf_init(&line, 0);
    title(out, status, style->colour);
    progress(out, &line, status);
    queue(out, &line, status);
    rates(out, &line, status);
    totals(out, &line, status);
    const json_t *l = json_object_get(status, "layout");
    layout(out, &line, l);
    out->failed |= line.failed;
    buf_finish(&line);
    buf_text(out, "\n");
    const json_t *workers = json_object_get(status, "workers");
    if (style->places)
        places_write(out, workers, style);
    else
        ranks_write(out, workers, style, !is_even(l));
}
