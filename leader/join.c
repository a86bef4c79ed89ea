// join.c: who may come in: the checks of a worker's hello and of what it loaded, and the choice of
// its rank.
//
// A refusal is a sentence for the person who started the worker: it names what differs, here and
// there.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/dtype.h"
#include "common/base/host.h"
#include "common/base/log.h"
#include "common/net/layout_wire.h"
#include "leader/local.h"
#include "leader/members_state.h"

// Text of a worker goes to logs and pages: printable ASCII only.
static void copy_text(char *out, size_t cap, const char *text) {
    size_t i = 0;
    for (; i + 1 < cap && text[i] != '\0'; i++)
        out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    out[i] = '\0';
}

static bool has_class(const Moesaic__Control__V1__Hello *hello) {
    for (size_t i = 0; i < hello->n_arithmetic_classes; i++) {
        if (strcmp(hello->arithmetic_classes[i], ARITHMETIC_CLASS) == 0) return true;
    }
    return false;
}

// Real machines are far below these; what is above was not written by a worker.
#define CORES_MAX 65536
#define MEMORY_BYTES_MAX (UINT64_C(1) << 56)
#define CLASSES_MAX 16

static int check_length(const char *field, const char *text, size_t most, struct err_text *e) {
    size_t n = strlen(text);
    if (n <= most) return 0;
    return err_set(e, ERR_PEER_REFUSED, "hello.%s has %zu bytes, at most %zu are taken", field, n,
                   most);
}

static int check_number(const char *field, uint64_t value, uint64_t most, struct err_text *e) {
    if (value <= most) return 0;
    return err_set(e, ERR_PEER_REFUSED, "hello.%s %" PRIu64 " is above %" PRIu64, field, value,
                   most);
}

static int check_held(const Moesaic__Control__V1__Hello *hello, struct err_text *e) {
    struct layout held;
    struct err_text why;
    if (hello->held_layout == NULL)
        return err_set(e, ERR_PEER_REFUSED, "hello.held_layout is missing");
    if (layout_unpack(&held, hello->held_layout, &why) != 0)
        return err_set(e, ERR_PEER_REFUSED, "hello.held_layout: %s", why.text);
    if (hello->held_rank >= held.n_ranks)
        return err_set(e, ERR_PEER_REFUSED, "hello.held_rank %u does not exist among %u ranks",
                       hello->held_rank, held.n_ranks);
    return 0;
}

static int check_fields(const Moesaic__Control__V1__Hello *hello, struct err_text *e) {
    int err = check_length("host", hello->host, HOST_TEXT_MAX - 1, e);
    if (err == 0) err = check_length("name", hello->name, sizeof((struct member *)0)->name - 1, e);
    if (err == 0)
        err = check_length("kernels", hello->kernels, sizeof((struct member *)0)->kernels - 1, e);
    if (err == 0) err = check_number("n_cores", hello->n_cores, CORES_MAX, e);
    if (err == 0) err = check_number("memory_bytes", hello->memory_bytes, MEMORY_BYTES_MAX, e);
    if (err == 0)
        err = check_number("arithmetic_classes", hello->n_arithmetic_classes, CLASSES_MAX, e);
    return err == 0 && hello->has_weights ? check_held(hello, e) : err;
}

static int check_hello(const struct members *m, const Moesaic__Control__V1__Hello *hello,
                       struct err_text *e) {
    if (hello->protocol != CONTROL_PROTOCOL)
        return err_set(e, ERR_PEER_REFUSED, "control protocol %u is not the leader's %d",
                       hello->protocol, CONTROL_PROTOCOL);
    if (strcmp(hello->build_id, m->config.leader->build_id) != 0)
        return err_set(e, ERR_PEER_REFUSED, "build %.64s is not the leader's %.64s",
                       hello->build_id, m->config.leader->build_id);
    if (!has_class(hello))
        return err_set(e, ERR_PEER_REFUSED, "the worker does not compute in arithmetic class %s",
                       ARITHMETIC_CLASS);
    if (hello->wanted_rank < -1 ||
        (hello->wanted_rank >= 0 && (uint32_t)hello->wanted_rank >= m->n_ranks))
        return err_set(e, ERR_PEER_REFUSED, "rank %d does not exist among %u workers",
                       hello->wanted_rank, m->n_ranks);
    return check_fields(hello, e);
}

static bool is_free(const struct members *m, uint32_t rank) {
    return rank < m->n_ranks && !member_present(&m->ranks[rank]);
}

// How many of a host's own workers are somewhere, less those of other hosts.
struct balance {
    int32_t stage[RANKS_MAX]; // of each stage
    int32_t group[RANKS_MAX]; // of each stage and DP group
};

static uint32_t group_of(const struct layout *l, const struct layout_place *at) {
    return at->stage * l->dp + at->dp;
}

static void weigh(struct balance *b, const struct members *m, const char *host) {
    *b = (struct balance){0};
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct layout_place at = layout_place(&m->layout, i);
        if (!member_present(&m->ranks[i])) continue;
        int32_t one = strcmp(m->ranks[i].host, host) == 0 ? 1 : -1;
        b->stage[at.stage] += one;
        b->group[group_of(&m->layout, &at)] += one;
    }
}

// How well a rank suits a worker of this host: those who talk most share its memory. Members of its
// TP group count more than all others of its stage; who is elsewhere counts against it.
static int64_t closeness(const struct balance *b, const struct layout *l, uint32_t rank) {
    const struct layout_place at = layout_place(l, rank);
    int64_t group = b->group[group_of(l, &at)];
    return group * RANKS_MAX + (b->stage[at.stage] - group);
}

static struct member *closest_rank(struct members *m, const char *host) {
    struct balance balance;
    struct member *best = NULL;
    int64_t best_sum = 0;
    weigh(&balance, m, host);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (!is_free(m, i)) continue;
        int64_t sum = closeness(&balance, &m->layout, i);
        if (best != NULL && sum <= best_sum) continue;
        best = &m->ranks[i];
        best_sum = sum;
    }
    return best;
}

// What it still holds comes first, because another rank would mean loading anew; then what its
// start asked for; then the free one that is closest to its host's others, the lowest of equals.
static struct member *choose_rank(struct members *m, const Moesaic__Control__V1__Hello *hello) {
    struct layout held;
    bool holds = hello->has_weights && layout_unpack(&held, hello->held_layout, NULL) == 0 &&
                 layout_equal(&held, &m->layout) &&
                 hello->held_model_digest == m->config.leader->model_digest;
    if (holds && is_free(m, hello->held_rank)) return &m->ranks[hello->held_rank];
    if (hello->wanted_rank >= 0 && is_free(m, (uint32_t)hello->wanted_rank))
        return &m->ranks[hello->wanted_rank];
    return closest_rank(m, hello->host);
}

static void send_welcome(struct members *m, const struct member *k) {
    const struct leader_config *c = m->config.leader;
    Moesaic__Control__V1__Welcome w = MOESAIC__CONTROL__V1__WELCOME__INIT;
    Moesaic__Control__V1__Layout layout;
    w.rank = member_rank(m, k);
    layout_pack(&layout, &m->layout);
    w.layout = &layout;
    w.model = (char *)c->model; // packing reads only, here and below
    w.model_digest = c->model_digest;
    w.build_id = (char *)c->build_id;
    w.arithmetic_class = (char *)ARITHMETIC_CLASS;
    w.dtype = (char *)c->dtype;
    w.kv_cache_dtype = (char *)dtype_name(c->kv_dtype);
    w.mla_form = (char *)mla_form_name(c->spec->mla.expanded ? MLA_EXPANDED : MLA_ABSORBED);
    w.max_num_seqs = c->max_num_seqs;
    w.max_num_batched_tokens = c->max_num_batched_tokens;
    w.max_model_len = c->max_model_len;
    w.kv_cache_bytes = c->kv_cache_bytes;
    w.kv_cache_percent = c->kv_cache_percent;
    w.snapshot_bytes = c->no_prefix_caching ? 0 : c->snapshot_bytes;
    w.snapshot_percent = c->no_prefix_caching ? 0 : c->snapshot_percent;
    w.digest = c->digest;
    join_down down = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    down.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_WELCOME;
    down.welcome = &w;
    members_send(m, k->peer, &down);
}

// A worker whose stream broke may be back before the end of the old one was noticed. But while the
// old one still speaks, the new one is a double, and must not cost the group its member.
static int replace_earlier_stream(struct members *m, uint64_t instance, struct err_text *e) {
    int64_t now_ns = env_now_ns(m->config.env);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        if (!member_present(k) || k->instance != instance) continue;
        if (now_ns - k->heard_ns < MEMBER_FRESH_NS)
            return err_set(e, ERR_PEER_LOST, "instance %016" PRIx64 " has joined as rank %u",
                           instance, i);
        member_drop(m, k, false, "the worker joined again on a new stream");
    }
    return 0;
}

// Two workers may have one name; who looks at them should know.
static void warn_of_double_name(const struct members *m, const struct member *k) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *other = &m->ranks[i];
        if (other != k && member_present(other) && strcmp(other->name, k->name) == 0)
            log_warn("members", "name %s is of rank %u and of rank %u", k->name, i,
                     member_rank(m, k));
    }
}

// Anybody may take the name of a worker that the leader starts, but those run beside it.
static bool is_own(const struct members *m, const Moesaic__Control__V1__Hello *hello,
                   const char *name) {
    char own[HOST_TEXT_MAX];
    if (!local_starts(m->config.leader->n_local, name)) return false;
    host_name(own, sizeof own);
    return strcmp(hello->host, own) == 0;
}

// A worker that is started again beside others sees what they leave, and not what the host has:
// ranks remember the most that was seen of it, also when they have lost who saw it. A host that
// booted again is another.
static uint64_t most_seen(const struct members *m, const char *host, uint64_t bytes) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *k = &m->ranks[i];
        if (k->state != MEMBER_FREE && !k->memory_given && k->memory_bytes > bytes &&
            strcmp(k->host, host) == 0)
            bytes = k->memory_bytes;
    }
    return bytes;
}

int join_hello(struct members *m, uint64_t peer, const Moesaic__Control__V1__Hello *hello,
               struct err_text *e) {
    int err = check_hello(m, hello, e);
    if (err != 0) return err;
    err = replace_earlier_stream(m, hello->instance, e);
    if (err != 0) return err;
    struct member *k = choose_rank(m, hello);
    if (k == NULL) return err_set(e, ERR_PEER_REFUSED, "all %u ranks are taken", m->n_ranks);
    k->peer = peer;
    k->instance = hello->instance;
    k->n_cores = hello->n_cores;
    k->bytes_done = k->bytes_total = k->steps = 0;
    k->bytes_sent = k->bytes_received = 0;
    m->counts.joined++;
    k->room = k->held = (struct rank_room){0};
    char host[HOST_TEXT_MAX];
    copy_text(host, sizeof host, hello->host);
    k->memory_bytes = hello->memory_given ? hello->memory_bytes
                                          : most_seen(m, host, hello->memory_bytes); // k's, too
    k->memory_given = hello->memory_given;
    copy_text(k->kernels, sizeof k->kernels, hello->kernels);
    memcpy(k->host, host, sizeof k->host);
    copy_text(k->name, sizeof k->name, hello->name);
    if (k->name[0] == '\0') snprintf(k->name, sizeof k->name, "%.100s:%u", k->host, hello->pid);
    k->local = is_own(m, hello, k->name);
    k->heard_ns = k->moved_ns = env_now_ns(m->config.env);
    member_move(m, k, MEMBER_JOINED);
    member_host(k, host, sizeof host);
    log_event(LOG_INFO, "members", "worker joined", log_uint("rank", member_rank(m, k)),
              log_text("name", k->name), log_text("host", host), log_uint("pid", hello->pid),
              log_text("kernels", k->kernels), log_uint("cores", k->n_cores),
              log_uint("memory", hello->memory_bytes));
    warn_of_double_name(m, k);
    send_welcome(m, k);
    return 0;
}

// --- what it loaded

// Ranks of one stage and TP index hold the same, but for experts.
static struct shared_pin *shared_of(const struct members *m, const struct member *k) {
    const struct layout_place place = layout_place(&m->layout, member_rank(m, k));
    return &m->shared[place.stage * m->layout.tp + place.tp];
}

static int check_shared(const struct members *m, const struct member *k, uint64_t digest,
                        struct err_text *e) {
    const char *text = "the tensors that it shares with other workers differ from theirs: is it "
                       "the same checkpoint?";
    const struct shared_pin *pin = shared_of(m, k);
    if (pin->pinned) return digest == pin->digest ? 0 : err_set(e, ERR_PEER_REFUSED, "%s", text);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *other = &m->ranks[i];
        bool loaded = other->state == MEMBER_LOADED || other->state == MEMBER_FORMING ||
                      other->state == MEMBER_READY;
        if (other != k && loaded && shared_of(m, other) == pin && other->shared_digest != digest)
            return err_set(e, ERR_PEER_REFUSED, "%s", text);
    }
    return 0;
}

// Sums over all ranks must not overflow.
#define PART_BYTES_MAX (UINT64_C(1) << 51)
static_assert(PART_BYTES_MAX <= UINT64_MAX / 4 / RANKS_MAX, "sums of what workers need");

static int check_sizes(const Moesaic__Control__V1__Loaded *l, struct err_text *e) {
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {{"weight_bytes", l->weight_bytes},
                 {"step_bytes", l->step_bytes},
                 {"page_bytes", l->page_bytes},
                 {"state_bytes", l->state_bytes}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].bytes > PART_BYTES_MAX)
            return err_set(e, ERR_PEER_PROTOCOL, "Loaded.%s %" PRIu64 " is above %" PRIu64,
                           parts[i].name, parts[i].bytes, PART_BYTES_MAX);
    }
    return 0;
}

int join_loaded(struct members *m, struct member *k, const Moesaic__Control__V1__Loaded *loaded,
                struct err_text *e) {
    uint32_t rank = member_rank(m, k);
    if (loaded->model_digest != m->config.leader->model_digest)
        return err_set(e, ERR_PEER_REFUSED,
                       "model digest %016" PRIx64 " is not the leader's %016" PRIx64,
                       loaded->model_digest, m->config.leader->model_digest);
    int err = check_shared(m, k, loaded->shared_digest, e);
    if (err != 0) return err;
    if (k->digest_pinned && loaded->experts_digest != k->experts_pinned)
        return err_set(
            e, ERR_PEER_REFUSED,
            "the experts of rank %u are not those that it served before: restart the leader to "
            "serve changed weights",
            rank);
    if (loaded->snapshots > SNAPSHOTS_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "Loaded.snapshots %u is above %u", loaded->snapshots,
                       SNAPSHOTS_MAX);
    if (loaded->kv_blocks == 0)
        return err_set(e, ERR_PEER_REFUSED, "rank %u has no room for one KV block", rank);
    err = check_sizes(loaded, e);
    if (err != 0) return err;
    k->step_bytes = loaded->step_bytes;
    k->page_bytes = loaded->page_bytes;
    k->state_bytes = loaded->state_bytes;
    k->shared_digest = loaded->shared_digest;
    k->experts_digest = loaded->experts_digest;
    k->held = (struct rank_room){.kv_blocks = loaded->kv_blocks, .snapshots = loaded->snapshots};
    k->bytes_done = k->bytes_total = loaded->weight_bytes;
    member_move(m, k, MEMBER_LOADED);
    log_event(LOG_INFO, "members", "worker loaded", log_uint("rank", rank),
              log_uint("bytes", loaded->weight_bytes), log_uint("kv_blocks", loaded->kv_blocks),
              log_uint("snapshots", loaded->snapshots));
    return 0;
}

void join_pin_digests(struct members *m) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        *shared_of(m, &m->ranks[i]) = (struct shared_pin){true, m->ranks[i].shared_digest};
        m->ranks[i].digest_pinned = true;
        m->ranks[i].experts_pinned = m->ranks[i].experts_digest;
    }
}
