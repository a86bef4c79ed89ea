// members_state.h: what is inside struct members. Only members.c (streams and states),
// members_view.c (what others see of them), join.c (who may come in), form.c (epochs) and share.c
// (memory) include it.
#ifndef MOESAIC_LEADER_MEMBERS_STATE_H
#define MOESAIC_LEADER_MEMBERS_STATE_H

#include "common/base/layout.h"
#include "common/base/limits.h"
#include "common/base/log_gate.h"
#include "common/base/mem.h"
#include "control.pb-c.h"
#include "leader/members.h"

#define HOST_TEXT_MAX 256

typedef Moesaic__Control__V1__JoinUp join_up;
typedef Moesaic__Control__V1__JoinDown join_down;

struct member {
    enum member_state state;
    uint64_t peer; // its stream, while it has one (any state but FREE and LOST)
    uint64_t instance;
    int64_t heard_ns, moved_ns; // its last word; the last that it loaded something
    bool leaving;               // asked to leave once no request needs it
    bool local;                 // the leader starts it, and starts it again when it ends
    char name[128], kernels[16], host[HOST_TEXT_MAX];
    uint32_t n_cores;
    uint64_t bytes_done, bytes_total, steps;
    uint64_t bytes_sent, bytes_received; // of the data plane, in this epoch
    uint32_t engine_age_ms;              // as of its last heartbeat in this epoch
    uint64_t shared_digest, experts_digest;
    uint64_t memory_bytes;            // the most that was seen of its host so far, or
    bool memory_given;                // what it was told to have for itself
    uint64_t step_bytes;              // that a step needs beside weights and pages
    uint64_t page_bytes, state_bytes; // of one page and one snapshot; 0: it did not say
    struct rank_room held, room;      // what it said it can hold; what it is to use
    bool keeps_states;                // some layer of its stage does
    uint32_t host_index, n_on_host;   // among those of the group that share its machine
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes; // of this epoch, 0 until Formed
    // Of the rank, whoever has it:
    bool digest_pinned; // a group ran with experts_pinned
    uint64_t experts_pinned;
    uint32_t n_counters;     // layers of its stage * this rank's experts
    uint64_t *counters_seen; // [n_counters], owned: the last cumulative numbers in this epoch
};

#define GUEST_ADDRESS_BYTES 80

// A stream whose hello has not come.
struct guest {
    uint64_t peer;
    int64_t since_ns;
    char address[GUEST_ADDRESS_BYTES];
};

enum stage {
    STAGE_NONE,       // no group
    STAGE_FORMING,    // Form was sent, addresses come in
    STAGE_CONNECTING, // Connect was sent
    STAGE_READY
};

struct members {
    struct members_config config;
    uint32_t n_ranks;
    struct layout layout;
    struct member *ranks; // [n_ranks], owned
    struct guest *guests; // [n_guests_max], owned
    uint32_t n_guests, n_guests_max;
    enum stage stage;
    uint64_t epoch, nonce;
    int64_t stage_deadline_ns, form_after_ns;
    int64_t tick_ns;     // of the last tick
    int64_t deadline_ns; // what members_deadline said then
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes; // the leader's own, of this epoch
    struct shared_pin {
        bool pinned; // a group ran with digest
        uint64_t digest;
    } * shared;              // [pp][tp], owned: of the ranks that hold the same, but for experts
    uint64_t *expert_tokens; // [n_layers][n_experts], owned
    uint64_t version, beats;
    int64_t epoch_since_ns; // it began to form or, later, got ready: for the log
    struct member_counts counts;
    bool leaving; // what is lost now is lost on purpose
    bool returns; // and the leader itself sees to it that it comes back
    struct log_gate refusals;
    struct arena arena; // of the message being read
};

static inline bool member_present(const struct member *k) {
    return k->state != MEMBER_FREE && k->state != MEMBER_LOST;
}

// members.c
uint32_t member_rank(const struct members *m, const struct member *k);
void member_host(const struct member *k, char *out, size_t cap); // for a person
void member_move(struct members *m, struct member *k, enum member_state to);
// The worker is gone, or must go: drop ends its stream too, refused asks it not to come back at
// once. Closes the epoch.
void member_lose(struct members *m, struct member *k, const char *reason);
void member_drop(struct members *m, struct member *k, bool refused, const char *reason);
void members_send(struct members *m, uint64_t peer, const join_down *message);

// join.c: each returns 0 or an error whose text is the answer to the worker.
int join_hello(struct members *m, uint64_t peer, const Moesaic__Control__V1__Hello *hello,
               struct err_text *e);
int join_loaded(struct members *m, struct member *k, const Moesaic__Control__V1__Loaded *loaded,
                struct err_text *e);
void join_pin_digests(
    struct members *m); // a group is ready: from now on only the same weights may come

// share.c: how many pages and snapshots each rank is to have.
void share_rooms(struct members *m);

// form.c
void form_begin_if_possible(struct members *m, int64_t now_ns);
int form_formed(struct members *m, struct member *k, const Moesaic__Control__V1__Formed *formed,
                struct err_text *e);
int form_ready(struct members *m, struct member *k, const Moesaic__Control__V1__Ready *ready,
               struct err_text *e);
// Ends the epoch, if there is one: survivors go back to LOADED. skip is told nothing (it is gone).
void form_close(struct members *m, const struct member *skip, const char *reason);
void form_timeout(struct members *m, int64_t now_ns);

#endif
