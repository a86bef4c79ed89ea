// test_planted_bug.c: the simulator must find a bug of the kind it exists for.
//
// This program's combine_rows (linked in by --wrap) adds experts' rows in the order in which the
// ranks' messages arrive, which is right up to rounding and depends on the schedule. If no random
// world notices, the tests that lean on the simulator prove nothing.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/sim/storm.h"
#include "worker/forward.h"

#define SEEDS_MAX 40

int __wrap_combine_rows(struct forward *f, uint32_t layer, struct err_text *e);

static void send_rows(struct forward *f, uint32_t layer) {
    struct combine *c = &f->combine;
    const uint32_t *begin = f->dispatch.pair_begin;
    size_t hidden = f->spec->hidden;
    for (uint32_t r = 0; r < f->n_ranks; r++) {
        if (r == f->rank) continue;
        uint32_t n_pairs = begin[r + 1] - begin[r];
        c->heads[r] = (struct rows_head){.n_rows = n_pairs, .hidden = f->spec->hidden};
        (void)fabric_send(f->config.fabric, r, fabric_tag(FABRIC_COMBINE, f->step, layer),
                          &(struct fabric_part){.head = &c->heads[r],
                                                .head_bytes = sizeof c->heads[r],
                                                .data = c->out + begin[r] * hidden,
                                                .data_bytes = n_pairs * hidden * sizeof(float)});
    }
}

// Adds what one rank computed to the sums of the rows that asked it. The experts are done with
// normed, so the sums live there.
static void add_rank(struct forward *f, uint32_t rank, const float *rows) {
    uint32_t top_k = f->spec->router.top_k, hidden = f->spec->hidden;
    for (uint32_t row = 0; row < f->batch.n_rows; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            size_t at = (size_t)row * top_k + j;
            if (f->dispatch.owner[f->route.experts[at]] != rank) continue;
            f->ops->axpy(f->normed + (size_t)row * hidden,
                         rows + (size_t)f->dispatch.pair_index[at] * hidden, f->route.weights[at],
                         hidden);
        }
    }
}

int __wrap_combine_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_COMBINE, .step = f->step, .layer = layer};
    int rc = 0;
    send_rows(f, layer);
    memset(f->normed, 0, (size_t)f->batch.n_rows * f->spec->hidden * sizeof(float));
    add_rank(f, f->rank,
             f->combine.out + (size_t)f->dispatch.pair_begin[f->rank] * f->spec->hidden);
    for (uint32_t n = 1; rc == 0 && n < f->n_ranks; n++) {
        struct fabric_msg message;
        rc = fabric_recv(f->config.fabric, &want, deadline, &message);
        if (rc != 0) break;
        add_rank(f, message.peer, (const float *)(message.data + sizeof(struct rows_head)));
        fabric_release(f->config.fabric, &message);
    }
    if (rc == 0) rc = fabric_flush(f->config.fabric, deadline);
    dispatch_release(f);
    f->ops->add(f->x, f->normed, f->batch.n_rows * f->spec->hidden);
    return rc == 0 ? 0 : err_set(e, rc, "planted combine of layer %u: %s", layer, err_name(rc));
}

int main(void) {
    struct model_cache model;
    struct job_pool pool;
    struct job_mix mix = {
        .seed = 11, .n_jobs = 24, .prompt_min = 1, .prompt_max = 60, .tokens_max = 8};
    uint64_t seed = 0;
    struct storm_result result = {0};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    struct answer *reference = mem_array(pool.n_jobs, sizeof *reference);
    check(reference != NULL);
    reference_run(&model, &pool, reference); // one worker: nothing arrives, so this is right
    struct storm storm = {
        .model = &model, .pool = &pool, .reference = reference, .workers_min = 2, .workers_max = 4};
    while (result.failure[0] == '\0' && seed < SEEDS_MAX)
        storm_run(&storm, ++seed, &result);
    bool found = strstr(result.failure, "differs") != NULL;
    printf("%s at seed %u: %s\n", found ? "found" : "not found", (unsigned)seed, result.failure);
    mem_free(reference);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return found ? 0 : 1;
}
