// ranks.c: see ranks.h.
#include "ctl/ranks.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "ctl/cell.h"

#define CELL_BYTES 16
#define LATE_BEAT_S 2.5 // a worker beats once a second
#define LATE_ENGINE_S 5

// What a person should see first comes first.
enum notable { NOTABLE_TROUBLE, NOTABLE_BUSY, NOTABLE_WELL, NOTABLE_FREE, NOTABLE_KINDS };

enum column {
    COL_RANK,
    COL_STATE,
    COL_BEAT,
    COL_ENGINE,
    COL_STEPS,
    COL_RATE,
    COL_KV,
    COL_KERNELS, // or the worker's place, where they are not all alike
    COL_CORES,
    COL_DATA,
    COLS
};

static const struct {
    const char *head;
    unsigned width;
    bool right;
} columns[COLS] = {{"#", 4, true},     {"STATE", 8, false}, {"BEAT", 4, true}, {"ENG", 4, true},
                   {"STEPS", 5, true}, {"TOK/S", 5, true},  {"KV", 4, true},   {"KERNEL", 6, false},
                   {"CPU", 3, true},   {"DATA", 5, true}};

struct rank_row {
    char cells[COLS][CELL_BYTES];
    const char *name, *host;
    enum notable notable;
    double tokens_per_s, kv_share, beat_s;
    bool shown;
};

static double number_at(const json_t *o, const char *key) {
    const json_t *n = json_object_get(o, key);
    return json_is_number(n) ? json_number_value(n) : -1;
}

static const char *text_at(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL && *text != '\0' ? text : "-";
}

// --- one row

static enum notable notable_of(const json_t *w, const char *state) {
    if (strcmp(state, "free") == 0) return NOTABLE_FREE;
    if (strcmp(state, "lost") == 0) return NOTABLE_TROUBLE;
    if (number_at(w, "heartbeat_age_s") > LATE_BEAT_S ||
        number_at(w, "engine_age_s") > LATE_ENGINE_S)
        return NOTABLE_TROUBLE;
    return strcmp(state, "ready") == 0 ? NOTABLE_WELL : NOTABLE_BUSY;
}

static void set_state(char cell[CELL_BYTES], const json_t *w, const char *state) {
    double done = number_at(w, "bytes_loaded"), total = number_at(w, "bytes_to_load");
    if (strcmp(state, "loading") == 0 && total > 0 && done >= 0 && done <= total)
        snprintf(cell, CELL_BYTES, "load %.0f%%", done / total * 99.4); // 100 % is "loaded"
    else
        snprintf(cell, CELL_BYTES, "%.8s", state);
}

static void set_share(char cell[CELL_BYTES], double share) {
    if (share < 0)
        snprintf(cell, CELL_BYTES, "-");
    else
        snprintf(cell, CELL_BYTES, "%.0f%%", share > 1 ? 100 : share * 100);
}

// Numbers of a worker that is not there say nothing.
static void set_numbers(struct rank_row *r, const json_t *w) {
    double blocks = number_at(w, "kv_blocks"), cores = number_at(w, "cores");
    r->tokens_per_s = number_at(w, "tokens_per_s");
    r->kv_share = blocks > 0 ? number_at(w, "kv_blocks_used") / blocks : -1;
    cell_age(r->cells[COL_ENGINE], number_at(w, "engine_age_s"));
    cell_count(r->cells[COL_STEPS], number_at(w, "steps"));
    cell_rate(r->cells[COL_RATE], r->tokens_per_s);
    set_share(r->cells[COL_KV], r->kv_share);
    snprintf(r->cells[COL_CORES], CELL_BYTES, cores < 0 || cores > 999 ? "-" : "%.0f", cores);
    cell_bytes(r->cells[COL_DATA], number_at(w, "bytes_sent") + number_at(w, "bytes_received"));
}

static void set_place(char cell[CELL_BYTES], const json_t *w) {
    char parts[3][CELL_NUMBER_BYTES];
    cell_count(parts[0], number_at(w, "stage"));
    cell_count(parts[1], number_at(w, "dp_group"));
    cell_count(parts[2], number_at(w, "tp_index"));
    snprintf(cell, CELL_BYTES, "%.4s.%.4s.%.4s", parts[0], parts[1], parts[2]);
}

static void fill_row(struct rank_row *r, const json_t *w, bool placed) {
    const char *state = text_at(w, "state");
    *r = (struct rank_row){.name = text_at(w, "name"), .host = text_at(w, "host")};
    r->notable = notable_of(w, state);
    r->beat_s = number_at(w, "heartbeat_age_s");
    r->tokens_per_s = r->kv_share = -1;
    for (int i = 0; i < COLS; i++)
        snprintf(r->cells[i], CELL_BYTES, "-");
    cell_count(r->cells[COL_RANK], number_at(w, "rank"));
    set_state(r->cells[COL_STATE], w, state);
    if (placed) set_place(r->cells[COL_KERNELS], w);
    if (r->notable == NOTABLE_FREE) return;
    cell_age(r->cells[COL_BEAT], r->beat_s);
    if (strcmp(state, "lost") == 0) return;
    const char *kernels = text_at(w, "kernels");
    if (!placed) snprintf(r->cells[COL_KERNELS], CELL_BYTES, "%.6s", kernels);
    set_numbers(r, w);
}

// --- which rows

static void choose_rows(struct rank_row *rows, size_t n, size_t most) {
    size_t chosen = 0;
    for (int kind = 0; kind < NOTABLE_KINDS; kind++) {
        for (size_t i = 0; i < n && chosen < most; i++) {
            if ((int)rows[i].notable != kind) continue;
            rows[i].shown = true;
            chosen++;
        }
    }
}

// --- writing

// The name and the host share what the other columns leave; neither takes more than it needs.
static void share_columns(const struct rank_row *rows, size_t n, unsigned *name, unsigned *host) {
    unsigned left = OVERVIEW_COLUMNS - COLS - 1; // a space between columns
    for (int i = 0; i < COLS; i++)
        left -= columns[i].width;
    *name = *host = 4;
    for (size_t i = 0; i < n; i++) {
        unsigned a = cell_width(rows[i].name), b = cell_width(rows[i].host);
        if (rows[i].shown && a > *name) *name = a;
        if (rows[i].shown && b > *host) *host = b;
    }
    if (*name + *host <= left) return;
    unsigned half = left / 2;
    if (*host <= half)
        *name = left - *host;
    else if (*name <= left - half)
        *host = left - *name;
    else
        *name = left - half, *host = half;
}

static void write_cell(struct buf *out, enum column c, const char *text) {
    if (columns[c].right)
        cell_right(out, text, columns[c].width);
    else
        cell_text(out, text, columns[c].width);
}

static const char *colour_of(enum notable n) {
    return n == NOTABLE_TROUBLE ? "\x1b[31m"
           : n == NOTABLE_BUSY  ? "\x1b[33m"
           : n == NOTABLE_FREE  ? "\x1b[2m"
                                : "";
}

static void write_row(struct buf *out, const struct rank_row *r, unsigned name, unsigned host) {
    write_cell(out, COL_RANK, r->cells[COL_RANK]);
    buf_text(out, " ");
    cell_text(out, r->name, name);
    buf_text(out, " ");
    cell_text(out, r->host, host);
    for (int i = COL_STATE; i < COLS; i++) {
        buf_text(out, " ");
        write_cell(out, (enum column)i, r->cells[i]);
    }
}

static void write_head(struct buf *out, unsigned name, unsigned host, bool placed) {
    struct rank_row head = {.name = "NAME", .host = "HOST"};
    for (int i = 0; i < COLS; i++)
        snprintf(head.cells[i], CELL_BYTES, "%s", columns[i].head);
    if (placed) snprintf(head.cells[COL_KERNELS], CELL_BYTES, "PLACE");
    write_row(out, &head, name, host);
}

static void write_rest(struct buf *out, const struct rank_row *rows, size_t n) {
    static const char *const kinds[] = {"in trouble", "getting ready", "ready", "free"};
    unsigned counts[NOTABLE_KINDS] = {0}, hidden = 0;
    double tokens_per_s = 0;
    char rate[CELL_NUMBER_BYTES];
    for (size_t i = 0; i < n; i++) {
        if (rows[i].shown) continue;
        hidden++;
        counts[rows[i].notable]++;
        if (rows[i].tokens_per_s > 0) tokens_per_s += rows[i].tokens_per_s;
    }
    if (hidden == 0) return;
    buf_format(out, "     and %u more:", hidden);
    for (int i = 0, listed = 0; i < NOTABLE_KINDS; i++) {
        if (counts[i] > 0)
            buf_format(out, "%s %u %s", listed++ > 0 ? "," : "", counts[i], kinds[i]);
    }
    cell_rate(rate, tokens_per_s);
    buf_format(out, "; %s tokens/s (--all)\n", rate);
}

struct table {
    struct rank_row *rows;
    size_t n;
    bool colour, placed;
};

static void write_table(struct buf *out, const struct table *t) {
    unsigned name, host;
    share_columns(t->rows, t->n, &name, &host);
    buf_text(out, t->colour ? "\x1b[1m" : "");
    write_head(out, name, host, t->placed);
    buf_text(out, t->colour ? "\x1b[0m\n" : "\n");
    for (size_t i = 0; i < t->n; i++) {
        if (!t->rows[i].shown) continue;
        const char *paint = t->colour ? colour_of(t->rows[i].notable) : "";
        buf_text(out, paint);
        write_row(out, &t->rows[i], name, host);
        buf_text(out, *paint != '\0' ? "\x1b[0m\n" : "\n");
    }
    write_rest(out, t->rows, t->n);
}

void ranks_write(struct buf *out, const json_t *workers, const struct overview_style *style,
                 bool placed) {
    size_t n = json_array_size(workers);
    struct rank_row *rows = mem_array(n, sizeof *rows);
    if (rows == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        fill_row(&rows[i], json_array_get(workers, i), placed);
    choose_rows(rows, n, style->rows_max == 0 || n <= style->rows_max ? n : style->rows_max);
    write_table(out, &(struct table){rows, n, style->colour, placed});
    mem_free(rows);
}
