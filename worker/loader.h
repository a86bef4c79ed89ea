// loader.h: gets this rank's weights into memory, on a thread of its own, and keeps them across
// epochs and streams.
//
// Owned by the engine thread; the loader's thread touches it only between loader_start and its done
// flag. Without threads (simulator) loader_start loads before it returns.
#ifndef MOESAIC_WORKER_LOADER_H
#define MOESAIC_WORKER_LOADER_H

#include <pthread.h>

#include "common/base/env.h"
#include "common/base/limits.h"
#include "worker/cores.h"
#include "worker/link.h"
#include "worker/weights.h"

// What is asked for: equal requests need no second loading.
struct loader_request {
    char folder[PATH_BYTES_MAX];
    uint64_t model_digest; // that the leader has
    struct layout layout;
    uint32_t rank;
    struct link_dtype dtype;
    enum mla_form mla_form;
};

struct loader {
    const struct weights_source *source; // or NULL; not owned, nor is the waker
    struct waker *waker;                 // woken when a load ends
    struct model_spec spec;
    struct weights *weights;       // owned; NULL = holds nothing
    struct loader_request request; // of what is held or loading
    struct core_share share;       // whose cores the reading threads take
    uint64_t memory_bytes;         // that was given; 0: what is left counts
    bool pin, threaded, running;
    pthread_t thread;
    struct weights_progress progress;
    _Atomic bool cancel, done;
    int result;
    struct err_text error;
};

void loader_init(struct loader *l, struct waker *waker, const struct weights_source *source,
                 bool threaded);
// Drops what is held, then starts loading. The request's folder digest is compared before any
// tensor is read: ERR_PEER_REFUSED when it differs from the leader's.
int loader_start(struct loader *l, const struct loader_request *request, struct err_text *e);
// ERR_AGAIN while it runs; then its result, once: 0 or the error with its text.
int loader_poll(struct loader *l, struct err_text *e);
// Stops a running load and waits for its thread: bounded by one read.
void loader_cancel(struct loader *l);
bool loader_holds(const struct loader *l, const struct loader_request *request);
void loader_finish(struct loader *l);

#endif
