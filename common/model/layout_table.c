// layout_table.c: see layout_table.h.
#include "common/model/layout_table.h"

#include <stdio.h>
#include <string.h>

#include "common/base/plural.h"

void layout_bytes_text(char out[LAYOUT_BYTES_TEXT], uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double n = (double)bytes / 1024;
    int unit = 0;
    for (; n >= 1023.95 && unit < 5; unit++)
        n /= 1024;
    if (bytes < 1024)
        snprintf(out, LAYOUT_BYTES_TEXT, "%u B", (unsigned)bytes);
    else
        snprintf(out, LAYOUT_BYTES_TEXT, "%.1f %s", n, units[unit]);
}

#define RANGE_TEXT 32

static void range(char out[RANGE_TEXT], uint32_t first, uint32_t count) {
    if (count == 0)
        snprintf(out, RANGE_TEXT, "none");
    else if (count == 1)
        snprintf(out, RANGE_TEXT, "%u", first);
    else
        snprintf(out, RANGE_TEXT, "%u-%u", first, first + count - 1);
}

// What the sizes mean, for who does not know them by heart.
static void write_meaning(struct buf *out, const struct layout_table *t) {
    const struct layout *l = t->layout;
    uint32_t n_experts = t->model->spec->router.n_experts;
    if (l->pp > 1)
        buf_format(out, "  pp %-4u the %u layers are in %u stages of %u worker%s\n", l->pp,
                   t->model->spec->n_layers, l->pp, layout_stage_ranks(l),
                   plural(layout_stage_ranks(l)));
    buf_format(out, "  dp %-4u %u group%s with requests and a KV cache of %s own\n", l->dp, l->dp,
               plural(l->dp), l->dp == 1 ? "its" : "their");
    if (l->tp > 1)
        buf_format(out, "  tp %-4u %u workers share each request and split its attention\n", l->tp,
                   l->tp);
    if (n_experts == 0) return;
    buf_format(out, "  ep %-4u the %u experts of a layer are on %u place%s", l->ep, n_experts,
               l->ep, plural(l->ep));
    if (l->etp > 1) buf_format(out, ", each split over %u workers", l->etp);
    buf_text(out, "\n");
}

static void write_row(struct buf *out, const struct layout_table *t, uint32_t rank) {
    const struct layout_place place = layout_place(t->layout, rank);
    struct footprint f;
    char layers[RANGE_TEXT], experts[RANGE_TEXT], weights[LAYOUT_BYTES_TEXT], kv[LAYOUT_BYTES_TEXT];
    footprint_of(&f, t->model, t->layout, rank);
    range(layers, f.first_layer, f.n_layers);
    range(experts, f.first_expert, f.n_experts);
    if (t->layout->etp > 1 && f.n_experts > 0) {
        size_t end = strlen(experts);
        snprintf(experts + end, sizeof experts - end, " %u/%u", place.etp + 1, t->layout->etp);
    }
    layout_bytes_text(weights, f.weight_bytes);
    layout_bytes_text(kv, f.kv_token_bytes);
    buf_format(out, "%4u  %-5s  %-6s %5u %5u %4u  %-7s %-13s %9s %10s\n", rank,
               rank < t->n_local ? "local" : "-", "cpu", place.stage, place.dp, place.tp, layers,
               experts, weights, kv);
}

void layout_table_write(struct buf *out, const struct layout_table *t) {
    char text[LAYOUT_TEXT_MAX];
    uint32_t n = t->layout->n_ranks, shown = t->rows_max == 0 || n <= t->rows_max ? n : t->rows_max;
    layout_text(text, t->layout);
    buf_format(out, "layout of %u worker%s: %s\n", n, plural(n), text);
    write_meaning(out, t);
    buf_format(out, "%4s  %-5s  %-6s %5s %5s %4s  %-7s %-13s %9s %10s\n", "RANK", "HOST", "DEVICE",
               "STAGE", "GROUP", "TP", "LAYERS", "EXPERTS", "WEIGHTS", "KV A TOKEN");
    for (uint32_t rank = 0; rank < shown; rank++)
        write_row(out, t, rank);
    if (shown < n) buf_format(out, "      and %u more\n", n - shown);
}

// What a sequence takes beside pages on the worker that keeps most of it, and how often it can be
// kept. Nothing of a model without states.
static void write_states(struct buf *out, const struct layout *l, const struct layout_need *need) {
    char each[LAYOUT_BYTES_TEXT], all[LAYOUT_BYTES_TEXT];
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < l->n_ranks; rank++) {
        struct footprint f;
        footprint_of(&f, need->model, l, rank);
        if (f.state_bytes > most) most = f.state_bytes;
    }
    if (most == 0) return;
    layout_bytes_text(each, most);
    layout_bytes_text(all, most * need->n_slots);
    buf_format(out, "Of that are %s states: up to %s for each of %u sequence%s", all, each,
               need->n_slots, plural(need->n_slots));
    if (need->snapshot_bytes != 0) {
        layout_bytes_text(all, need->snapshot_bytes);
        buf_format(out, ",\nbeside %s of copies for the prefix cache: at most %llu", all,
                   (unsigned long long)(need->snapshot_bytes / most));
    }
    buf_text(out, ".\n");
}

void layout_need_write(struct buf *out, const struct layout *l, const struct layout_need *need) {
    char needs[LAYOUT_BYTES_TEXT], has[LAYOUT_BYTES_TEXT];
    layout_bytes_text(needs, layout_need_bytes(l, need));
    layout_bytes_text(has, need->memory_bytes);
    buf_format(out, "A worker needs up to %s, with one request of %llu token%s", needs,
               (unsigned long long)need->n_tokens, plural(need->n_tokens));
    if (need->memory_bytes != 0)
        buf_format(out, ",\nand can have %s%s", has,
                   layout_fits(l, need) ? "" : ", which is too little");
    buf_text(out, ".\n");
    write_states(out, l, need);
}
