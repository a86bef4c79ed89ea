// leader.c: the scheduler thread: drains its sources, plans, waits; and the mailbox through which
// all other threads speak to it.
//
// Before it in the walk: the API threads (leader_submit). After it: sched.c. It must never block on
// anything but its one wait.
#include "leader/leader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/ring.h"
#include "common/model/footprint.h"
#include "common/model/legal.h"
#include "leader/drive.h"
#include "leader/members.h"
#include "leader/pages.h"
#include "leader/view.h"

// Places of the mailbox that submits leave to aborts and checks.
#define MAIL_RESERVE REQUESTS_LIVE_MAX

enum mail_kind { MAIL_SUBMIT, MAIL_ABORT, MAIL_CHECK };

struct check_call {
    struct waker *waker;
    bool done; // under leader.check_lock, as is result
    int result;
};

struct mail {
    enum mail_kind kind;
    union {
        struct request *request;
        uint64_t id;
        struct check_call *check;
    };
};

struct leader {
    struct leader_config config;
    struct ring *mail;
    _Atomic bool stop, draining, ready;
    _Atomic bool leaving;                   // a worker of the ready group asked to leave
    _Atomic bool parting;                   // and it is not known to come back
    _Atomic int64_t takes_until_ns;         // requests are; 0: no group is there nor awaited
    _Atomic uint32_t n_in_mail, n_in_sched; // requests, for the limit
    _Atomic uint32_t kv_blocks_largest;     // of the ranks of the last group
    _Atomic int64_t round_due_ns;           // when the loop must have come round
    _Atomic int64_t step_begun_ns;          // the oldest step under way; NO_DEADLINE: none
    pthread_mutex_t check_lock;
    struct view *view;
    // Scheduler thread only:
    struct members *members;
    struct sched *sched;
    struct drive *drive;
    bool connected; // the fabric is, to the epoch's peers
};

// --- the group comes and goes (struct members_io)

static int io_send(void *context, uint64_t peer, const void *data, size_t bytes) {
    struct leader *l = context;
    return channel_send(l->config.channel, peer, data, bytes);
}

static void io_drop(void *context, uint64_t peer, bool refused, const char *reason) {
    struct leader *l = context;
    channel_drop(l->config.channel, peer, refused, reason);
}

static int io_begin(void *context, uint8_t *address, size_t *address_bytes, struct err_text *e) {
    struct leader *l = context;
    return fabric_begin(l->config.fabric, address, address_bytes, e);
}

static int io_check_address(void *context, const uint8_t *address, size_t bytes,
                            struct err_text *e) {
    struct leader *l = context;
    return fabric_address_check(l->config.fabric, address, bytes, e);
}

static int io_connect(void *context, const struct fabric_group *group, struct err_text *e) {
    struct leader *l = context;
    int err = fabric_connect(l->config.fabric, group, e);
    if (err == 0) l->connected = true;
    return err;
}

static void io_end(void *context) {
    struct leader *l = context;
    l->connected = false;
    fabric_end(l->config.fabric);
}

// Bytes of one sequence's state on the rank that keeps most of it.
static uint64_t largest_state(const struct leader_config *c) {
    uint64_t most = 0;
    for (uint32_t stage = 0; stage < c->layout.pp; stage++) {
        uint64_t bytes = footprint_state_bytes(c->spec, &c->layout, stage);
        if (bytes > most) most = bytes;
    }
    return most;
}

// What a state knows of a prefix stands in no page, so without snapshots nobody can begin behind
// one.
static void tell_snapshots(const struct leader *l, const struct rank_room *rooms) {
    const struct leader_config *c = &l->config;
    uint64_t bytes = largest_state(c), n = 0, n_without = 0;
    if (bytes == 0 || c->no_prefix_caching) return;
    for (uint32_t i = 0; i < c->layout.dp; i++) {
        n += rooms[i].snapshots;
        n_without += rooms[i].snapshots == 0;
    }
    if (c->snapshot_bytes == 0 && c->snapshot_percent == 0) {
        log_event(LOG_INFO, "leader", "no prefix cache",
                  log_text("reason", "--state-cache-memory is 0"));
        return;
    }
    if (n > 0)
        log_event(LOG_INFO, "leader", "prefix cache of states", log_uint("snapshots", n),
                  log_uint("bytes_each", bytes));
    if (n_without > 0)
        log_event(LOG_WARN, "leader", "no prefix cache: no room for a snapshot of a state",
                  log_uint("dp_groups", n_without), log_uint("bytes_each", bytes));
}

static int io_ready(void *context, uint64_t epoch, const struct rank_room *rooms) {
    struct leader *l = context;
    int err = sched_form(l->sched, rooms);
    if (err != 0) return err;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < l->config.layout.dp; i++)
        largest = rooms[i].kv_blocks > largest ? rooms[i].kv_blocks : largest;
    atomic_store(&l->kv_blocks_largest, largest);
    tell_snapshots(l, rooms);
    drive_begin(l->drive, epoch);
    atomic_store(&l->takes_until_ns, NO_DEADLINE);
    atomic_store(&l->ready, true);
    return 0;
}

// The reason names machines and says what a worker said: that is for the log, where it already is,
// and not for clients. Who asks while the group forms again waits with those that it had; when a
// worker left on purpose that this leader does not start, nobody knows whether another one comes.
static void io_lost(void *context, bool on_purpose, const char *reason) {
    struct leader *l = context;
    (void)reason;
    bool was_ready = atomic_exchange(&l->ready, false);
    drive_end(l->drive);
    sched_lose(l->sched, env_now_ns(l->config.env));
    if (was_ready) atomic_store(&l->takes_until_ns, on_purpose ? 0 : sched_deadline(l->sched));
}

static bool note_leaving(struct leader *l) {
    bool leaving = members_leaving(l->members);
    atomic_store(&l->parting, leaving && members_parting(l->members));
    atomic_store(&l->leaving, leaving);
    return leaving;
}

// Also when the group was lost before, by another's death: until the next one is ready.
static void io_left(void *context) {
    struct leader *l = context;
    atomic_store(&l->takes_until_ns, 0);
    note_leaving(l); // others may still be asked to
}

// --- making and unmaking

static int check_number(const char *name, uint64_t value, uint64_t least, uint64_t most,
                        struct err_text *e) {
    if (value >= least && value <= most) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "%s %" PRIu64 " is not within %" PRIu64 " to %" PRIu64,
                   name, value, least, most);
}

static int check_config(const struct leader_config *c, struct err_text *e) {
    int err = legal_check(c->spec, &c->layout, e);
    if (err == 0) err = check_number("max_num_seqs", c->max_num_seqs, 1, SEQS_MAX, e);
    if (err == 0)
        err = check_number("max_num_batched_tokens", c->max_num_batched_tokens, 1,
                           BATCHED_TOKENS_MAX, e);
    if (err == 0)
        err = check_number("max_model_len", c->max_model_len, 2, c->spec->max_position, e);
    if (err == 0) err = check_number("pipeline depth", c->pipeline_depth, 1, PIPELINE_DEPTH_MAX, e);
    if (err == 0)
        err = check_number("step timeout in ns", (uint64_t)c->step_timeout_ns, 1, INT64_MAX / 4, e);
    if (err == 0)
        err = check_number("recovery timeout in ns", (uint64_t)c->recovery_timeout_ns, 1,
                           INT64_MAX / 4, e);
    if (err == 0 && c->kv_cache_bytes == 0)
        err = check_number("kv cache per cent", c->kv_cache_percent, 1, 100, e);
    if (err == 0) err = check_number("snapshot per cent", c->snapshot_percent, 0, 100, e);
    if (err == 0 && c->snapshot_tokens % KV_BLOCK_TOKENS != 0)
        err = err_set(e, ERR_FATAL_CONFIG, "snapshots each %u tokens: not where blocks end",
                      c->snapshot_tokens);
    if (err == 0 && !dtype_is_kv(c->kv_dtype))
        err =
            err_set(e, ERR_FATAL_CONFIG,
                    "kv cache dtype %s is not supported: float32, bfloat16, fp8_e4m3 and int8 are",
                    dtype_name(c->kv_dtype));
    return err;
}

// Every stage has a step of its own to work on, and with depth 2 there is one more, for the time in
// which the leader plans.
static uint32_t steps_in_flight(const struct leader_config *c) {
    return c->layout.pp - 1 + c->pipeline_depth;
}

static uint32_t snapshot_tokens(const struct leader_config *c) {
    if (spec_state_bytes(c->spec) == 0) return 0;
    return c->snapshot_tokens != 0 ? c->snapshot_tokens : SNAPSHOT_TOKENS;
}

static struct sched_config sched_config_of(const struct leader_config *c) {
    uint64_t seed;
    env_random(c->env, &seed, sizeof seed);
    return (struct sched_config){.n_ranks = c->layout.dp,
                                 .n_batches = c->layout.pp > 1 ? steps_in_flight(c) : 1,
                                 .max_num_seqs = c->max_num_seqs,
                                 .max_num_batched_tokens = c->max_num_batched_tokens,
                                 .max_model_len = c->max_model_len,
                                 .vocab = c->spec->vocab,
                                 .digest = c->digest,
                                 .prefix_caching = !c->no_prefix_caching,
                                 .snapshot_tokens = snapshot_tokens(c),
                                 .seed = seed,
                                 .recovery_timeout_ns = c->recovery_timeout_ns};
}

static int create_parts(struct leader *l, struct err_text *e) {
    struct sched_config shape = sched_config_of(&l->config);
    struct members_io io = {l,          io_send, io_drop,  io_begin, io_check_address,
                            io_connect, io_end,  io_ready, io_lost,  io_left};
    struct members_config members = {.env = l->config.env, .io = io, .leader = &l->config};
    int err = ring_create(&l->mail, REQUESTS_LIVE_MAX + MAIL_RESERVE, sizeof(struct mail));
    if (err != 0) return err_set(e, err, "no memory for the mailbox");
    err = members_create(&l->members, &members, e);
    if (err == 0) err = sched_create(&l->sched, &shape, e);
    if (err != 0) return err;
    struct drive_config drive = {.env = l->config.env,
                                 .fabric = l->config.fabric,
                                 .sched = l->sched,
                                 .shape = shape,
                                 .layout = l->config.layout,
                                 .depth = steps_in_flight(&l->config),
                                 .step_timeout_ns = l->config.step_timeout_ns};
    err = drive_create(&l->drive, &drive, e);
    if (err != 0) return err;
    struct view_sources sources = {.members = l->members,
                                   .sched = l->sched,
                                   .drive = l->drive,
                                   .env = l->config.env,
                                   .layout = l->config.layout,
                                   .n_layers = l->config.spec->n_layers,
                                   .n_experts = l->config.spec->router.n_experts};
    err = view_create(&l->view, &sources);
    return err == 0 ? 0 : err_set(e, err, "no memory for the leader's view");
}

int leader_create(struct leader **out, const struct leader_config *config, struct err_text *e) {
    int err = check_config(config, e);
    if (err != 0) return err;
    struct leader *l = mem_zalloc(sizeof *l);
    if (l == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the leader");
    l->config = *config;
    pthread_mutex_init(&l->check_lock, NULL);
    atomic_store(&l->round_due_ns, NO_DEADLINE); // until it runs
    atomic_store(&l->step_begun_ns, NO_DEADLINE);
    err = create_parts(l, e);
    if (err != 0) {
        leader_destroy(l);
        return err;
    }
    view_refresh(l->view, env_now_ns(config->env));
    *out = l;
    return 0;
}

static void answer_check(struct leader *l, struct check_call *call, int result) {
    pthread_mutex_lock(&l->check_lock);
    call->result = result;
    call->done = true;
    waker_wake(call->waker); // under the lock: the caller destroys it as soon as it may see done
    pthread_mutex_unlock(&l->check_lock);
}

// What nobody will run any more.
static void refuse_mail(struct leader *l) {
    struct mail mail;
    if (l->mail == NULL) return;
    ring_close(l->mail);
    while (ring_pop(l->mail, &mail)) {
        if (mail.kind == MAIL_SUBMIT)
            sched_submit(l->sched, mail.request, env_now_ns(l->config.env));
        if (mail.kind == MAIL_CHECK) answer_check(l, mail.check, ERR_FATAL_STOPPED);
    }
}

void leader_destroy(struct leader *l) {
    if (l == NULL) return;
    refuse_mail(l); // empty unless it never ran
    if (l->sched != NULL) sched_close(l->sched, "the leader ends");
    view_destroy(l->view);
    drive_destroy(l->drive);
    sched_destroy(l->sched);
    members_destroy(l->members);
    ring_destroy(l->mail);
    pthread_mutex_destroy(&l->check_lock);
    mem_free(l);
}

void leader_on_step(struct leader *l, void (*report)(void *context, const struct step_report *r),
                    void *context) {
    drive_on_step(l->drive, report, context);
}

// --- any thread

int leader_submit(struct leader *l, struct request *r) {
    int err = 0;
    uint64_t n_tokens = (uint64_t)r->n_prompt + r->max_tokens;
    if (!leader_takes_requests(l))
        err = ERR_REQ_UNAVAILABLE;
    else if (n_tokens > l->config.max_model_len ||
             pages_needed(n_tokens - 1) > atomic_load(&l->kv_blocks_largest))
        err = ERR_REQ_TOO_LARGE;
    else if (atomic_load(&l->n_in_mail) + atomic_load(&l->n_in_sched) >= REQUESTS_LIVE_MAX)
        err = ERR_REQ_QUEUE_FULL;
    struct mail mail = {.kind = MAIL_SUBMIT, .request = r};
    if (err == 0) {
        atomic_fetch_add(&l->n_in_mail, 1);
        if (ring_push(l->mail, &mail, MAIL_RESERVE)) {
            waker_wake(l->config.waker);
            return 0;
        }
        atomic_fetch_sub(&l->n_in_mail, 1);
        err = ERR_REQ_QUEUE_FULL;
    }
    request_destroy(r);
    return err;
}

void leader_abort(struct leader *l, uint64_t request_id) {
    struct mail mail = {.kind = MAIL_ABORT, .id = request_id};
    if (!ring_push(l->mail, &mail, 0)) {
        log_debug("leader", "abort not taken request %" PRIu64,
                  request_id); // it ended, or ends by itself
        return;
    }
    waker_wake(l->config.waker);
}

void leader_stop(struct leader *l) {
    atomic_store(&l->stop, true);
    waker_wake(l->config.waker);
}

void leader_drain(struct leader *l) {
    atomic_store(&l->draining, true);
    waker_wake(l->config.waker);
}

bool leader_ready(const struct leader *l) {
    return atomic_load(&l->ready) && !atomic_load(&l->leaving);
}

bool leader_takes_requests(const struct leader *l) {
    return env_now_ns(l->config.env) < atomic_load(&l->takes_until_ns) && !atomic_load(&l->parting);
}

bool leader_leaving(const struct leader *l) {
    return atomic_load(&l->leaving);
}

bool leader_alive(const struct leader *l, int64_t patience_ns) {
    return env_now_ns(l->config.env) - patience_ns <= atomic_load(&l->round_due_ns);
}

bool leader_in_time(const struct leader *l, int64_t patience_ns) {
    return env_now_ns(l->config.env) - patience_ns <= atomic_load(&l->step_begun_ns);
}

int leader_view(struct leader *l, struct leader_view *out) {
    return view_copy(l->view, out);
}

static bool check_done(struct leader *l, const struct check_call *call) {
    pthread_mutex_lock(&l->check_lock);
    bool done = call->done;
    pthread_mutex_unlock(&l->check_lock);
    return done;
}

int leader_check(struct leader *l) {
    struct check_call call = {0};
    int err = waker_create(l->config.env, &call.waker);
    if (err != 0) return err;
    struct mail mail = {.kind = MAIL_CHECK, .check = &call};
    if (ring_push(l->mail, &mail, 0)) {
        waker_wake(l->config.waker);
        while (!check_done(l, &call))
            waker_wait(call.waker, NO_DEADLINE);
    } else {
        call.result = ERR_FATAL_STOPPED;
    }
    waker_destroy(call.waker);
    return call.result;
}

// --- the scheduler thread: sources

static void lose_group(struct leader *l, const struct err_text *e) {
    members_break(l->members, e->text);
}

static void count_requests(struct leader *l) {
    struct sched_counts counts;
    sched_count(l->sched, &counts);
    atomic_store(&l->n_in_sched, counts.n_waiting + counts.n_running);
}

// Whoever checks also wants to look: what others see is brought up to date.
static int run_check(struct leader *l) {
    struct err_text e;
    int err = sched_check(l->sched, &e);
    if (err != 0) log_error("leader", "check failed: %s", e.text);
    count_requests(l);
    view_refresh(l->view, env_now_ns(l->config.env));
    return err;
}

static void drain_mail(struct leader *l) {
    struct mail mail;
    while (ring_pop(l->mail, &mail)) {
        switch (mail.kind) {
        case MAIL_SUBMIT:
            sched_submit(l->sched, mail.request, env_now_ns(l->config.env));
            atomic_fetch_add(&l->n_in_sched, 1); // exact again at the end of this turn
            atomic_fetch_sub(&l->n_in_mail, 1);
            break;
        case MAIL_ABORT: sched_abort(l->sched, mail.id); break;
        case MAIL_CHECK: answer_check(l, mail.check, run_check(l)); break;
        }
    }
}

static void drain_channel(struct leader *l) {
    struct channel_event ev;
    while (channel_next(l->config.channel, &ev) == 0) {
        members_event(l->members, &ev);
        channel_event_finish(&ev);
    }
}

static void take_result(struct leader *l, struct fabric_msg *message) {
    struct err_text e;
    uint32_t rank = message->peer;
    int err = drive_result(l->drive, message, &e);
    fabric_release(l->config.fabric, message);
    if (err == ERR_PEER_PROTOCOL && rank < l->config.layout.n_ranks)
        members_blame(l->members, rank, e.text);
    else if (err != 0)
        lose_group(l, &e);
}

// Takes one result, waiting until deadline_ns, or until the waker is woken. False: none came.
static bool receive(struct leader *l, int64_t deadline_ns) {
    struct fabric_want want = {.peer = FABRIC_ANY_PEER,
                               .kind = FABRIC_RESULT,
                               .step = FABRIC_ANY_STEP,
                               .wait_wakes = deadline_ns != 0};
    struct fabric_msg message;
    int err = fabric_recv(l->config.fabric, &want, deadline_ns, &message);
    if (err == 0) {
        atomic_store(&l->round_due_ns, env_now_ns(l->config.env)); // the wait is over
        take_result(l, &message);
        return true;
    }
    if (err != ERR_AGAIN && err != ERR_PEER_TIMEOUT && err != ERR_FATAL_STOPPED) {
        struct err_text e;
        err_set(&e, err, "the fabric reports %s", err_name(err));
        lose_group(l, &e);
    }
    return false;
}

static void drain_results(struct leader *l) {
    while (l->connected && receive(l, 0))
        continue;
}

static void let_leave(struct leader *l) {
    bool leaving = note_leaving(l), last = atomic_load(&l->draining);
    struct sched_counts counts;
    sched_hold(l->sched, leaving && !last);
    if (!leaving || drive_in_flight(l->drive)) return;
    sched_count(l->sched, &counts);
    if (counts.n_running + counts.n_resuming > 0 || (last && counts.n_waiting > 0)) return;
    members_let_go(l->members);
}

static void pump(struct leader *l) {
    struct err_text e;
    int err = drive_pump(l->drive, &e);
    if (err == 0) err = drive_late(l->drive, env_now_ns(l->config.env), &e);
    if (err != 0 && err != ERR_FATAL_STOPPED) lose_group(l, &e);
}

// --- the scheduler thread: the loop

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void wait_for_more(struct leader *l) {
    count_requests(l);
    int64_t deadline_ns = view_refresh(l->view, env_now_ns(l->config.env));
    deadline_ns = earlier(deadline_ns, members_deadline(l->members));
    deadline_ns = earlier(deadline_ns, sched_deadline(l->sched));
    deadline_ns = earlier(deadline_ns, drive_deadline(l->drive));
    if (drive_held(l->drive)) // nothing wakes when there is room for a plan
        deadline_ns = earlier(deadline_ns, env_now_ns(l->config.env) + NS_PER_MS);
    atomic_store(&l->round_due_ns, deadline_ns);
    atomic_store(&l->step_begun_ns, drive_begun_ns(l->drive));
    if (l->connected)
        receive(l, deadline_ns);
    else
        waker_wait(l->config.waker, deadline_ns);
}

static void turn(struct leader *l) {
    atomic_store(&l->round_due_ns, env_now_ns(l->config.env));
    drain_mail(l);
    drain_channel(l);
    drain_results(l);
    let_leave(l);
    members_tick(l->members, drive_in_flight(l->drive));
    sched_expire(l->sched, env_now_ns(l->config.env));
    pump(l);
    wait_for_more(l);
}

int leader_run(struct leader *l) {
    while (!atomic_load(&l->stop) && !env_stopped(l->config.env))
        turn(l);
    atomic_store(&l->ready, false);
    atomic_store(&l->takes_until_ns, 0);
    drive_end(l->drive);
    refuse_mail(l);
    sched_close(l->sched, CHANNEL_LEADER_STOPS);
    members_leave(l->members, CHANNEL_LEADER_STOPS);
    view_refresh(l->view, env_now_ns(l->config.env));
    return 0;
}
