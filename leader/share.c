// share.c: what the memory of a host gives to each worker on it: KV pages and snapshots. form.c is
// before it in the walk and after it.
#include <string.h>

#include "common/base/log.h"
#include "common/model/footprint.h"
#include "leader/members_state.h"
#include "leader/pages.h"

// What all slots can fill bounds the leader's accounts, of about a hundred bytes a block, where a
// small model's blocks are small. It bounds the prefix cache as well, which could use more.
static struct rank_room room_of_use(const struct leader_config *c) {
    uint64_t most = (uint64_t)c->max_num_seqs * pages_needed(c->max_model_len);
    if (c->kv_blocks_max != 0 && c->kv_blocks_max < most) most = c->kv_blocks_max;
    return (struct rank_room){.kv_blocks = most < KV_BLOCKS_MAX ? (uint32_t)most : KV_BLOCKS_MAX,
                              .snapshots =
                                  c->snapshots_max != 0 ? c->snapshots_max : SNAPSHOTS_MAX};
}

static struct rank_room lesser(struct rank_room a, struct rank_room b) {
    return (struct rank_room){.kv_blocks = a.kv_blocks < b.kv_blocks ? a.kv_blocks : b.kv_blocks,
                              .snapshots = a.snapshots < b.snapshots ? a.snapshots : b.snapshots};
}

static void note_states(struct members *m) {
    const struct model_spec *spec = m->config.leader->spec;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        uint32_t stage = layout_place(&m->layout, i).stage;
        m->ranks[i].keeps_states = footprint_state_bytes(spec, &m->layout, stage) > 0;
    }
}

// What the workers of one host have together, where they see the same memory. A worker that was
// told how much it has (--memory) has that for itself, and none of this.
struct host {
    uint32_t n, n_keeping; // workers; those that keep states
    const struct member *first;
    uint64_t memory;        // the most that was seen: who came later saw what others left
    uint64_t weights, step; // sums
    uint64_t page, state;   // one page and one snapshot of each, added up
    struct rank_room least; // of what each could hold if it were alone
};

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static void add_worker(struct host *h, const struct member *k) {
    if (k->memory_bytes > h->memory) h->memory = k->memory_bytes;
    if (h->n++ == 0) h->first = k;
    h->n_keeping += k->keeps_states;
    h->weights += k->bytes_total;
    h->step += k->step_bytes;
    h->page += k->page_bytes;
    h->state += k->keeps_states ? k->state_bytes : 0;
    h->least = lesser(h->least, k->held);
}

static bool share_memory(const struct member *a, const struct member *b) {
    return a == b || (!a->memory_given && !b->memory_given && strcmp(a->host, b->host) == 0);
}

static void look_around(const struct members *m, struct member *k, struct host *h) {
    *h = (struct host){.least = k->held};
    k->host_index = k->n_on_host = 0;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct member *other = &m->ranks[i];
        if (share_memory(k, other)) add_worker(h, other);
        if (strcmp(other->host, k->host) != 0) continue;
        if (other < k) k->host_index++;
        k->n_on_host++;
    }
}

static uint32_t fit(uint64_t bytes, uint64_t each, uint32_t most) {
    return each != 0 && bytes / each < most ? (uint32_t)(bytes / each) : most;
}

// As many pages for each worker as all of them together have memory for: of so many bytes a worker,
// or per cent of what the host has.
static uint32_t pages_of(const struct host *h, const struct member *k,
                         const struct leader_config *c) {
    uint64_t left = less(h->memory, h->weights + h->step);
    uint64_t wanted = h->memory / 100 * c->kv_cache_percent;
    if (c->kv_cache_bytes != 0) return fit(left, h->page, k->held.kv_blocks);
    if (h->page == 0) return h->least.kv_blocks / h->n;
    return fit(wanted < left ? wanted : left, h->page, k->held.kv_blocks);
}

static uint32_t snapshots_of(const struct host *h, const struct member *k,
                             const struct leader_config *c, uint32_t n_pages) {
    uint64_t left = less(h->memory, h->weights + h->step);
    uint64_t wanted = h->memory / 100 * c->snapshot_percent;
    if (!k->keeps_states) return k->held.snapshots; // any number: it has no part of that
    if (h->page != 0) left = n_pages > left / h->page ? 0 : left - n_pages * h->page;
    if (c->snapshot_bytes != 0) return fit(left, h->state, k->held.snapshots);
    if (h->state == 0) return h->least.snapshots / h->n_keeping;
    return fit(wanted < left ? wanted : left, h->state, k->held.snapshots);
}

static void log_share(const struct member *k, const struct host *h) {
    char name[HOST_TEXT_MAX];
    member_host(k, name, sizeof name);
    bool fits = h->weights + h->step + h->page <= h->memory;
    log_event(fits ? LOG_INFO : LOG_WARN, "members",
              fits ? "memory divided" : "memory of a host is too small", log_text("host", name),
              log_uint("workers", h->n), log_uint("memory", h->memory),
              log_uint("weights", h->weights), log_uint("step", h->step), log_uint("page", h->page),
              log_uint("kv_blocks", k->room.kv_blocks), log_uint("snapshots", k->room.snapshots));
}

static void share_host(const struct members *m, struct member *k) {
    const struct leader_config *c = m->config.leader;
    struct host h;
    look_around(m, k, &h);
    struct rank_room share = {.kv_blocks = pages_of(&h, k, c)};
    if (share.kv_blocks == 0) share.kv_blocks = 1; // the worker says what it has not
    share.snapshots = snapshots_of(&h, k, c, share.kv_blocks);
    if (share.snapshots > share.kv_blocks) share.snapshots = share.kv_blocks; // one each at most
    k->room = lesser(share, room_of_use(c));
    if (h.n > 1 && h.page != 0 && h.first == k) log_share(k, &h);
}

// The ranks of a DP group hold the same blocks, and states of the same sequences: as many as the
// least of them.
static void share_group(struct members *m) {
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct layout_place place = layout_place(&m->layout, i);
        struct member *first = &m->ranks[layout_rank(&m->layout, 0, place.dp, 0)];
        first->room = lesser(first->room, m->ranks[i].room);
    }
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct layout_place place = layout_place(&m->layout, i);
        m->ranks[i].room = m->ranks[layout_rank(&m->layout, 0, place.dp, 0)].room;
    }
}

void share_rooms(struct members *m) {
    note_states(m);
    for (uint32_t i = 0; i < m->n_ranks; i++)
        share_host(m, &m->ranks[i]);
    share_group(m);
}
