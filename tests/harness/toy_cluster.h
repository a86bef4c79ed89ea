// toy_cluster.h: a real leader on a thread of its own and toy workers on theirs, over the memory
// channel and fabric.
//
// Toy workers speak the whole protocol and run toy ranks; each can be told to misbehave at a step,
// or be killed. In layouts where several follow one plan each runs it, and one has the answers.
#ifndef MOESAIC_TESTS_HARNESS_TOY_CLUSTER_H
#define MOESAIC_TESTS_HARNESS_TOY_CLUSTER_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/net/channel_mem.h"
#include "common/net/fabric_mem.h"
#include "leader/leader.h"
#include "tests/harness/toy_rank.h"

#define TOY_WORKERS_MAX 8
#define TOY_VOCAB 97
#define TOY_MODEL_LEN 300
#define TOY_ADDRESS "leader:1"

enum toy_fault {
    TOY_HONEST,
    TOY_SWALLOWS, // answers no plan of this epoch any more
    TOY_LIES,     // answers with a token outside the vocabulary
    TOY_GIVES_UP, // answers that it could not run the plan
    TOY_CLOSES,   // says EpochClosed instead of answering
    TOY_ANSWERS   // although another rank has the answers
};

struct toy_cluster;

struct toy_worker {
    struct toy_cluster *cluster;
    struct env *env;
    struct waker *waker;
    struct channel *channel;
    struct fabric *fabric;
    pthread_t thread;
    _Atomic int fault;       // enum toy_fault, once, after
    _Atomic int fault_after; // this many plans with work
    _Atomic bool gone;       // stop or kill
    // The thread's own:
    struct toy_rank *rank;
    struct layout layout;
    uint32_t rank_index, n_ranks, kv_blocks;
    uint64_t epoch, nonce, steps, step_epoch;
    bool begun, running, mute;
    int64_t beat_ns;
};

struct toy_cluster {
    struct leader_config config;
    struct model_spec spec;
    struct channel_mem_hub *channels;
    struct fabric_mem_hub *fabrics;
    struct env *env; // the leader's
    struct leader *leader;
    pthread_t thread;
    bool running;
    struct toy_worker workers[TOY_WORKERS_MAX];
};

// One toy worker by hand, for the simulator: its hubs are cluster's. The loop ends when gone is set
// or env is stopped.
void toy_worker_open(struct toy_worker *w, struct toy_cluster *c, struct env *env);
void toy_worker_loop(struct toy_worker *w);
void toy_worker_close(struct toy_worker *w);

// The leader's configuration with its pointers still missing.
void toy_cluster_config(struct toy_cluster *c, struct env *env, uint32_t n_ranks);

// Fills the hubs and config; the caller may change config before toy_cluster_start.
void toy_cluster_prepare(struct toy_cluster *c, uint32_t n_ranks);
void toy_cluster_start(struct toy_cluster *c);
void toy_cluster_stop(struct toy_cluster *c);   // the leader only
void toy_cluster_finish(struct toy_cluster *c); // stops what still runs
void toy_worker_start(struct toy_cluster *c, uint32_t i);
void toy_worker_stop(struct toy_cluster *c, uint32_t i); // in an orderly way
void toy_worker_kill(struct toy_cluster *c, uint32_t i); // like kill -9
void toy_await_ready(struct toy_cluster *c, bool ready); // fails the test after 30 s

// A client that notes what it is told and can be waited for.
struct toy_client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t id;
    uint32_t tokens[TOY_MODEL_LEN];
    uint32_t n_tokens, n_starts, n_finishes;
    enum finish finish;
    int error;
    uint64_t digest;
    char message[160];
};

void toy_client_init(struct toy_client *k, uint64_t id);
void toy_client_finish(struct toy_client *k);
struct request *toy_request(struct toy_client *k, uint32_t n_prompt, uint32_t max_tokens);
void toy_client_await_start(struct toy_client *k);
void toy_client_await(struct toy_client *k,
                      uint32_t n_tokens); // or the end; fails the test after 30 s
void toy_client_await_end(struct toy_client *k);

#endif
