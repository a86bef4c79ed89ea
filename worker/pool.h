// pool.h: the compute team: the engine thread and its helpers, each on a core of its own.
#ifndef MOESAIC_WORKER_POOL_H
#define MOESAIC_WORKER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct pool;

// n_threads counts the caller. cores [n_threads] are CPU numbers to pin to, or NULL. spin:
// busy-wait a short time before parking; must be false when threads exceed cores.
int pool_create(struct pool **out, uint32_t n_threads, const int *cores, bool spin,
                struct err_text *e);
void pool_destroy(struct pool *p);
uint32_t pool_threads(const struct pool *p);

// Runs body(context, i, thread) for every i in [0, n), each once, over all threads, and returns
// when all are done. The split may not change any result. Calls from inside a body are not allowed.
void pool_run(struct pool *p, uint32_t n, void (*body)(void *context, uint32_t i, uint32_t thread),
              void *context);

// The same over rows: body gets ranges of rows. row_floats is about how much one row costs; a loop
// too small to be worth a wake-up runs on the caller alone.
typedef void pool_rows_body(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread);
void pool_run_rows(struct pool *p, uint32_t n_rows, size_t row_floats, pool_rows_body *body,
                   void *context);

#endif
