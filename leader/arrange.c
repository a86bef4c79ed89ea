// arrange.c: see arrange.h. Before it in the walk: options and the model's config; after it: the
// leader, which knows only the layout.
#include "leader/arrange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/model/layout_table.h"

#define ROWS_MAX 32

static struct layout_wish wish_of(const struct leader_options *o) {
    return (struct layout_wish){.n_ranks = o->workers,
                                .pp = o->pipeline_parallel_size,
                                .dp = o->data_parallel_size,
                                .tp = o->tensor_parallel_size,
                                .ep = o->expert_parallel_size,
                                .etp = o->expert_tensor_parallel_size};
}

int arrange_count(struct leader_options *o, struct err_text *e) {
    const struct layout_wish wish = wish_of(o);
    uint32_t asked = wish_workers(&wish);
    if (o->workers == 0)
        o->workers = o->lws_group_size > 1      ? o->lws_group_size - 1
                     : o->local_workers > asked ? o->local_workers
                                                : asked;
    if (o->workers <= RANKS_MAX) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "--pipeline-parallel-size, --data-parallel-size, --tensor-parallel-size: their "
                   "product is above %d workers",
                   RANKS_MAX);
}

// What this machine could give to all of its workers together; 0 = not known.
static uint64_t free_memory(void) {
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL) return 0;
    while (kib == 0 && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "MemAvailable: %llu", &kib);
    fclose(f);
    return (uint64_t)kib * 1024;
}

static uint64_t worker_memory(const struct leader_options *o) {
    if (o->worker_memory != 0 || o->local_workers == 0) return o->worker_memory;
    return free_memory() / o->local_workers;
}

static struct layout_need need_of(const struct leader_options *o,
                                  const struct footprint_types *types) {
    return (struct layout_need){
        .types = *types, .n_tokens = o->max_model_len, .memory_bytes = worker_memory(o)};
}

#define FLAGS_TEXT 192

static void flags_text(char out[FLAGS_TEXT], const struct leader_options *o) {
    const struct {
        const char *flag;
        uint32_t n;
    } flags[] = {{"--workers", o->workers},
                 {"--pipeline-parallel-size", o->pipeline_parallel_size},
                 {"--data-parallel-size", o->data_parallel_size},
                 {"--tensor-parallel-size", o->tensor_parallel_size},
                 {"--expert-parallel-size", o->expert_parallel_size},
                 {"--expert-tensor-parallel-size", o->expert_tensor_parallel_size}};
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < 6 && n < FLAGS_TEXT; i++) {
        if (flags[i].n == 0) continue;
        n += (size_t)snprintf(out + n, FLAGS_TEXT - n, "%s%s %u", n > 0 ? " " : "", flags[i].flag,
                              flags[i].n);
    }
}

int arrange_layout(struct layout *out, const struct leader_options *o,
                   const struct model_spec *spec, const struct footprint_types *types,
                   struct err_text *e) {
    const struct layout_wish wish = wish_of(o);
    const struct layout_need need = need_of(o, types);
    struct err_text why;
    char flags[FLAGS_TEXT];
    int err = layout_choose(out, spec, &wish, &need, &why);
    if (err == 0) return 0;
    flags_text(flags, o);
    return err_set(e, err, "%s: %s", flags, why.text);
}

static void explain_choice(struct buf *out, const struct layout *l, const struct layout_need *need,
                           const struct model_spec *spec) {
    char needs[LAYOUT_BYTES_TEXT], has[LAYOUT_BYTES_TEXT];
    layout_bytes_text(needs, footprint_most(spec, l, &need->types, need->n_tokens));
    layout_bytes_text(has, need->memory_bytes);
    buf_format(out,
               "a worker needs %s at most, for its weights and one request of %" PRIu64 " tokens",
               needs, need->n_tokens);
    if (need->memory_bytes == 0)
        buf_text(out, "\n");
    else
        buf_format(out, ",\nand can have %s%s\n", has,
                   layout_fits(spec, l, need) ? "" : ": too little");
}

void arrange_explain(const struct layout *l, const struct leader_options *o,
                     const struct model_spec *spec, const struct footprint_types *types) {
    const struct layout_need need = need_of(o, types);
    const struct layout_table table = {.spec = spec,
                                       .layout = l,
                                       .types = *types,
                                       .n_local = o->local_workers,
                                       .rows_max = ROWS_MAX};
    log_event(LOG_INFO, "main", "layout", log_uint("workers", l->n_ranks), log_uint("pp", l->pp),
              log_uint("dp", l->dp), log_uint("tp", l->tp), log_uint("ep", l->ep),
              log_uint("etp", l->etp));
    if (!layout_fits(spec, l, &need))
        log_event(LOG_WARN, "main", "no layout of so many workers fits their memory",
                  log_uint("needs", footprint_most(spec, l, types, need.n_tokens)),
                  log_uint("has", need.memory_bytes));
    if (strcmp(o->log_format, "text") != 0) return;
    struct buf text;
    buf_init(&text, 0);
    layout_table_write(&text, &table);
    explain_choice(&text, l, &need, spec);
    if (!text.failed) fwrite(text.data, 1, text.bytes, stdout);
    fflush(stdout);
    buf_finish(&text);
}
