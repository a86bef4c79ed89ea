// sched_state.h: what is inside struct sched. Only sched.c (lives of requests), seq.c (one
// sequence: its tokens, slot and blocks), plan.c (steps) and sched_check.c (recounts) include it.
#ifndef MOESAIC_LEADER_SCHED_STATE_H
#define MOESAIC_LEADER_SCHED_STATE_H

#include "common/base/env.h"
#include "common/base/list.h"
#include "leader/pages.h"
#include "leader/sched.h"
#include "leader/snapshots.h"

#define ID_BUCKETS 16384 // a power of two, of the order of REQUESTS_LIVE_MAX

// One sequence. While it runs (prefilling or decoding) it has a slot and blocks on one rank; a
// preempted or replayed one has neither, waits in the queue as if it had just come, and goes on
// where its client is: what is known of it, prompt and generated tokens, is computed again. Its
// last known token is sampled once more on the way, which shows that nothing changed.
struct seq {
    struct list_node node; // of sched.queue, of its rank's running, or of sched.ended
    struct seq *next_in_bucket;
    struct request *r; // owned; NULL once ended
    uint64_t id;
    uint64_t arrival; // its number in the order in which requests came
    int32_t priority;
    enum request_state state;
    uint32_t n_starts; // how often it got a slot
    uint32_t n_vain;   // groups lost under it since its last token or scores
    uint32_t rank, slot;
    uint32_t n_prompt, max_tokens;
    uint32_t *tokens; // owned: the prompt, then what came back
    uint32_t n_tokens, tokens_capacity;
    uint32_t n_prefill;     // rows that must run before it decodes
    uint32_t n_planned;     // rows planned in this slot, so also the position of the next one
    uint32_t n_sampling;    // generated tokens that are planned to be sampled, or known
    bool scored;            // its prompt is: every row of it must run once
    uint32_t n_scores;      // rows whose scores its client has
    uint32_t n_score_items; // that one of these rows takes of a step
    uint32_t n_overtaken;   // later ones that left the queue before it
    uint64_t digest;        // rolling, docs/arithmetic.md
    uint64_t row_digest;    // of the row that gave the last known token
    uint64_t last_step;     // the newest step planned with it, 0 = none
    struct sampling sampling;
    uint32_t n_items;      // of its steering
    uint32_t n_blocks_max; // that its longest answer needs
    uint32_t n_blocks;     // taken
    uint32_t n_told;       // of them, that the rank knows
    uint32_t n_published;  // of them, from the first on, that are full and looked at
    struct prefix prefix;  // what is before the next one
    // Of a model with states; positions are where one stands or can be found.
    uint32_t restored; // the snapshot that its first run begins from
    uint32_t n_saved;  // the last position at which its state was kept, or that it began from
    uint32_t held;     // the snapshot that is written with tokens that are not known yet,
    uint32_t held_end; // and its position
    uint32_t blocks[]; // [n_blocks_max], the block table
};

struct sched_rank {
    struct pages pages;
    struct snapshots snapshots;
    struct list running;        // of struct seq, in the order of service
    uint32_t *free_slots;       // [max_num_seqs], owned; the first n_free_slots are free
    uint64_t generation_tokens; // sampled here since the start
    uint32_t n_free_slots;
    uint32_t budget;      // rows left in the step that is being planned
    uint32_t decodes;     // that it still takes
    uint32_t items;       // of steering, the same
    uint32_t score_items; // of scored rows, the same
    uint32_t names;       // of blocks, the same
    uint32_t n_hits;      // blocks of the sequence in question that it has
    bool out_of_pages;    // in this step: somebody gave up a slot
    bool takes;           // the sequence in question, now
};

struct sched {
    struct sched_config config;
    struct list queue; // without a slot, in the order of service
    struct list ended; // whose last step is not over: results still name them
    struct sched_rank *ranks;
    struct seq **buckets; // [ID_BUCKETS]
    uint32_t n_live;      // sequences on queue and running
    uint32_t n_resuming;  // of the queue: those that had a slot before
    uint64_t n_arrived;
    bool formed, held;
    int64_t queue_deadline_ns; // while not formed
    uint64_t n_steps;          // planned
    uint64_t completed;        // the newest step that returned from all ranks
    struct sched_counts counts;
};

static inline struct seq *seq_of(struct list_node *n) {
    return n == NULL ? NULL : list_item(n, struct seq, node);
}
static inline uint32_t seq_generated(const struct seq *q) {
    return q->n_tokens - q->n_prompt;
}

// --- seq.c

// A sequence for r, whose prompt it takes over; r itself stays the caller's when memory is out
// (NULL).
struct seq *seq_create(struct request *r);
void seq_destroy(struct seq *q);
// Moves a sequence to the next state; a move that the table forbids is a bug.
void seq_move(struct seq *q, enum request_state to);
bool seq_before(const struct seq *a, const struct seq *b); // a is served first
struct token_event seq_event(const struct seq *q);
bool seq_add_token(struct seq *q, uint32_t token); // false: memory is out
// Puts it where it belongs.
void seq_enqueue(struct sched *s, struct seq *q);
void seq_dequeue(struct sched *s, struct seq *q);
// Blocks that the rows before its first decode fill.
uint32_t seq_blocks(const struct seq *q);
// How many of them, from the first on, rank has; *n_free: of these, held by nobody. At least one
// row is left to run, and every row that is yet to be scored.
uint32_t seq_hits(const struct sched *s, const struct seq *q, uint32_t rank, uint32_t *n_free);
// Out of the queue into a slot of rank, with seq_blocks. The caller knows that they are there.
void seq_start(struct sched *s, struct seq *q, uint32_t rank);
// One more block for it; there is a free one.
void seq_take_block(struct sched *s, struct seq *q);
// Publishes its blocks that are full by now, and the snapshot behind the last of them.
void seq_publish(struct sched *s, struct seq *q);
// The next position at which a run of it must end, as its state is to be kept there; UINT32_MAX =
// nowhere.
uint32_t seq_next_save(const struct sched *s, const struct seq *q);
// The run of this step that is planned last ended there, and was published: the snapshot that its
// rank saves it to, or NONE.
uint32_t seq_save(struct sched *s, struct seq *q, uint64_t step);
// Gives slot and blocks back. Results on the way are void.
void seq_leave(struct sched *s, struct seq *q);
// Back into the queue from a slot.
void seq_resume_later(struct sched *s, struct seq *q);

// --- sched.c

// Delivers ev as the request's last event.
void sched_end(struct sched *s, struct seq *q, struct token_event *ev);
void sched_end_error(struct sched *s, struct seq *q, int error, const char *message);
// Frees ended sequences whose last step is over.
void sched_retire(struct sched *s);

// sched_check.c needs it.
struct seq *sched_find(const struct sched *s, uint64_t id);

#endif
