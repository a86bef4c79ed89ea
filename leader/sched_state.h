// sched_state.h: what is inside struct sched. Only sched.c (lives of requests) and plan.c (steps)
// include it.
#ifndef MOESAIC_LEADER_SCHED_STATE_H
#define MOESAIC_LEADER_SCHED_STATE_H

#include "common/base/env.h"
#include "common/base/list.h"
#include "leader/pages.h"
#include "leader/sched.h"

#define ID_BUCKETS 16384 // a power of two, of the order of REQUESTS_LIVE_MAX

struct seq {
    struct list_node node; // of sched.queue, or of its rank's prompts, decodes or ended
    struct seq *next_in_bucket;
    struct request *r; // owned; NULL once ended
    uint64_t id;
    enum request_state state;
    bool has_slot;
    uint32_t rank, slot;
    uint32_t n_prompt, max_tokens;
    uint32_t n_planned;            // rows planned so far, so also the position of the next one
    uint32_t n_sampling;           // of them with sampling
    uint32_t n_generated;          // tokens that came back
    uint32_t last_token;           // the newest of them
    uint32_t n_overtaken;          // later ones that left the queue before it
    uint32_t n_blocks, n_promised; // taken, and not taken yet
    uint64_t digest;               // rolling, docs/arithmetic.md
    uint64_t last_step;            // the newest step planned with it, 0 = none
    struct sampling sampling;
    bool wants_prompt_rows; // each row of its prompt must be computed: its scores are the answer's
    uint32_t n_score_items; // that one of these rows takes of a step
    uint32_t n_items;       // of its steering
    uint32_t blocks[];      // [n_blocks + n_promised], the block table
};

struct sched_rank {
    struct pages pages;
    struct list prompts, decodes, ended; // of struct seq with a slot
    uint32_t *free_slots;                // [max_num_seqs], owned; the first n_free_slots are free
    uint64_t generation_tokens;          // sampled here since the start
    uint32_t n_free_slots;
    uint32_t budget;      // rows left in the step that is being planned
    uint32_t items;       // of steering, the same
    uint32_t score_items; // of scored rows, the same
};

struct sched {
    struct sched_config config;
    struct list queue; // FIFO, without a slot
    struct sched_rank *ranks;
    struct seq **buckets; // [ID_BUCKETS]
    uint32_t n_live;      // sequences on queue, prompts and decodes
    bool formed, held;
    int64_t queue_deadline_ns; // while not formed
    uint64_t n_steps;          // planned
    uint64_t completed;        // the newest step that returned from all ranks
    struct sched_counts counts;
};

static inline struct seq *seq_of(struct list_node *n) {
    return n == NULL ? NULL : list_item(n, struct seq, node);
}

// Moves a sequence to the next state; a move that the table forbids is a bug.
void seq_move(struct seq *q, enum request_state to);
// Delivers ev as the request's last event. The sequence loses its slot when the last step planned
// with it is over.
void sched_end(struct sched *s, struct seq *q, struct token_event *ev);
void sched_end_error(struct sched *s, struct seq *q, int error, const char *message);
// Frees slots and blocks of ended sequences whose last step is over.
void sched_retire(struct sched *s);
struct token_event seq_event(const struct seq *q);

#endif
