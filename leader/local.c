// local.c: see local.h.
#include "leader/local.h"

#include <inttypes.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/child.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/plural.h"
#include "common/net/channel.h"

#define PROGRAM "moe-worker"
#define ARGUMENTS_MAX 48
#define TOKEN_VARIABLE "MOESAIC_CONTROL_TOKEN"
#define CONFIG_VARIABLE "MOESAIC_CONFIG"
#define EXIT_USAGE 2 // of a worker: starting it again changes nothing

// A worker that ended is started again after a time that doubles with each end in the window. A
// worker of a real model loads for minutes, so the window is long; so many ends in it are a fault
// that restarts do not mend, and the group's callers should hear of it. A few requests that end
// their worker as often as the scheduler lets them are not that many.
#define RESTART_FIRST_NS (200 * NS_PER_MS)
#define RESTART_MAX_NS (30 * NS_PER_S)
#define ENDS_MAX 16
#define ENDS_UNSERVED_MAX 5 // before the group served: no request can be the cause
#define ENDS_WINDOW_NS (600 * NS_PER_S)
#define LOOK_NS NS_PER_S
// A worker that was lost for another reason than its own end joins again, after CHANNEL_BACKOFF_MAX
// at the latest.
#define FROZEN_NS (10 * NS_PER_S)
#define STOP_NS (2 * NS_PER_S) // their requests have ended before: they leave at once
#define STOP_POLL_NS (20 * NS_PER_MS)
#define LOCAL_NAME_BYTES 24

static_assert(ENDS_MAX > 3 * REPLAYS_IN_VAIN_MAX, "a bad request must not end the leader");

struct local_worker {
    pid_t pid;                 // 0: does not run
    int64_t due_ns;            // of its next start
    bool was_in;               // the group has had this process
    int64_t lost_ns;           // since when the group no longer has it; 0: it does
    int64_t ends_ns[ENDS_MAX]; // its last ends, a ring
    uint32_t n_ends;
    const char *arguments[ARGUMENTS_MAX];
    char name[LOCAL_NAME_BYTES], rank[12];
};

struct local {
    struct env *env;
    struct arena arena; // of arguments and the environment
    char program[PATH_BYTES_MAX], address[300], parent[12], shutdown[32];
    const char **environment;
    bool has_served, gave_up;
    uint32_t n_workers;
    struct local_worker *workers; // owned
};

static void name_worker(char name[LOCAL_NAME_BYTES], uint32_t index) {
    snprintf(name, LOCAL_NAME_BYTES, "local-%u", index);
}

bool local_starts(uint32_t n_local, const char *name) {
    char own[LOCAL_NAME_BYTES];
    for (uint32_t i = 0; i < n_local; i++) {
        name_worker(own, i);
        if (strcmp(own, name) == 0) return true;
    }
    return false;
}

// --- options

static int check_sizes(const struct leader_options *o, struct err_text *e) {
    if (o->local_workers <= o->parallel.workers) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "--local-workers %u: the group has only %u worker%s (%s)",
                   o->local_workers, o->parallel.workers, plural(o->parallel.workers),
                   o->lws_group_size > 1 ? "--lws-group-size, --workers" : "--workers");
}

static int check_tls(const struct leader_options *o, struct err_text *e) {
    if (o->control.tls_cert == NULL || o->control.tls_ca != NULL) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "--local-workers with --control-tls-cert needs --control-tls-ca: local workers "
                   "check the leader's certificate as all others do, and show the same one");
}

int local_resolve(struct leader_options *o, struct err_text *e) {
    if (o->local_workers == 0) return 0;
    int rc = check_sizes(o, e);
    if (rc == 0) rc = check_tls(o, e);
    if (rc != 0) return rc;
    bool alone = o->local_workers == o->parallel.workers;
    bool tcp = strcmp(o->transports, "shm") != 0;
    if (alone && tcp && o->interface == NULL && getenv("UCX_NET_DEVICES") == NULL &&
        if_nametoindex("lo") != 0)
        o->interface = "lo";
    return 0;
}

// --- the command line

struct arguments {
    const char **at;
    size_t n;
};

static void add(struct arguments *a, const char *flag, const char *value) {
    if (value == NULL) return;
    check(a->n + 3 <= ARGUMENTS_MAX);
    a->at[a->n++] = flag;
    a->at[a->n++] = value;
}

static void fill_arguments(struct local *l, struct local_worker *w,
                           const struct leader_options *o) {
    struct arguments a = {w->arguments, 0};
    a.at[a.n++] = PROGRAM;
    add(&a, "--parent-pid", l->parent);
    add(&a, "--leader", l->address);
    add(&a, "--name", w->name);
    add(&a, "--rank", w->rank);
    add(&a, "--model", o->model);
    add(&a, "--interface", o->interface);
    add(&a, "--transports", o->transports);
    add(&a, "--control-token-file", o->control.token_file);
    add(&a, "--control-tls-ca", o->control.tls_ca);
    add(&a, "--control-tls-cert", o->control.tls_ca != NULL ? o->control.tls_cert : NULL);
    add(&a, "--control-tls-key", o->control.tls_ca != NULL ? o->control.tls_key : NULL);
    add(&a, "--control-insecure", o->control.insecure ? "true" : NULL);
    add(&a, "--shutdown-timeout", l->shutdown);
    add(&a, "--log-level", o->log_level);
    add(&a, "--log-format", o->log_format);
    a.at[a.n] = NULL;
}

static bool is_variable(const char *entry, const char *name) {
    size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

// The leader's own, in which the token was overwritten as soon as it was read; the workers do the
// same with theirs. Its file of options is not theirs.
static int fill_environment(struct local *l, const struct local_config *c, struct err_text *e) {
    size_t n = 0, kept = 0;
    while (environ[n] != NULL)
        n++;
    l->environment = arena_alloc(&l->arena, (n + 2) * sizeof *l->environment);
    if (l->environment == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the environment");
    for (size_t i = 0; i < n; i++) {
        bool own =
            is_variable(environ[i], TOKEN_VARIABLE) || is_variable(environ[i], CONFIG_VARIABLE);
        if (environ[i][0] != '\0' && !own) l->environment[kept++] = environ[i];
    }
    if (c->control_token == NULL || c->options->control.token_file != NULL) return 0;
    size_t bytes = sizeof TOKEN_VARIABLE + 1 + strlen(c->control_token);
    char *entry = arena_alloc(&l->arena, bytes);
    if (entry == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the environment");
    snprintf(entry, bytes, TOKEN_VARIABLE "=%s", c->control_token);
    l->environment[kept] = entry;
    return 0;
}

// Where this machine reaches a leader that listens on this host.
static const char *host_to_dial(const char *control_host) {
    if (strcmp(control_host, "0.0.0.0") == 0) return "127.0.0.1";
    return strcmp(control_host, "::") == 0 ? "::1" : control_host;
}

static int prepare(struct local *l, const struct local_config *c, struct err_text *e) {
    const struct leader_options *o = c->options;
    int rc = child_find(l->program, sizeof l->program, PROGRAM, e);
    if (rc == 0) rc = fill_environment(l, c, e);
    l->workers = mem_array(o->local_workers, sizeof *l->workers);
    if (rc == 0 && l->workers == NULL)
        rc = err_set(e, ERR_FATAL_NOMEM, "no memory for %u local workers", o->local_workers);
    if (rc != 0) return rc;
    channel_address_make(l->address, sizeof l->address, host_to_dial(o->control_host),
                         c->control_port);
    snprintf(l->parent, sizeof l->parent, "%d", (int)getpid());
    snprintf(l->shutdown, sizeof l->shutdown, "%.3f",
             (double)o->shutdown_timeout / (double)NS_PER_S);
    l->n_workers = o->local_workers;
    for (uint32_t i = 0; i < l->n_workers; i++) {
        struct local_worker *w = &l->workers[i];
        name_worker(w->name, i);
        snprintf(w->rank, sizeof w->rank, "%u", i);
        fill_arguments(l, w, o);
    }
    return 0;
}

int local_create(struct local **out, const struct local_config *config, struct err_text *e) {
    *out = NULL;
    if (config->options->local_workers == 0) return 0;
    struct local *l = mem_zalloc(sizeof *l);
    if (l == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for local workers");
    l->env = config->env;
    arena_init(&l->arena, 0);
    struct err_text cause;
    int rc = prepare(l, config, &cause);
    if (rc == 0) {
        *out = l;
        return 0;
    }
    local_destroy(l);
    return err_set(e, rc, "--local-workers: %.480s", cause.text);
}

void local_destroy(struct local *l) {
    if (l == NULL) return;
    local_stop(l);
    mem_free(l->workers);
    arena_finish(&l->arena);
    mem_free(l);
}

// --- one worker's life

static void give_up(struct local *l, const struct local_worker *w, const char *reason) {
    log_event(LOG_ERROR, "local", "gives up", log_text("name", w->name),
              log_text("reason", reason));
    l->gave_up = true;
}

// Of its last ends, those within the window; this one is counted.
static uint32_t count_end(struct local_worker *w, int64_t now_ns) {
    uint32_t recent = 0, known;
    w->ends_ns[w->n_ends++ % ENDS_MAX] = now_ns;
    known = w->n_ends < ENDS_MAX ? w->n_ends : ENDS_MAX;
    for (uint32_t i = 0; i < known; i++)
        recent += now_ns - w->ends_ns[i] < ENDS_WINDOW_NS;
    return recent;
}

static int64_t restart_delay_ns(uint32_t recent) {
    int64_t delay_ns = RESTART_FIRST_NS << (recent - 1);
    return delay_ns < RESTART_MAX_NS ? delay_ns : RESTART_MAX_NS;
}

// The next start after an end, or none when there were too many.
static void plan_start(struct local *l, struct local_worker *w) {
    char reason[128];
    int64_t now_ns = env_now_ns(l->env);
    uint32_t recent = count_end(w, now_ns);
    w->due_ns = now_ns + restart_delay_ns(recent);
    if (recent < (l->has_served ? ENDS_MAX : ENDS_UNSERVED_MAX)) return;
    snprintf(reason, sizeof reason, "it ended %u times within %d s", recent,
             (int)(ENDS_WINDOW_NS / NS_PER_S));
    give_up(l, w, reason);
}

static void start_worker(struct local *l, struct local_worker *w) {
    struct err_text e;
    w->was_in = false;
    w->lost_ns = 0;
    if (child_start(&w->pid, l->program, w->arguments, l->environment, &e) == 0) {
        log_event(LOG_INFO, "local", "worker started", log_text("name", w->name),
                  log_uint("pid", (uint64_t)w->pid));
        return;
    }
    w->pid = 0;
    log_event(LOG_WARN, "local", "worker not started", log_text("name", w->name),
              log_text("reason", e.text));
    plan_start(l, w);
}

static bool reaped(struct local_worker *w, struct child_end *end) {
    if (w->pid == 0 || !child_ended(w->pid, end)) return false;
    bool on_purpose = !end->by_signal && end->number == 0;
    log_event(on_purpose ? LOG_INFO : LOG_WARN, "local", "worker ended", log_text("name", w->name),
              log_uint("pid", (uint64_t)w->pid),
              log_uint(end->by_signal ? "signal" : "code", (uint64_t)end->number));
    w->pid = 0;
    return true;
}

// A worker that never was in a serving group and ended by itself has said why, and would say it
// again.
static void after_end(struct local *l, struct local_worker *w, const struct child_end *end,
                      enum local_group group) {
    char reason[128];
    bool failed = !end->by_signal && end->number != 0;
    if (group == LOCAL_LEAVES && !end->by_signal && !failed) {
        w->due_ns = NO_DEADLINE;
    } else if (failed && (!l->has_served || end->number == EXIT_USAGE)) {
        snprintf(reason, sizeof reason, "it ended with code %d; its own last words say why",
                 end->number);
        give_up(l, w, reason);
    } else {
        plan_start(l, w);
    }
}

// Its place in the group, as far as it has one; NULL: none of this name.
static const struct member_view *find_member(const struct leader_view *view, const char *name) {
    for (uint32_t i = 0; view != NULL && i < view->layout.n_ranks; i++) {
        const struct member_view *k = &view->members[i];
        if (k->state != MEMBER_FREE && strcmp(k->name, name) == 0) return k;
    }
    return NULL;
}

// A process that is there for the kernel and gone for the group is stopped, or stuck.
static void kill_frozen(struct local *l, struct local_worker *w, const struct leader_view *view) {
    const struct member_view *k = find_member(view, w->name);
    int64_t now_ns = env_now_ns(l->env);
    if (k == NULL || w->pid == 0) return;
    bool lost = k->state == MEMBER_LOST;
    w->was_in = w->was_in || !lost;
    if (!lost || !w->was_in) { // lost, and never in: that was the process before
        w->lost_ns = 0;
        return;
    }
    if (w->lost_ns == 0) w->lost_ns = now_ns;
    bool stopped = child_stopped(w->pid);
    if (!stopped && now_ns - w->lost_ns < FROZEN_NS) return;
    log_event(LOG_WARN, "local", "worker killed", log_text("name", w->name),
              log_uint("pid", (uint64_t)w->pid),
              log_text("reason", stopped ? "the group lost it, and it is stopped"
                                         : "the group lost it, and it does not come back"));
    child_signal(w->pid, SIGKILL);
    w->was_in = false; // once is enough
}

int local_tick(struct local *l, enum local_group group, const struct leader_view *view) {
    struct child_end end;
    if (l == NULL) return 0;
    l->has_served = l->has_served || group == LOCAL_SERVES;
    for (uint32_t i = 0; i < l->n_workers && !l->gave_up; i++) {
        struct local_worker *w = &l->workers[i];
        kill_frozen(l, w, view);
        if (reaped(w, &end)) after_end(l, w, &end, group);
        if (!l->gave_up && w->pid == 0 && env_now_ns(l->env) >= w->due_ns) start_worker(l, w);
    }
    return l->gave_up ? ERR_FATAL_IO : 0;
}

int64_t local_wait_ns(const struct local *l) {
    int64_t wait_ns = LOOK_NS;
    if (l == NULL) return wait_ns;
    int64_t now_ns = env_now_ns(l->env);
    for (uint32_t i = 0; i < l->n_workers; i++) {
        const struct local_worker *w = &l->workers[i];
        int64_t left_ns = w->due_ns > now_ns ? w->due_ns - now_ns : 0;
        if (w->pid == 0 && left_ns < wait_ns) wait_ns = left_ns;
    }
    return wait_ns;
}

// --- the end

static bool signal_all(struct local *l, int number) {
    struct child_end end;
    bool any = false;
    for (uint32_t i = 0; i < l->n_workers; i++) {
        struct local_worker *w = &l->workers[i];
        reaped(w, &end);
        if (w->pid != 0 && number != 0) child_signal(w->pid, number);
        any = any || w->pid != 0;
    }
    return any;
}

// Their ends wake this process's wait for signals as well, which then finds nothing to do.
static bool wait_for_ends(struct local *l, int64_t for_ns) {
    sigset_t child;
    const struct timespec poll = {.tv_nsec = STOP_POLL_NS};
    int64_t until_ns = env_now_ns(l->env) + for_ns;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (signal_all(l, 0)) {
        if (env_now_ns(l->env) >= until_ns) return false;
        sigtimedwait(&child, NULL, &poll);
    }
    return true;
}

void local_stop(struct local *l) {
    if (l == NULL || l->workers == NULL) return;
    l->gave_up = true; // nobody is started from here on
    if (!signal_all(l, SIGTERM) || wait_for_ends(l, STOP_NS)) return;
    log_event(LOG_WARN, "local", "workers killed: they did not end in time",
              log_uint("seconds", (uint64_t)(STOP_NS / NS_PER_S)));
    signal_all(l, SIGKILL);
    wait_for_ends(l, STOP_NS);
}
