// ranks.c: a group of ranks in one process, see serve.h.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/fabric_mem.h"
#include "tests/harness/serve.h"

#define GROUP_MAX 16

struct rank {
    struct model *model;
    struct pool *pool;
    struct store store;
    struct waker *waker;
    struct fabric *fabric; // NULL when it is alone
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    // The step that its thread runs.
    const Moesaic__Step__V1__StepPlan *plan;
    struct step_output *out;
    int rc;
    struct err_text error;
};

struct ranks {
    uint32_t n_ranks, kv_blocks;
    struct layout layout;
    const struct model_spec *spec;
    struct env *env;
    struct fabric_mem_hub *hub;
    struct rank rank[GROUP_MAX + 1]; // the last one is the leader: it only connects
};

static void must(int rc, const struct err_text *e, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "%s failed: %s\n", what, e->text);
    abort();
}

static void open_fabric(struct ranks *r, struct rank *rank, size_t message_bytes_max) {
    struct fabric_config config = {
        .env = r->env, .waker = rank->waker, .hub = r->hub, .message_bytes_max = message_bytes_max};
    must(fabric_open(&rank->fabric, FABRIC_MEM, &config, &rank->error), &rank->error,
         "fabric_open");
    rank->address_bytes = sizeof rank->address;
    must(fabric_begin(rank->fabric, rank->address, &rank->address_bytes, &rank->error),
         &rank->error, "fabric_begin");
}

static void connect_all(struct ranks *r, size_t message_bytes_max) {
    const uint8_t *addresses[GROUP_MAX + 1];
    size_t bytes[GROUP_MAX + 1];
    r->hub = fabric_mem_hub_create(NULL);
    for (uint32_t i = 0; i <= r->n_ranks; i++) {
        check(waker_create(r->env, &r->rank[i].waker) == 0);
        open_fabric(r, &r->rank[i], message_bytes_max);
        addresses[i] = r->rank[i].address;
        bytes[i] = r->rank[i].address_bytes;
    }
    for (uint32_t i = 0; i <= r->n_ranks; i++) {
        struct rank *rank = &r->rank[i];
        struct fabric_group group = {.epoch = 1,
                                     .nonce = 42,
                                     .self = i,
                                     .n_peers = r->n_ranks + 1,
                                     .addresses = addresses,
                                     .address_bytes = bytes};
        must(fabric_connect(rank->fabric, &group, &rank->error), &rank->error, "fabric_connect");
    }
}

static void create_model(struct ranks *r, const struct ranks_config *c, uint32_t i) {
    struct rank *rank = &r->rank[i];
    must(pool_create(&rank->pool, c->n_threads, NULL, false, &rank->error), &rank->error,
         "pool_create");
    struct model_config config = {
        .env = r->env,
        .weights = c->weights[i],
        .layout = c->layout,
        .ops = c->ops != NULL ? c->ops : kernel_ops_select(NULL),
        .pool = rank->pool,
        .fabric = rank->fabric,
        .rank = i,
        .n_slots = c->n_slots,
        .rows_max = c->rows_max,
        .max_model_len = c->max_model_len,
        .kv_blocks = c->kv_blocks,
        .n_snapshots = c->n_snapshots,
        .kv_dtype = c->kv_dtype,
        .store = &rank->store,
        .digest = true,
        .exchange_timeout_ns = 60 * NS_PER_S,
    };
    store_init(&rank->store, &(struct store_config){.lazy = true});
    must(model_create(&rank->model, &config, &rank->error), &rank->error, "model_create");
    // What a group before might have left there, at its worst: in all formats not a number.
    memset(rank->store.base, 0xff, rank->store.bytes);
    if (c->keep_logits) check(model_keep_logits(rank->model, true) == 0);
}

struct ranks *ranks_create(const struct ranks_config *config) {
    struct ranks *r = mem_zalloc(sizeof *r);
    check(r != NULL && config->layout->n_ranks <= GROUP_MAX);
    r->layout = *config->layout;
    r->n_ranks = r->layout.n_ranks;
    r->kv_blocks = config->kv_blocks;
    r->spec = config->weights[0]->spec;
    r->env = env_real_create();
    check(r->env != NULL);
    if (r->n_ranks > 1)
        connect_all(
            r, model_message_bytes_max(config->weights[0]->spec, config->layout, config->rows_max));
    for (uint32_t i = 0; i < r->n_ranks; i++)
        create_model(r, config, i);
    return r;
}

void ranks_destroy(struct ranks *r) {
    if (r == NULL) return;
    for (uint32_t i = 0; i <= r->n_ranks; i++) {
        struct rank *rank = &r->rank[i];
        model_destroy(rank->model);
        store_finish(&rank->store);
        pool_destroy(rank->pool);
        if (rank->fabric == NULL) continue;
        fabric_end(rank->fabric);
        fabric_close(rank->fabric);
        waker_destroy(rank->waker);
    }
    fabric_mem_hub_destroy(r->hub);
    env_real_destroy(r->env);
    mem_free(r);
}

const struct layout *ranks_layout(const struct ranks *r) {
    return &r->layout;
}
uint32_t ranks_kv_blocks(const struct ranks *r) {
    return r->kv_blocks;
}
const struct model_spec *ranks_spec(const struct ranks *r) {
    return r->spec;
}
struct model *ranks_model(struct ranks *r, uint32_t rank) {
    return r->rank[rank].model;
}

static void *run_rank(void *arg) {
    struct rank *rank = arg;
    rank->rc = model_step(rank->model, rank->plan, rank->out, &rank->error);
    return NULL;
}

void ranks_step(struct ranks *r, const Moesaic__Step__V1__StepPlan *const *plans,
                struct step_output *outs) {
    pthread_t threads[GROUP_MAX];
    for (uint32_t i = 0; i < r->n_ranks; i++) {
        r->rank[i].plan = plans[i];
        r->rank[i].out = &outs[i];
        if (i > 0) check(pthread_create(&threads[i], NULL, run_rank, &r->rank[i]) == 0);
    }
    run_rank(&r->rank[0]);
    for (uint32_t i = 1; i < r->n_ranks; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < r->n_ranks; i++)
        must(r->rank[i].rc, &r->rank[i].error, "model_step");
}
