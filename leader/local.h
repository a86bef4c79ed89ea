// local.h: the workers of --local-workers: child processes of this leader, started, watched,
// started again when they end, and stopped with it.
//
// They join over loopback like any other worker; nothing else in the leader knows of them. Main
// thread only: the kernel kills a child when the thread that started it ends.
#ifndef MOESAIC_LEADER_LOCAL_H
#define MOESAIC_LEADER_LOCAL_H

#include "common/base/env.h"
#include "common/conf/options.h"
#include "leader/leader.h"

struct local;

// Whether this leader starts a worker of that name, and so starts it again. Any thread.
bool local_starts(uint32_t n_local, const char *name);

// That these options fit together (arrange_count has set the number of workers), and what follows
// from them: the data plane is on loopback when no other machine takes part. ERR_FATAL_CONFIG names
// the flag.
int local_resolve(struct leader_options *o, struct err_text *e);

// Finds the program and prepares its arguments, and starts nothing. NULL when no local workers are
// asked for. control_port is the one that the leader listens on; the token (or NULL) is copied.
struct local_config {
    struct env *env;
    const struct leader_options *options; // as resolved; must outlive this
    const char *control_token;
    uint16_t control_port;
};
int local_create(struct local **out, const struct local_config *config, struct err_text *e);
void local_destroy(struct local *l); // NULL is fine; kills what still runs

// What the group is doing, as the policy needs to know it.
enum local_group {
    LOCAL_WAITS,  // it does not serve (yet)
    LOCAL_SERVES, // it does
    LOCAL_LEAVES, // it works off its requests: a worker that ends on purpose is not missed
};

// Starts those that are due, notices those that ended, and kills those that the group has lost
// though they run: a process that stands still would never end. view may be NULL: it cannot be seen
// now. After SIGCHLD, and when local_wait_ns is over. ERR_FATAL_IO: one of them cannot be kept
// alive, and the log says why; then it stays so.
int local_tick(struct local *l, enum local_group group, const struct leader_view *view);
// How long to wait for the next tick, at most one second.
int64_t local_wait_ns(const struct local *l);

// Asks all to end and waits until they have, for two seconds; then kills them.
void local_stop(struct local *l);

#endif
