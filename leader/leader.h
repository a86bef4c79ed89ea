// leader.h: the leader's heart: members, scheduler and drive on one thread, behind a mailbox.
//
// leader_run is the scheduler thread: it owns all request state, block tables, placement and
// membership, and shares nothing. Every other thread (HTTP, gRPC, tests, the simulator) uses only
// the functions marked "any thread".
#ifndef MOESAIC_LEADER_LEADER_H
#define MOESAIC_LEADER_LEADER_H

#include "common/base/env.h"
#include "common/base/layout.h"
#include "common/model/spec.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"
#include "leader/request.h"

struct leader;

struct leader_config {
    struct env *env;
    // Of the thread that will call leader_run; the channel and the fabric use the same.
    struct waker *waker;
    struct channel *channel; // listening; not owned, as all pointers here
    struct fabric *fabric;   // opened
    const struct model_spec *spec;
    const char *model;     // folder, sent to workers
    uint64_t model_digest; // model_folder_digest
    const char *build_id;
    const char *dtype; // "auto", ...
    enum dtype kv_dtype;
    struct layout layout;            // that the model can have
    uint32_t max_num_seqs;           // slots a DP group
    uint32_t max_num_batched_tokens; // rows a DP group and step
    uint32_t max_model_len;
    uint32_t pipeline_depth; // 1 or 2: steps that may be ahead of the results
    uint64_t kv_cache_bytes; // a rank; 0 = per cent
    uint32_t kv_cache_percent;
    uint32_t n_local;        // workers that this process starts, and starts again (local.h)
    uint32_t kv_blocks_max;  // 0 = what fits; tests make it small
    uint64_t snapshot_bytes; // of slots' states, a rank; 0 = per cent
    uint32_t snapshot_percent;
    uint32_t snapshots_max;      // 0 = what fits; tests make them small
    uint32_t snapshot_tokens;    // 0 = SNAPSHOT_TOKENS
    int64_t step_timeout_ns;     // a result later than this loses the group
    int64_t recovery_timeout_ns; // how long requests wait for a lost group to form again
    bool digest;
    bool no_prefix_caching;
};

int leader_create(struct leader **out, const struct leader_config *config, struct err_text *e);
void leader_destroy(struct leader *l); // after leader_run returned

// Runs until leader_stop or env_stopped. Requests still there get FINISH_ERROR with
// ERR_REQ_UNAVAILABLE.
int leader_run(struct leader *l);
void leader_stop(struct leader *l); // any thread
// Any thread. No more requests will come: a worker that asks to leave is kept until all have ended,
// also those that wait. Otherwise it goes when those that run have, and the others wait for the
// group to form again.
void leader_drain(struct leader *l);

// Any thread. Takes ownership of r also on failure (which emits nothing): 0, ERR_REQ_UNAVAILABLE
// unless leader_takes_requests, ERR_REQ_TOO_LARGE when it needs more KV blocks than any rank has,
// or ERR_REQ_QUEUE_FULL when REQUESTS_LIVE_MAX are waiting and running. What else is wrong with a
// request ends it with an event.
int leader_submit(struct leader *l, struct request *r);
// Any thread. The request ends with FINISH_ABORT unless it ended before; unknown ids are ignored.
void leader_abort(struct leader *l, uint64_t request_id);

// Any thread: a group is formed, and no worker of it asked to leave.
bool leader_ready(const struct leader *l);
// Any thread: whether a request would be taken now: a group is ready, or was lost no longer than
// recovery_timeout_ns ago and forms again. Not while a worker asked to leave that this leader does
// not start, nor after one has.
bool leader_takes_requests(const struct leader *l);
bool leader_leaving(const struct leader *l); // any thread: a worker of the group asked to leave
// Any thread: false when the scheduler's loop is more than patience_ns late with its next turn. A
// loop that waits for work is alive.
bool leader_alive(const struct leader *l, int64_t patience_ns);

// Any thread: false when a step has been under way for longer than patience_ns.
bool leader_in_time(const struct leader *l, int64_t patience_ns);

// A consistent copy of what a person or /metrics wants to see. Any thread; refreshed by the
// scheduler at least once a second while anything changes.
enum member_state {
    MEMBER_FREE,
    MEMBER_JOINED,
    MEMBER_LOADING,
    MEMBER_LOADED,
    MEMBER_FORMING,
    MEMBER_READY,
    MEMBER_LOST
};

struct member_view {
    enum member_state state;
    char name[128], kernels[16];
    uint32_t rank, n_cores;
    uint64_t bytes_done, bytes_total, steps;
    uint32_t kv_blocks, kv_blocks_used, n_running; // of its DP group
    uint32_t snapshots, snapshots_used;            // of slots' states, the same
    char host[256];                                // without the boot id
    int64_t heard_ns;                              // its last word, 0 = never
    uint32_t engine_age_ms;              // as of then: since when its engine was in one step
    uint64_t bytes_sent, bytes_received; // of the data plane, in this epoch
    uint64_t generation_tokens;          // sampled on it since the leader's start
    double tokens_per_s;                 // of these, in the last seconds
};

// How far the group is.
enum group_state { GROUP_WAITING, GROUP_LOADING, GROUP_FORMING, GROUP_READY };

// What happened to the membership since the leader's start.
struct member_counts {
    uint64_t joined, refused, lost, left, formed, closed;
};

struct leader_view {
    bool ready;
    uint64_t epoch, steps;
    uint32_t n_waiting, n_running, kv_blocks, kv_blocks_used, snapshots, snapshots_used;
    uint32_t n_resuming; // of those that wait: those that ran before
    uint64_t prompt_tokens, generation_tokens, preemptions, requests_lost;
    uint64_t replays, replay_mismatches, prefix_queries, prefix_hits;
    struct layout layout;
    enum group_state group;
    struct member_counts counts;
    char state[160];                   // one sentence: "waiting for 1 of 2 workers"
    const struct member_view *members; // [layout.n_ranks]
    const uint64_t *expert_tokens;     // [n_layers][n_experts], cumulative over epochs
    uint64_t phase_ns[16];             // summed over ranks by enum step_phase
    uint64_t step_ns;                  // summed wall time of steps as the leader sees them
};

// Copies into out; members and expert_tokens point into memory owned by out until
// leader_view_finish.
int leader_view(struct leader *l, struct leader_view *out);
void leader_view_finish(struct leader_view *v);

// Recounts what must add up (blocks, slots, queues). Returns 0 or logs and returns an error. Runs
// on the scheduler thread through the mailbox; blocks the caller until done. Any thread but the
// scheduler's.
int leader_check(struct leader *l);

// Called on the scheduler thread after every step, for metrics; may be NULL. Set before leader_run.
struct step_report {
    uint32_t n_prompt_tokens, n_decode_tokens, n_ranks_busy;
    uint64_t n_sampled_tokens; // by all steps since the last report
    int64_t step_ns;
};
void leader_on_step(struct leader *l, void (*report)(void *context, const struct step_report *r),
                    void *context);

#endif
