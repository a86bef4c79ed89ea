// toy_cluster.c: see toy_cluster.h.
#include "tests/harness/toy_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "common/net/layout_wire.h"
#include "control.pb-c.h"
#include "step.pb-c.h"

#define BUILD "toy"
#define BEAT_NS (300 * NS_PER_MS)

typedef Moesaic__Control__V1__JoinUp join_up;
typedef Moesaic__Control__V1__JoinDown join_down;

// --- a toy worker's words

static void say(struct toy_worker *w, const join_up *up) {
    size_t bytes = moesaic__control__v1__join_up__get_packed_size(up);
    uint8_t *data = malloc(bytes + 1);
    moesaic__control__v1__join_up__pack(up, data);
    (void)channel_send(w->channel, 1, data, bytes);
    free(data);
}

#define SAY(w, KIND, field, value)                                                                 \
    do {                                                                                           \
        join_up up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;                                          \
        up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_##KIND;                                 \
        up.field = (value);                                                                        \
        say(w, &up);                                                                               \
    } while (0)

static void say_hello(struct toy_worker *w) {
    char *classes[] = {(char *)"base"};
    Moesaic__Control__V1__Hello h = MOESAIC__CONTROL__V1__HELLO__INIT;
    h.protocol = CONTROL_PROTOCOL;
    h.build_id = (char *)BUILD;
    h.host = (char *)"here";
    h.n_arithmetic_classes = 1;
    h.arithmetic_classes = classes;
    h.kernels = (char *)"toy";
    h.wanted_rank = -1;
    env_random(w->env, &h.instance, sizeof h.instance);
    SAY(w, HELLO, hello, &h);
}

static void say_loaded(struct toy_worker *w) {
    Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
    l.model_digest = w->cluster->config.model_digest;
    const struct layout_place place = layout_place(&w->layout, w->rank_index);
    l.shared_digest = 1 + place.stage * TOY_WORKERS_MAX + place.tp;
    l.experts_digest = 2 + w->rank_index;
    l.kv_blocks = 40 * w->n_ranks; // all share one machine
    SAY(w, LOADED, loaded, &l);
}

static void say_epoch_closed(struct toy_worker *w, uint64_t epoch) {
    Moesaic__Control__V1__EpochClosed c = MOESAIC__CONTROL__V1__EPOCH_CLOSED__INIT;
    c.epoch = epoch;
    c.reason = (char *)"the toy says so";
    SAY(w, EPOCH_CLOSED, epoch_closed, &c);
}

static void beat(struct toy_worker *w) {
    Moesaic__Control__V1__Heartbeat h = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    h.epoch = w->running ? w->epoch : 0;
    h.steps = w->steps;
    SAY(w, HEARTBEAT, heartbeat, &h);
    w->beat_ns = env_now_ns(w->env) + BEAT_NS;
}

// --- its epochs

static void end_epoch(struct toy_worker *w) {
    if (w->begun) fabric_end(w->fabric);
    w->begun = w->running = w->mute = false;
    toy_destroy(w->rank);
    w->rank = NULL;
}

static void form(struct toy_worker *w, const Moesaic__Control__V1__Form *f) {
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t bytes = sizeof address;
    end_epoch(w);
    check(fabric_begin(w->fabric, address, &bytes, NULL) == 0);
    w->begun = true;
    w->epoch = f->epoch;
    w->nonce = f->nonce;
    w->kv_blocks = f->kv_blocks;
    Moesaic__Control__V1__Formed m = MOESAIC__CONTROL__V1__FORMED__INIT;
    m.epoch = f->epoch;
    m.address = (ProtobufCBinaryData){bytes, address};
    SAY(w, FORMED, formed, &m);
}

static void connect(struct toy_worker *w, const Moesaic__Control__V1__Connect *c) {
    const uint8_t *addresses[TOY_WORKERS_MAX + 1];
    size_t bytes[TOY_WORKERS_MAX + 1];
    if (!w->begun || c->epoch != w->epoch) return;
    check(c->n_addresses == w->n_ranks + 1);
    for (size_t i = 0; i < c->n_addresses; i++) {
        addresses[i] = c->addresses[i].data;
        bytes[i] = c->addresses[i].len;
    }
    struct fabric_group group = {.epoch = w->epoch,
                                 .nonce = w->nonce,
                                 .self = w->rank_index,
                                 .n_peers = w->n_ranks + 1,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    check(fabric_connect(w->fabric, &group, NULL) == 0);
    struct toy_config toy = {.rank = w->rank_index,
                             .n_slots = w->cluster->config.max_num_seqs,
                             .rows_max = w->cluster->config.max_num_batched_tokens,
                             .kv_blocks = w->kv_blocks,
                             .max_model_len = TOY_MODEL_LEN,
                             .vocab = TOY_VOCAB,
                             .nonfinite_token = UINT32_MAX};
    w->rank = toy_create(&toy);
    w->running = true;
    Moesaic__Control__V1__Ready r = MOESAIC__CONTROL__V1__READY__INIT;
    r.epoch = w->epoch;
    r.lanes = (char *)"toy";
    SAY(w, READY, ready, &r);
}

#define DOWN(kind) MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_##kind

static void hear(struct toy_worker *w, const struct channel_event *ev) {
    join_down *d = moesaic__control__v1__join_down__unpack(NULL, ev->bytes, ev->data);
    check(d != NULL);
    switch (d->kind_case) {
    case DOWN(WELCOME):
        w->rank_index = d->welcome->rank;
        check(layout_unpack(&w->layout, d->welcome->layout, NULL) == 0);
        w->n_ranks = w->layout.n_ranks;
        say_loaded(w);
        break;
    case DOWN(FORM): form(w, d->form); break;
    case DOWN(CONNECT): connect(w, d->connect); break;
    case DOWN(CLOSE_EPOCH):
        if (w->begun && d->close_epoch->epoch == w->epoch) end_epoch(w);
        say_epoch_closed(w, d->close_epoch->epoch);
        break;
    default: break;
    }
    moesaic__control__v1__join_down__free_unpacked(d, NULL);
}

static void drain_channel(struct toy_worker *w) {
    struct channel_event ev;
    while (channel_next(w->channel, &ev) == 0) {
        if (ev.kind == CHANNEL_OPENED) say_hello(w);
        if (ev.kind == CHANNEL_MESSAGE) hear(w, &ev);
        if (ev.kind == CHANNEL_CLOSED) end_epoch(w);
        channel_event_finish(&ev);
    }
}

// --- its steps

static void spoil(uint8_t **data, size_t *bytes, enum toy_fault fault) {
    Moesaic__Step__V1__StepResult *r = moesaic__step__v1__step_result__unpack(NULL, *bytes, *data);
    check(r != NULL);
    static Moesaic__Step__V1__StepResult copy;
    copy = *r;
    if (fault == TOY_GIVES_UP) {
        copy.error = (char *)"the toy gives up";
        copy.n_seqs = 0;
    } else {
        copy.rank += 1; // a rank that it is not
    }
    free(*data);
    *bytes = moesaic__step__v1__step_result__get_packed_size(&copy);
    *data = malloc(*bytes + 1);
    moesaic__step__v1__step_result__pack(&copy, *data);
    moesaic__step__v1__step_result__free_unpacked(r, NULL);
}

// The first stage cannot wait for what the last one samples.
static void check_tokens_known(const struct fabric_msg *m) {
    Moesaic__Step__V1__StepPlan *plan =
        moesaic__step__v1__step_plan__unpack(NULL, m->bytes, m->data);
    for (size_t i = 0; i < plan->n_seqs; i++)
        check(!plan->seqs[i]->token_from_slot);
    moesaic__step__v1__step_plan__free_unpacked(plan, NULL);
}

static void empty(uint8_t *data, size_t *bytes) {
    Moesaic__Step__V1__StepResult *r = moesaic__step__v1__step_result__unpack(NULL, *bytes, data);
    Moesaic__Step__V1__StepResult copy = *r;
    copy.n_seqs = 0;
    *bytes = moesaic__step__v1__step_result__pack(&copy, data);
    moesaic__step__v1__step_result__free_unpacked(r, NULL);
}

static void serve(struct toy_worker *w, struct fabric_msg *m) {
    size_t bytes;
    if (w->layout.pp > 1) check_tokens_known(m);
    uint64_t idle = toy_idle_steps(w->rank);
    uint8_t *data = toy_step(w->rank, m->data, m->bytes, &bytes);
    uint64_t tag = fabric_tag(FABRIC_RESULT, m->tag >> 16, 0);
    fabric_release(w->fabric, m);
    w->steps++;
    bool due = toy_idle_steps(w->rank) == idle && atomic_fetch_sub(&w->fault_after, 1) <= 0;
    enum toy_fault fault =
        due ? (enum toy_fault)atomic_exchange(&w->fault, TOY_HONEST) : TOY_HONEST;
    w->mute |= fault == TOY_SWALLOWS;
    if (fault != TOY_ANSWERS && !layout_answers(&w->layout, w->rank_index)) empty(data, &bytes);
    if (fault == TOY_LIES || fault == TOY_GIVES_UP) spoil(&data, &bytes, fault);
    if (fault == TOY_CLOSES) {
        uint64_t epoch = w->epoch;
        end_epoch(w);
        say_epoch_closed(w, epoch);
    } else if (!w->mute) {
        if (fabric_send(w->fabric, w->n_ranks, tag,
                        &(struct fabric_part){.data = data, .data_bytes = bytes}) == 0)
            (void)fabric_flush(w->fabric, env_now_ns(w->env) + NS_PER_S);
    }
    free(data);
}

static void turn(struct toy_worker *w) {
    drain_channel(w);
    if (w->n_ranks > 0 && env_now_ns(w->env) >= w->beat_ns) beat(w);
    if (!w->running) {
        waker_wait(w->waker, w->n_ranks > 0 ? w->beat_ns : NO_DEADLINE);
        return;
    }
    struct fabric_want want = {
        .peer = w->n_ranks, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP, .wait_wakes = true};
    struct fabric_msg m;
    int err = fabric_recv(w->fabric, &want, w->beat_ns, &m);
    if (err == 0) serve(w, &m);
    if (err == 0 || err == ERR_AGAIN || err == ERR_PEER_TIMEOUT) return;
    uint64_t epoch = w->epoch;
    end_epoch(w);
    say_epoch_closed(w, epoch);
}

void toy_worker_loop(struct toy_worker *w) {
    while (!atomic_load(&w->gone) && !env_stopped(w->env))
        turn(w);
    end_epoch(w);
}

void toy_worker_open(struct toy_worker *w, struct toy_cluster *c, struct env *env) {
    memset(w, 0, sizeof *w);
    w->cluster = c;
    w->env = env;
    check(waker_create(w->env, &w->waker) == 0);
    struct fabric_config fabric = {
        .env = w->env, .waker = w->waker, .message_bytes_max = 1 << 20, .hub = c->fabrics};
    struct channel_config channel = {
        .env = w->env, .waker = w->waker, .address = TOY_ADDRESS, .hub = c->channels};
    check(fabric_open(&w->fabric, FABRIC_MEM, &fabric, NULL) == 0);
    check(channel_dial_mem(&w->channel, &channel, NULL) == 0);
}

void toy_worker_close(struct toy_worker *w) {
    channel_close(w->channel);
    fabric_close(w->fabric);
    waker_destroy(w->waker);
}

static void *worker_main(void *arg) {
    toy_worker_loop(arg);
    return NULL;
}

void toy_worker_start(struct toy_cluster *c, uint32_t i) {
    struct toy_worker *w = &c->workers[i];
    toy_worker_open(w, c, env_real_create());
    check(pthread_create(&w->thread, NULL, worker_main, w) == 0);
}

void toy_worker_stop(struct toy_cluster *c, uint32_t i) {
    struct toy_worker *w = &c->workers[i];
    if (w->env == NULL) return;
    atomic_store(&w->gone, true);
    waker_wake(w->waker);
    pthread_join(w->thread, NULL);
    toy_worker_close(w);
    env_real_destroy(w->env);
    memset(w, 0, sizeof *w);
}

void toy_worker_kill(struct toy_cluster *c, uint32_t i) {
    channel_mem_kill(c->channels, c->workers[i].env);
    fabric_mem_kill(c->fabrics, c->workers[i].env);
    toy_worker_stop(c, i);
}

// --- the leader

void toy_cluster_config(struct toy_cluster *c, struct env *env, uint32_t n_ranks) {
    c->spec = (struct model_spec){.n_layers = 4,
                                  .vocab = TOY_VOCAB,
                                  .max_position = TOY_MODEL_LEN,
                                  .n_heads = 8,
                                  .n_kv_heads = 2,
                                  .inner_expert = 128,
                                  .router.n_experts = 4};
    c->config = (struct leader_config){.env = env,
                                       .spec = &c->spec,
                                       .model = "toy",
                                       .model_digest = 42,
                                       .build_id = BUILD,
                                       .dtype = "auto",
                                       .layout = layout_even(n_ranks),
                                       .max_num_seqs = 8,
                                       .max_num_batched_tokens = 64,
                                       .max_model_len = TOY_MODEL_LEN,
                                       .pipeline_depth = 1,
                                       .kv_cache_percent = 50,
                                       .step_timeout_ns = 20 * NS_PER_S,
                                       .recovery_timeout_ns = 60 * NS_PER_S,
                                       .digest = true};
}

void toy_cluster_prepare(struct toy_cluster *c, uint32_t n_ranks) {
    memset(c, 0, sizeof *c);
    c->channels = channel_mem_hub_create(NULL);
    c->fabrics = fabric_mem_hub_create(NULL);
    c->env = env_real_create();
    toy_cluster_config(c, c->env, n_ranks);
}

static void *leader_main(void *arg) {
    check(leader_run(arg) == 0);
    return NULL;
}

void toy_cluster_start(struct toy_cluster *c) {
    check(waker_create(c->env, &c->config.waker) == 0);
    struct fabric_config fabric = {
        .env = c->env, .waker = c->config.waker, .message_bytes_max = 1 << 20, .hub = c->fabrics};
    struct channel_config channel = {
        .env = c->env, .waker = c->config.waker, .address = TOY_ADDRESS, .hub = c->channels};
    check(fabric_open(&c->config.fabric, FABRIC_MEM, &fabric, NULL) == 0);
    check(channel_listen_mem(&c->config.channel, &channel, NULL) == 0);
    struct err_text e = {0};
    if (leader_create(&c->leader, &c->config, &e) != 0) {
        fprintf(stderr, "leader_create: %s\n", e.text);
        abort();
    }
    check(pthread_create(&c->thread, NULL, leader_main, c->leader) == 0);
    c->running = true;
}

void toy_cluster_stop(struct toy_cluster *c) {
    leader_stop(c->leader);
    if (c->running) pthread_join(c->thread, NULL);
    c->running = false;
}

void toy_cluster_finish(struct toy_cluster *c) {
    toy_cluster_stop(c);
    for (uint32_t i = 0; i < TOY_WORKERS_MAX; i++)
        toy_worker_stop(c, i);
    leader_destroy(c->leader);
    channel_close(c->config.channel);
    fabric_close(c->config.fabric);
    waker_destroy(c->config.waker);
    env_real_destroy(c->env);
    channel_mem_hub_destroy(c->channels);
    fabric_mem_hub_destroy(c->fabrics);
}

void toy_await_ready(struct toy_cluster *c, bool ready) {
    struct timespec pause = {.tv_nsec = NS_PER_MS};
    for (int i = 0; i < 30000; i++) {
        if (leader_ready(c->leader) == ready) return;
        nanosleep(&pause, NULL); // leader_ready is a look, not a wait
    }
    check(leader_ready(c->leader) == ready); // not within 30 s
}

// --- clients

void toy_client_init(struct toy_client *k, uint64_t id) {
    memset(k, 0, sizeof *k);
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    k->id = id;
}

void toy_client_finish(struct toy_client *k) {
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->changed);
}

static void emit(const struct token_event *ev) {
    struct toy_client *k = ev->sink_context;
    pthread_mutex_lock(&k->lock);
    check(k->n_finishes == 0 && ev->request_id == k->id);
    k->n_starts += ev->is_start ? 1 : 0;
    if (ev->has_token) k->tokens[k->n_tokens++] = ev->token;
    k->digest = ev->digest;
    k->n_finishes += ev->finish != FINISH_NONE ? 1 : 0;
    k->finish = ev->finish;
    k->error = ev->error;
    memcpy(k->message, ev->message, sizeof k->message);
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

struct request *toy_request(struct toy_client *k, uint32_t n_prompt, uint32_t max_tokens) {
    struct request *r = request_create(n_prompt);
    check(r != NULL);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = (uint32_t)((k->id * 31 + i * 7) % TOY_VOCAB);
    r->id = k->id;
    r->max_tokens = max_tokens;
    r->emit = emit;
    r->sink_context = k;
    return r;
}

static bool has_come(const struct toy_client *k, uint32_t n_starts, uint32_t n_tokens) {
    return k->n_finishes > 0 || (k->n_starts >= n_starts && k->n_tokens >= n_tokens);
}

static void await(struct toy_client *k, uint32_t n_starts, uint32_t n_tokens) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&k->lock);
    while (!has_come(k, n_starts, n_tokens))
        check(pthread_cond_timedwait(&k->changed, &k->lock, &until) == 0);
    pthread_mutex_unlock(&k->lock);
}

void toy_client_await_start(struct toy_client *k) {
    await(k, 1, 0);
}
void toy_client_await(struct toy_client *k, uint32_t n_tokens) {
    await(k, 0, n_tokens);
}
void toy_client_await_end(struct toy_client *k) {
    await(k, 0, UINT32_MAX);
}
