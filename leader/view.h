// view.h: the copy of the leader's state that other threads may look at.
//
// The scheduler thread publishes, any thread copies out; the one lock is held for a copy.
#ifndef MOESAIC_LEADER_VIEW_H
#define MOESAIC_LEADER_VIEW_H

#include "leader/drive.h"
#include "leader/leader.h"
#include "leader/members.h"
#include "leader/sched.h"

struct view;

struct view_sources {
    const struct members *members;
    const struct sched *sched;
    const struct drive *drive;
    struct env *env;
    struct layout layout;
    uint32_t n_layers, n_experts;
};

int view_create(struct view **out, const struct view_sources *sources);
void view_destroy(struct view *v);

// Publishes when something changed: a state at once, numbers at most every VIEW_NS while steps run.
// Returns when to call it again, NO_DEADLINE when there is nothing more to say. Scheduler thread.
#define VIEW_NS (100 * NS_PER_MS)
int64_t view_refresh(struct view *v, int64_t now_ns);

int view_copy(struct view *v, struct leader_view *out); // any thread

#endif
