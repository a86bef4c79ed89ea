// store.h: the memory of a rank's pages, states and snapshots. It outlives the group: who forms
// again with as many of them finds the same memory, and no peer ever reads it.
//
// Nobody waits for the kernel to hand the memory out, which of gigabytes takes seconds: that it is
// there to be had is looked at when it is taken, and then a thread makes it be there, from one end
// to the other, while steps already run. A step that is faster finds the rest by itself. What the
// memory held before stays in it; no bit of an answer may depend on that. Engine thread.
#ifndef MOESAIC_WORKER_STORE_H
#define MOESAIC_WORKER_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"
#include "worker/cores.h"

struct store_config {
    struct waker *waker;          // woken when memory ran out; may be NULL
    const struct core_set *cores; // where the thread may run; NULL: where its maker does
    bool lazy;                    // no thread, no look: every page comes when it is touched
    uint64_t (*left)(void);       // bytes that could still be had; NULL: cgroup_memory_left
};

struct store {
    struct store_config config;
    uint8_t *base; // owned; NULL: nothing was taken
    size_t bytes;
    pthread_t thread;
    bool running;
    _Atomic bool stop, ran_out;
    _Atomic size_t committed; // so many bytes from the base on are there
};

void store_init(struct store *s, const struct store_config *config);
void store_finish(struct store *s);

// The memory, 64-byte aligned, until the next take or release. What is of another size than before
// is new. ERR_FATAL_NOMEM says how much is left.
int store_take(struct store *s, void **out, size_t bytes, struct err_text *e);
void store_release(struct store *s);
// ERR_FATAL_NOMEM: others used up what was there when it was taken, and the rest cannot be had.
int store_check(const struct store *s, struct err_text *e);

#endif
