// cluster.h: a leader, N workers and a client in one simulated world: the production code with
// memory under it.
//
// The test is the script: it makes a cluster, lets it run, kills and restarts workers between two
// runs, and looks at the answers.
#ifndef MOESAIC_TESTS_SIM_CLUSTER_H
#define MOESAIC_TESTS_SIM_CLUSTER_H

#include "leader/leader.h"
#include "tests/sim/jobs.h"
#include "tests/sim/world.h"
#include "worker/weights.h"

#define CLUSTER_WORKERS_MAX 8

// Weights of one model, loaded once per (ranks, rank) and lent to every worker of every world. Only
// one world runs at a time, and all of its workers have one layout.
struct model_cache {
    const char *folder;
    struct model_spec spec;
    uint64_t digest;
    enum dtype dtype;    // of the weights
    enum dtype kv_dtype; // of the pages; F32 unless the test changes it
    struct weights
        *weights[CLUSTER_WORKERS_MAX + 1][CLUSTER_WORKERS_MAX]; // [n_ranks][rank], NULL = not yet
    struct layout layouts[CLUSTER_WORKERS_MAX + 1];
    // The same of one other layout, the last that was asked for.
    struct layout other;
    struct weights *other_weights[CLUSTER_WORKERS_MAX];
};
void model_cache_open(struct model_cache *m, const char *folder);
void model_cache_close(struct model_cache *m);

struct cluster_config {
    struct sim_config world;
    struct model_cache *model; // not owned
    const char *kernels;       // NULL = best
    uint32_t n_workers, max_num_seqs, max_num_batched_tokens, max_model_len, pipeline_depth;
    struct layout layout;                // n_ranks 0: n_workers, each with requests of its own
    uint32_t kv_blocks;                  // of each worker
    uint32_t snapshots, snapshot_tokens; // the same of states; tokens between two of a sequence
    int64_t recovery_timeout_ns;
    bool no_prefix_caching;
    uint64_t leader_digest; // 0 = the model's
    const char
        *builds[CLUSTER_WORKERS_MAX]; // of workers that are built otherwise; NULL = as the leader
};
// 2 workers, 8 slots, 64 rows, F32 pages for every slot at full length.
struct cluster_config cluster_config_default(struct model_cache *model, uint64_t seed);

// One job as the client plays it in this world.
struct turn {
    const struct job *job; // not owned
    int64_t arrival_ns;    // after the world's start
    int64_t abort_ns;      // after it was accepted; 0 = never
    struct answer answer;
    bool accepted, abort_sent;
    struct cluster *cluster;
    int64_t due_ns, abort_due_ns; // the client's own
};

struct cluster {
    struct cluster_config config;
    struct sim *sim;
    struct leader *leader; // while its process runs it
    struct sim_process *leader_process, *workers[CLUSTER_WORKERS_MAX];
    struct cluster_worker {
        struct cluster *cluster;
        uint32_t index;
        struct worker *worker; // while its process runs it
    } worker_args[CLUSTER_WORKERS_MAX];
    struct turn *turns; // not owned
    uint32_t n_turns, n_ended;
    struct waker *client_waker;
    int check_result;                    // of leader_check when all requests had ended
    struct leader_view view;             // as of then, numbers only
    bool finished;                       // the client and the leader returned
    uint32_t n_submits_refused, n_loads; // loads: how often a worker asked for its weights
};

// Spawns all processes, workers before or after the leader as the seed has it.
void cluster_create(struct cluster *c, const struct cluster_config *config, struct turn *turns,
                    uint32_t n_turns);
void cluster_destroy(struct cluster *c);

// Runs until all turns have ended and the leader was checked and stopped (SIM_UNTIL then), or until
// the virtual time.
enum sim_end cluster_run(struct cluster *c, int64_t until_ns);
void cluster_kill_worker(struct cluster *c, uint32_t index);
void cluster_drain_worker(struct cluster *c, uint32_t index); // as SIGTERM does
void cluster_start_worker(struct cluster *c, uint32_t index);
// A new leader and client in the place of those that were killed; turns that had been accepted are
// asked again.
void cluster_kill_leader(struct cluster *c);
void cluster_start_leader(struct cluster *c);

// Fills turns with the pool's jobs, all there from the beginning, in the pool's order.
void turns_make(struct turn *turns, const struct job_pool *pool);
// The plainest run: one worker, one request at a time, nothing shared. The answers go to
// answers[n_jobs]; aborts when it does not end well.
void reference_run(struct model_cache *model, const struct job_pool *pool, struct answer *answers);

#endif
