// members.h: who is in the group: workers join, load, form an epoch, and are lost.
//
// Owned by the scheduler thread; leader.c feeds it channel events and time. It decides when a group
// is formed and when it is over; what that means for requests is the business of `changed`'s owner.
// Whatever a worker sends is data from outside: it can lose that worker its place, never the leader
// its senses.
#ifndef MOESAIC_LEADER_MEMBERS_H
#define MOESAIC_LEADER_MEMBERS_H

#include "common/base/env.h"
#include "common/model/spec.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"
#include "leader/leader.h"
#include "leader/pages.h"

struct members;

// Waits of this module. A worker beats once a second.
#define MEMBER_SILENCE_NS (3 * NS_PER_S)          // in a formed group: three beats missed
#define MEMBER_SILENCE_LOADING_NS (20 * NS_PER_S) // before: it may be busy reading a disk
#define MEMBER_HELLO_NS (10 * NS_PER_S)           // from the open stream to its hello
#define MEMBER_FORM_NS (30 * NS_PER_S)            // from Form to the last Formed
#define MEMBER_CONNECT_NS                                                                          \
    (120 * NS_PER_S) // from Connect to the last Ready: step memory is allocated
#define MEMBER_SETTLE_NS                                                                           \
    (200 * NS_PER_MS)            // after a group broke: whose fault it was may still be on its way
#define MEMBER_RETRY_NS NS_PER_S // after a group could not be formed
#define MEMBER_STALL_NS (120 * NS_PER_S) // a worker that loads, but reads nothing
// Heard of more recently than this, a worker is there: a second one that claims to be the same is
// another process.
#define MEMBER_FRESH_NS (3 * NS_PER_S / 2)

// What every worker must compute in (docs/arithmetic.md).
#define ARITHMETIC_CLASS "base"

// How it reaches the world; tests put their own functions here.
struct members_io {
    void *context;
    int (*send)(void *context, uint64_t peer, const void *data, size_t bytes);
    void (*drop)(void *context, uint64_t peer, bool refused, const char *reason);
    // The leader's own end of the fabric.
    int (*begin)(void *context, uint8_t *address, size_t *address_bytes, struct err_text *e);
    // May be NULL. Whether a worker's bytes can be its address.
    int (*check_address)(void *context, const uint8_t *address, size_t bytes, struct err_text *e);
    int (*connect)(void *context, const struct fabric_group *group, struct err_text *e);
    void (*end)(void *context);
    // The group is ready to run steps (an error closes it again), or no longer is. rooms: of each
    // DP group, [layout.dp]. on_purpose: because the leader leaves, or a worker that it does not
    // start again.
    int (*ready)(void *context, uint64_t epoch, const struct rank_room *rooms);
    void (*lost)(void *context, bool on_purpose, const char *reason);
    // A worker left on purpose, of the ready group or of one that is to form, and nobody knows
    // whether another comes in its place.
    void (*left)(void *context);
};

struct members_config {
    struct env *env;
    struct members_io io;
    const struct leader_config *leader; // not owned; what Welcome and the checks need
};

int members_create(struct members **out, const struct members_config *config, struct err_text *e);
void members_destroy(struct members *m);

void members_event(struct members *m, const struct channel_event *ev);
// Does what time brings: silent workers, stages that take too long, a group that can be formed.
// Call it after every batch of events and not later than members_deadline. step_in_flight: then a
// worker's engine must make progress.
void members_tick(struct members *m, bool step_in_flight);
int64_t members_deadline(struct members *m);

// The group broke outside of this module's sight: an error of the fabric, a late step, a bad
// result.
void members_break(struct members *m, const char *reason);
// What rank sent was wrong: it goes, and the group with it.
void members_blame(struct members *m, uint32_t rank, const char *reason);
// A worker of the ready group asked to leave as soon as no request needs it; members_let_go says
// that none does: the epoch ends and whoever asked goes.
bool members_leaving(const struct members *m);
// One of those is not the leader's own: nobody knows whether another comes in its place.
bool members_parting(const struct members *m);
void members_let_go(struct members *m);
// Ends every stream. The workers keep their weights and try to join again.
void members_leave(struct members *m, const char *reason);

bool members_ready(const struct members *m);     // and no worker asked to leave
uint64_t members_epoch(const struct members *m); // of the group, or of the last one

// For leader_view: state, name and numbers of one rank, without those that the scheduler knows.
void members_view(const struct members *m, uint32_t rank, struct member_view *out);
// One sentence: "waiting for 1 of 2 workers".
void members_sentence(const struct members *m, char *buf, size_t cap);
enum group_state members_group(const struct members *m);
void members_count(const struct members *m, struct member_counts *out);
const uint64_t *members_expert_tokens(const struct members *m); // [n_layers][n_experts]
// Grows with every change of a state, so that the owner knows when to look.
uint64_t members_version(const struct members *m);
// Grows with every heartbeat.
uint64_t members_beats(const struct members *m);

// True when a worker may go from one state to the other.
bool member_may_move(enum member_state from, enum member_state to);

#endif
