// arrange.c: see arrange.h. Before it in the walk: options and the model's config; after it: the
// leader, which knows only the layout.
#include "leader/arrange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cgroup.h"
#include "common/base/log.h"
#include "common/model/layout_table.h"

#define ROWS_MAX 32

static struct layout_wish wish_of(const struct parallel_options *p) {
    return (struct layout_wish){.n_ranks = p->workers,
                                .derived = p->workers_derived,
                                .pp = p->pipeline_size,
                                .dp = p->data_size,
                                .tp = p->tensor_size,
                                .ep = p->expert_size,
                                .etp = p->expert_tensor_size};
}

int arrange_count(struct leader_options *o, struct err_text *e) {
    const struct layout_wish wish = wish_of(&o->parallel);
    uint32_t asked = wish_workers(&wish), *n = &o->parallel.workers;
    char flags[WISH_TEXT_MAX];
    o->parallel.workers_derived = *n == 0;
    if (*n == 0 && o->lws_group_size > 1) *n = o->lws_group_size - 1;
    if (*n == 0) *n = o->local_workers > asked ? o->local_workers : asked;
    if (*n <= RANKS_MAX) return 0;
    wish_text(flags, &wish); // of the sizes: all other numbers are within their options' bounds
    return wish_too_many(flags, e);
}

// A worker on this machine looks at the same limits, and takes its part of them.
uint64_t arrange_memory(const struct leader_options *o, const char *given) {
    uint64_t bytes;
    if (o->parallel.worker_memory != 0) return o->parallel.worker_memory;
    if (o->local_workers == 0 || o->local_workers != o->parallel.workers) return 0;
    if (given != NULL && options_bytes(given, &bytes) && bytes != 0) return bytes;
    return cgroup_memory_bytes() / o->local_workers;
}

// Of each worker, as far as that is known before one has joined.
static uint64_t snapshot_bytes(const struct leader_options *o, uint64_t memory_bytes) {
    const struct memory_share *share = &o->state_cache_memory;
    if (!o->enable_prefix_caching) return 0;
    return share->bytes != 0 ? share->bytes : memory_bytes / 100 * share->percent;
}

static void print(const struct layout_table *table, const struct layout_need *need) {
    struct buf text;
    buf_init(&text, 0);
    layout_table_write(&text, table);
    layout_need_write(&text, table->layout, need);
    if (!text.failed) fwrite(text.data, 1, text.bytes, stdout);
    fflush(stdout);
    buf_finish(&text);
}

static void explain(const struct layout *l, const struct leader_options *o,
                    const struct layout_need *need) {
    const struct layout_table table = {
        .model = need->model, .layout = l, .n_local = o->local_workers, .rows_max = ROWS_MAX};
    log_event(LOG_INFO, "main", "layout", log_uint("workers", l->n_ranks), log_uint("pp", l->pp),
              log_uint("dp", l->dp), log_uint("tp", l->tp), log_uint("ep", l->ep),
              log_uint("etp", l->etp));
    if (!layout_fits(l, need))
        log_event(LOG_WARN, "main", "the workers' memory is too small",
                  log_uint("needed", layout_need_bytes(l, need)),
                  log_uint("memory", need->memory_bytes));
    if (strcmp(o->log_format, "text") == 0) print(&table, need);
}

int arrange_layout(struct layout *out, const struct leader_options *o,
                   const struct footprint_model *model, struct err_text *e) {
    const struct layout_wish wish = wish_of(&o->parallel);
    uint64_t memory_bytes = arrange_memory(o, getenv("MOESAIC_MEMORY"));
    const struct layout_need need = {.model = model,
                                     .n_tokens = o->max_model_len,
                                     .n_slots = o->max_num_seqs,
                                     .memory_bytes = memory_bytes,
                                     .snapshot_bytes = snapshot_bytes(o, memory_bytes)};
    int err = layout_choose(out, &wish, &need, e);
    if (err == 0) explain(out, o, &need);
    return err;
}
