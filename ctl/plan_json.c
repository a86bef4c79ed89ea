// plan_json.c: see plan_json.h.
#include "ctl/plan_json.h"

#include "common/base/limits.h"
#include "common/model/legal.h"
#include "ctl/json_text.h"

// JSON of this program has integers up to 2^63.
static json_t *bytes(uint64_t n) {
    return json_integer(n < INT64_MAX ? (json_int_t)n : INT64_MAX);
}

static uint64_t sum(uint64_t a, uint64_t b) {
    return a + b < a ? UINT64_MAX : a + b;
}

static json_t *sizes_of(const struct layout *l) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "workers", (json_int_t)l->n_ranks, "pp",
                     (json_int_t)l->pp, "dp", (json_int_t)l->dp, "tp", (json_int_t)l->tp, "ep",
                     (json_int_t)l->ep, "etp", (json_int_t)l->etp);
}

static json_t *range(uint32_t first, uint32_t count) {
    return json_pack("{s:I, s:I}", "first", (json_int_t)first, "count", (json_int_t)count);
}

static json_t *experts_of(const struct layout *l, const struct layout_place *place,
                          const struct footprint *f) {
    return json_pack("{s:I, s:I, s:I, s:I}", "first", (json_int_t)f->first_expert, "count",
                     (json_int_t)f->n_experts, "part", (json_int_t)place->etp, "parts",
                     (json_int_t)l->etp);
}

// Where it will run is not known to a plan.
static json_t *row_of(const struct layout *l, uint32_t rank, const struct footprint *f) {
    const struct layout_place place = layout_place(l, rank);
    return json_pack("{s:I, s:n, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "rank",
                     (json_int_t)rank, "host", "device", "cpu", "stage", (json_int_t)place.stage,
                     "dp", (json_int_t)place.dp, "tp", (json_int_t)place.tp, "layers",
                     range(f->first_layer, f->n_layers), "experts", experts_of(l, &place, f),
                     "weight_bytes", bytes(f->weight_bytes), "kv_token_bytes",
                     bytes(f->kv_token_bytes), "state_bytes", bytes(f->state_bytes));
}

static json_t *rows_of(const struct plan_order *o, struct footprint *total) {
    json_t *rows = json_array();
    for (uint32_t rank = 0; rank < o->layout->n_ranks; rank++) {
        struct footprint f;
        footprint_of(&f, o->need->model, o->layout, rank);
        total->weight_bytes = sum(total->weight_bytes, f.weight_bytes);
        total->kv_token_bytes = sum(total->kv_token_bytes, f.kv_token_bytes);
        total->state_bytes = sum(total->state_bytes, f.state_bytes);
        json_array_append_new(rows, row_of(o->layout, rank, &f));
    }
    return rows;
}

static json_t *layouts_of(const struct plan_order *o) {
    struct layout all[LEGAL_LAYOUTS_MAX];
    uint32_t n = legal_list(o->need->model->spec, o->layout->n_ranks, all);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *entry = sizes_of(&all[i]);
        json_object_set_new(entry, "needed_bytes", bytes(layout_need_bytes(&all[i], o->need)));
        json_object_set_new(entry, "fits", json_boolean(layout_fits(&all[i], o->need)));
        json_object_set_new(entry, "chosen", json_boolean(layout_equal(&all[i], o->layout)));
        json_array_append_new(list, entry);
    }
    return list;
}

json_t *plan_json(const struct plan_order *o) {
    struct footprint total = {0};
    uint64_t memory = o->need->memory_bytes;
    json_t *rows = rows_of(o, &total);
    json_t *totals =
        json_pack("{s:o, s:o, s:o}", "weight_bytes", bytes(total.weight_bytes), "kv_token_bytes",
                  bytes(total.kv_token_bytes), "state_bytes", bytes(total.state_bytes));
    json_t *plan = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:b}", "object", "moesaic.plan", "model",
        json_text(o->folder), "layout", sizes_of(o->layout), "ranks", rows, "totals", totals,
        "needed_bytes", bytes(layout_need_bytes(o->layout, o->need)), "request_tokens",
        bytes(o->need->n_tokens), "sequences", (json_int_t)o->need->n_slots, "memory_bytes",
        memory != 0 ? bytes(memory) : json_null(), "fits", (int)layout_fits(o->layout, o->need));
    if (plan != NULL && o->all) json_object_set_new(plan, "layouts", layouts_of(o));
    return plan;
}
