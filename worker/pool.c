// pool.c: see pool.h. Helpers wait on a word of their own, so that a small loop wakes only as many
// as it has items.
//
// Items are handed out by one counter. A waiting thread spins first (when it may) and then sleeps
// in a futex on the very word it waits for; a flag beside the word tells the other side that a
// wake-up call is needed. Both are sequentially consistent, so either the sleeper sees the new word
// or the waker sees the flag.
#include "worker/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "kernels/ops.h"

// Tens to some hundreds of microseconds on current cores: longer than the serial pieces between two
// loops of a step, far shorter than the pause between two steps of an idle server.
#define SPIN_ROUNDS 4000

#define POOL_THREADS_MAX 1024

// A loop with fewer floats than this is done before a helper has woken up.
#define INLINE_FLOATS 16384
#define CHUNKS_PER_THREAD 4

// IDLE -> INVITED by the owner; INVITED -> RUNNING by the helper, or -> IDLE again by the owner;
// RUNNING -> IDLE by the helper.
enum helper_state { IDLE, INVITED, RUNNING, STOPPED };

struct helper {
    _Alignas(64) _Atomic uint32_t state;
    _Atomic uint32_t asleep;
    struct pool *pool;
    uint32_t thread; // 1..n_threads-1
    pthread_t handle;
};

struct pool {
    uint32_t n_threads, n_started;
    bool spin, pinned;
    cpu_set_t old_cores; // the caller's, given back at the end
    pthread_t owner;
    // The loop that runs; written before the invitations.
    void (*body)(void *context, uint32_t i, uint32_t thread);
    void *context;
    uint32_t n;
    _Alignas(64) _Atomic uint32_t next;
    _Alignas(64) _Atomic uint32_t pending; // helpers invited that have not finished
    _Atomic uint32_t owner_asleep;
    struct helper helpers[]; // [n_threads - 1]
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// Returns once *word is (equal: or is not) value; sleeps with *asleep set when spinning did not
// help.
static void wait_word(_Atomic uint32_t *word, _Atomic uint32_t *asleep, uint32_t value, bool equal,
                      bool spin) {
    for (uint32_t i = 0; spin && i < SPIN_ROUNDS; i++) {
        if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal) return;
        relax();
    }
    atomic_store(asleep, 1);
    for (;;) {
        uint32_t now = atomic_load(word);
        if ((now == value) == equal) break;
        futex_wait(word, now);
    }
    atomic_store(asleep, 0);
}

static void run_items(struct pool *p, uint32_t thread) {
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->n) return;
        p->body(p->context, i, thread);
    }
}

static void *helper_main(void *arg) {
    struct helper *h = arg;
    struct pool *p = h->pool;
    kernel_thread_init();
    for (;;) {
        wait_word(&h->state, &h->asleep, IDLE, false, p->spin);
        if (atomic_load(&h->state) == STOPPED) return NULL;
        uint32_t invited = INVITED;
        if (!atomic_compare_exchange_strong(&h->state, &invited, RUNNING)) continue;
        run_items(p, h->thread);
        atomic_store(&h->state, IDLE);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->owner_asleep))
            futex_wake(&p->pending);
    }
}

static void tell_helper(struct helper *h, enum helper_state state) {
    atomic_store(&h->state, state);
    if (atomic_load(&h->asleep)) futex_wake(&h->state);
}

// Takes back what was not begun and waits for the others.
static void end_loop(struct pool *p, uint32_t n_invited) {
    for (uint32_t i = 0; i < n_invited; i++) {
        uint32_t invited = INVITED;
        if (atomic_compare_exchange_strong(&p->helpers[i].state, &invited, IDLE))
            atomic_fetch_sub(&p->pending, 1);
    }
    wait_word(&p->pending, &p->owner_asleep, 0, true, p->spin);
}

static int pin(pthread_t thread, int core, struct err_text *e) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < 0 || core >= CPU_SETSIZE)
        return err_set(e, ERR_FATAL_CONFIG, "core %d does not exist", core);
    CPU_SET((size_t)core, &set);
    int rc = pthread_setaffinity_np(thread, sizeof set, &set);
    return rc == 0 ? 0
                   : err_set(e, ERR_FATAL_CONFIG, "cannot pin a thread to core %d: %s", core,
                             strerror(rc));
}

// Helpers take no signals: the process's signal thread does.
static int start_helper(struct pool *p, uint32_t i, struct err_text *e) {
    struct helper *h = &p->helpers[i];
    h->pool = p;
    h->thread = i + 1;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&h->handle, NULL, helper_main, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_set(e, ERR_FATAL_NOMEM, "cannot start compute thread %u: %s", i + 1,
                       strerror(rc));
    p->n_started++;
    return 0;
}

static int pin_all(struct pool *p, const int *cores, struct err_text *e) {
    int rc = pthread_getaffinity_np(p->owner, sizeof p->old_cores, &p->old_cores);
    if (rc != 0)
        return err_set(e, ERR_FATAL_CONFIG, "cannot read this thread's cores: %s", strerror(rc));
    for (uint32_t i = 0; i < p->n_started; i++) {
        rc = pin(p->helpers[i].handle, cores[i + 1], e);
        if (rc != 0) return rc;
    }
    rc = pin(p->owner, cores[0], e);
    p->pinned = rc == 0;
    return rc;
}

static size_t pool_bytes(uint32_t n_threads) {
    return sizeof(struct pool) + (size_t)(n_threads - 1) * sizeof(struct helper);
}

int pool_create(struct pool **out, uint32_t n_threads, const int *cores, bool spin,
                struct err_text *e) {
    if (n_threads == 0 || n_threads > POOL_THREADS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "%u compute threads are not within 1 to %d", n_threads,
                       POOL_THREADS_MAX);
    struct pool *p = mem_pages(pool_bytes(n_threads), 64);
    if (p == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %u compute threads", n_threads);
    p->n_threads = n_threads;
    p->spin = spin;
    p->owner = pthread_self();
    kernel_thread_init();
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i + 1 < n_threads; i++)
        rc = start_helper(p, i, e);
    if (rc == 0 && cores != NULL) rc = pin_all(p, cores, e);
    if (rc != 0) {
        pool_destroy(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pool_destroy(struct pool *p) {
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->n_started; i++)
        tell_helper(&p->helpers[i], STOPPED);
    for (uint32_t i = 0; i < p->n_started; i++)
        pthread_join(p->helpers[i].handle, NULL);
    if (p->pinned) pthread_setaffinity_np(p->owner, sizeof p->old_cores, &p->old_cores);
    mem_pages_free(p, pool_bytes(p->n_threads));
}

uint32_t pool_threads(const struct pool *p) {
    return p->n_threads;
}

void pool_run(struct pool *p, uint32_t n, void (*body)(void *context, uint32_t i, uint32_t thread),
              void *context) {
    if (n == 0) return;
    uint32_t n_wanted = n - 1 < p->n_started ? n - 1 : p->n_started;
    if (n_wanted == 0) {
        for (uint32_t i = 0; i < n; i++)
            body(context, i, 0);
        return;
    }
    check(n <= UINT32_MAX - POOL_THREADS_MAX); // every thread overshoots the counter once
    p->body = body;
    p->context = context;
    p->n = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->pending, n_wanted, memory_order_relaxed);
    for (uint32_t i = 0; i < n_wanted; i++)
        tell_helper(&p->helpers[i], INVITED);
    run_items(p, 0);
    end_loop(p, n_wanted);
}

struct rows_loop {
    uint32_t n_rows, rows_per_chunk;
    pool_rows_body *body;
    void *context;
};

static void rows_chunk(void *context, uint32_t i, uint32_t thread) {
    const struct rows_loop *loop = context;
    uint32_t begin = i * loop->rows_per_chunk;
    uint32_t end =
        loop->n_rows - begin < loop->rows_per_chunk ? loop->n_rows : begin + loop->rows_per_chunk;
    loop->body(loop->context, begin, end, thread);
}

void pool_run_rows(struct pool *p, uint32_t n_rows, size_t row_floats, pool_rows_body *body,
                   void *context) {
    if (n_rows == 0) return;
    if (p->n_started == 0 || row_floats * n_rows < INLINE_FLOATS) {
        body(context, 0, n_rows, 0);
        return;
    }
    uint32_t n_chunks = p->n_threads * CHUNKS_PER_THREAD;
    struct rows_loop loop = {n_rows, (n_rows + n_chunks - 1) / n_chunks, body, context};
    pool_run(p, (n_rows + loop.rows_per_chunk - 1) / loop.rows_per_chunk, rows_chunk, &loop);
}
