// sched.h: who runs when: the queue, each rank's slots and block tables, and the plan of the next
// step.
//
// What is called a rank here is what has requests and a KV cache of its own: a DP group, whose
// ranks all follow one plan (drive.c).
//
// Owned by the scheduler thread; knows no fabric and no clock. Requests come from the mailbox
// (leader.c), plans go to drive.c, which brings the results back. Continuous batching: in each step
// decodes come first, then the next chunks of prompts in the order of arrival, then new requests
// from one first-in-first-out queue (one that needs more KV blocks than are free may be passed by
// OVERTAKEN_MAX later ones), all under a budget of rows a rank and step. Where requests have
// priorities, those come before the order of arrival everywhere.
//
// KV blocks are taken as they fill. A sequence that finds none free takes those of the newest one
// on its rank, which goes back into the queue (preemption); a group that is lost sends all that ran
// there (replay). Both go on later from what the leader knows of them, prompt and generated tokens,
// with the same bits. The oldest is never preempted, so something always progresses.
//
// Full blocks are published (pages.h) as soon as their rows are planned, and whoever starts with
// the same tokens and salt shares them, also within the same step: a rank writes all keys and
// values of a layer before it reads any. A request goes to the rank that holds most of its
// beginning, unless that one is much busier than another.
//
// Where a model keeps states beside pages, a request can begin behind shared blocks only where a
// copy of the state was kept (snapshots.h), and from the step after on. Runs end where that is
// done: each config.snapshot_tokens, at the last full block that a prompt has before its last
// token, and where the longest answer ends if a block does; but not close behind the one before.
//
// Where layers are in stages (pipeline parallel), n_batches steps are on the way at once. So that
// no stage idles, each takes its share of the decodes; and none has a row whose token is not known,
// as the first stage could not wait for the last.
#ifndef MOESAIC_LEADER_SCHED_H
#define MOESAIC_LEADER_SCHED_H

#include "common/base/err.h"
#include "leader/request.h"

struct sched;
struct seq;       // one request inside the scheduler
struct rank_room; // pages.h

struct sched_config {
    uint32_t n_ranks;                // DP groups
    uint32_t n_batches;              // over which a rank's decodes are spread; 0 or 1: each step
                                     // has all
    uint32_t max_num_seqs;           // slots a rank
    uint32_t max_num_batched_tokens; // rows a rank and step
    uint32_t max_model_len, vocab;
    bool prefix_caching; // full blocks outlive their requests, for others with the same beginning
    bool digest;         // rows come with digests; else events carry 0
    int64_t recovery_timeout_ns; // how long requests outlive their group
    uint32_t snapshot_tokens;    // between two snapshots of a sequence's state; 0: there is none
    uint64_t seed;               // secret: of the prefix cache's hash; changes no answer
};

int sched_create(struct sched **out, const struct sched_config *config, struct err_text *e);
void sched_destroy(struct sched *s); // after sched_close

// One run of rows of one sequence in a step. Pointers are valid until the next call into the
// scheduler.
struct planned {
    struct seq *seq;
    uint32_t slot, position, n_tokens;
    const uint32_t *tokens; // [n_tokens]; NULL: one, the token that this slot sampled last
    uint32_t block_offset, n_blocks;
    const uint32_t *blocks; // [n_blocks], new in the slot's table from block_offset on
    bool sample;
    bool again;                     // the sampled token is known: it shows that nothing changed
    uint32_t from_snapshot;         // that its state is before its first row: 1 + number, 0 = none
    uint32_t to_snapshot;           // that its state is saved to after its last, the same
    uint32_t start;                 // of seq's starts; results of an earlier one are void
    uint32_t n_scored, n_score_top; // the first rows of the run that are scored, and alternatives
    uint32_t next_token;            // what follows the run, where its last row is scored
    struct sampling sampling;       // with sample
    const struct request *steered_by; // its steering goes with this run; NULL = none does
};

struct rank_plan {
    uint32_t n_seqs, n_rows, n_answered; // answered: sampled or scored
    struct planned *seqs;                // [max_num_seqs]
    bool answered;
};

// One step of the whole group. Reused: made once for each place in the pipeline.
struct step_plan {
    uint64_t number; // from 1, growing for as long as the leader lives
    uint32_t n_ranks, n_answers;
    uint32_t n_prompt_tokens, n_decode_tokens, n_ranks_busy;
    struct rank_plan *ranks; // [n_ranks]
};

int step_plan_init(struct step_plan *step, const struct sched_config *config);
void step_plan_finish(struct step_plan *step);

// What a rank says of one planned run that is sampled or scored; checked by drive.c before it comes
// here.
struct sampled {
    uint32_t token, n_top;
    float logprob;
    const uint32_t *top_ids;   // [n_top]
    const float *top_logprobs; // [n_top]
    uint64_t digest;
    bool nonfinite;
    struct prompt_scores scores; // without its tokens; n_tokens 0 = none
};

// Takes r over. What is wrong with it ends it with an event, as everything later does.
void sched_submit(struct sched *s, struct request *r, int64_t now_ns);
void sched_abort(struct sched *s, uint64_t request_id); // an unknown id is ignored

// The group is formed: ranks have empty pages, snapshots that hold nothing, and free slots.
// ERR_FATAL_NOMEM changes nothing.
int sched_form(struct sched *s, const struct rank_room *rooms); // [n_ranks]
// The group is gone: who had a slot waits in the queue for the next one, unless that happened
// REPLAYS_IN_VAIN_MAX times without progress between. After one time less it is suspected to be the
// cause and starts alone, so that it takes nobody with it. Fine in any state. Steps in flight are
// void; their struct step_plan may be reused.
void sched_lose(struct sched *s, int64_t now_ns);
// Ends what has waited too long for a group. sched_deadline is when to call it next: the recovery
// timeout after the loss, for all that waits by then; NO_DEADLINE for never.
void sched_expire(struct sched *s, int64_t now_ns);
int64_t sched_deadline(const struct sched *s);
// Held: nothing new leaves the queue, what has begun goes on.
void sched_hold(struct sched *s, bool held);
void sched_close(struct sched *s, const char *reason); // ends everything with ERR_REQ_UNAVAILABLE

// Fills the plan of the next step for every rank. False when no rank has work: then there is no
// step.
bool sched_plan(struct sched *s, struct step_plan *step);
// Applies one rank's results, [n_answered] in plan order. True when that was the last rank: the
// step is over, and the slots and blocks of those that ended return.
bool sched_apply(struct sched *s, struct step_plan *step, uint32_t rank,
                 const struct sampled *results);

struct sched_counts {
    uint32_t n_waiting, n_running;
    uint32_t n_resuming; // of those that wait: those that ran before
    uint64_t prompt_tokens, generation_tokens, requests_lost;
    uint64_t preemptions, replays; // a replay: a request that a lost group left behind, taken up
    // Tokens of prompts that were looked for among the blocks there are, and that were found.
    uint64_t prefix_queries, prefix_hits;
    uint64_t replay_mismatches; // whose last known token came out otherwise
};
void sched_count(const struct sched *s, struct sched_counts *out);
struct sched_rank_counts {
    uint32_t n_running, blocks_used, snapshots_used;
    uint64_t generation_tokens;
};
void sched_count_rank(const struct sched *s, uint32_t rank, struct sched_rank_counts *out);
bool sched_has_work(const struct sched *s); // something waits or runs

// Recounts slots, blocks, lists and the index of ids. ERR_FATAL_BOOKS names what does not add up.
int sched_check(const struct sched *s, struct err_text *e);

#endif
