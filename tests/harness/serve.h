// serve.h: a miniature of the leader: serves requests on a group of ranks in one process, in any
// way that a test asks for.
#ifndef MOESAIC_TESTS_HARNESS_SERVE_H
#define MOESAIC_TESTS_HARNESS_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/model.h"

// Ranks, each a thread per step over the memory fabric (none for one rank), with models on given
// weights.
struct ranks;
struct ranks_config {
    const struct weights *const *weights; // [n_ranks]
    const struct layout *layout;
    const struct kernel_ops *ops; // NULL: the best
    uint32_t n_threads;           // of each rank
    uint32_t n_slots, rows_max, max_model_len, kv_blocks, n_snapshots;
    enum dtype kv_dtype;
    bool keep_logits;
};
struct ranks *ranks_create(const struct ranks_config *config);
void ranks_destroy(struct ranks *r);
const struct layout *ranks_layout(const struct ranks *r);
uint32_t ranks_kv_blocks(const struct ranks *r);
const struct model_spec *ranks_spec(const struct ranks *r);
struct model *ranks_model(struct ranks *r, uint32_t rank);
// One step on every rank at once, each with its plan. Aborts the test when a rank fails.
void ranks_step(struct ranks *r, const Moesaic__Step__V1__StepPlan *const *plans,
                struct step_output *outs);

struct serve_request {
    const uint32_t *prompt;
    uint32_t n_prompt, n_generate;
    Moesaic__Step__V1__Sampling sampling;
    const Moesaic__Step__V1__Steering *steering; // or NULL; sampling.steered says that it applies
    bool scored;                                 // its prompt, with n_score_top alternatives
    uint32_t n_score_top;
};
// How likely a token of a prompt was. The first one's is zero.
struct serve_score {
    float logprob, top_logprob; // of the most likely one
    uint32_t rank, top_id;
    uint64_t tops; // a hash of all alternatives
};
struct serve_token {
    uint32_t token;
    float logprob;
    uint64_t digest;
};
struct serve_way {
    uint32_t chunk;      // tokens of a prompt a step
    bool mixed;          // chunks of 1 to that many
    uint32_t n_together; // requests a DP group at once
    bool from_slot;      // decode with token_from_slot
    uint64_t page_seed;  // order of the free pages
};
struct serve_batch {
    const struct serve_request *requests; // request i on DP group i % dp
    uint32_t n_requests;
    struct serve_token *answers; // request i's at answers[i * stride]
    uint32_t stride;
    float *logits; // every position's row of the prompts, one request after the other; NULL or
                   // needs keep_logits
    struct serve_score *scores; // the same, of the prompts' tokens; NULL when none is scored
};
// Serves all requests of the batch. The step numbers start at 1 in each call.
void serve(struct ranks *r, const struct serve_way *way, const struct serve_batch *batch);

#endif
