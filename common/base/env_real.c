// env_real.c: the real clocks, the kernel's random numbers, and wakers that are event descriptors.
//
// A wake is one write to an eventfd, which is sticky and can also sit in another module's poll set
// (the UCX fabric's).
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/err.h"
#include "common/base/mem.h"

struct env_real {
    struct env base;
    atomic_bool stopped;
};

struct waker_real {
    struct waker base;
    int fd; // owned
};

static int64_t clock_ns(clockid_t clock) {
    struct timespec ts;
    check(clock_gettime(clock, &ts) == 0);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static int64_t real_now_ns(struct env *env) {
    (void)env;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t real_wall_ns(struct env *env) {
    (void)env;
    return clock_ns(CLOCK_REALTIME);
}

static void real_random(struct env *env, void *buf, size_t bytes) {
    (void)env;
    unsigned char *p = buf;
    while (bytes > 0) {
        ssize_t n = getrandom(p, bytes, 0);
        if (n < 0) {
            // Without random numbers nonces and seeds would be guessable, so there is nothing to go
            // on with.
            check(errno == EINTR);
            continue;
        }
        p += n;
        bytes -= (size_t)n;
    }
}

static bool real_stopped(struct env *env) {
    return atomic_load_explicit(&((struct env_real *)env)->stopped, memory_order_relaxed);
}

static int real_waker_create(struct env *env, struct waker **out) {
    struct waker_real *w = mem_zalloc(sizeof *w);
    if (w == NULL) return ERR_FATAL_NOMEM;
    w->base.env = env;
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->fd < 0) {
        mem_free(w);
        return ERR_FATAL_IO;
    }
    *out = &w->base;
    return 0;
}

static void real_waker_destroy(struct waker *waker) {
    struct waker_real *w = (struct waker_real *)waker;
    close(w->fd);
    mem_free(w);
}

static void real_waker_wake(struct waker *waker) {
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(((struct waker_real *)waker)->fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR); // EAGAIN: the counter is full, so a wake is pending anyway
}

static bool consume(const struct waker_real *w) {
    uint64_t count;
    ssize_t n;
    do {
        n = read(w->fd, &count, sizeof count);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof count;
}

static struct timespec time_left(int64_t deadline_ns) {
    int64_t left = deadline_ns - clock_ns(CLOCK_MONOTONIC);
    if (left < 0) left = 0;
    return (struct timespec){.tv_sec = (time_t)(left / NS_PER_S),
                             .tv_nsec = (long)(left % NS_PER_S)};
}

static bool real_waker_wait(struct waker *waker, int64_t deadline_ns) {
    const struct waker_real *w = (const struct waker_real *)waker;
    while (!consume(w)) {
        if (deadline_ns <= 0) return false;
        struct pollfd pfd = {.fd = w->fd, .events = POLLIN};
        struct timespec left = {0};
        if (deadline_ns != NO_DEADLINE) left = time_left(deadline_ns);
        int n = ppoll(&pfd, 1, deadline_ns == NO_DEADLINE ? NULL : &left, NULL);
        if (n == 0) return consume(w);
        check(n > 0 || errno == EINTR || errno == ENOMEM);
    }
    return true;
}

static int real_waker_fd(const struct waker *waker) {
    return ((const struct waker_real *)waker)->fd;
}

static const struct env_ops real_ops = {
    .now_ns = real_now_ns,
    .wall_ns = real_wall_ns,
    .random = real_random,
    .stopped = real_stopped,
    .waker_create = real_waker_create,
    .waker_destroy = real_waker_destroy,
    .waker_wake = real_waker_wake,
    .waker_wait = real_waker_wait,
    .waker_fd = real_waker_fd,
};

struct env *env_real_create(void) {
    struct env_real *e = mem_zalloc(sizeof *e);
    if (e == NULL) return NULL;
    e->base.ops = &real_ops;
    return &e->base;
}

void env_real_destroy(struct env *env) {
    mem_free(env);
}

void env_real_stop(struct env *env) {
    atomic_store(&((struct env_real *)env)->stopped, true);
}
