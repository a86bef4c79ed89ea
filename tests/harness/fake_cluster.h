// fake_cluster.h: a members instance with everything around it faked: a clock that the test moves,
// streams that only note what was sent, and words of workers that the test puts in their mouths.
#ifndef MOESAIC_TESTS_HARNESS_FAKE_CLUSTER_H
#define MOESAIC_TESTS_HARNESS_FAKE_CLUSTER_H

#include "control.pb-c.h"
#include "leader/members.h"

#define FAKE_PEERS_MAX 600
#define FAKE_BUILD "1.0+test"
#define FAKE_MODEL_DIGEST UINT64_C(0xd1ce)
#define FAKE_RANKS_MAX 8

struct fake_peer {
    uint32_t n_welcome, n_form, n_connect, n_close, n_leave, n_drop;
    uint32_t rank, host_index, n_on_host, kv_blocks, snapshots; // as last told
    uint64_t epoch;                                             // of the last Form
    bool refused;
    char reason[512]; // of the last drop or close
};

struct fake_env {
    struct env env;
    int64_t now_ns;
    uint64_t random;
};

struct fake_cluster {
    struct fake_env env;
    struct leader_config leader;
    struct model_spec spec;
    struct members *members;
    struct fake_peer peers[FAKE_PEERS_MAX];
    uint32_t n_begin, n_connect, n_end, n_ready, n_lost, n_left;
    bool lost_on_purpose; // as last told
    bool open;            // begin was called, end was not
    int begin_error, connect_error, ready_error;
    uint32_t kv_blocks[FAKE_RANKS_MAX], snapshots[FAKE_RANKS_MAX]; // as last told by ready
    char lost_reason[512];
};

void fake_start(struct fake_cluster *f, uint32_t n_ranks);
void fake_start_layout(struct fake_cluster *f, const struct layout *layout);
void fake_finish(struct fake_cluster *f);
void fake_pass(struct fake_cluster *f, int64_t ns); // moves the clock, without a tick

void fake_open(struct fake_cluster *f, uint64_t peer);
void fake_close(struct fake_cluster *f, uint64_t peer, const char *text);
void fake_bytes(struct fake_cluster *f, uint64_t peer, const void *data, size_t bytes);
void fake_say(struct fake_cluster *f, uint64_t peer, const Moesaic__Control__V1__JoinUp *up);

// A lawful hello of worker `peer` and the words after it.
void fake_hello_fill(Moesaic__Control__V1__Hello *h, uint64_t peer);
void fake_hello(struct fake_cluster *f, uint64_t peer, int32_t wanted_rank); // opens the stream too
void fake_hello_named(struct fake_cluster *f, uint64_t peer, const char *name);
// As one that the leader starts: it says that it runs on this machine.
void fake_hello_local(struct fake_cluster *f, uint64_t peer, const char *name);
void fake_progress(struct fake_cluster *f, uint64_t peer, uint64_t done, uint64_t total);
void fake_loaded(struct fake_cluster *f, uint64_t peer, uint32_t kv_blocks);
void fake_loaded_with(struct fake_cluster *f, uint64_t peer, const Moesaic__Control__V1__Loaded *l);
void fake_formed(struct fake_cluster *f, uint64_t peer, uint64_t epoch, size_t address_bytes);
void fake_ready(struct fake_cluster *f, uint64_t peer, uint64_t epoch);
void fake_beat(struct fake_cluster *f, uint64_t peer, uint64_t epoch);
void fake_epoch_closed(struct fake_cluster *f, uint64_t peer, uint64_t epoch);
void fake_leaving(struct fake_cluster *f, uint64_t peer, bool when_idle);
void fake_tick(struct fake_cluster *f);
// Workers 1..n_ranks join as ranks 0.. and go all the way to a ready group.
void fake_group(struct fake_cluster *f);
enum member_state fake_state(const struct fake_cluster *f, uint32_t rank);

#endif
