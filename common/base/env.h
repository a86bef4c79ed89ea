// env.h: the one door to clocks, randomness and blocking waits, with a simulated twin.
//
// A process (real, or one simulated process of tests/sim) has one struct env. Everything that may
// block waits on a waker: the owner thread drains every source it has (mailboxes, channel events,
// fabric messages), and if all were empty calls waker_wait; whoever adds to a source calls
// waker_wake. A wake is sticky and says only "look again". In the simulator waker_wait passes the
// baton, the clock is virtual and random numbers come from the seed.
#ifndef MOESAIC_COMMON_BASE_ENV_H
#define MOESAIC_COMMON_BASE_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)
#define NO_DEADLINE INT64_MAX

struct env;
struct waker;

// The twin's function table; implemented by env_real.c and by the simulator.
struct env_ops {
    int64_t (*now_ns)(struct env *);
    int64_t (*wall_ns)(struct env *);
    void (*random)(struct env *, void *buf, size_t bytes);
    bool (*stopped)(struct env *);
    int (*waker_create)(struct env *, struct waker **out);
    void (*waker_destroy)(struct waker *);
    void (*waker_wake)(struct waker *);
    bool (*waker_wait)(struct waker *, int64_t deadline_ns);
    int (*waker_fd)(const struct waker *);
};

// The first member of every implementation's env and waker.
struct env {
    const struct env_ops *ops;
};
struct waker {
    struct env *env;
};

// The real one. NULL when memory is out.
struct env *env_real_create(void);
void env_real_destroy(struct env *env);
// Makes env_stopped() true for good (a signal handler's thread calls it, then wakes the wakers it
// knows).
void env_real_stop(struct env *env);

// Monotonic and wall clock in nanoseconds.
static inline int64_t env_now_ns(struct env *e) {
    return e->ops->now_ns(e);
}
static inline int64_t env_wall_ns(struct env *e) {
    return e->ops->wall_ns(e);
}

// Fills buf with random bytes (from the kernel; in the simulator from the seed). Any thread.
static inline void env_random(struct env *e, void *buf, size_t bytes) {
    e->ops->random(e, buf, bytes);
}

// True once the process is to end: loops return ERR_FATAL_STOPPED. In the simulator: this process
// was killed.
static inline bool env_stopped(struct env *e) {
    return e->ops->stopped(e);
}

static inline int waker_create(struct env *e, struct waker **out) {
    return e->ops->waker_create(e, out);
}
static inline void waker_destroy(struct waker *w) {
    if (w != NULL) w->env->ops->waker_destroy(w);
}
// Any thread. Never blocks.
static inline void waker_wake(struct waker *w) {
    w->env->ops->waker_wake(w);
}
// Owner thread only. True: woken (the wake is consumed). False: the deadline passed. Use deadline 0
// to poll.
static inline bool waker_wait(struct waker *w, int64_t deadline_ns) {
    return w->env->ops->waker_wait(w, deadline_ns);
}
// A readable descriptor while a wake is pending, for an epoll set (the UCX fabric); -1 in the
// simulator.
static inline int waker_fd(const struct waker *w) {
    return w->env->ops->waker_fd(w);
}

#endif
