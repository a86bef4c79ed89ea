// model.h: one rank's forward pass over one step's plan. The worker loop sees no tensor; model.c
// sees no process.
//
// Owned and called by the engine thread only. All memory is allocated in model_create or taken from
// the store; a step allocates nothing.
#ifndef MOESAIC_WORKER_MODEL_H
#define MOESAIC_WORKER_MODEL_H

#include "common/base/layout.h"
#include "common/model/spec.h"
#include "common/net/fabric.h"
#include "kernels/ops.h"
#include "step.pb-c.h"
#include "worker/pool.h"
#include "worker/store.h"
#include "worker/weights.h"

struct model;

// Where a step's time goes.
enum step_phase {
    PHASE_EMBED,
    PHASE_ATTN,
    PHASE_ROUTE,
    PHASE_DISPATCH,
    PHASE_EXPERT,
    PHASE_COMBINE,
    PHASE_DENSE,
    PHASE_HEAD,
    PHASE_SAMPLE,
    PHASE_TENSOR, // exchanges of a TP group, which are not in the phases above
    PHASE_STAGE,  // waiting for the stage before, handing over to the next: also until what the
                  // step before has sent is gone
    PHASE_COUNT
};

struct model_config {
    struct env *env;
    const struct weights *weights; // not owned, as all pointers here
    const struct layout *layout;
    const struct kernel_ops *ops;
    struct pool *pool;
    struct fabric *fabric; // connected; ranks 0..n_ranks-1
    uint32_t rank;
    uint32_t n_slots, rows_max, max_model_len, kv_blocks;
    uint32_t n_snapshots; // of slots' states
    enum dtype kv_dtype;  // one that dtype_is_kv
    // Memory of pages, states and snapshots, which this model alone uses while it lives; NULL: its
    // own, which goes with it.
    struct store *store;
    bool digest;
    // Bound of one exchange: an all-to-all, one of a TP group, rows from the stage before.
    int64_t exchange_timeout_ns;
};

// How likely the tokens of a prompt were: the rows of one run that were scored.
struct seq_scores {
    uint32_t n_rows, n_top;    // n_top <= vocab
    const float *logprobs;     // [n_rows]
    const uint32_t *ranks;     // [n_rows]
    const uint32_t *top_ids;   // [n_rows, n_top]
    const float *top_logprobs; // [n_rows, n_top]
};

struct seq_result {
    uint32_t slot, token;
    float logprob;
    uint32_t n_top;
    uint32_t top_ids[TOP_LOGPROBS_MAX];
    float top_logprobs[TOP_LOGPROBS_MAX];
    uint64_t digest;
    bool nonfinite;
    struct seq_scores scores; // n_rows 0: none were asked for
};

struct step_output {
    uint32_t n_seqs; // <= n_slots, in plan order; none but on TP index 0 of the last stage
    const struct seq_result *seqs; // valid until the next step
    uint64_t phase_ns[PHASE_COUNT];
    uint64_t total_ns;
};

int model_create(struct model **out, const struct model_config *config, struct err_text *e);
void model_destroy(struct model *m);

// Checks the whole plan first (ERR_PEER_PROTOCOL names the field; nothing was computed), then runs
// it. Every rank of the group must run every step. ERR_PEER_* from an exchange leaves the pages
// undefined: the epoch is over.
int model_step(struct model *m, const Moesaic__Step__V1__StepPlan *plan, struct step_output *out,
               struct err_text *e);

// Logits of every row of the last step instead of only the sampled ones (golden tests): [n_rows,
// vocab], row order of the plan; NULL but on TP index 0 of the last stage. Must be switched on
// before the step, on all ranks of a TP group; allocates then.
int model_keep_logits(struct model *m, bool keep);
const float *model_logits(const struct model *m, uint32_t *n_rows);

// Rows computed so far by (layer, local expert): [layers of its stage][n_local_experts],
// cumulative; readable by any thread. Of the ranks that share experts the first one counts, the
// others' stay 0.
const _Atomic uint64_t *model_expert_tokens(const struct model *m);
uint32_t model_expert_counters(const struct model *m); // how many

// Bytes of one page on the config's rank, and pages that fit into bytes. Only weights->spec,
// layout, rank and kv_dtype are looked at.
uint64_t model_kv_block_bytes(const struct model_config *config);
uint32_t model_kv_blocks_fit(const struct model_config *config, uint64_t bytes);

// Bytes of one slot's state on the config's rank, and snapshots of it that fit into bytes,
// SNAPSHOTS_MAX at most: none of a model without states, any number where other stages keep them.
uint64_t model_state_bytes(const struct model_config *config);
uint32_t model_snapshots_fit(const struct model_config *config, uint64_t bytes);

// The largest message that two ranks exchange in a step: what fabric_config.message_bytes_max must
// allow.
size_t model_message_bytes_max(const struct model_spec *spec, const struct layout *layout,
                               uint32_t rows_max);

// What a step needs beside weights and pages: model_create's memory, and the messages that the
// fabric holds for it. UINT64_MAX when that does not fit the address space. config->kv_blocks,
// n_snapshots and pool are not looked at.
uint64_t model_step_bytes(const struct model_config *config, uint32_t n_threads);

// The digest of one row of logits that a result carries.
uint64_t model_digest_row(const float *logits, uint32_t n);

#endif
