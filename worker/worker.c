// worker.c: see worker.h. The worker's states and what moves it from one to the next; link says the
// words, loader, epoch and step do the work.
//
// All waiting of the engine thread is in worker_run: for plans while an epoch runs, else for the
// waker.
#include "worker/worker.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cgroup.h"
#include "common/base/check.h"
#include "common/base/host.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/layout_wire.h"
#include "worker/cores.h"
#include "worker/epoch.h"
#include "worker/link.h"
#include "worker/loader.h"
#include "worker/pool.h"
#include "worker/pulse.h"
#include "worker/room.h"
#include "worker/store.h"

#define DOWN(kind_name) MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_##kind_name
#define PROGRESS_NS (200 * NS_PER_MS)
#define PROGRESS_LOG_NS (5 * NS_PER_S)
#define LANES_BYTES 4096
#define REMINDER_NS (60 * NS_PER_S)

enum worker_state {
    WORKER_AWAY,    // no stream to the leader
    WORKER_JOINING, // said hello
    WORKER_LOADING,
    WORKER_LOADED,  // waits for a form
    WORKER_FORMING, // sent its address, waits for the others'
    WORKER_RUNNING, // runs plans
    WORKER_BROKEN,  // can run no further plan of this epoch; waits for the leader to close it
};

// What a Welcome fixed.
struct terms {
    struct layout layout;
    uint32_t rank, n_slots, rows_max, max_model_len;
    enum dtype kv_dtype;
    uint64_t kv_bytes;
    uint32_t kv_percent;
    uint64_t snapshot_bytes;
    uint32_t snapshot_percent;
    bool digest;
};

struct worker {
    struct worker_config config;
    struct channel *channel; // not owned
    const struct kernel_ops *ops;
    struct core_set cores; // before any pinning
    struct pool *pool;     // owned; made for the share of pool_index among pool_count
    uint32_t pool_index, pool_count;
    struct loader loader;
    struct store store; // of pages, states and snapshots: kept as long as the weights
    struct epoch epoch;
    _Atomic uint64_t open_epoch; // epoch.number, for worker_peek
    struct pulse pulse;
    enum worker_state state;
    struct terms terms;
    uint64_t instance, memory_bytes;
    char name[128], host[384];
    int64_t beat_due_ns, progress_due_ns, progress_log_ns;
    uint64_t progress_sent;
    uint32_t kv_blocks_told, snapshots_told; // the most that a Form may ask for
    _Atomic bool drain;
    bool said_drain, told_to_leave;
    char refusal[ERR_TEXT_MAX]; // the last that was logged; empty when the leader has let it in
    int64_t refusal_ns;
};

int worker_create(struct worker **out, const struct worker_config *config, struct err_text *e) {
    const struct kernel_ops *ops = kernel_ops_select(config->kernels);
    if (ops == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "kernels %.32s do not run here; this CPU runs %s",
                       config->kernels, kernel_ops_available());
    struct worker *w = mem_zalloc(sizeof *w);
    if (w == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the worker");
    if (pulse_init(&w->pulse, config->env) != 0) {
        mem_free(w);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the worker's lock");
    }
    w->config = *config;
    w->ops = ops;
    cores_read(&w->cores);
    w->memory_bytes = config->memory_bytes != 0 ? config->memory_bytes : cgroup_memory_bytes();
    env_random(config->env, &w->instance, sizeof w->instance);
    host_name(w->host, sizeof w->host);
    if (config->name != NULL)
        snprintf(w->name, sizeof w->name, "%s", config->name);
    else
        host_process_name(w->name, sizeof w->name, w->host);
    store_init(&w->store, &(struct store_config){.waker = config->waker,
                                                 .cores = config->pin ? &w->cores : NULL,
                                                 .lazy = config->single_thread});
    loader_init(&w->loader, config->waker, config->source, !config->single_thread);
    w->loader.pin = config->pin;
    w->loader.memory_bytes = config->memory_bytes;
    cores_share(&w->loader.share, &w->cores, 0, 1, config->single_thread ? 1 : config->n_threads);
    *out = w;
    return 0;
}

void worker_destroy(struct worker *w) {
    if (w == NULL) return;
    epoch_end(&w->epoch, w->config.fabric);
    store_finish(&w->store);
    loader_finish(&w->loader);
    pool_destroy(w->pool);
    pulse_finish(&w->pulse);
    mem_free(w);
}

void worker_attach(struct worker *w, struct channel *channel) {
    w->channel = channel;
}

void worker_heartbeat(struct worker *w) {
    pulse_send(&w->pulse, w->channel);
}

void worker_drain(struct worker *w) {
    atomic_store(&w->drain, true);
    waker_wake(w->config.waker);
}

void worker_peek(void *context, const uint8_t *data, size_t bytes) {
    struct worker *w = context;
    uint64_t epoch;
    if (link_peek_close(data, bytes, &epoch) && epoch == atomic_load(&w->open_epoch))
        fabric_interrupt(w->config.fabric);
}

void worker_lost(void *context) {
    struct worker *w = context;
    if (atomic_load(&w->open_epoch) != 0) fabric_interrupt(w->config.fabric);
}

// --- epochs

static void end_epoch(struct worker *w) {
    pulse_set_model(&w->pulse, NULL, 0, 0);
    epoch_end(&w->epoch, w->config.fabric);
    atomic_store(&w->open_epoch, 0);
}

// The epoch is over for this rank: says so and waits for the next one.
static void break_epoch(struct worker *w, const char *reason) {
    uint64_t number = w->epoch.number;
    bool meant = w->said_drain || strcmp(reason, CHANNEL_LEADER_STOPS) == 0;
    log_event(meant ? LOG_INFO : LOG_WARN, "worker", "group closed", log_uint("epoch", number),
              log_uint("rank", w->terms.rank), log_text("reason", reason));
    end_epoch(w);
    w->state = WORKER_LOADED;
    link_send_epoch_closed(w->channel, number, reason);
}

static int ensure_pool(struct worker *w, struct err_text *e) {
    const struct worker_config *c = &w->config;
    struct core_share share;
    if (w->pool != NULL && w->pool_index == w->epoch.host_index &&
        w->pool_count == w->epoch.n_on_host)
        return 0;
    pool_destroy(w->pool);
    w->pool = NULL;
    cores_share(&share, &w->cores, w->epoch.host_index, w->epoch.n_on_host,
                c->single_thread ? 1 : c->n_threads);
    bool pinned = c->pin && share.exclusive;
    if (c->pin) cores_bind(&w->cores); // an earlier pool pinned this thread
    int rc = pool_create(&w->pool, share.n_threads, pinned ? share.cpus : NULL, pinned, e);
    if (rc != 0) return rc;
    w->pool_index = w->epoch.host_index;
    w->pool_count = w->epoch.n_on_host;
    log_event(LOG_INFO, "worker", "threads", log_uint("count", share.n_threads),
              log_uint("cores", w->cores.n),
              log_text("placed", pinned            ? "pinned"
                                 : share.exclusive ? "not pinned"
                                                   : "shared with other workers"));
    return 0;
}

static int on_form(struct worker *w, const Moesaic__Control__V1__Form *m, struct err_text *e) {
    if (w->state < WORKER_LOADED)
        return err_set(e, ERR_PEER_PROTOCOL, "a form before the weights are loaded");
    if (m->epoch <= w->epoch.number) return 0; // an older one
    if (m->kv_blocks > w->kv_blocks_told)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "form.kv_blocks %u is above the %u that this rank can hold", m->kv_blocks,
                       w->kv_blocks_told);
    if (m->snapshots > w->snapshots_told)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "form.snapshots %u is above the %u that this rank can hold", m->snapshots,
                       w->snapshots_told);
    if (w->state != WORKER_LOADED) end_epoch(w); // a new one closes the one before
    w->state = WORKER_LOADED;
    atomic_store(&w->open_epoch, m->epoch);
    int rc = epoch_form(&w->epoch, w->config.fabric, m, e);
    if (rc == 0) rc = ensure_pool(w, e);
    if (rc != 0) return rc;
    w->state = WORKER_FORMING;
    link_send_formed(w->channel, m->epoch, w->epoch.address, w->epoch.address_bytes);
    return 0;
}

static int on_connect(struct worker *w, const Moesaic__Control__V1__Connect *m,
                      struct err_text *e) {
    char lanes[LANES_BYTES];
    if (m->epoch != w->epoch.number || w->state != WORKER_FORMING)
        return 0; // of an epoch that broke meanwhile
    struct epoch_parts parts = {
        .env = w->config.env,
        .fabric = w->config.fabric,
        .weights = w->loader.weights,
        .layout = &w->loader.request.layout,
        .ops = w->ops,
        .pool = w->pool,
        .store = &w->store,
        .rank = w->terms.rank,
        .n_slots = w->terms.n_slots,
        .rows_max = w->terms.rows_max,
        .max_model_len = w->terms.max_model_len,
        .kv_dtype = w->terms.kv_dtype,
        .digest = w->terms.digest,
    };
    int rc = epoch_connect(&w->epoch, &parts, m, e);
    if (rc != 0) return rc;
    pulse_set_model(&w->pulse, w->epoch.model, w->epoch.number,
                    model_expert_counters(w->epoch.model));
    fabric_describe(w->config.fabric, lanes, sizeof lanes);
    w->state = WORKER_RUNNING;
    log_event(LOG_INFO, "worker", "ready", log_uint("epoch", w->epoch.number),
              log_uint("rank", w->terms.rank), log_uint("ranks", w->terms.layout.n_ranks),
              log_uint("kv_blocks", w->epoch.kv_blocks),
              log_uint("snapshots", w->epoch.n_snapshots), log_text("lanes", lanes));
    link_send_ready(w->channel, w->epoch.number, lanes);
    return 0;
}

static void on_close_epoch(struct worker *w, const Moesaic__Control__V1__CloseEpoch *m) {
    if (w->state >= WORKER_FORMING && m->epoch == w->epoch.number) {
        break_epoch(w, m->reason);
    } else if (w->state == WORKER_LOADED) {
        // It broke here first. worker_peek may have interrupted the fabric since: clear that.
        fabric_end(w->config.fabric);
        link_send_epoch_closed(w->channel, m->epoch, "closed before");
    }
}

// --- joining

static void say_hello(struct worker *w) {
    Moesaic__Control__V1__Hello hello = MOESAIC__CONTROL__V1__HELLO__INIT;
    Moesaic__Control__V1__Layout held;
    char *classes[] = {(char *)"base"};
    if (w->config.memory_bytes == 0 && w->loader.weights == NULL && w->store.base == NULL)
        w->memory_bytes = cgroup_memory_bytes(); // as if it had just started
    hello.protocol = CONTROL_PROTOCOL;
    hello.build_id = (char *)w->config.build_id;
    hello.host = w->host;
    hello.pid = (uint32_t)getpid();
    hello.n_arithmetic_classes = 1;
    hello.arithmetic_classes = classes;
    hello.kernels = (char *)w->ops->name;
    hello.n_cores = w->cores.n;
    hello.memory_bytes = w->memory_bytes;
    hello.memory_given = w->config.memory_bytes != 0;
    hello.instance = w->instance;
    hello.name = w->name;
    hello.has_weights = w->loader.weights != NULL;
    if (hello.has_weights) {
        hello.held_rank = w->loader.request.rank;
        layout_pack(&held, &w->loader.request.layout);
        hello.held_layout = &held;
        hello.held_model_digest = w->loader.request.model_digest;
    }
    hello.wanted_rank = w->config.wanted_rank;
    w->state = WORKER_JOINING;
    link_send_hello(w->channel, &hello);
}

// Pages and snapshots that this rank could hold if it were alone on its machine, as
// proto/control.proto wants it.
static int count_room(struct worker *w, Moesaic__Control__V1__Loaded *loaded, struct err_text *e) {
    const struct terms *t = &w->terms;
    struct model_config model = {.weights = w->loader.weights,
                                 .layout = &w->loader.request.layout,
                                 .ops = w->ops,
                                 .rank = t->rank,
                                 .n_slots = t->n_slots,
                                 .rows_max = t->rows_max,
                                 .max_model_len = t->max_model_len,
                                 .kv_dtype = t->kv_dtype};
    struct room room = {.model = &model,
                        .n_threads = w->loader.share.n_threads,
                        .memory_bytes = w->memory_bytes,
                        .measured = w->config.memory_bytes == 0,
                        .kv_bytes = t->kv_bytes,
                        .kv_percent = t->kv_percent,
                        .snapshot_bytes = t->snapshot_bytes,
                        .snapshot_percent = t->snapshot_percent,
                        .message_bytes_max = fabric_message_bytes_max(w->config.fabric)};
    int rc = room_kv_blocks(&room, &w->kv_blocks_told, e);
    if (rc != 0) return rc;
    loaded->kv_blocks = w->kv_blocks_told;
    loaded->snapshots = w->snapshots_told = room_snapshots(&room, w->kv_blocks_told);
    loaded->step_bytes = model_step_bytes(&model, room.n_threads);
    loaded->page_bytes = model_kv_block_bytes(&model);
    loaded->state_bytes = model_state_bytes(&model);
    return 0;
}

static int say_loaded(struct worker *w, struct err_text *e) {
    const struct weights *weights = w->loader.weights;
    Moesaic__Control__V1__Loaded loaded = MOESAIC__CONTROL__V1__LOADED__INIT;
    if (w->terms.max_model_len > weights->spec->max_position)
        return err_set(e, ERR_PEER_PROTOCOL, "welcome.max_model_len %u is above the model's %u",
                       w->terms.max_model_len, weights->spec->max_position);
    int rc = count_room(w, &loaded, e);
    if (rc != 0) return rc;
    loaded.model_digest = w->loader.request.model_digest;
    loaded.shared_digest = weights->shared_digest;
    loaded.experts_digest = weights->experts_digest;
    loaded.weight_bytes = weights->bytes;
    w->state = WORKER_LOADED;
    log_event(LOG_INFO, "worker", "loaded", log_uint("rank", w->terms.rank),
              log_uint("bytes", weights->bytes), log_uint("experts", weights->n_local_experts),
              log_uint("kv_blocks", loaded.kv_blocks), log_uint("snapshots", loaded.snapshots));
    link_send_loaded(w->channel, &loaded);
    return 0;
}

static void take_terms(struct terms *t, const Moesaic__Control__V1__Welcome *m) {
    enum dtype kv_dtype = DTYPE_F32;
    check(dtype_kv_parse(m->kv_cache_dtype, &kv_dtype)); // link_decode checked it
    *t = (struct terms){.rank = m->rank,
                        .n_slots = m->max_num_seqs,
                        .rows_max = m->max_num_batched_tokens,
                        .max_model_len = m->max_model_len,
                        .kv_dtype = kv_dtype,
                        .kv_bytes = m->kv_cache_bytes,
                        .kv_percent = m->kv_cache_percent,
                        .snapshot_bytes = m->snapshot_bytes,
                        .snapshot_percent = m->snapshot_percent,
                        .digest = m->digest};
    check(layout_unpack(&t->layout, m->layout, NULL) == 0); // the same
}

static int on_welcome(struct worker *w, const Moesaic__Control__V1__Welcome *m,
                      struct err_text *e) {
    struct loader_request request = {.model_digest = m->model_digest, .rank = m->rank};
    if (w->state != WORKER_JOINING)
        return err_set(e, ERR_PEER_PROTOCOL, "a second welcome on one stream");
    if (strcmp(m->build_id, w->config.build_id) != 0)
        return err_set(e, ERR_PEER_REFUSED, "the leader's build %.100s is not this worker's %.100s",
                       m->build_id, w->config.build_id);
    take_terms(&w->terms, m);
    request.layout = w->terms.layout;
    atomic_store(&w->pulse.joined, true); // heartbeats from now on, so that a long load is no death
    check(link_dtype_parse(m->dtype, &request.dtype));
    check(mla_form_parse(m->mla_form, &request.mla_form)); // link_decode checked both
    snprintf(request.folder, sizeof request.folder, "%s",
             w->config.model != NULL ? w->config.model : m->model);
    bool held = loader_holds(&w->loader, &request);
    w->refusal[0] = '\0';
    log_event(LOG_INFO, "worker", "joined", log_uint("rank", m->rank),
              log_uint("ranks", request.layout.n_ranks), log_text("model", request.folder),
              log_text("weights", held ? "held" : "loading"));
    if (held) return say_loaded(w, e);
    store_release(&w->store); // other weights may need the memory
    w->state = WORKER_LOADING;
    w->progress_sent = 0;
    w->progress_due_ns = env_now_ns(w->config.env) + PROGRESS_NS;
    w->progress_log_ns = env_now_ns(w->config.env) + PROGRESS_LOG_NS;
    return loader_start(&w->loader, &request, e);
}

// A load of a second or two is not worth a line between its two ends.
static void log_progress(struct worker *w, uint64_t done) {
    int64_t now_ns = env_now_ns(w->config.env);
    if (now_ns < w->progress_log_ns) return;
    w->progress_log_ns = now_ns + PROGRESS_LOG_NS;
    log_event(LOG_INFO, "worker", "reading weights", log_uint("rank", w->terms.rank),
              log_uint("bytes", done),
              log_uint("of", atomic_load(&w->loader.progress.bytes_total)));
}

static void say_progress(struct worker *w) {
    uint64_t done = atomic_load(&w->loader.progress.bytes_done);
    if (done == w->progress_sent) return;
    link_send_progress(w->channel, done, atomic_load(&w->loader.progress.bytes_total));
    w->progress_sent = done;
    log_progress(w, done);
}

static int watch_load(struct worker *w, struct err_text *e) {
    int rc = loader_poll(&w->loader, e);
    int64_t now_ns = env_now_ns(w->config.env);
    if (rc != ERR_AGAIN) {
        say_progress(w);
        return rc != 0 ? rc : say_loaded(w, e);
    }
    if (now_ns >= w->progress_due_ns) {
        say_progress(w);
        w->progress_due_ns = now_ns + PROGRESS_NS;
    }
    return 0;
}

// --- the stream

// A spare worker is refused every few seconds for as long as its place is taken: a line for each
// other reason, and one each minute, are enough.
static void log_not_admitted(struct worker *w, bool held, const char *reason) {
    int64_t now_ns = env_now_ns(w->config.env);
    if (strcmp(reason, w->refusal) == 0 && now_ns - w->refusal_ns < REMINDER_NS) return;
    snprintf(w->refusal, sizeof w->refusal, "%s", reason);
    w->refusal_ns = now_ns;
    const char *what = held ? "not admitted by the leader, keeps its weights"
                            : "not admitted by the leader, keeps trying";
    log_event(LOG_WARN, "worker", what, log_text("reason", reason));
}

static void on_closed(struct worker *w, const char *reason) {
    if (w->state == WORKER_AWAY) return;
    bool held = w->loader.weights != NULL;
    if (w->state == WORKER_JOINING)
        log_not_admitted(w, held, reason);
    else
        log_event(strstr(reason, CHANNEL_LEADER_STOPS) != NULL ? LOG_INFO : LOG_WARN, "worker",
                  held ? "lost the leader, keeps its weights" : "lost the leader, keeps trying",
                  log_text("reason", reason));
    atomic_store(&w->pulse.joined, false);
    loader_cancel(&w->loader);
    end_epoch(w);
    w->state = WORKER_AWAY;
}

static int on_message(struct worker *w, const struct channel_event *ev, struct err_text *e) {
    Moesaic__Control__V1__JoinDown *m = NULL;
    if (w->state == WORKER_AWAY) return 0; // of a stream that was given up
    int rc = link_decode(&m, ev->data, ev->bytes, e);
    if (rc != 0) return rc;
    switch (m->kind_case) {
    case DOWN(WELCOME): rc = on_welcome(w, m->welcome, e); break;
    case DOWN(FORM): rc = on_form(w, m->form, e); break;
    case DOWN(CONNECT): rc = on_connect(w, m->connect, e); break;
    case DOWN(CLOSE_EPOCH): on_close_epoch(w, m->close_epoch); break;
    default: // LEAVE: link_decode refused all others
        log_event(LOG_INFO, "worker", "told to leave", log_text("reason", m->leave->reason));
        w->told_to_leave = true;
    }
    link_message_finish(m);
    return rc;
}

static int on_event(struct worker *w, const struct channel_event *ev, struct err_text *e) {
    switch (ev->kind) {
    case CHANNEL_OPENED: say_hello(w); return 0;
    case CHANNEL_CLOSED: on_closed(w, ev->text); return 0;
    default: return on_message(w, ev, e);
    }
}

// Decides what an error breaks: the epoch, the stream, or (returned) the worker.
static int absorb(struct worker *w, int rc, const struct err_text *e) {
    if (rc == 0 || rc == ERR_FATAL_STOPPED) return 0; // worker_run sees the stop by itself
    if (rc <= ERR_FATAL_NOMEM) {
        log_event(LOG_ERROR, "worker", "fails", log_text("reason", e->text));
        link_send_failed(w->channel, e->text);
        return rc;
    }
    if (rc == ERR_PEER_PROTOCOL || rc == ERR_PEER_REFUSED) {
        log_event(LOG_ERROR, "worker", "refuses the leader", log_text("reason", e->text));
        link_send_failed(w->channel, e->text);
        channel_drop(w->channel, LINK_LEADER, true, e->text);
        on_closed(w, e->text);
        return 0;
    }
    if (w->epoch.number != 0) break_epoch(w, e->text[0] != '\0' ? e->text : err_name(rc));
    return 0;
}

static int drain_channel(struct worker *w) {
    struct channel_event ev;
    int rc = 0;
    while (rc == 0 && !w->told_to_leave && channel_next(w->channel, &ev) == 0) {
        struct err_text e = {0};
        rc = absorb(w, on_event(w, &ev, &e), &e);
        channel_event_finish(&ev);
    }
    return rc;
}

// --- the loop

static int serve(struct worker *w, struct fabric_msg *message) {
    struct err_text e = {0};
    pulse_step_begin(&w->pulse);
    int rc = step_serve(w->epoch.step, message, &e);
    pulse_step_end(&w->pulse, w->config.fabric, rc == 0);
    if (rc == ERR_PEER_PROTOCOL) { // the leader was told; it closes the epoch
        log_event(LOG_ERROR, "worker", "cannot run the plan", log_uint("rank", w->terms.rank),
                  log_text("reason", e.text));
        w->state = WORKER_BROKEN;
        return 0;
    }
    if (rc == ERR_PEER_EPOCH) {
        w->state = WORKER_BROKEN; // the CloseEpoch that interrupted the step is in the inbox, or
                                  // about to be
        return 0;
    }
    return absorb(w, rc, &e);
}

static int await_plan(struct worker *w, int64_t deadline_ns) {
    struct fabric_msg message;
    struct err_text e = {0};
    struct fabric_want want = {.peer = w->terms.layout.n_ranks,
                               .kind = FABRIC_PLAN,
                               .step = FABRIC_ANY_STEP,
                               .wait_wakes = true};
    int rc = fabric_recv(w->config.fabric, &want, deadline_ns, &message);
    if (rc == 0) return serve(w, &message);
    if (rc == ERR_AGAIN || rc == ERR_PEER_TIMEOUT) return 0;
    if (rc == ERR_PEER_EPOCH) {
        w->state = WORKER_BROKEN;
        return 0;
    }
    return absorb(w, rc, &e);
}

static int64_t next_deadline(const struct worker *w) {
    int64_t deadline_ns = NO_DEADLINE;
    if (w->config.single_thread && w->state != WORKER_AWAY) deadline_ns = w->beat_due_ns;
    if (w->state == WORKER_LOADING && w->progress_due_ns < deadline_ns)
        deadline_ns = w->progress_due_ns;
    return deadline_ns;
}

static void beat_if_due(struct worker *w) {
    int64_t now_ns = env_now_ns(w->config.env);
    if (!w->config.single_thread || now_ns < w->beat_due_ns) return;
    worker_heartbeat(w);
    w->beat_due_ns = now_ns + w->config.heartbeat_ns;
}

static int turn(struct worker *w) {
    struct err_text e = {0};
    int rc = drain_channel(w);
    if (rc != 0 || w->told_to_leave) return rc;
    if (w->state == WORKER_LOADING) rc = absorb(w, watch_load(w, &e), &e);
    if (rc == 0) rc = absorb(w, store_check(&w->store, &e), &e);
    if (rc != 0) return rc;
    beat_if_due(w);
    if (w->state == WORKER_RUNNING) return await_plan(w, next_deadline(w));
    waker_wait(w->config.waker, next_deadline(w));
    return 0;
}

// True when a drain is over: what it served has ended, or it served nothing.
static bool is_drained(struct worker *w) {
    if (!atomic_load(&w->drain)) return false;
    if (w->state != WORKER_RUNNING) return true;
    if (w->said_drain) return false;
    log_event(LOG_INFO, "worker", "drains", log_uint("rank", w->terms.rank));
    link_send_leaving(w->channel, "it was asked to stop", true);
    w->said_drain = true;
    return false;
}

int worker_run(struct worker *w) {
    int rc = 0;
    check(w->channel != NULL);
    kernel_thread_init();
    log_event(LOG_INFO, "worker", "started", log_text("build", w->config.build_id),
              log_text("name", w->name), log_uint("pid", (uint64_t)getpid()),
              log_text("kernels", w->ops->name), log_uint("cores", w->cores.n),
              log_uint("usable", w->cores.usable), log_uint("memory", w->memory_bytes));
    while (rc == 0 && !w->told_to_leave && !is_drained(w) && !env_stopped(w->config.env))
        rc = turn(w);
    if (rc == 0 && w->state != WORKER_AWAY)
        link_send_leaving(w->channel, w->told_to_leave ? "told to" : "stopped", false);
    channel_drop(w->channel, LINK_LEADER, false, "the worker leaves");
    atomic_store(&w->pulse.joined, false);
    loader_cancel(&w->loader);
    end_epoch(w);
    log_event(LOG_INFO, "worker", "ended", log_text("name", w->name),
              log_text("result", rc == 0 ? "ok" : err_name(rc)));
    return rc;
}
