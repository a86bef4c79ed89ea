// loader.c: see loader.h.
#include "worker/loader.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "common/base/cgroup.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/model/folder.h"
#include "common/model/legal.h"
#include "worker/worker.h"

void loader_init(struct loader *l, struct waker *waker, const struct weights_source *source,
                 bool threaded) {
    *l = (struct loader){.waker = waker, .source = source, .threaded = threaded};
}

static void drop_weights(struct loader *l) {
    if (l->weights != NULL && l->source != NULL) l->source->unload(l->source->context, l->weights);
    if (l->weights != NULL && l->source == NULL) weights_destroy(l->weights);
    l->weights = NULL;
}

static int load(struct loader *l) {
    const struct loader_request *r = &l->request;
    uint64_t digest = 0;
    int rc = model_folder_digest(&digest, r->folder, &l->error);
    if (rc != 0) return rc;
    if (digest != r->model_digest)
        return err_set(&l->error, ERR_PEER_REFUSED,
                       "model %.256s has digest %016" PRIx64 ", the leader's has %016" PRIx64,
                       r->folder, digest, r->model_digest);
    rc = spec_load(&l->spec, r->folder, &l->error);
    if (rc == 0) rc = spec_take_mla_form(&l->spec, r->mla_form, &l->error);
    if (rc != 0) return rc;
    struct err_text why;
    if (legal_check(&l->spec, &r->layout, &why) != 0)
        return err_set(&l->error, ERR_PEER_REFUSED, "welcome.layout: %s", why.text);
    struct weights_config config = {
        .folder = r->folder,
        .spec = &l->spec,
        .layout = &l->request.layout,
        .rank = r->rank,
        .dtype = r->dtype.automatic ? l->spec.dtype : r->dtype.dtype,
        .n_threads = l->share.n_threads,
        .memory_bytes = l->threaded ? l->memory_bytes : 0,
        .left = l->threaded ? cgroup_memory_left : NULL,
        .progress = &l->progress,
        .cancel = &l->cancel,
    };
    if (l->source != NULL)
        return l->source->load(l->source->context, &l->weights, &config, &l->error);
    return weights_load(&l->weights, &config, &l->error);
}

// The engine's thread may be pinned to one core; its child must not read on that one alone.
static void take_cores(const struct loader *l) {
    cpu_set_t mask;
    if (!l->pin || !l->share.exclusive) return;
    CPU_ZERO(&mask);
    for (uint32_t i = 0; i < l->share.n_threads; i++)
        CPU_SET((size_t)l->share.cpus[i], &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0)
        log_warn("loader", "cannot choose the loader's cores");
}

static void *loader_thread(void *context) {
    struct loader *l = context;
    take_cores(l);
    l->result = load(l);
    atomic_store(&l->done, true);
    waker_wake(l->waker);
    return NULL;
}

int loader_start(struct loader *l, const struct loader_request *request, struct err_text *e) {
    check(!l->running);
    drop_weights(l);
    l->request = *request;
    l->error.text[0] = '\0';
    atomic_store(&l->progress.bytes_done, 0);
    atomic_store(&l->progress.bytes_total, 0);
    atomic_store(&l->cancel, false);
    atomic_store(&l->done, false);
    if (!l->threaded) {
        l->result = load(l);
        atomic_store(&l->done, true);
    } else if (pthread_create(&l->thread, NULL, loader_thread, l) != 0) {
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the loader's thread");
    }
    l->running = true;
    return 0;
}

static void join(struct loader *l) {
    if (l->threaded) pthread_join(l->thread, NULL);
    l->running = false;
    if (l->result != 0) drop_weights(l);
}

int loader_poll(struct loader *l, struct err_text *e) {
    if (!l->running || !atomic_load(&l->done)) return ERR_AGAIN;
    join(l);
    if (l->result != 0) *e = l->error;
    return l->result;
}

void loader_cancel(struct loader *l) {
    if (!l->running) return;
    atomic_store(&l->cancel, true);
    join(l);
}

bool loader_holds(const struct loader *l, const struct loader_request *request) {
    const struct loader_request *held = &l->request;
    return !l->running && l->weights != NULL && strcmp(held->folder, request->folder) == 0 &&
           held->model_digest == request->model_digest && held->rank == request->rank &&
           layout_equal(&held->layout, &request->layout) && held->mla_form == request->mla_form &&
           held->dtype.automatic == request->dtype.automatic &&
           held->dtype.dtype == request->dtype.dtype;
}

void loader_finish(struct loader *l) {
    loader_cancel(l);
    drop_weights(l);
}
