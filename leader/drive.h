// drive.h: runs the group step by step: plans of the scheduler to the ranks, their results back,
// some steps in flight.
//
// Owned by the scheduler thread. One loop at all depths: drive_pump plans as long as fewer than
// `depth` steps are in flight. At depth 2 step n + 1 is planned while n runs, and a row that turns
// out to belong to a request that ended at n has no effect. What the scheduler calls a rank is a DP
// group: all of its ranks get its plan, one of them has the answers (layout_answers), and a step is
// over when all have said that they ran it. Results are data from outside: whatever is wrong with
// one loses the group, never the leader.
#ifndef MOESAIC_LEADER_DRIVE_H
#define MOESAIC_LEADER_DRIVE_H

#include "common/base/env.h"
#include "common/net/fabric.h"
#include "leader/leader.h"
#include "leader/sched.h"

struct drive;

struct drive_config {
    struct env *env;
    struct fabric *fabric; // not owned, as all pointers here
    struct sched *sched;
    struct sched_config shape; // the scheduler's
    struct layout layout;
    uint32_t depth; // steps in flight, at least 1
    int64_t step_timeout_ns;
};

// What the drive adds up for people to look at.
struct drive_counts {
    uint64_t steps;
    uint64_t step_ns;      // wall time, each step from when it could begin
    uint64_t phase_ns[16]; // summed over ranks, by the worker's enum step_phase
};

int drive_create(struct drive **out, const struct drive_config *config, struct err_text *e);
void drive_destroy(struct drive *d);
void drive_on_step(struct drive *d, void (*report)(void *context, const struct step_report *r),
                   void *context);

void drive_begin(struct drive *d, uint64_t epoch); // the group is formed and connected
void drive_end(struct drive *d); // it is gone; forgets the steps in flight. Fine in any state

// Plans and sends what the pipeline still takes. 0, or ERR_PEER_*: the group is lost and e says
// why. Never waits: where earlier plans have not left it plans none (drive_held), and is to be
// called again soon.
int drive_pump(struct drive *d, struct err_text *e);
bool drive_held(const struct drive *d);
// Takes in one result; the message stays the caller's. ERR_PEER_PROTOCOL: it is not what was asked
// for.
int drive_result(struct drive *d, const struct fabric_msg *message, struct err_text *e);
// When the oldest step in flight must be back, NO_DEADLINE when none is; drive_late says whether it
// is past and names who is missing.
int64_t drive_deadline(const struct drive *d);
int64_t drive_begun_ns(const struct drive *d); // when it began, NO_DEADLINE
int drive_late(const struct drive *d, int64_t now_ns, struct err_text *e);

bool drive_in_flight(const struct drive *d);
void drive_count(const struct drive *d, struct drive_counts *out);

#endif
