// wire.c: see wire.h.
#include "leader/wire.h"

#include <inttypes.h>
#include <math.h>

#include "common/base/check.h"
#include "common/net/pb_arena.h"
#include "step.pb-c.h"

// What protobuf-c may use for one result. The largest honest one is 4,096 rows with 20 alternatives
// each, about 1.5 MiB, and the scores of 65,536 rows of prompts, half a MiB.
#define RESULT_ARENA_BYTES_MAX ((size_t)8 << 20)

typedef Moesaic__Step__V1__PlanSeq pb_seq;
typedef Moesaic__Step__V1__Sampling pb_sampling;
typedef Moesaic__Step__V1__Steering pb_steering;
typedef Moesaic__Step__V1__Scoring pb_scoring;

struct wire {
    struct sched_config shape;
    pb_seq *seqs;            // [max_num_seqs]
    pb_seq **seq_pointers;   // [max_num_seqs]
    pb_sampling *samplings;  // [max_num_seqs]
    pb_steering *steerings;  // [max_num_seqs]
    pb_scoring *scorings;    // [max_num_seqs]
    struct sampled *results; // [max_num_seqs]
    struct arena arena;      // of the result being decoded
};

int wire_create(struct wire **out, const struct sched_config *shape) {
    struct wire *w = mem_zalloc(sizeof *w);
    if (w == NULL) return ERR_FATAL_NOMEM;
    w->shape = *shape;
    arena_init(&w->arena, RESULT_ARENA_BYTES_MAX);
    w->seqs = mem_array(shape->max_num_seqs, sizeof *w->seqs);
    w->seq_pointers = mem_array(shape->max_num_seqs, sizeof *w->seq_pointers);
    w->samplings = mem_array(shape->max_num_seqs, sizeof *w->samplings);
    w->steerings = mem_array(shape->max_num_seqs, sizeof *w->steerings);
    w->scorings = mem_array(shape->max_num_seqs, sizeof *w->scorings);
    w->results = mem_array(shape->max_num_seqs, sizeof *w->results);
    if (w->seqs == NULL || w->seq_pointers == NULL || w->samplings == NULL ||
        w->steerings == NULL || w->scorings == NULL || w->results == NULL) {
        wire_destroy(w);
        return ERR_FATAL_NOMEM;
    }
    for (uint32_t i = 0; i < shape->max_num_seqs; i++)
        w->seq_pointers[i] = &w->seqs[i];
    *out = w;
    return 0;
}

void wire_destroy(struct wire *w) {
    if (w == NULL) return;
    mem_free(w->seqs);
    mem_free(w->seq_pointers);
    mem_free(w->samplings);
    mem_free(w->steerings);
    mem_free(w->scorings);
    mem_free(w->results);
    arena_finish(&w->arena);
    mem_free(w);
}

// --- plans

static void fill_sampling(pb_sampling *out, const struct sampling *s) {
    moesaic__step__v1__sampling__init(out);
    out->temperature = s->temperature;
    out->top_p = s->top_p;
    out->top_k = s->top_k;
    out->min_p = s->min_p;
    out->seed = s->seed;
    out->prompt_index = s->prompt_index;
    out->choice_index = s->choice_index;
    out->n_logprobs = s->n_logprobs;
    out->want_logprob = s->want_logprob;
    out->steered = s->steered;
}

// Packing only reads, so the casts that drop const are safe, here and below.
static void fill_steering(pb_steering *out, const struct request *r) {
    const struct steering *s = r->steering;
    moesaic__step__v1__steering__init(out);
    out->n_prompt = r->n_prompt;
    out->presence_penalty = s->presence_penalty;
    out->frequency_penalty = s->frequency_penalty;
    out->repetition_penalty = s->repetition_penalty;
    out->min_tokens = s->min_tokens;
    out->n_stop_ids = s->min_tokens != 0 ? r->n_stop_ids : 0;
    out->stop_ids = (uint32_t *)r->stop_ids;
    out->n_bias_ids = out->n_bias = s->n_bias;
    out->bias_ids = (uint32_t *)s->bias_ids;
    out->bias = (float *)s->bias;
    out->n_allowed_ids = s->n_allowed;
    out->allowed_ids = (uint32_t *)s->allowed_ids;
    out->n_word_ids = s->n_word_ids;
    out->word_ids = (uint32_t *)s->word_ids;
    out->n_word_lengths = s->n_words;
    out->word_lengths = (uint32_t *)s->word_lengths;
}

static void fill_scoring(pb_scoring *out, const struct planned *p) {
    moesaic__step__v1__scoring__init(out);
    out->n_rows = p->n_scored;
    out->n_top = p->n_score_top;
    out->next_token = p->next_token;
}

static void fill_seq(struct wire *w, uint32_t i, const struct planned *p) {
    pb_seq *out = &w->seqs[i];
    moesaic__step__v1__plan_seq__init(out);
    out->slot = p->slot;
    out->position = p->position;
    out->token_from_slot = p->tokens == NULL;
    if (p->tokens != NULL) {
        out->n_tokens = p->n_tokens;
        out->tokens = (uint32_t *)p->tokens;
    }
    out->block_offset = p->block_offset;
    out->n_blocks = p->n_blocks;
    out->blocks = (uint32_t *)p->blocks;
    out->from_snapshot = p->from_snapshot;
    out->to_snapshot = p->to_snapshot;
    if (p->steered_by != NULL) {
        fill_steering(&w->steerings[i], p->steered_by);
        out->steering = &w->steerings[i];
    }
    if (p->n_scored > 0) {
        fill_scoring(&w->scorings[i], p);
        out->scoring = &w->scorings[i];
    }
    if (!p->sample) return;
    fill_sampling(&w->samplings[i], &p->sampling);
    out->sampling = &w->samplings[i];
}

static int reserve(struct wire_buffer *b, size_t bytes) {
    if (b->capacity >= bytes) return 0;
    size_t capacity = b->capacity < 4096 ? 4096 : b->capacity;
    while (capacity < bytes)
        capacity *= 2;
    uint8_t *data = mem_resize(b->data, capacity);
    if (data == NULL) return ERR_FATAL_NOMEM;
    b->data = data;
    b->capacity = capacity;
    return 0;
}

int wire_encode(struct wire *w, uint64_t epoch, uint64_t step, const struct rank_plan *plan,
                struct wire_buffer *buffer) {
    check(plan->n_seqs <= w->shape.max_num_seqs);
    for (uint32_t i = 0; i < plan->n_seqs; i++)
        fill_seq(w, i, &plan->seqs[i]);
    Moesaic__Step__V1__StepPlan pb = MOESAIC__STEP__V1__STEP_PLAN__INIT;
    pb.epoch = epoch;
    pb.step = step;
    pb.n_seqs = plan->n_seqs;
    pb.seqs = w->seq_pointers;
    size_t bytes = moesaic__step__v1__step_plan__get_packed_size(&pb);
    int err = reserve(buffer, bytes);
    if (err != 0) return err;
    buffer->bytes = moesaic__step__v1__step_plan__pack(&pb, buffer->data);
    return 0;
}

// --- results

static int check_head(const Moesaic__Step__V1__StepResult *pb, const struct wire_answer *x,
                      struct err_text *e) {
    if (pb->epoch != x->epoch)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "result of rank %u is of epoch %" PRIu64 ", not %" PRIu64, x->rank,
                       pb->epoch, x->epoch);
    if (pb->rank != x->rank)
        return err_set(e, ERR_PEER_PROTOCOL, "result of rank %u says that it is of rank %u",
                       x->rank, pb->rank);
    if (pb->error[0] != '\0')
        return err_set(e, ERR_PEER_LOST, "rank %u could not run step %" PRIu64 ": %.300s", x->rank,
                       x->step, pb->error);
    if (pb->step != x->step)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "result of rank %u is of step %" PRIu64 ", not %" PRIu64, x->rank, pb->step,
                       x->step);
    if (pb->n_seqs != x->plan->n_answered)
        return err_set(e, ERR_PEER_PROTOCOL, "result of rank %u has %zu rows, not %u", x->rank,
                       pb->n_seqs, x->plan->n_answered);
    if (pb->n_phase_ns > 16)
        return err_set(e, ERR_PEER_PROTOCOL, "result of rank %u has %zu phases", x->rank,
                       pb->n_phase_ns);
    return 0;
}

static int check_top(const struct wire *w, const Moesaic__Step__V1__SeqResult *pb,
                     const struct sampling *s, const char **field) {
    if (pb->n_top_ids > s->n_logprobs || pb->n_top_logprobs != pb->n_top_ids) {
        *field = "top_ids";
        return ERR_PEER_PROTOCOL;
    }
    for (size_t i = 0; i < pb->n_top_ids; i++) {
        if (pb->top_ids[i] < w->shape.vocab && isfinite(pb->top_logprobs[i])) continue;
        *field = "top_logprobs";
        return ERR_PEER_PROTOCOL;
    }
    return 0;
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

static bool all_within(const uint32_t *x, size_t n, uint32_t least, uint32_t most) {
    for (size_t i = 0; i < n; i++) {
        if (x[i] < least || x[i] > most) return false;
    }
    return true;
}

// n_top is in the result what was asked for, or the vocabulary's size where that is less.
static int take_scores(const struct wire *w, const Moesaic__Step__V1__SeqResult *pb,
                       const struct planned *p, struct prompt_scores *out, const char **field) {
    uint32_t vocab = w->shape.vocab, n_top = p->n_score_top < vocab ? p->n_score_top : vocab;
    size_t n_tops = (size_t)p->n_scored * n_top;
    *field = "scored_logprobs";
    if (pb->n_scored_logprobs != p->n_scored || !all_finite(pb->scored_logprobs, p->n_scored))
        return ERR_PEER_PROTOCOL;
    *field = "scored_ranks";
    if (pb->n_scored_ranks != p->n_scored || !all_within(pb->scored_ranks, p->n_scored, 1, vocab))
        return ERR_PEER_PROTOCOL;
    *field = "scored_top_ids";
    if (pb->n_scored_top_ids != n_tops || !all_within(pb->scored_top_ids, n_tops, 0, vocab - 1))
        return ERR_PEER_PROTOCOL;
    *field = "scored_top_logprobs";
    if (pb->n_scored_top_logprobs != n_tops || !all_finite(pb->scored_top_logprobs, n_tops))
        return ERR_PEER_PROTOCOL;
    *out = (struct prompt_scores){.n_tokens = p->n_scored,
                                  .n_top = n_top,
                                  .logprobs = pb->scored_logprobs,
                                  .ranks = pb->scored_ranks,
                                  .top_ids = pb->scored_top_ids,
                                  .top_logprobs = pb->scored_top_logprobs};
    return 0;
}

static int take_row(const struct wire *w, const Moesaic__Step__V1__SeqResult *pb,
                    const struct planned *p, struct sampled *out, const char **field) {
    struct prompt_scores scores;
    *field = "slot";
    if (pb->slot != p->slot) return ERR_PEER_PROTOCOL;
    if (pb->nonfinite) {
        *out = (struct sampled){.nonfinite = true};
        return 0;
    }
    if (take_scores(w, pb, p, &scores, field) != 0) return ERR_PEER_PROTOCOL;
    *field = "token";
    if (pb->token >= w->shape.vocab) return ERR_PEER_PROTOCOL;
    *field = "logprob";
    if (!isfinite(pb->logprob)) return ERR_PEER_PROTOCOL;
    if (check_top(w, pb, &p->sampling, field) != 0) return ERR_PEER_PROTOCOL;
    *out = (struct sampled){.token = pb->token,
                            .logprob = pb->logprob,
                            .n_top = (uint32_t)pb->n_top_ids,
                            .top_ids = pb->top_ids,
                            .top_logprobs = pb->top_logprobs,
                            .digest = pb->digest,
                            .scores = scores};
    return 0;
}

int wire_decode(struct wire *w, const struct wire_answer *x, struct wire_result *out,
                struct err_text *e) {
    arena_reset(&w->arena);
    ProtobufCAllocator allocator = pb_arena_allocator(&w->arena);
    Moesaic__Step__V1__StepResult *pb =
        moesaic__step__v1__step_result__unpack(&allocator, x->bytes, x->data);
    if (pb == NULL) return err_set(e, ERR_PEER_PROTOCOL, "result of rank %u is malformed", x->rank);
    int err = check_head(pb, x, e);
    if (err != 0) return err;
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->plan->n_seqs; i++) {
        const struct planned *p = &x->plan->seqs[i];
        const char *field;
        if (!p->sample && p->n_scored == 0) continue;
        if (take_row(w, pb->seqs[n], p, &w->results[n], &field) != 0)
            return err_set(e, ERR_PEER_PROTOCOL, "result of rank %u, row %u: %s is wrong", x->rank,
                           n, field);
        n++;
    }
    *out = (struct wire_result){.results = w->results};
    for (size_t i = 0; i < pb->n_phase_ns; i++)
        out->phase_ns[i] = pb->phase_ns[i];
    return 0;
}
