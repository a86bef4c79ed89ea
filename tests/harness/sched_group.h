// sched_group.h: a scheduler with toy ranks that answer its plans: no network, no clock, any order
// of results; and clients that note what they are told. For the unit tests of the scheduler.
#ifndef MOESAIC_TESTS_HARNESS_SCHED_GROUP_H
#define MOESAIC_TESTS_HARNESS_SCHED_GROUP_H

#include "leader/sched_state.h"
#include "leader/wire.h"
#include "tests/harness/toy_rank.h"

#define VOCAB 97 // its last token makes rows that are not finite
#define MODEL_LEN 300
#define RANKS_TOP 4
#define DEPTH_TOP 8
#define CROWD 64

struct sink {
    uint32_t tokens[MODEL_LEN];
    const uint32_t *prompt; // to look at its scores
    uint32_t n_prompt, n_score_top, n_scores;
    uint32_t n_tokens, n_starts, n_finishes, stop_id, n_cached;
    enum finish finish;
    int error;
    uint64_t digest;
    char message[160];
    uint64_t id;
};

struct group {
    struct sched_config config;
    struct sched *sched;
    struct wire *wire;
    uint32_t depth;
    uint32_t snapshots; // of each rank, from the next group_form on; 0: the toy keeps no states
    struct toy_rank *ranks[RANKS_TOP];
    struct step_plan plans[DEPTH_TOP];
    struct wire_buffer buffers[DEPTH_TOP][RANKS_TOP];
    uint32_t first, n_flights;
    uint64_t rng;
};

void group_start(struct group *g, uint32_t n_ranks, uint32_t seqs, uint32_t budget, uint32_t depth);
// Of a model with states, of which so many snapshots fit, each snapshot_tokens.
void group_start_stateful(struct group *g, uint32_t snapshots, uint32_t snapshot_tokens,
                          uint32_t depth);
// Of stages: the decodes are spread over the depth's steps.
void group_start_staged(struct group *g, uint32_t seqs, uint32_t budget, uint32_t depth);
void group_form(struct group *g, uint32_t kv_blocks); // anew, with empty pages
void group_finish(struct group *g);
void group_check(struct group *g);                // the books balance
uint64_t group_draw(struct group *g, uint64_t n); // a random number below n

// Plans one more step, if the pipeline takes one and there is work.
bool group_plan(struct group *g);
// Lets one rank answer the oldest step it owes.
bool group_answer(struct group *g, uint32_t rank);
void group_step(struct group *g); // plans all it can, and lets some rank answer
void group_run(struct group *g);  // until nothing is left
// The same, and n times on the way, at one step of `one_in`, the group is lost and forms anew.
struct group_losses {
    uint32_t n, one_in, kv_blocks;
};
void group_run_losing(struct group *g, struct group_losses losses);

// A request of sink k, and one that is handed over at once.
struct request *group_request(struct sink *k, uint64_t id, uint32_t n_prompt, uint32_t max_tokens);
void group_submit(struct group *g, struct sink *k, uint64_t id, uint32_t n_prompt,
                  uint32_t max_tokens);
// Asks for the scores of its prompt; the sink compares them.
void group_score(struct request *r, struct sink *k, uint32_t n_top);
// One of CROWD requests of all kinds.
struct request *group_crowd_request(struct sink *k, uint32_t i);
// One of four tokens whose answer has no row that is not finite, and that answer. *id grows.
struct request *group_whole(struct sink *k, uint64_t *id, uint32_t max_tokens,
                            struct toy_answer *a);
// The sink heard this answer, once.
void group_expect(const struct sink *k, const struct toy_answer *a);
// n sinks heard theirs; frees the answers' tokens.
void group_expect_all(const struct sink *sinks, struct toy_answer *answers, uint32_t n);

#endif
