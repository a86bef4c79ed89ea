// plan.c: moectl plan: how so many workers would be arranged for a model, without starting any.
//
// Exit codes: 0 there is such a layout and it fits, 1 the folder cannot be read, 2 there is none, 3
// it does not fit the memory that was given.
#include <stdio.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/plural.h"
#include "common/model/layout_table.h"
#include "common/model/legal.h"
#include "ctl/ctl.h"
#include "ctl/json_text.h"
#include "ctl/plan_json.h"

#define EXIT_NO_MODEL 1
#define EXIT_NO_LAYOUT 2
#define EXIT_TOO_LARGE 3
#define ROWS_MAX 64
#define SLOTS 64 // of a leader whose --max-num-seqs is the default

static struct layout_wish wish_of(const struct parallel_options *p) {
    struct layout_wish w = {.n_ranks = p->workers,
                            .derived = p->workers == 0,
                            .pp = p->pipeline_size,
                            .dp = p->data_size,
                            .tp = p->tensor_size,
                            .ep = p->expert_size,
                            .etp = p->expert_tensor_size};
    if (w.derived) w.n_ranks = wish_workers(&w);
    return w;
}

// All that so many workers can be, and what each would need.
static void write_choices(struct buf *out, const struct layout *chosen,
                          const struct layout_need *need) {
    struct layout all[LEGAL_LAYOUTS_MAX];
    uint32_t n = legal_list(need->model->spec, chosen->n_ranks, all);
    buf_format(out, "\nAll layouts of %u worker%s:\n%5s %5s %5s %5s %5s  %12s\n", chosen->n_ranks,
               plural(chosen->n_ranks), "PP", "DP", "TP", "EP", "ETP", "UP TO");
    for (uint32_t i = 0; i < n; i++) {
        char bytes[LAYOUT_BYTES_TEXT];
        const struct layout *l = &all[i];
        layout_bytes_text(bytes, layout_need_bytes(l, need));
        buf_format(out, "%5u %5u %5u %5u %5u  %12s%s%s\n", l->pp, l->dp, l->tp, l->ep, l->etp,
                   bytes, layout_fits(l, need) ? "" : "  too large",
                   layout_equal(l, chosen) ? "  the one above" : "");
    }
}

static int print_json(const struct plan_order *order) {
    json_t *plan = plan_json(order);
    int rc = json_text_print(plan);
    json_decref(plan);
    if (rc != 0) fprintf(stderr, "moectl: no memory for the plan\n");
    if (rc != 0) return EXIT_NO_MODEL;
    return layout_fits(order->layout, order->need) ? 0 : EXIT_TOO_LARGE;
}

static int write_plan(const struct ctl *c, const struct layout *l, const struct layout_need *need) {
    const struct layout_table table = {
        .model = need->model, .layout = l, .rows_max = c->options.all ? 0 : ROWS_MAX};
    struct buf out;
    buf_init(&out, 0);
    layout_table_write(&out, &table);
    layout_need_write(&out, l, need);
    if (c->options.all) write_choices(&out, l, need);
    if (!out.failed) fwrite(out.data, 1, out.bytes, stdout);
    buf_finish(&out);
    return layout_fits(l, need) ? 0 : EXIT_TOO_LARGE;
}

static int fail(int code, const struct err_text *e) {
    fprintf(stderr, "moectl: %s\n", e->text);
    return code;
}

int plan_command(struct ctl *c, const char *folder) {
    const struct ctl_options *o = &c->options;
    const struct layout_wish wish = wish_of(&o->parallel);
    struct model_spec spec;
    struct footprint_model model;
    struct layout layout;
    struct err_text e;
    if (spec_load(&spec, folder, &e) != 0) return fail(EXIT_NO_MODEL, &e);
    enum mla_form form = MLA_ABSORBED;
    check(mla_form_parse(o->mla_form, &form)); // the option table knows the choices
    if (spec_take_mla_form(&spec, form, &e) != 0) return fail(EXIT_NO_MODEL, &e);
    const struct footprint_types types = footprint_types_of(&spec, o->dtype, o->kv_cache_dtype);
    footprint_measure(&model, &spec, &types);
    const struct layout_need need = {.model = &model,
                                     .n_tokens = o->max_model_len != 0 ? o->max_model_len
                                                                       : spec.max_position,
                                     .n_slots = SLOTS,
                                     .memory_bytes = o->parallel.worker_memory};
    if (layout_choose(&layout, &wish, &need, &e) != 0) return fail(EXIT_NO_LAYOUT, &e);
    const struct plan_order order = {folder, &layout, &need, o->all};
    return o->json ? print_json(&order) : write_plan(c, &layout, &need);
}
