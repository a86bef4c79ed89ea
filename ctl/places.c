// places.c: see places.h.
#include "ctl/places.h"

#include <stdio.h>
#include <string.h>

#include "ctl/cell.h"

#define CELL_BYTES 32

enum column {
    COL_RANK,
    COL_STATE,
    COL_DEVICE,
    COL_STAGE,
    COL_GROUP,
    COL_TP,
    COL_LAYERS,
    COL_EXPERTS,
    COL_WEIGHTS,
    COLS
};

static const struct {
    const char *head;
    unsigned width;
    bool right;
} columns[COLS] = {{"#", 4, true},       {"STATE", 7, false},    {"KERNEL", 6, false},
                   {"STAGE", 5, true},   {"GROUP", 5, true},     {"TP", 3, true},
                   {"LAYERS", 7, false}, {"EXPERTS", 11, false}, {"BYTES", 5, true}};

static double number_at(const json_t *o, const char *key) {
    const json_t *n = json_object_get(o, key);
    return json_is_number(n) ? json_number_value(n) : -1;
}

static const char *text_at(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL && *text != '\0' ? text : "-";
}

static void set_range(char cell[CELL_BYTES], double first, double count) {
    char a[CELL_NUMBER_BYTES], b[CELL_NUMBER_BYTES];
    cell_count(a, first);
    cell_count(b, first + count - 1);
    if (count < 0 || first < 0)
        snprintf(cell, CELL_BYTES, "-");
    else if (count < 1)
        snprintf(cell, CELL_BYTES, "none");
    else
        snprintf(cell, CELL_BYTES, count < 2 ? "%s" : "%s-%s", a, b);
}

// Experts that are split say which part this is.
static void set_experts(char cell[CELL_BYTES], const json_t *w, double etp) {
    set_range(cell, number_at(w, "first_expert"), number_at(w, "experts"));
    double index = number_at(w, "etp_index");
    size_t n = strlen(cell);
    if (etp > 1 && etp <= 1024 && index >= 0 && index < etp && number_at(w, "experts") > 0)
        snprintf(cell + n, CELL_BYTES - n, " %.0f/%.0f", index + 1, etp);
}

static void write_cells(struct buf *out, char cells[COLS][CELL_BYTES], const char *host) {
    unsigned left = OVERVIEW_COLUMNS - COLS;
    for (int i = 0; i < COLS; i++)
        left -= columns[i].width;
    for (int i = 0; i < COLS; i++) {
        if (columns[i].right)
            cell_right(out, cells[i], columns[i].width);
        else
            cell_text(out, cells[i], columns[i].width);
        buf_text(out, " ");
    }
    cell_text(out, host, cell_width(host) < left ? 0 : left);
    buf_text(out, "\n");
}

static void write_row(struct buf *out, const json_t *w, double etp) {
    char cells[COLS][CELL_BYTES];
    const struct {
        enum column column;
        const char *key;
    } numbers[] = {
        {COL_RANK, "rank"}, {COL_STAGE, "stage"}, {COL_GROUP, "dp_group"}, {COL_TP, "tp_index"}};
    for (int i = 0; i < 4; i++)
        cell_count(cells[numbers[i].column], number_at(w, numbers[i].key));
    snprintf(cells[COL_STATE], CELL_BYTES, "%.7s", text_at(w, "state"));
    snprintf(cells[COL_DEVICE], CELL_BYTES, "%.6s", text_at(w, "kernels"));
    set_range(cells[COL_LAYERS], number_at(w, "first_layer"), number_at(w, "layers"));
    set_experts(cells[COL_EXPERTS], w, etp);
    cell_bytes(cells[COL_WEIGHTS], number_at(w, "bytes_to_load"));
    write_cells(out, cells, text_at(w, "host"));
}

void places_write(struct buf *out, const json_t *workers, const struct overview_style *style) {
    size_t n = json_array_size(workers);
    size_t shown = style->rows_max == 0 || n <= style->rows_max ? n : style->rows_max;
    char head[COLS][CELL_BYTES];
    double etp = 1;
    for (int i = 0; i < COLS; i++)
        snprintf(head[i], CELL_BYTES, "%s", columns[i].head);
    for (size_t i = 0; i < n; i++) {
        double parts = number_at(json_array_get(workers, i), "etp_index") + 1;
        if (parts > etp) etp = parts;
    }
    write_cells(out, head, "HOST");
    for (size_t i = 0; i < shown; i++)
        write_row(out, json_array_get(workers, i), etp);
    if (shown < n) buf_format(out, "     and %zu more (--all)\n", n - shown);
}
