// fake_cluster.c: see fake_cluster.h.
#include "tests/harness/fake_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/host.h"

// --- a clock that stands still

static int64_t fake_now(struct env *e) {
    return ((struct fake_env *)e)->now_ns;
}

static void fake_random(struct env *e, void *buf, size_t bytes) {
    struct fake_env *f = (struct fake_env *)e;
    for (size_t i = 0; i < bytes; i++) {
        f->random = f->random * UINT64_C(6364136223846793005) + 1;
        ((uint8_t *)buf)[i] = (uint8_t)(f->random >> 56);
    }
}

static bool fake_stopped(struct env *e) {
    (void)e;
    return false;
}

static const struct env_ops fake_ops = {
    .now_ns = fake_now, .wall_ns = fake_now, .random = fake_random, .stopped = fake_stopped};

void fake_pass(struct fake_cluster *f, int64_t ns) {
    f->env.now_ns += ns;
}

// --- what the members do to the world

static int io_send(void *context, uint64_t peer, const void *data, size_t bytes) {
    struct fake_cluster *f = context;
    Moesaic__Control__V1__JoinDown *d = moesaic__control__v1__join_down__unpack(NULL, bytes, data);
    check(d != NULL && peer < FAKE_PEERS_MAX);
    struct fake_peer *p = &f->peers[peer];
    switch (d->kind_case) {
    case MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_WELCOME:
        p->n_welcome++;
        p->rank = d->welcome->rank;
        break;
    case MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_FORM:
        p->n_form++;
        p->epoch = d->form->epoch;
        p->kv_blocks = d->form->kv_blocks;
        p->snapshots = d->form->snapshots;
        p->host_index = d->form->host_index;
        p->n_on_host = d->form->n_on_host;
        break;
    case MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CONNECT: p->n_connect++; break;
    case MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CLOSE_EPOCH:
        p->n_close++;
        snprintf(p->reason, sizeof p->reason, "%s", d->close_epoch->reason);
        break;
    case MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_LEAVE: p->n_leave++; break;
    default: break;
    }
    moesaic__control__v1__join_down__free_unpacked(d, NULL);
    return 0;
}

static void io_drop(void *context, uint64_t peer, bool refused, const char *reason) {
    struct fake_cluster *f = context;
    check(peer < FAKE_PEERS_MAX);
    f->peers[peer].n_drop++;
    f->peers[peer].refused = refused;
    snprintf(f->peers[peer].reason, sizeof f->peers[peer].reason, "%s", reason);
}

static int io_begin(void *context, uint8_t *address, size_t *address_bytes, struct err_text *e) {
    struct fake_cluster *f = context;
    if (f->begin_error != 0) return err_set(e, f->begin_error, "planted");
    check(!f->open);
    f->open = true;
    f->n_begin++;
    address[0] = 'L';
    *address_bytes = 1;
    return 0;
}

static int io_connect(void *context, const struct fabric_group *group, struct err_text *e) {
    struct fake_cluster *f = context;
    check(f->open && group->self == f->leader.layout.n_ranks &&
          group->n_peers == f->leader.layout.n_ranks + 1);
    if (f->connect_error != 0) return err_set(e, f->connect_error, "planted");
    f->n_connect++;
    return 0;
}

static void io_end(void *context) {
    struct fake_cluster *f = context;
    check(f->open);
    f->open = false;
    f->n_end++;
}

static int io_ready(void *context, uint64_t epoch, const struct rank_room *rooms) {
    struct fake_cluster *f = context;
    (void)epoch;
    if (f->ready_error != 0) return f->ready_error;
    for (uint32_t i = 0; i < f->leader.layout.dp; i++) {
        f->kv_blocks[i] = rooms[i].kv_blocks;
        f->snapshots[i] = rooms[i].snapshots;
    }
    f->n_ready++;
    return 0;
}

static void io_lost(void *context, bool on_purpose, const char *reason) {
    struct fake_cluster *f = context;
    f->lost_on_purpose = on_purpose;
    f->n_lost++;
    snprintf(f->lost_reason, sizeof f->lost_reason, "%s", reason);
}

static void io_left(void *context) {
    struct fake_cluster *f = context;
    f->n_left++;
}

void fake_start(struct fake_cluster *f, uint32_t n_ranks) {
    const struct layout layout = layout_even(n_ranks);
    fake_start_layout(f, &layout);
}

void fake_start_layout(struct fake_cluster *f, const struct layout *layout) {
    memset(f, 0, sizeof *f);
    check(layout->n_ranks <= FAKE_RANKS_MAX);
    f->env = (struct fake_env){.env.ops = &fake_ops, .now_ns = NS_PER_S, .random = 1};
    f->spec = (struct model_spec){
        .n_layers = 2,
        .vocab = 100,
        .max_position = 4096,
        .layer_flags = {LAYER_RECURRENT, LAYER_RECURRENT},
        .delta = {.kernel = 4, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 8, .v_dim = 8},
        .router.n_experts = 6};
    f->leader = (struct leader_config){.env = &f->env.env,
                                       .spec = &f->spec,
                                       .model = "models/test",
                                       .build_id = FAKE_BUILD,
                                       .model_digest = FAKE_MODEL_DIGEST,
                                       .dtype = "auto",
                                       .layout = *layout,
                                       .max_num_seqs = 4,
                                       .max_num_batched_tokens = 64,
                                       .max_model_len = 1024,
                                       .pipeline_depth = 1,
                                       .kv_cache_percent = 50,
                                       .step_timeout_ns = 10 * NS_PER_S,
                                       .recovery_timeout_ns = 30 * NS_PER_S};
    struct members_io io = {f,          io_send, io_drop,  io_begin, NULL,
                            io_connect, io_end,  io_ready, io_lost,  io_left};
    struct members_config config = {.env = &f->env.env, .io = io, .leader = &f->leader};
    check(members_create(&f->members, &config, NULL) == 0);
}

void fake_finish(struct fake_cluster *f) {
    members_destroy(f->members);
}

// --- what the workers say

static void event(struct fake_cluster *f, enum channel_event_kind kind, uint64_t peer,
                  const char *text) {
    struct channel_event ev = {.kind = kind, .peer = peer};
    snprintf(ev.text, sizeof ev.text, "%s", text);
    members_event(f->members, &ev);
}

void fake_open(struct fake_cluster *f, uint64_t peer) {
    event(f, CHANNEL_OPENED, peer, "");
}
void fake_close(struct fake_cluster *f, uint64_t peer, const char *text) {
    event(f, CHANNEL_CLOSED, peer, text);
}

void fake_bytes(struct fake_cluster *f, uint64_t peer, const void *data, size_t bytes) {
    struct channel_event ev = {
        .kind = CHANNEL_MESSAGE, .peer = peer, .data = (uint8_t *)data, .bytes = bytes};
    members_event(f->members, &ev);
}

void fake_say(struct fake_cluster *f, uint64_t peer, const Moesaic__Control__V1__JoinUp *up) {
    size_t bytes = moesaic__control__v1__join_up__get_packed_size(up);
    uint8_t *data = malloc(bytes + 1);
    moesaic__control__v1__join_up__pack(up, data);
    fake_bytes(f, peer, data, bytes);
    free(data);
}

void fake_hello_fill(Moesaic__Control__V1__Hello *h, uint64_t peer) {
    static char *classes[] = {(char *)"bf16dot", (char *)"base"};
    moesaic__control__v1__hello__init(h);
    h->protocol = CONTROL_PROTOCOL;
    h->build_id = (char *)FAKE_BUILD;
    h->host = (char *)"host";
    h->kernels = (char *)"ref";
    h->n_arithmetic_classes = 2;
    h->arithmetic_classes = classes;
    h->instance = peer * 1000;
    h->wanted_rank = -1;
}

#define SAY(f, peer, KIND, field, value)                                                           \
    do {                                                                                           \
        Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;                     \
        up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_##KIND;                                 \
        up.field = (value);                                                                        \
        fake_say(f, peer, &up);                                                                    \
    } while (0)

void fake_hello(struct fake_cluster *f, uint64_t peer, int32_t wanted_rank) {
    Moesaic__Control__V1__Hello h;
    fake_hello_fill(&h, peer);
    h.wanted_rank = wanted_rank;
    fake_open(f, peer);
    SAY(f, peer, HELLO, hello, &h);
}

void fake_hello_named(struct fake_cluster *f, uint64_t peer, const char *name) {
    Moesaic__Control__V1__Hello h;
    fake_hello_fill(&h, peer);
    h.name = (char *)name;
    fake_open(f, peer);
    SAY(f, peer, HELLO, hello, &h);
}

void fake_hello_local(struct fake_cluster *f, uint64_t peer, const char *name) {
    Moesaic__Control__V1__Hello h;
    char host[256];
    host_name(host, sizeof host);
    fake_hello_fill(&h, peer);
    h.name = (char *)name;
    h.host = host;
    fake_open(f, peer);
    SAY(f, peer, HELLO, hello, &h);
}

void fake_progress(struct fake_cluster *f, uint64_t peer, uint64_t done, uint64_t total) {
    Moesaic__Control__V1__Progress p = MOESAIC__CONTROL__V1__PROGRESS__INIT;
    p.bytes_done = done;
    p.bytes_total = total;
    SAY(f, peer, PROGRESS, progress, &p);
}

void fake_loaded_with(struct fake_cluster *f, uint64_t peer,
                      const Moesaic__Control__V1__Loaded *l) {
    SAY(f, peer, LOADED, loaded, (Moesaic__Control__V1__Loaded *)l);
}

void fake_loaded(struct fake_cluster *f, uint64_t peer, uint32_t kv_blocks) {
    Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
    l.model_digest = FAKE_MODEL_DIGEST;
    l.shared_digest = 11;
    l.experts_digest = 100 + f->peers[peer].rank;
    l.weight_bytes = 4096;
    l.kv_blocks = kv_blocks;
    l.snapshots = kv_blocks / 4;
    fake_loaded_with(f, peer, &l);
}

void fake_formed(struct fake_cluster *f, uint64_t peer, uint64_t epoch, size_t address_bytes) {
    Moesaic__Control__V1__Formed m = MOESAIC__CONTROL__V1__FORMED__INIT;
    uint8_t address[2 * FABRIC_ADDRESS_MAX] = {1};
    m.epoch = epoch;
    m.address = (ProtobufCBinaryData){address_bytes, address};
    SAY(f, peer, FORMED, formed, &m);
}

void fake_ready(struct fake_cluster *f, uint64_t peer, uint64_t epoch) {
    Moesaic__Control__V1__Ready m = MOESAIC__CONTROL__V1__READY__INIT;
    m.epoch = epoch;
    m.lanes = (char *)"memory";
    SAY(f, peer, READY, ready, &m);
}

void fake_beat(struct fake_cluster *f, uint64_t peer, uint64_t epoch) {
    Moesaic__Control__V1__Heartbeat m = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    m.epoch = epoch;
    SAY(f, peer, HEARTBEAT, heartbeat, &m);
}

void fake_epoch_closed(struct fake_cluster *f, uint64_t peer, uint64_t epoch) {
    Moesaic__Control__V1__EpochClosed m = MOESAIC__CONTROL__V1__EPOCH_CLOSED__INIT;
    m.epoch = epoch;
    m.reason = (char *)"a peer is gone";
    SAY(f, peer, EPOCH_CLOSED, epoch_closed, &m);
}

void fake_leaving(struct fake_cluster *f, uint64_t peer, bool when_idle) {
    Moesaic__Control__V1__Leaving l = MOESAIC__CONTROL__V1__LEAVING__INIT;
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    l.when_idle = when_idle;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_LEAVING;
    up.leaving = &l;
    fake_say(f, peer, &up);
}

void fake_tick(struct fake_cluster *f) {
    members_tick(f->members, false);
}

void fake_group(struct fake_cluster *f) {
    uint32_t n = f->leader.layout.n_ranks;
    for (uint64_t p = 1; p <= n; p++) {
        fake_hello(f, p, -1);
        fake_loaded(f, p, 100);
    }
    fake_tick(f);
    for (uint64_t p = 1; p <= n; p++)
        fake_formed(f, p, f->peers[p].epoch, 8);
    for (uint64_t p = 1; p <= n; p++)
        fake_ready(f, p, f->peers[p].epoch);
    check(members_ready(f->members));
}

enum member_state fake_state(const struct fake_cluster *f, uint32_t rank) {
    struct member_view v;
    members_view(f->members, rank, &v);
    return v.state;
}
