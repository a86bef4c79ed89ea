// world.c: the baton, the virtual clock and the seeded choices of the simulator.
//
// Everything in struct sim belongs to whoever holds the baton; a thread gets it through its own
// futex word, whose release and acquire order all that came before. Choosing costs one look at each
// thread, and no broadcast wakes anyone else.
#include "tests/sim/world.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/net/channel_mem.h"
#include "common/net/fabric_mem.h"

#define STEPS_MAX_DEFAULT UINT64_C(50000000)
#define STEPS_TO_END UINT64_C(1000000) // passes that killed processes get to return
#define START_NS NS_PER_S
#define START_WALL_NS (INT64_C(1767225600) * NS_PER_S) // the first second of 2026
#define NAME_MAX_BYTES 32

enum thread_state { THREAD_WAITING, THREAD_RUNNING, THREAD_ENDED };

struct sim_env {
    struct env base;
    struct sim_process *process;
};

struct sim_process {
    struct sim *sim;
    struct sim_env env;
    char name[NAME_MAX_BYTES];
    bool killed;
    int64_t paused_until_ns;
    uint64_t random; // state of its env_random
    uint32_t n_live, n_wakers;
    struct sim_process *next;
};

struct sim_waker {
    struct waker base;
    struct sim_process *process;
    uint32_t number; // within its process, for the dump
    bool pending;
};

struct sim_thread {
    struct sim_process *process;
    char name[NAME_MAX_BYTES];
    uint32_t number;
    pthread_t thread;
    void (*fn)(struct env *env, void *arg);
    void *arg;
    enum thread_state state;
    const struct sim_waker *waker; // what it waits on; NULL: its start
    int64_t deadline_ns;
    atomic_int go; // futex word: 1 = you have the baton
    struct sim_thread *next;
};

struct sim_timer {
    struct sim_timer *next;
    int64_t due_ns;
    struct sim_waker *waker;
};

struct sim {
    struct sim_config config;
    int64_t now_ns;
    uint64_t steps, steps_max, hash;
    uint64_t schedule_random, script_random;
    struct sim_thread *threads, **threads_end; // in order of their start
    struct sim_thread *running;                // NULL: the script
    struct sim_process *processes, **processes_end;
    struct sim_process script;
    uint32_t n_threads, n_processes;
    struct sim_timer *timers; // by due_ns
    struct fabric_mem_hub *fabric_hub;
    struct channel_mem_hub *channel_hub;
    // Of the sim_run that is on.
    int64_t until_ns;
    bool (*done)(void *arg);
    void *done_arg;
    enum sim_end end;
    atomic_int script_go;
};

// --- seeded numbers

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t next_random(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(*state);
}

void sim_note(struct sim *s, uint64_t value) {
    s->hash = mix(s->hash * 31 + value + 1);
}

uint64_t sim_random(struct sim *s, uint64_t n) {
    check(n > 0);
    return next_random(&s->script_random) % n;
}

uint64_t sim_seed(uint64_t fallback) {
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : fallback;
    fprintf(stderr, "SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

// --- the baton

static void hand_over(atomic_int *go) {
    atomic_store_explicit(go, 1, memory_order_release);
    syscall(SYS_futex, go, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void await(atomic_int *go) {
    while (atomic_load_explicit(go, memory_order_acquire) == 0)
        syscall(SYS_futex, go, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_store_explicit(go, 0, memory_order_relaxed);
}

static bool is_paused(const struct sim *s, const struct sim_thread *t) {
    return t->process->paused_until_ns > s->now_ns && !t->process->killed;
}

static bool is_runnable(const struct sim *s, const struct sim_thread *t) {
    if (t->state == THREAD_ENDED || is_paused(s, t)) return false;
    return t->process->killed || t->waker == NULL || t->waker->pending ||
           t->deadline_ns <= s->now_ns;
}

static void fire_timers(struct sim *s) {
    while (s->timers != NULL && s->timers->due_ns <= s->now_ns) {
        struct sim_timer *t = s->timers;
        s->timers = t->next;
        t->waker->pending = true;
        mem_free(t);
    }
}

// The next time at which anything can change; NO_DEADLINE: never.
static int64_t next_change_ns(const struct sim *s) {
    int64_t next = s->timers != NULL ? s->timers->due_ns : NO_DEADLINE;
    for (const struct sim_thread *t = s->threads; t != NULL; t = t->next) {
        if (t->state == THREAD_ENDED) continue;
        int64_t at = is_paused(s, t) ? t->process->paused_until_ns : t->deadline_ns;
        if (at < next) next = at;
    }
    return next;
}

static bool all_ended(const struct sim *s) {
    for (const struct sim_thread *t = s->threads; t != NULL; t = t->next) {
        if (t->state != THREAD_ENDED) return false;
    }
    return true;
}

static void dump_thread(const struct sim *s, const struct sim_thread *t) {
    fprintf(stderr, "  %s/%s: ", t->process->name, t->name);
    if (t->state == THREAD_ENDED) {
        fprintf(stderr, "ended\n");
        return;
    }
    if (t->waker == NULL)
        fprintf(stderr, "not started");
    else
        fprintf(stderr, "waits on its waker %u%s", t->waker->number,
                t->waker->pending ? " (woken)" : "");
    if (t->deadline_ns != NO_DEADLINE)
        fprintf(stderr, " until %.6f s", (double)t->deadline_ns / 1e9);
    fprintf(stderr, "%s\n", t->process->killed ? ", killed" : is_paused(s, t) ? ", paused" : "");
}

void sim_dump(const struct sim *s, const char *why) {
    fprintf(stderr, "sim: %s at %.6f s, step %llu, seed %llu\n", why, (double)s->now_ns / 1e9,
            (unsigned long long)s->steps, (unsigned long long)s->config.seed);
    for (const struct sim_thread *t = s->threads; t != NULL; t = t->next)
        dump_thread(s, t);
}

static struct sim_thread *stop_running(struct sim *s, enum sim_end end) {
    s->end = end;
    return NULL;
}

static struct sim_thread *draw_runnable(struct sim *s) {
    uint64_t n = 0;
    for (const struct sim_thread *t = s->threads; t != NULL; t = t->next)
        n += is_runnable(s, t);
    if (n == 0) return NULL;
    uint64_t choice = next_random(&s->schedule_random) % n;
    for (struct sim_thread *t = s->threads; t != NULL; t = t->next) {
        if (is_runnable(s, t) && choice-- == 0) return t;
    }
    return NULL;
}

static struct sim_thread *nobody_ever(struct sim *s) {
    if (all_ended(s)) return stop_running(s, SIM_DONE);
    sim_dump(s, "deadlock");
    return stop_running(s, SIM_DEADLOCK);
}

// Who gets the baton; NULL: the script, and s->end says why.
static struct sim_thread *choose(struct sim *s) {
    if (s->done != NULL && s->done(s->done_arg)) return stop_running(s, SIM_UNTIL);
    if (++s->steps > s->steps_max) {
        sim_dump(s, "too many steps");
        return stop_running(s, SIM_STEPS);
    }
    for (;;) {
        fire_timers(s);
        if (s->done != NULL && s->done(s->done_arg)) return stop_running(s, SIM_UNTIL);
        struct sim_thread *t = draw_runnable(s);
        if (t != NULL) return t;
        if (all_ended(s) && s->done == NULL) return stop_running(s, SIM_DONE);
        int64_t next = next_change_ns(s);
        if (next > s->until_ns) {
            s->now_ns = s->until_ns;
            return stop_running(s, SIM_TIME);
        }
        if (next == NO_DEADLINE) return nobody_ever(s);
        s->now_ns = next;
    }
}

static void record(struct sim *s, const struct sim_thread *t) {
    sim_note(s, t->number);
    sim_note(s, (uint64_t)s->now_ns);
    if (s->config.verbose)
        fprintf(stderr, "sim: %llu %.6f %s/%s\n", (unsigned long long)s->steps,
                (double)s->now_ns / 1e9, t->process->name, t->name);
}

// Gives the baton on and, unless the thread has ended, waits for it to come back.
static void pass(struct sim *s, struct sim_thread *self) {
    struct sim_thread *next = choose(s);
    bool ended = self->state == THREAD_ENDED;
    if (next != NULL) record(s, next);
    s->running = next;
    if (next == self) return;
    hand_over(next != NULL ? &next->go : &s->script_go);
    if (!ended) await(&self->go);
}

// --- an env for each process

static struct sim_process *process_of(struct env *env) {
    return ((struct sim_env *)env)->process;
}

static int64_t env_sim_now(struct env *env) {
    return process_of(env)->sim->now_ns;
}
static int64_t env_sim_wall(struct env *env) {
    return START_WALL_NS + process_of(env)->sim->now_ns;
}
static bool env_sim_stopped(struct env *env) {
    return process_of(env)->killed;
}

static void env_sim_random(struct env *env, void *buf, size_t bytes) {
    unsigned char *p = buf;
    while (bytes > 0) {
        uint64_t r = next_random(&process_of(env)->random);
        size_t n = bytes < sizeof r ? bytes : sizeof r;
        memcpy(p, &r, n);
        p += n;
        bytes -= n;
    }
}

static int env_sim_waker_create(struct env *env, struct waker **out) {
    struct sim_waker *w = mem_zalloc(sizeof *w);
    if (w == NULL) return ERR_FATAL_NOMEM;
    w->base.env = env;
    w->process = process_of(env);
    w->number = w->process->n_wakers++;
    *out = &w->base;
    return 0;
}

static void env_sim_waker_destroy(struct waker *waker) {
    struct sim *s = process_of(waker->env)->sim;
    for (struct sim_timer **at = &s->timers; *at != NULL;) {
        struct sim_timer *t = *at;
        if (&t->waker->base != waker) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        mem_free(t);
    }
    mem_free(waker);
}

static void env_sim_waker_wake(struct waker *waker) {
    ((struct sim_waker *)waker)->pending = true;
}

static bool consume(struct sim_waker *w) {
    bool was = w->pending;
    w->pending = false;
    return was;
}

static bool waker_is_pending(void *w) {
    return ((const struct sim_waker *)w)->pending;
}

static bool script_wait(struct sim *s, struct sim_waker *w, int64_t deadline_ns) {
    if (!w->pending && deadline_ns > s->now_ns) sim_run_until(s, deadline_ns, waker_is_pending, w);
    return consume(w);
}

static bool env_sim_waker_wait(struct waker *waker, int64_t deadline_ns) {
    struct sim_waker *w = (struct sim_waker *)waker;
    struct sim *s = w->process->sim;
    if (s->running == NULL) return script_wait(s, w, deadline_ns);
    struct sim_thread *self = s->running;
    check(self->process == w->process); // a process waits on its own wakers only
    self->waker = w;
    self->deadline_ns = deadline_ns;
    self->state = THREAD_WAITING;
    pass(s, self);
    self->state = THREAD_RUNNING;
    return consume(w);
}

static int env_sim_waker_fd(const struct waker *waker) {
    (void)waker;
    return -1;
}

static const struct env_ops sim_env_ops = {
    .now_ns = env_sim_now,
    .wall_ns = env_sim_wall,
    .random = env_sim_random,
    .stopped = env_sim_stopped,
    .waker_create = env_sim_waker_create,
    .waker_destroy = env_sim_waker_destroy,
    .waker_wake = env_sim_waker_wake,
    .waker_wait = env_sim_waker_wait,
    .waker_fd = env_sim_waker_fd,
};

void sim_wake_at(struct waker *waker, int64_t due_ns) {
    struct sim_waker *w = (struct sim_waker *)waker;
    struct sim *s = w->process->sim;
    struct sim_timer **at = &s->timers;
    while (*at != NULL && (*at)->due_ns <= due_ns)
        at = &(*at)->next;
    struct sim_timer *t = mem_zalloc(sizeof *t);
    check(t != NULL);
    *t = (struct sim_timer){.next = *at, .due_ns = due_ns, .waker = w};
    *at = t;
}

// --- processes and their threads

static void init_process(struct sim *s, struct sim_process *p, const char *name) {
    p->sim = s;
    p->env = (struct sim_env){.base.ops = &sim_env_ops, .process = p};
    p->random = mix(s->config.seed + (uint64_t)++s->n_processes * UINT64_C(0x9e3779b97f4a7c15));
    snprintf(p->name, sizeof p->name, "%s", name);
}

static void *thread_main(void *arg) {
    struct sim_thread *t = arg;
    await(&t->go);
    t->state = THREAD_RUNNING;
    t->fn(&t->process->env.base, t->arg);
    t->state = THREAD_ENDED;
    t->process->n_live--;
    pass(t->process->sim, t);
    return NULL;
}

void sim_spawn_thread(struct sim_process *p, const char *name,
                      void (*fn)(struct env *env, void *arg), void *arg) {
    struct sim *s = p->sim;
    struct sim_thread *t = mem_zalloc(sizeof *t);
    check(t != NULL);
    t->process = p;
    t->number = s->n_threads++;
    t->fn = fn;
    t->arg = arg;
    t->state = THREAD_WAITING;
    t->deadline_ns = NO_DEADLINE;
    snprintf(t->name, sizeof t->name, "%s", name);
    p->n_live++;
    *s->threads_end = t;
    s->threads_end = &t->next;
    check(pthread_create(&t->thread, NULL, thread_main, t) == 0);
}

struct sim_process *sim_spawn(struct sim *s, const char *name,
                              void (*main_fn)(struct env *env, void *arg), void *arg) {
    struct sim_process *p = mem_zalloc(sizeof *p);
    check(p != NULL);
    init_process(s, p, name);
    *s->processes_end = p;
    s->processes_end = &p->next;
    sim_spawn_thread(p, "main", main_fn, arg);
    return p;
}

struct env *sim_env(struct sim_process *p) {
    return &p->env.base;
}
struct env *sim_script_env(struct sim *s) {
    return &s->script.env.base;
}
bool sim_done(const struct sim_process *p) {
    return p->n_live == 0;
}

void sim_kill(struct sim *s, struct sim_process *p) {
    if (p->killed) return;
    p->killed = true;
    sim_note(s, UINT64_C(0x6b696c6c) + (uint64_t)p->n_wakers);
    fabric_mem_kill(s->fabric_hub, &p->env.base);
    channel_mem_kill(s->channel_hub, &p->env.base);
}

void sim_pause(struct sim *s, struct sim_process *p, int64_t span_ns) {
    p->paused_until_ns = s->now_ns + span_ns;
}

// --- the world

struct sim_config sim_config_default(uint64_t seed) {
    return (struct sim_config){.seed = seed,
                               .fabric_delay_ns_max = 200 * NS_PER_MS / 1000,
                               .channel_delay_ns_max = 2 * NS_PER_MS,
                               .detect_ns_max = 50 * NS_PER_MS,
                               .end_lost_percent = 50};
}

struct sim *sim_create(const struct sim_config *config) {
    struct sim *s = mem_zalloc(sizeof *s);
    check(s != NULL);
    s->config = *config;
    s->now_ns = START_NS;
    s->steps_max = config->steps_max != 0 ? config->steps_max : STEPS_MAX_DEFAULT;
    s->schedule_random = mix(config->seed);
    s->script_random = mix(config->seed + 1);
    s->threads_end = &s->threads;
    s->processes_end = &s->processes;
    init_process(s, &s->script, "script");
    struct fabric_mem_options fabric = {.delay_ns_max = config->fabric_delay_ns_max,
                                        .detect_ns_max = config->detect_ns_max,
                                        .end_lost_percent = config->end_lost_percent,
                                        .full_percent = config->full_percent,
                                        .full_ns_max = config->full_ns_max};
    struct channel_mem_options channel = {.delay_ns_max = config->channel_delay_ns_max,
                                          .detect_ns_max = config->detect_ns_max,
                                          .wake_at = sim_wake_at};
    s->fabric_hub = fabric_mem_hub_create(&fabric);
    s->channel_hub = channel_mem_hub_create(&channel);
    check(s->fabric_hub != NULL && s->channel_hub != NULL);
    return s;
}

static void end_all(struct sim *s) {
    for (struct sim_process *p = s->processes; p != NULL; p = p->next)
        sim_kill(s, p);
    s->steps_max = s->steps + STEPS_TO_END;
    if (!all_ended(s))
        check(sim_run(s, NO_DEADLINE) == SIM_DONE); // else a process ignores env_stopped
}

void sim_destroy(struct sim *s) {
    if (s == NULL) return;
    check(s->running == NULL);
    end_all(s);
    while (s->threads != NULL) {
        struct sim_thread *t = s->threads;
        s->threads = t->next;
        pthread_join(t->thread, NULL);
        mem_free(t);
    }
    while (s->processes != NULL) {
        struct sim_process *p = s->processes;
        s->processes = p->next;
        mem_free(p);
    }
    check(s->timers == NULL); // else the script forgot a waker
    fabric_mem_hub_destroy(s->fabric_hub);
    channel_mem_hub_destroy(s->channel_hub);
    mem_free(s);
}

enum sim_end sim_run_until(struct sim *s, int64_t until_ns, bool (*done)(void *arg), void *arg) {
    check(s->running == NULL); // only the script runs the world
    s->until_ns = until_ns;
    s->done = done;
    s->done_arg = arg;
    struct sim_thread *first = choose(s);
    if (first == NULL) return s->end;
    record(s, first);
    s->running = first;
    hand_over(&first->go);
    await(&s->script_go);
    return s->end;
}

enum sim_end sim_run(struct sim *s, int64_t until_ns) {
    return sim_run_until(s, until_ns, NULL, NULL);
}

struct fabric_mem_hub *sim_fabric_hub(struct sim *s) {
    return s->fabric_hub;
}
struct channel_mem_hub *sim_channel_hub(struct sim *s) {
    return s->channel_hub;
}
int64_t sim_now_ns(const struct sim *s) {
    return s->now_ns;
}
uint64_t sim_steps(const struct sim *s) {
    return s->steps;
}
uint64_t sim_trace_hash(const struct sim *s) {
    return s->hash;
}
