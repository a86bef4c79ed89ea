// members_view.c: what others see of the members: numbers, states, one sentence. It changes
// nothing; members.c does.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "leader/members_state.h"

bool members_ready(const struct members *m) {
    return m->stage == STAGE_READY && !members_leaving(m);
}

uint64_t members_epoch(const struct members *m) {
    return m->epoch;
}

uint64_t members_version(const struct members *m) {
    return m->version;
}

const uint64_t *members_expert_tokens(const struct members *m) {
    return m->expert_tokens;
}

void members_view(const struct members *m, uint32_t rank, struct member_view *out) {
    const struct member *k = &m->ranks[rank];
    *out = (struct member_view){.state = k->state,
                                .rank = rank,
                                .n_cores = k->n_cores,
                                .bytes_done = k->bytes_done,
                                .bytes_total = k->bytes_total,
                                .steps = k->steps,
                                .kv_blocks = k->room.kv_blocks,
                                .snapshots = k->room.snapshots,
                                .heard_ns = k->heard_ns,
                                .engine_age_ms = k->state == MEMBER_READY ? k->engine_age_ms : 0,
                                .bytes_sent = k->bytes_sent,
                                .bytes_received = k->bytes_received};
    member_host(k, out->host, sizeof out->host);
    memcpy(out->name, k->name, sizeof out->name);
    memcpy(out->kernels, k->kernels, sizeof out->kernels);
}

enum group_state members_group(const struct members *m) {
    bool loading = false;
    if (m->stage == STAGE_READY) return GROUP_READY;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (!member_present(&m->ranks[i])) return GROUP_WAITING;
        loading = loading || m->ranks[i].state <= MEMBER_LOADING;
    }
    return loading ? GROUP_LOADING : GROUP_FORMING;
}

void members_count(const struct members *m, struct member_counts *out) {
    *out = m->counts;
}

uint64_t members_beats(const struct members *m) {
    return m->beats;
}

static unsigned loaded_percent(uint64_t done, uint64_t total) {
    return total == 0 ? 0 : (unsigned)(done / (total / 100 + 1));
}

// "1 of 1 workers" is no way to speak of the only one.
static void sentence_of_one(const struct members *m, char *buf, size_t cap) {
    const struct member *k = &m->ranks[0];
    bool loads = k->state == MEMBER_JOINED || k->state == MEMBER_LOADING;
    if (m->stage == STAGE_READY)
        snprintf(buf, cap, "%s",
                 k->leaving ? "the worker leaves when the running requests have ended" : "ready");
    else if (!member_present(k))
        snprintf(buf, cap, "waiting for the worker");
    else if (loads)
        snprintf(buf, cap, "the worker loads weights, %u %% done",
                 loaded_percent(k->bytes_done, k->bytes_total));
    else
        snprintf(buf, cap, "the worker forms epoch %" PRIu64, m->epoch);
}

void members_sentence(const struct members *m, char *buf, size_t cap) {
    uint32_t n_missing = 0, n_loading = 0, n_leaving = 0;
    uint64_t done = 0, total = 0;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *k = &m->ranks[i];
        n_leaving += k->leaving ? 1 : 0;
        n_missing += member_present(k) ? 0 : 1;
        n_loading += k->state == MEMBER_JOINED || k->state == MEMBER_LOADING ? 1 : 0;
        done += k->bytes_done >> 10;
        total += k->bytes_total >> 10;
    }
    if (m->n_ranks == 1)
        sentence_of_one(m, buf, cap);
    else if (m->stage == STAGE_READY && n_leaving > 0)
        snprintf(buf, cap, "%u of %u workers leave when the running requests have ended", n_leaving,
                 m->n_ranks);
    else if (m->stage == STAGE_READY)
        snprintf(buf, cap, "ready");
    else if (n_missing > 0)
        snprintf(buf, cap, "waiting for %u of %u workers", n_missing, m->n_ranks);
    else if (n_loading > 0)
        snprintf(buf, cap, "%u of %u workers load weights, %u %% done", n_loading, m->n_ranks,
                 loaded_percent(done, total));
    else
        snprintf(buf, cap, "the workers form epoch %" PRIu64, m->epoch);
}
