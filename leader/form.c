// form.c: epochs: how a group is formed out of loaded workers, and how it is closed. members.c is
// before it in the walk, drive.c after.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "leader/members_state.h"

static void send_form(struct members *m, const struct member *k) {
    Moesaic__Control__V1__Form f = MOESAIC__CONTROL__V1__FORM__INIT;
    f.epoch = m->epoch;
    f.nonce = m->nonce;
    f.kv_blocks = k->room.kv_blocks;
    f.snapshots = k->room.snapshots;
    f.host_index = k->host_index;
    f.n_on_host = k->n_on_host;
    join_down down = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    down.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_FORM;
    down.form = &f;
    members_send(m, k->peer, &down);
}

static void send_close(struct members *m, const struct member *k, const char *reason) {
    Moesaic__Control__V1__CloseEpoch c = MOESAIC__CONTROL__V1__CLOSE_EPOCH__INIT;
    c.epoch = m->epoch;
    c.reason = (char *)reason;
    join_down down = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    down.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CLOSE_EPOCH;
    down.close_epoch = &c;
    members_send(m, k->peer, &down);
}

static bool all_in(const struct members *m, enum member_state state) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (m->ranks[i].state != state) return false;
    }
    return true;
}

void form_begin_if_possible(struct members *m, int64_t now_ns) {
    if (m->stage != STAGE_NONE || now_ns < m->form_after_ns || !all_in(m, MEMBER_LOADED)) return;
    struct err_text e;
    m->address_bytes = sizeof m->address;
    int err = m->config.io.begin(m->config.io.context, m->address, &m->address_bytes, &e);
    if (err != 0) {
        log_error("members", "the leader's own fabric did not begin: %s", e.text);
        m->form_after_ns = now_ns + MEMBER_RETRY_NS;
        return;
    }
    m->epoch++;
    env_random(m->config.env, &m->nonce, sizeof m->nonce);
    m->stage = STAGE_FORMING;
    m->stage_deadline_ns = now_ns + MEMBER_FORM_NS;
    m->version++;
    m->epoch_since_ns = now_ns;
    log_event(LOG_INFO, "members", "group forming", log_uint("epoch", m->epoch),
              log_uint("ranks", m->n_ranks));
    share_rooms(m);
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        k->address_bytes = 0;
        k->engine_age_ms = 0;
        memset(k->counters_seen, 0, k->n_counters * sizeof k->counters_seen[0]);
        member_move(m, k, MEMBER_FORMING);
        send_form(m, k);
    }
}

// A message of an epoch that is over crosses the CloseEpoch that ended it: it says nothing any
// more.
static bool is_stale(const struct members *m, uint64_t epoch) {
    return epoch < m->epoch || (epoch == m->epoch && m->stage == STAGE_NONE);
}

static int connect_self(struct members *m, const uint8_t **addresses, size_t *bytes,
                        struct err_text *e) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        addresses[i] = m->ranks[i].address;
        bytes[i] = m->ranks[i].address_bytes;
    }
    addresses[m->n_ranks] = m->address;
    bytes[m->n_ranks] = m->address_bytes;
    struct fabric_group group = {.epoch = m->epoch,
                                 .nonce = m->nonce,
                                 .self = m->n_ranks,
                                 .n_peers = m->n_ranks + 1,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    return m->config.io.connect(m->config.io.context, &group, e);
}

static void send_connect(struct members *m, const uint8_t *const *addresses, const size_t *bytes,
                         ProtobufCBinaryData *list) {
    for (uint32_t i = 0; i <= m->n_ranks; i++)
        list[i] = (ProtobufCBinaryData){.len = bytes[i], .data = (uint8_t *)addresses[i]};
    Moesaic__Control__V1__Connect c = MOESAIC__CONTROL__V1__CONNECT__INIT;
    c.epoch = m->epoch;
    c.n_addresses = m->n_ranks + 1;
    c.addresses = list;
    join_down down = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    down.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CONNECT;
    down.connect = &c;
    for (uint32_t i = 0; i < m->n_ranks; i++)
        members_send(m, m->ranks[i].peer, &down);
}

// All addresses are known. The arena holds the lists for as long as this takes.
static void connect_all(struct members *m) {
    size_t n = (size_t)m->n_ranks + 1;
    const uint8_t **addresses = arena_alloc(&m->arena, n * sizeof *addresses);
    size_t *bytes = arena_alloc(&m->arena, n * sizeof *bytes);
    ProtobufCBinaryData *list = arena_alloc(&m->arena, n * sizeof *list);
    struct err_text e;
    int err = addresses == NULL || bytes == NULL || list == NULL
                  ? err_set(&e, ERR_FATAL_NOMEM, "no memory for the addresses")
                  : connect_self(m, addresses, bytes, &e);
    if (err != 0) {
        form_close(m, NULL, e.text);
        return;
    }
    m->stage = STAGE_CONNECTING;
    m->stage_deadline_ns = env_now_ns(m->config.env) + MEMBER_CONNECT_NS;
    send_connect(m, addresses, bytes, list);
}

int form_formed(struct members *m, struct member *k, const Moesaic__Control__V1__Formed *formed,
                struct err_text *e) {
    if (is_stale(m, formed->epoch)) return 0;
    if (formed->epoch != m->epoch || m->stage != STAGE_FORMING || k->address_bytes != 0)
        return err_set(e, ERR_PEER_PROTOCOL, "Formed of epoch %" PRIu64 " was not asked for",
                       formed->epoch);
    if (formed->address.len == 0 || formed->address.len > FABRIC_ADDRESS_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "Formed has an address of %zu bytes",
                       formed->address.len);
    if (m->config.io.check_address != NULL) {
        int err = m->config.io.check_address(m->config.io.context, formed->address.data,
                                             formed->address.len, e);
        if (err != 0) return err;
    }
    memcpy(k->address, formed->address.data, formed->address.len);
    k->address_bytes = formed->address.len;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (m->ranks[i].address_bytes == 0) return 0;
    }
    connect_all(m);
    return 0;
}

static uint64_t ms_since_epoch(const struct members *m, int64_t now_ns) {
    return (uint64_t)((now_ns - m->epoch_since_ns) / NS_PER_MS);
}

static void group_ready(struct members *m) {
    m->stage = STAGE_READY;
    m->stage_deadline_ns = NO_DEADLINE;
    m->version++;
    struct rank_room *rooms = arena_alloc(&m->arena, m->layout.dp * sizeof *rooms);
    for (uint32_t i = 0; rooms != NULL && i < m->layout.dp; i++)
        rooms[i] = m->ranks[layout_rank(&m->layout, 0, i, 0)].room;
    if (rooms == NULL || m->config.io.ready(m->config.io.context, m->epoch, rooms) != 0) {
        form_close(m, NULL, "the leader has no memory for the group's tables");
        return;
    }
    join_pin_digests(m);
    m->counts.formed++;
    int64_t now_ns = env_now_ns(m->config.env);
    log_event(LOG_INFO, "members", "group ready", log_uint("epoch", m->epoch),
              log_uint("ranks", m->n_ranks), log_uint("took_ms", ms_since_epoch(m, now_ns)));
    m->epoch_since_ns = now_ns;
}

int form_ready(struct members *m, struct member *k, const Moesaic__Control__V1__Ready *ready,
               struct err_text *e) {
    if (is_stale(m, ready->epoch)) return 0;
    if (ready->epoch != m->epoch || m->stage != STAGE_CONNECTING || k->state != MEMBER_FORMING)
        return err_set(e, ERR_PEER_PROTOCOL, "Ready of epoch %" PRIu64 " was not asked for",
                       ready->epoch);
    member_move(m, k, MEMBER_READY);
    log_event(LOG_INFO, "members", "worker ready", log_uint("rank", member_rank(m, k)),
              log_uint("epoch", m->epoch), log_text("lanes", ready->lanes));
    if (all_in(m, MEMBER_READY)) group_ready(m);
    return 0;
}

void form_close(struct members *m, const struct member *skip, const char *reason) {
    if (m->stage == STAGE_NONE) return;
    bool was_ready = m->stage == STAGE_READY;
    m->counts.closed++;
    m->stage = STAGE_NONE; // first: what follows may come back here
    m->stage_deadline_ns = NO_DEADLINE;
    m->form_after_ns = env_now_ns(m->config.env) + (was_ready ? MEMBER_SETTLE_NS : MEMBER_RETRY_NS);
    m->version++;
    log_event(m->leaving ? LOG_INFO : LOG_ERROR, "members", "group closed",
              log_uint("epoch", m->epoch), log_text("stage", was_ready ? "ready" : "forming"),
              log_uint("after_ms", ms_since_epoch(m, env_now_ns(m->config.env))),
              log_text("reason", reason));
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        struct member *k = &m->ranks[i];
        if (k == skip || (k->state != MEMBER_FORMING && k->state != MEMBER_READY)) continue;
        member_move(m, k, MEMBER_LOADED);
        send_close(m, k, reason);
    }
    m->config.io.end(m->config.io.context);
    m->config.io.lost(m->config.io.context, m->leaving && !m->returns, reason);
}

// Who has not even begun does not answer at all and must go. Who cannot connect may have a
// neighbour to blame: the next attempt will show.
void form_timeout(struct members *m, int64_t now_ns) {
    if (now_ns < m->stage_deadline_ns) return;
    if (m->stage == STAGE_CONNECTING) {
        form_close(m, NULL, "the workers did not connect to each other in time");
        return;
    }
    for (uint32_t i = 0; i < m->n_ranks && m->stage == STAGE_FORMING; i++) {
        if (m->ranks[i].state == MEMBER_FORMING && m->ranks[i].address_bytes == 0)
            member_drop(m, &m->ranks[i], false, "the worker did not answer Form in time");
    }
    check(m->stage == STAGE_NONE);
}
