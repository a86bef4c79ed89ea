// weights.c: a rank's weights from a checkpoint folder: plan (weights_plan.c), then read
// (weights_read.c).
#include "worker/weights.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/model/expert_table.h"
#include "worker/weights_plan.h"

#define MAPPED_BYTES_MIN ((size_t)2 << 20)

struct weights_block {
    struct weights_block *next;
    void *data;
    size_t bytes;
    bool mapped;
};

// A large block comes from the kernel piece by piece, to the threads that read into it.
static void take_block(struct weights_block *b, size_t bytes, size_t align) {
    b->bytes = bytes;
    b->mapped = bytes >= MAPPED_BYTES_MIN && align <= MAPPED_BYTES_MIN;
    b->data = b->mapped ? mem_map(bytes) : mem_pages(bytes, align);
}

void *weights_alloc(struct weights *w, size_t bytes, size_t align) {
    struct weights_block *b = mem_alloc(sizeof *b);
    if (b == NULL) return NULL;
    take_block(b, bytes, align);
    if (b->data == NULL) {
        mem_free(b);
        return NULL;
    }
    b->next = w->blocks;
    w->blocks = b;
    w->bytes += bytes;
    return b->data;
}

static void free_blocks(struct weights *w) {
    while (w->blocks != NULL) {
        struct weights_block *b = w->blocks;
        w->blocks = b->next;
        if (b->mapped)
            mem_unmap(b->data, b->bytes);
        else
            mem_pages_free(b->data, b->bytes);
        mem_free(b);
    }
}

void weights_destroy(struct weights *w) {
    if (w == NULL) return;
    free_blocks(w);
    mem_free(w);
}

// What others use now they may have given back by the next start.
static int check_left(const struct weights *w, const struct weights_config *config,
                      struct err_text *e) {
    uint64_t left = config->left != NULL ? config->left() : UINT64_MAX;
    if (w->bytes <= left) return 0;
    return err_set(e, ERR_FATAL_NOMEM,
                   "rank %u's weights need %" PRIu64 " bytes, and only %" PRIu64
                   " bytes of memory are left: take more workers, or free memory",
                   config->rank, w->bytes, left);
}

// Before anything is read: the kernel would say it later, and kill.
static int check_memory(const struct weights *w, const struct weights_config *config,
                        struct err_text *e) {
    if (config->memory_bytes == 0) return check_left(w, config, e);
    if (w->bytes <= config->memory_bytes) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "rank %u's weights need %" PRIu64 " bytes, and the worker has %" PRIu64
                   ": take more workers, or raise memory",
                   config->rank, w->bytes, config->memory_bytes);
}

static void begin_progress(const struct weights_config *config, uint64_t bytes_total) {
    if (config->progress == NULL) return;
    atomic_store(&config->progress->bytes_done, 0);
    atomic_store(&config->progress->bytes_total, bytes_total);
}

static int read_tables(struct weights *w, const struct weights_plan *plan,
                       const struct weights_config *config, const struct safetensors *st,
                       struct err_text *e) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < plan->n_tables; i++) {
        const struct weights_table *t = &plan->tables[i];
        uint64_t digest = 0;
        rc = expert_table_read(t->ids, &digest, w->spec,
                               &(struct expert_table_source){st, t->tensor}, e);
        w->shared_digest += digest;
        if (config->progress != NULL)
            atomic_fetch_add(&config->progress->bytes_done, t->tensor->bytes);
    }
    return rc;
}

int weights_load(struct weights **out, const struct weights_config *config, struct err_text *e) {
    check(config->rank < config->layout->n_ranks && config->n_threads > 0 &&
          config->dtype < DTYPE_COUNT);
    struct safetensors *st = NULL;
    struct weights_plan plan = {0};
    struct weights *w = mem_zalloc(sizeof *w);
    if (w == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the weights");
    int rc = safetensors_open(&st, config->folder, e);
    if (rc == 0) rc = weights_plan_make(&plan, w, config, st, e);
    if (rc == 0) rc = check_memory(w, config, e);
    if (rc == 0) {
        begin_progress(config, plan.source_bytes);
        rc = weights_read(w, &plan, config, st, e);
        if (rc == 0) rc = read_tables(w, &plan, config, st, e);
    }
    weights_plan_finish(&plan);
    safetensors_close(st);
    if (rc != 0) {
        weights_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}
