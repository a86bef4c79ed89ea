// fuzz_join.c: a leader that says anything at any time, against a whole worker in the simulator: it
// joins, loads, forms, runs plans; it may refuse and come back, but it never fails while there is
// memory.
//
// Input: records of [opcode][n][n bytes]. The opcode's low bits choose lawful words, raw bytes as a
// control message or as a plan, a closed stream, or time that passes.
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/net/layout_wire.h"
#include "control.pb-c.h"
#include "step.pb-c.h"
#include "tests/sim/cluster.h"
#include "worker/worker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FOLDER SOURCE_ROOT "/tests/data/models/tiny-qwen3-moe"
#define RECORDS_MAX 64
#define ROWS 16
#define SLOTS 4

typedef Moesaic__Control__V1__JoinDown join_down;
#define DOWN(kind) MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_##kind

static struct model_cache model; // read once: it does not change
static struct weights *weights;

struct stage {
    struct sim *sim;
    struct sim_process *process;
    int result; // of worker_run
    struct waker *waker;
    struct channel *channel;
    struct fabric *fabric;
    uint64_t peer, epoch, step;
    uint8_t worker_address[FABRIC_ADDRESS_MAX], own_address[FABRIC_ADDRESS_MAX];
    size_t worker_bytes, own_bytes;
    bool connected;
};

static int lend(void *context, struct weights **out, const struct weights_config *config,
                struct err_text *e) {
    struct weights_config own = *config;
    (void)context;
    if (config->layout->n_ranks != 1 || config->dtype != model.dtype)
        return err_set(e, ERR_PEER_REFUSED, "not of this fuzzer");
    own.spec = &model.spec;
    own.layout = &model.layouts[1];
    own.progress = NULL;
    own.cancel = NULL;
    int rc = weights != NULL ? 0 : weights_load(&weights, &own, e);
    *out = weights;
    return rc;
}

static void keep(void *context, struct weights *w) {
    (void)context;
    (void)w;
}

static void worker_main(struct env *env, void *arg) {
    struct stage *s = arg;
    struct err_text e;
    struct waker *waker;
    struct fabric *fabric;
    struct channel *channel;
    struct worker *worker;
    struct weights_source source = {lend, keep, NULL};
    check(waker_create(env, &waker) == 0);
    struct fabric_config fabric_config = {
        .env = env, .waker = waker, .message_bytes_max = 1 << 20, .hub = sim_fabric_hub(s->sim)};
    check(fabric_open(&fabric, FABRIC_MEM, &fabric_config, &e) == 0);
    struct worker_config config = {.env = env,
                                   .waker = waker,
                                   .fabric = fabric,
                                   .build_id = "fuzzed",
                                   .name = "w",
                                   .model = FOLDER,
                                   .wanted_rank = -1,
                                   .memory_bytes = 1 << 24,
                                   .heartbeat_ns = NS_PER_S,
                                   .single_thread = true,
                                   .source = &source};
    check(worker_create(&worker, &config, &e) == 0);
    struct channel_config channel_config = {.env = env,
                                            .waker = waker,
                                            .address = "leader",
                                            .hub = sim_channel_hub(s->sim),
                                            .peek = worker_peek,
                                            .peek_context = worker};
    check(channel_dial_mem(&channel, &channel_config, &e) == 0);
    worker_attach(worker, channel);
    s->result = worker_run(worker);
    channel_close(channel);
    worker_destroy(worker);
    fabric_close(fabric);
    waker_destroy(waker);
}

// --- the leader's side, played by the script

static void hear(struct stage *s) {
    struct channel_event ev;
    while (channel_next(s->channel, &ev) == 0) {
        if (ev.kind == CHANNEL_OPENED) s->peer = ev.peer;
        if (ev.kind == CHANNEL_CLOSED) s->peer = 0;
        Moesaic__Control__V1__JoinUp *up =
            ev.kind == CHANNEL_MESSAGE
                ? moesaic__control__v1__join_up__unpack(NULL, ev.bytes, ev.data)
                : NULL;
        check(ev.kind != CHANNEL_MESSAGE || up != NULL); // the worker's own words are well formed
        if (up != NULL && up->kind_case == MOESAIC__CONTROL__V1__JOIN_UP__KIND_FORMED) {
            s->worker_bytes = up->formed->address.len;
            memcpy(s->worker_address, up->formed->address.data, s->worker_bytes);
        }
        if (up != NULL) moesaic__control__v1__join_up__free_unpacked(up, NULL);
        channel_event_finish(&ev);
    }
}

static void pass(struct stage *s, int64_t span_ns) {
    (void)sim_run(s->sim, sim_now_ns(s->sim) + span_ns);
    hear(s);
}

static void say(struct stage *s, const join_down *m) {
    uint8_t bytes[4096];
    check(moesaic__control__v1__join_down__get_packed_size(m) <= sizeof bytes);
    size_t n = moesaic__control__v1__join_down__pack(m, bytes);
    if (s->peer != 0) (void)channel_send(s->channel, s->peer, bytes, n);
}

static void say_welcome(struct stage *s, uint8_t choice) {
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    Moesaic__Control__V1__Welcome w = MOESAIC__CONTROL__V1__WELCOME__INIT;
    Moesaic__Control__V1__Layout layout;
    layout_pack(&layout, &(struct layout){1, 1, 1, 1, 1, 1});
    w.layout = &layout;
    w.model = (char *)FOLDER;
    w.model_digest = model.digest;
    w.build_id = (char *)"fuzzed";
    w.arithmetic_class = (char *)"base";
    w.dtype = (char *)"auto";
    static const char *const kv_types[] = {"bfloat16", "float32", "fp8_e4m3", "int8"};
    w.kv_cache_dtype = (char *)kv_types[choice & 3];
    w.mla_form = (char *)(choice & 4 ? "expanded" : "absorbed");
    w.max_num_seqs = SLOTS;
    w.max_num_batched_tokens = ROWS;
    w.max_model_len = 128;
    w.kv_cache_bytes = 1 << 20;
    w.digest = choice & 2;
    m.kind_case = DOWN(WELCOME);
    m.welcome = &w;
    say(s, &m);
}

static void say_form(struct stage *s) {
    struct err_text e;
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    Moesaic__Control__V1__Form f = MOESAIC__CONTROL__V1__FORM__INIT;
    fabric_end(s->fabric);
    s->own_bytes = sizeof s->own_address;
    check(fabric_begin(s->fabric, s->own_address, &s->own_bytes, &e) == 0);
    s->worker_bytes = 0;
    s->connected = false;
    s->step = 0;
    f.epoch = ++s->epoch;
    f.nonce = 7;
    f.kv_blocks = 8;
    f.n_on_host = 1;
    m.kind_case = DOWN(FORM);
    m.form = &f;
    say(s, &m);
}

static void say_connect(struct stage *s) {
    struct err_text e;
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    Moesaic__Control__V1__Connect c = MOESAIC__CONTROL__V1__CONNECT__INIT;
    ProtobufCBinaryData list[2] = {{s->worker_bytes, s->worker_address},
                                   {s->own_bytes, s->own_address}};
    const uint8_t *addresses[2] = {s->worker_address, s->own_address};
    size_t bytes[2] = {s->worker_bytes, s->own_bytes};
    struct fabric_group group = {.epoch = s->epoch,
                                 .nonce = 7,
                                 .self = 1,
                                 .n_peers = 2,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    if (s->worker_bytes == 0 || s->own_bytes == 0) return;
    if (!s->connected) (void)fabric_connect(s->fabric, &group, &e);
    s->connected = true;
    c.epoch = s->epoch;
    c.n_addresses = 2;
    c.addresses = list;
    m.kind_case = DOWN(CONNECT);
    m.connect = &c;
    say(s, &m);
}

static void say_close(struct stage *s) {
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    Moesaic__Control__V1__CloseEpoch c = MOESAIC__CONTROL__V1__CLOSE_EPOCH__INIT;
    c.epoch = s->epoch != 0 ? s->epoch : 1;
    m.kind_case = DOWN(CLOSE_EPOCH);
    m.close_epoch = &c;
    say(s, &m);
}

// A lawful Welcome may ask for all the memory there is; that is no finding.
static bool is_greedy(const uint8_t *data, size_t n) {
    join_down *m = moesaic__control__v1__join_down__unpack(NULL, n, data);
    bool greedy = m != NULL && m->kind_case == DOWN(WELCOME);
    if (m != NULL) moesaic__control__v1__join_down__free_unpacked(m, NULL);
    return greedy;
}

static void say_raw(struct stage *s, const uint8_t *data, size_t n) {
    if (s->peer != 0 && !is_greedy(data, n)) (void)channel_send(s->channel, s->peer, data, n);
}

// The plan's epoch and step are put right, so that what follows is reached.
static void send_plan(struct stage *s, const uint8_t *data, size_t n) {
    static uint8_t bytes[1024]; // the fabric reads it until it is flushed
    Moesaic__Step__V1__StepPlan head = MOESAIC__STEP__V1__STEP_PLAN__INIT;
    head.epoch = s->epoch;
    head.step = ++s->step;
    size_t head_bytes = moesaic__step__v1__step_plan__pack(&head, bytes);
    memcpy(bytes + head_bytes, data, n);
    if (!s->connected) return;
    (void)fabric_send(s->fabric, 0, fabric_tag(FABRIC_PLAN, s->step, 0),
                      &(struct fabric_part){.data = bytes, .data_bytes = head_bytes + n});
    (void)fabric_flush(s->fabric, sim_now_ns(s->sim) + NS_PER_S);
}

static void act(struct stage *s, uint8_t opcode, const uint8_t *data, size_t n) {
    switch (opcode & 7) {
    case 0: say_raw(s, data, n); break;
    case 1: say_welcome(s, n > 0 ? data[0] : 0); break;
    case 2: say_form(s); break;
    case 3: say_connect(s); break;
    case 4: say_close(s); break;
    case 5: send_plan(s, data, n); break;
    case 6:
        if (s->peer != 0)
            channel_drop(s->channel, s->peer, n > 0 && data[0] & 1, "the fuzzer says so");
        break;
    default: pass(s, NS_PER_S * 6); // longer than a refused worker stays away
    }
    pass(s, 20 * NS_PER_MS);
}

static void open_stage(struct stage *s) {
    struct err_text e;
    struct sim_config config = sim_config_default(1);
    s->sim = sim_create(&config);
    check(s->sim != NULL);
    struct env *env = sim_script_env(s->sim);
    check(waker_create(env, &s->waker) == 0);
    struct channel_config channel = {
        .env = env, .waker = s->waker, .address = "leader", .hub = sim_channel_hub(s->sim)};
    check(channel_listen_mem(&s->channel, &channel, &e) == 0);
    struct fabric_config fabric = {
        .env = env, .waker = s->waker, .message_bytes_max = 1 << 20, .hub = sim_fabric_hub(s->sim)};
    check(fabric_open(&s->fabric, FABRIC_MEM, &fabric, &e) == 0);
    s->process = sim_spawn(s->sim, "worker", worker_main, s);
    pass(s, 100 * NS_PER_MS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct stage s = {.result = ERR_AGAIN};
    if (model.folder == NULL) {
        log_setup("fuzz", LOG_SILENT);
        model_cache_open(&model, FOLDER);
    }
    open_stage(&s);
    for (uint32_t i = 0; i < RECORDS_MAX && size >= 2; i++) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        act(&s, data[0], data + 2, n);
        data += 2 + n;
        size -= 2 + n;
    }
    sim_kill(s.sim, s.process);
    while (!sim_done(s.process))
        pass(&s, NS_PER_S);
    check(s.result == 0);
    fabric_close(s.fabric);
    channel_close(s.channel);
    waker_destroy(s.waker);
    sim_destroy(s.sim);
    return 0;
}
