// members.c: the workers' streams and states: what each may say when, and what it means that one is
// gone.
#include "leader/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/net/pb_arena.h"
#include "leader/members_state.h"

// What protobuf-c may use for one message of at most CONTROL_MESSAGE_BYTES_MAX: small numbers grow
// from 1 byte to 8.
#define MESSAGE_ARENA_BYTES_MAX ((size_t)16 << 20)
#define GUESTS_SPARE 512
// A tick that comes this much too late means that the leader itself stood still: the silence was
// its own.
#define LATE_TICK_NS NS_PER_S

bool member_may_move(enum member_state from, enum member_state to) {
    static const bool allowed[MEMBER_LOST + 1][MEMBER_LOST + 1] = {
        [MEMBER_FREE] = {[MEMBER_JOINED] = true},
        [MEMBER_JOINED] = {[MEMBER_LOADING] = true, [MEMBER_LOADED] = true, [MEMBER_LOST] = true},
        [MEMBER_LOADING] = {[MEMBER_LOADED] = true, [MEMBER_LOST] = true},
        [MEMBER_LOADED] = {[MEMBER_FORMING] = true, [MEMBER_LOST] = true},
        [MEMBER_FORMING] = {[MEMBER_READY] = true, [MEMBER_LOADED] = true, [MEMBER_LOST] = true},
        [MEMBER_READY] = {[MEMBER_LOADED] = true, [MEMBER_LOST] = true},
        [MEMBER_LOST] = {[MEMBER_JOINED] = true},
    };
    return allowed[from][to];
}

// --- making and unmaking

static int init_ranks(struct members *m, const struct model_spec *spec) {
    uint32_t n_experts = spec->router.n_experts;
    m->ranks = mem_array(m->n_ranks, sizeof *m->ranks);
    m->guests = mem_array(m->n_guests_max, sizeof *m->guests);
    m->expert_tokens = mem_array((size_t)spec->n_layers * n_experts, sizeof *m->expert_tokens);
    m->shared = mem_array((size_t)m->layout.pp * m->layout.tp, sizeof *m->shared);
    if (m->ranks == NULL || m->guests == NULL || m->expert_tokens == NULL || m->shared == NULL)
        return ERR_FATAL_NOMEM;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        k->n_counters =
            layout_layer_count(&m->layout, spec->n_layers, layout_place(&m->layout, i).stage) *
            layout_expert_count(&m->layout, n_experts, i);
        k->counters_seen = mem_array(k->n_counters, sizeof *k->counters_seen);
        if (k->counters_seen == NULL) return ERR_FATAL_NOMEM;
    }
    return 0;
}

int members_create(struct members **out, const struct members_config *config, struct err_text *e) {
    const struct leader_config *leader = config->leader;
    struct members *m = mem_zalloc(sizeof *m);
    if (m == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the members");
    m->config = *config;
    m->layout = leader->layout;
    m->n_ranks = m->layout.n_ranks;
    m->n_guests_max = m->n_ranks + GUESTS_SPARE;
    m->stage_deadline_ns = m->deadline_ns = NO_DEADLINE;
    arena_init(&m->arena, MESSAGE_ARENA_BYTES_MAX);
    if (init_ranks(m, leader->spec) != 0) {
        members_destroy(m);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %u members", leader->layout.n_ranks);
    }
    *out = m;
    return 0;
}

void members_destroy(struct members *m) {
    if (m == NULL) return;
    for (uint32_t i = 0; m->ranks != NULL && i < m->n_ranks; i++)
        mem_free(m->ranks[i].counters_seen);
    mem_free(m->ranks);
    mem_free(m->guests);
    mem_free(m->shared);
    mem_free(m->expert_tokens);
    arena_finish(&m->arena);
    mem_free(m);
}

// --- states

uint32_t member_rank(const struct members *m, const struct member *k) {
    return (uint32_t)(k - m->ranks);
}

void member_move(struct members *m, struct member *k, enum member_state to) {
    check(member_may_move(k->state, to));
    k->state = to;
    m->version++;
}

// The boot id behind the host's name tells machines apart; a person needs only the name.
void member_host(const struct member *k, char *out, size_t cap) {
    snprintf(out, cap, "%.*s", (int)strcspn(k->host, " "), k->host);
}

void member_lose(struct members *m, struct member *k, const char *reason) {
    char text[ERR_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u (%.60s): %.300s", member_rank(m, k), k->name, reason);
    log_event(m->leaving ? LOG_INFO : LOG_ERROR, "members",
              m->leaving ? "worker left" : "worker lost", log_uint("rank", member_rank(m, k)),
              log_text("name", k->name), log_text("reason", reason));
    ++*(m->leaving ? &m->counts.left : &m->counts.lost);
    member_move(m, k, MEMBER_LOST);
    k->leaving = false;
    form_close(m, k, text);
    if (m->leaving && !m->returns) m->config.io.left(m->config.io.context);
}

void member_drop(struct members *m, struct member *k, bool refused, const char *reason) {
    uint64_t peer = k->peer;
    member_lose(m, k, reason);
    m->config.io.drop(m->config.io.context, peer, refused, reason);
}

void members_send(struct members *m, uint64_t peer, const join_down *message) {
    size_t bytes = moesaic__control__v1__join_down__get_packed_size(message);
    uint8_t *data = bytes > CONTROL_MESSAGE_BYTES_MAX ? NULL : mem_alloc(bytes);
    if (data == NULL) { // its stage runs into its timeout, with this as the explanation
        log_error("members", "message of %zu bytes not sent peer %" PRIu64, bytes, peer);
        return;
    }
    moesaic__control__v1__join_down__pack(message, data);
    int err = m->config.io.send(m->config.io.context, peer, data, bytes);
    if (err != 0)
        log_debug("members", "send failed peer %" PRIu64 " error %s", peer,
                  err_name(err)); // CLOSED follows
    mem_free(data);
}

// --- heartbeats

// More rows than an expert can have computed between two beats.
#define COUNTER_JUMP_MAX (UINT64_C(1) << 48)

// Counters of a worker are cumulative and start anew with its epoch.
static int check_counters(const struct member *k, const Moesaic__Control__V1__Heartbeat *h,
                          struct err_text *e) {
    if (h->n_expert_tokens != k->n_counters)
        return err_set(e, ERR_PEER_PROTOCOL, "heartbeat has %zu expert counters, not %u",
                       h->n_expert_tokens, k->n_counters);
    for (uint32_t i = 0; i < k->n_counters; i++) {
        uint64_t seen = k->counters_seen[i], now = h->expert_tokens[i];
        if (now < seen || now - seen > COUNTER_JUMP_MAX)
            return err_set(e, ERR_PEER_PROTOCOL,
                           "heartbeat's expert counter %u went from %" PRIu64 " to %" PRIu64, i,
                           seen, now);
    }
    return 0;
}

// Ranks that split an expert all see its tokens; the first of them counts.
static void add_counters(struct members *m, struct member *k, const uint64_t *counters) {
    const struct model_spec *spec = m->config.leader->spec;
    uint32_t rank = member_rank(m, k), n_experts = spec->router.n_experts;
    const struct layout_place place = layout_place(&m->layout, rank);
    uint32_t first = layout_expert_first(&m->layout, n_experts, rank);
    uint32_t n_local = layout_expert_count(&m->layout, n_experts, rank);
    uint32_t layer = layout_layer_first(&m->layout, spec->n_layers, place.stage);
    for (uint32_t i = 0; i < k->n_counters; i++) {
        uint64_t more = counters[i] - k->counters_seen[i];
        size_t expert = (size_t)(layer + i / n_local) * n_experts + first + i % n_local;
        if (place.etp == 0) m->expert_tokens[expert] += more;
        k->counters_seen[i] = counters[i];
    }
}

static int take_heartbeat(struct members *m, struct member *k,
                          const Moesaic__Control__V1__Heartbeat *h, struct err_text *e) {
    m->beats++;
    if (h->epoch > m->epoch)
        return err_set(e, ERR_PEER_PROTOCOL, "heartbeat of epoch %" PRIu64 " to come", h->epoch);
    if (h->epoch < m->epoch) return 0; // it says that the worker lives, and nothing else
    if (h->n_expert_tokens != 0) {
        int err = check_counters(k, h, e);
        if (err != 0) return err;
        add_counters(m, k, h->expert_tokens);
        m->version++;
    }
    k->engine_age_ms = h->engine_age_ms;
    k->steps = h->steps;
    k->bytes_sent = h->bytes_sent;
    k->bytes_received = h->bytes_received;
    return 0;
}

// --- messages

static int take_progress(struct members *m, struct member *k,
                         const Moesaic__Control__V1__Progress *p, struct err_text *e) {
    if (k->state == MEMBER_JOINED) {
        member_move(m, k, MEMBER_LOADING);
        log_event(LOG_INFO, "members", "worker loading", log_uint("rank", member_rank(m, k)),
                  log_uint("bytes", p->bytes_total));
    }
    if (k->state != MEMBER_LOADING) return err_set(e, ERR_PEER_PROTOCOL, "Progress after Loaded");
    if (p->bytes_done > p->bytes_total)
        return err_set(e, ERR_PEER_PROTOCOL, "Progress of %" PRIu64 " bytes out of %" PRIu64,
                       p->bytes_done, p->bytes_total);
    if (p->bytes_done > k->bytes_done) k->moved_ns = k->heard_ns;
    k->bytes_total = p->bytes_total;
    k->bytes_done = p->bytes_done;
    m->version++;
    return 0;
}

static int take_loaded(struct members *m, struct member *k,
                       const Moesaic__Control__V1__Loaded *loaded, struct err_text *e) {
    if (k->state != MEMBER_JOINED && k->state != MEMBER_LOADING)
        return err_set(e, ERR_PEER_PROTOCOL, "Loaded twice");
    return join_loaded(m, k, loaded, e);
}

static int take_epoch_closed(struct members *m, const struct member *k,
                             const Moesaic__Control__V1__EpochClosed *c, struct err_text *e) {
    if (c->epoch > m->epoch)
        return err_set(e, ERR_PEER_PROTOCOL, "EpochClosed of epoch %" PRIu64 " to come", c->epoch);
    if (c->epoch < m->epoch) return 0;
    char text[ERR_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u (%.60s) closed the epoch: %.300s", member_rank(m, k),
             k->name, c->reason);
    form_close(m, NULL, text);
    return 0;
}

// A wish to leave is heard while requests may run. Otherwise, and without one, it goes at once.
static int take_leaving(struct members *m, struct member *k, const Moesaic__Control__V1__Leaving *l,
                        struct err_text *e) {
    if (!l->when_idle || m->stage != STAGE_READY)
        return err_set(e, ERR_PEER_LOST, "the worker leaves: %.400s", l->reason);
    if (k->leaving) return 0;
    k->leaving = true;
    m->version++;
    log_event(LOG_INFO, "members", "worker drains", log_uint("rank", member_rank(m, k)),
              log_text("name", k->name), log_text("reason", l->reason));
    return 0;
}

#define UP(kind) MOESAIC__CONTROL__V1__JOIN_UP__KIND_##kind

// 0, or why this worker must go. ERR_PEER_LOST: it goes by itself.
static int take_message(struct members *m, struct member *k, const join_up *up,
                        struct err_text *e) {
    switch (up->kind_case) {
    case UP(PROGRESS): return take_progress(m, k, up->progress, e);
    case UP(LOADED): return take_loaded(m, k, up->loaded, e);
    case UP(FORMED): return form_formed(m, k, up->formed, e);
    case UP(READY): return form_ready(m, k, up->ready, e);
    case UP(HEARTBEAT): return take_heartbeat(m, k, up->heartbeat, e);
    case UP(EPOCH_CLOSED): return take_epoch_closed(m, k, up->epoch_closed, e);
    case UP(FAILED):
        return err_set(e, ERR_PEER_REFUSED, "the worker failed: %.400s", up->failed->reason);
    case UP(LEAVING): return take_leaving(m, k, up->leaving, e);
    case UP(HELLO): return err_set(e, ERR_PEER_PROTOCOL, "Hello twice");
    default: return err_set(e, ERR_PEER_PROTOCOL, "a message of no known kind");
    }
}

static struct member *find_member(const struct members *m, uint64_t peer) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (member_present(&m->ranks[i]) && m->ranks[i].peer == peer) return &m->ranks[i];
    }
    return NULL;
}

static struct guest *find_guest(const struct members *m, uint64_t peer) {
    for (uint32_t i = 0; i < m->n_guests; i++) {
        if (m->guests[i].peer == peer) return &m->guests[i];
    }
    return NULL;
}

// *gone is what it was: its place in the list is another's now.
static void guest_remove(struct members *m, struct guest *g, struct guest *gone) {
    *gone = *g;
    *g = m->guests[--m->n_guests];
}

// Outsiders decide how often this happens, so not every time is worth a line. Who it says it is
// (hello may be NULL) is its own word, and may be long.
static void log_refusal(struct members *m, const struct guest *gone,
                        const Moesaic__Control__V1__Hello *hello, const char *reason) {
    char name[64] = "", host[64] = "";
    if (!log_gate_pass(&m->refusals, env_now_ns(m->config.env))) return;
    if (hello != NULL) {
        snprintf(name, sizeof name, "%s", hello->name);
        snprintf(host, sizeof host, "%.*s", (int)strcspn(hello->host, " "), hello->host);
    }
    log_event(LOG_WARN, "members", "worker refused", log_text("peer", gone->address),
              log_text("name", name), log_text("host", host), log_text("reason", reason));
}

static void log_more_refusals(struct members *m, int64_t now_ns) {
    uint32_t n = log_gate_hidden(&m->refusals, now_ns);
    if (n > 0) log_event(LOG_WARN, "members", "more workers refused", log_uint("count", n));
}

// later: it may try again at once.
static void drop_guest(struct members *m, uint64_t peer, bool later, const char *reason) {
    m->counts.refused++;
    m->config.io.drop(m->config.io.context, peer, !later, reason);
}

static void refuse_guest(struct members *m, struct guest *g, bool later, const char *reason) {
    struct guest gone;
    guest_remove(m, g, &gone);
    log_refusal(m, &gone, NULL, reason);
    drop_guest(m, gone.peer, later, reason);
}

static join_up *unpack(struct members *m, const struct channel_event *ev) {
    arena_reset(&m->arena);
    if (ev->bytes > CONTROL_MESSAGE_BYTES_MAX) return NULL;
    ProtobufCAllocator allocator = pb_arena_allocator(&m->arena);
    return moesaic__control__v1__join_up__unpack(&allocator, ev->bytes, ev->data);
}

static void guest_message(struct members *m, struct guest *g, const join_up *up) {
    struct err_text e;
    struct guest gone;
    guest_remove(m, g, &gone);
    int err = up == NULL ? err_set(&e, ERR_PEER_PROTOCOL, "the message is malformed")
              : up->kind_case != UP(HELLO)
                  ? err_set(&e, ERR_PEER_PROTOCOL, "the first message is not Hello")
                  : join_hello(m, gone.peer, up->hello, &e);
    if (err == 0) return;
    log_refusal(m, &gone, up != NULL && up->kind_case == UP(HELLO) ? up->hello : NULL, e.text);
    drop_guest(m, gone.peer, err == ERR_PEER_LOST, e.text);
}

static void member_message(struct members *m, struct member *k, const join_up *up) {
    struct err_text e;
    k->heard_ns = env_now_ns(m->config.env);
    int err = up == NULL ? err_set(&e, ERR_PEER_PROTOCOL, "a message is malformed")
                         : take_message(m, k, up, &e);
    if (err == 0) return;
    bool leaving = m->leaving;
    m->leaving = leaving || err == ERR_PEER_LOST;
    m->returns = k->local && !leaving;
    member_drop(m, k, err != ERR_PEER_LOST, e.text);
    m->leaving = leaving;
    m->returns = false;
}

// A worker says hello as soon as its stream is open: of too many that say nothing, the one that
// has been silent for longest is not one.
static void make_room_for_guest(struct members *m) {
    struct guest *oldest = &m->guests[0];
    for (uint32_t i = 1; i < m->n_guests; i++) {
        if (m->guests[i].since_ns < oldest->since_ns) oldest = &m->guests[i];
    }
    refuse_guest(m, oldest, true, "too many streams wait for their hello");
}

static void opened(struct members *m, uint64_t peer, const char *address) {
    if (m->n_guests == m->n_guests_max) make_room_for_guest(m);
    struct guest *g = &m->guests[m->n_guests++];
    *g = (struct guest){.peer = peer, .since_ns = env_now_ns(m->config.env)};
    snprintf(g->address, sizeof g->address, "%.79s", address);
}

static void closed(struct members *m, uint64_t peer, const char *text) {
    struct guest *g = find_guest(m, peer);
    if (g != NULL) {
        struct guest gone;
        guest_remove(m, g, &gone);
        log_refusal(m, &gone, NULL, "its stream ended before its hello");
    }
    struct member *k = find_member(m, peer);
    if (k != NULL) member_lose(m, k, text[0] != '\0' ? text : "its stream ended");
}

void members_event(struct members *m, const struct channel_event *ev) {
    if (ev->kind == CHANNEL_OPENED) {
        opened(m, ev->peer, ev->text);
        return;
    }
    if (ev->kind == CHANNEL_CLOSED) {
        closed(m, ev->peer, ev->text);
        return;
    }
    struct guest *g = find_guest(m, ev->peer);
    struct member *k = find_member(m, ev->peer);
    if (g != NULL)
        guest_message(m, g, unpack(m, ev));
    else if (k != NULL)
        member_message(m, k, unpack(m, ev));
    // Else it was dropped while this was on the way.
}

// --- time

static int64_t silence_max(const struct members *m, const struct member *k) {
    bool strict = m->stage == STAGE_READY && k->state == MEMBER_READY;
    return strict ? MEMBER_SILENCE_NS : MEMBER_SILENCE_LOADING_NS;
}

static void check_member(struct members *m, struct member *k, int64_t now_ns, bool step_in_flight) {
    char text[128];
    if (now_ns - k->heard_ns >= silence_max(m, k)) {
        snprintf(text, sizeof text, "nothing was heard of it for %" PRId64 " ms",
                 (now_ns - k->heard_ns) / NS_PER_MS);
        member_drop(m, k, false, text);
    } else if ((k->state == MEMBER_JOINED || k->state == MEMBER_LOADING) &&
               now_ns - k->moved_ns >= MEMBER_STALL_NS) {
        member_drop(m, k, false, "it loads, but has read nothing for two minutes");
    } else if (step_in_flight && k->state == MEMBER_READY &&
               k->engine_age_ms >= m->config.leader->step_timeout_ns / NS_PER_MS) {
        snprintf(text, sizeof text, "its engine made no progress for %u ms", k->engine_age_ms);
        member_drop(m, k, false, text);
    }
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void forgive_own_pause(struct members *m, int64_t now_ns) {
    if (m->deadline_ns == NO_DEADLINE || now_ns - m->deadline_ns < LATE_TICK_NS) return;
    int64_t pause_ns = now_ns - m->tick_ns;
    log_event(LOG_WARN, "members", "leader stood still",
              log_uint("ms", (uint64_t)(pause_ns / NS_PER_MS)));
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        k->heard_ns = earlier(k->heard_ns + pause_ns, now_ns);
        k->moved_ns = earlier(k->moved_ns + pause_ns, now_ns);
    }
}

// Who asked to leave is told to.
static void release_leaving(struct members *m) {
    Moesaic__Control__V1__Leave leave = MOESAIC__CONTROL__V1__LEAVE__INIT;
    join_down down = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    leave.reason = (char *)"no request needs it any more";
    down.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_LEAVE;
    down.leave = &leave;
    m->leaving = true;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        if (!member_present(k) || !k->leaving) continue;
        members_send(m, k->peer, &down);
        m->returns = k->local;
        member_drop(m, k, false, "it asked to leave");
    }
    m->leaving = m->returns = false;
}

void members_tick(struct members *m, bool step_in_flight) {
    int64_t now_ns = env_now_ns(m->config.env);
    forgive_own_pause(m, now_ns);
    for (uint32_t i = m->n_guests; i-- > 0;) {
        if (now_ns - m->guests[i].since_ns < MEMBER_HELLO_NS) continue;
        refuse_guest(m, &m->guests[i], false, "no hello came");
    }
    log_more_refusals(m, now_ns);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (member_present(&m->ranks[i])) check_member(m, &m->ranks[i], now_ns, step_in_flight);
    }
    form_timeout(m, now_ns);
    if (m->stage != STAGE_READY) release_leaving(m);
    form_begin_if_possible(m, now_ns);
    m->tick_ns = now_ns;
    m->deadline_ns = NO_DEADLINE;
}

int64_t members_deadline(struct members *m) {
    int64_t deadline_ns = m->stage_deadline_ns;
    bool all_loaded = true;
    for (uint32_t i = 0; i < m->n_guests; i++)
        deadline_ns = earlier(deadline_ns, m->guests[i].since_ns + MEMBER_HELLO_NS);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *k = &m->ranks[i];
        if (member_present(k)) deadline_ns = earlier(deadline_ns, k->heard_ns + silence_max(m, k));
        all_loaded = all_loaded && k->state == MEMBER_LOADED;
    }
    if (m->stage == STAGE_NONE && all_loaded) deadline_ns = earlier(deadline_ns, m->form_after_ns);
    m->deadline_ns = deadline_ns;
    return deadline_ns;
}

void members_break(struct members *m, const char *reason) {
    form_close(m, NULL, reason);
}

void members_blame(struct members *m, uint32_t rank, const char *reason) {
    check(rank < m->n_ranks);
    if (member_present(&m->ranks[rank])) member_drop(m, &m->ranks[rank], true, reason);
}

bool members_parting(const struct members *m) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (m->ranks[i].leaving && !m->ranks[i].local) return true;
    }
    return false;
}

bool members_leaving(const struct members *m) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (m->ranks[i].leaving) return true;
    }
    return false;
}

void members_let_go(struct members *m) {
    m->leaving = true;
    m->returns = !members_parting(m);
    form_close(m, NULL, "a worker leaves");
    release_leaving(m);
}

void members_leave(struct members *m, const char *reason) {
    m->leaving = true;
    form_close(m, NULL, reason);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (member_present(&m->ranks[i])) member_drop(m, &m->ranks[i], false, reason);
    }
}
