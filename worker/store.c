// store.c: see store.h. A cgroup's limit is not told by any call: who touches a page beyond it is
// killed. So before each piece the thread looks at what is left, and gives up in words when that is
// less than it still needs. The less is left the smaller are the pieces, since neighbours that get
// theirs at the same time take from it, too.
#include "worker/store.h"

#include "common/base/cgroup.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define PIECES_OF_LEFT 16
#define PIECE_BYTES_MAX ((size_t)1 << 30)
// In one call: the process's other calls about memory may have to wait for it.
#define COMMIT_BYTES ((size_t)2 << 20)
// Less than this is there at the first step, and costs no thread.
#define AHEAD_BYTES_MIN ((size_t)8 << 20)

void store_init(struct store *s, const struct store_config *config) {
    *s = (struct store){.config = *config};
    if (s->config.left == NULL) s->config.left = cgroup_memory_left;
}

// What is still to come behind the first bytes. Steps may have brought pages of it, and only who
// would give up goes through all of them.
static size_t missing(const struct store *s, size_t at, uint64_t left) {
    size_t rest = s->bytes - at;
    return rest <= left ? rest : rest - mem_resident(s->base + at, rest);
}

// What is left is read before what is missing: pages that come in between are in neither then.
static int commit_piece(struct store *s) {
    size_t at = atomic_load(&s->committed);
    uint64_t left = s->config.left();
    size_t needed = missing(s, at, left);
    if (left < needed) return ERR_FATAL_NOMEM;
    if (needed == 0) atomic_store(&s->committed, at = s->bytes);
    uint64_t piece =
        left / PIECES_OF_LEFT < PIECE_BYTES_MAX ? left / PIECES_OF_LEFT : PIECE_BYTES_MAX;
    for (size_t done = 0; done <= piece && at < s->bytes && !atomic_load(&s->stop);) {
        size_t n = s->bytes - at < COMMIT_BYTES ? s->bytes - at : COMMIT_BYTES;
        int rc = mem_commit(s->base + at, n);
        if (rc != 0) return rc;
        at += n;
        done += n;
        atomic_store(&s->committed, at);
    }
    return 0;
}

static void *commit_thread(void *context) {
    struct store *s = context;
    int rc = 0;
    if (s->config.cores != NULL) cores_bind(s->config.cores); // its maker is pinned
    while (rc == 0 && !atomic_load(&s->stop) && atomic_load(&s->committed) < s->bytes)
        rc = commit_piece(s);
    if (rc == 0) return NULL;
    if (rc != ERR_FATAL_NOMEM) { // steps find the pages by themselves, as they would without this
        log_warn("worker",
                 "KV pages come when they are first written: the kernel gives none ahead");
        return NULL;
    }
    atomic_store(&s->ran_out, true);
    if (s->config.waker != NULL) waker_wake(s->config.waker);
    return NULL;
}

static void end_thread(struct store *s) {
    if (!s->running) return;
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    s->running = false;
    atomic_store(&s->stop, false);
}

void store_release(struct store *s) {
    end_thread(s);
    mem_unmap(s->base, s->bytes);
    s->base = NULL;
    s->bytes = 0;
    atomic_store(&s->committed, 0);
    atomic_store(&s->ran_out, false);
}

void store_finish(struct store *s) {
    store_release(s);
}

static int refuse(const struct store *s, uint64_t left, struct err_text *e) {
    return err_set(
        e, ERR_FATAL_NOMEM,
        "KV pages, states and snapshots need %zu bytes, of which %zu are there, and only "
        "%llu bytes of memory are left: lower kv-cache-memory",
        s->bytes, atomic_load(&s->committed), (unsigned long long)left);
}

static int map(struct store *s, size_t bytes, struct err_text *e) {
    store_release(s);
    s->base = mem_map(bytes);
    if (s->base == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %zu bytes of KV pages and states", bytes);
    s->bytes = bytes;
    return 0;
}

static int commit_ahead(struct store *s, struct err_text *e) {
    size_t at = atomic_load(&s->committed);
    uint64_t left = s->config.left();
    if (missing(s, at, left) > left) return refuse(s, left, e);
    if (s->bytes < AHEAD_BYTES_MIN || s->running) return 0;
    if (pthread_create(&s->thread, NULL, commit_thread, s) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the thread that gets the KV pages");
    s->running = true;
    return 0;
}

int store_take(struct store *s, void **out, size_t bytes, struct err_text *e) {
    int rc = s->base == NULL || s->bytes != bytes ? map(s, bytes, e) : 0;
    if (rc == 0 && !s->config.lazy) rc = commit_ahead(s, e);
    if (rc == 0) *out = s->base;
    return rc;
}

int store_check(const struct store *s, struct err_text *e) {
    return atomic_load(&s->ran_out) ? refuse(s, s->config.left(), e) : 0;
}
