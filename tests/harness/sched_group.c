// sched_group.c: see sched_group.h.
#include "tests/harness/sched_group.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH 5

// --- a client that notes what it is told

// Scores come in the prompt's order, from its second token on, before any token of the answer.
static void take_scores(struct sink *k, struct prompt_scores *s) {
    if (s == NULL) return;
    ck_assert_uint_eq(s->n_top, k->n_score_top);
    ck_assert_uint_eq(k->n_tokens, 0);
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        uint32_t before = ++k->n_scores;
        ck_assert_uint_lt(before, k->n_prompt);
        struct toy_score one = toy_score(k->prompt, before, k->prompt[before], VOCAB);
        ck_assert_uint_eq(s->tokens[i], k->prompt[before]);
        ck_assert_float_eq(s->logprobs[i], one.logprob);
        ck_assert_uint_eq(s->ranks[i], one.rank);
        for (uint32_t a = 0; a < s->n_top; a++)
            ck_assert_uint_eq(s->top_ids[i * s->n_top + a],
                              toy_alternative(k->prompt, before, a, VOCAB));
    }
    mem_free(s);
}

static void emit(const struct token_event *ev) {
    struct sink *k = ev->sink_context;
    take_scores(k, ev->scores);
    ck_assert_uint_eq(k->n_finishes, 0); // nothing follows the last event
    ck_assert_uint_eq(ev->request_id, k->id);
    if (ev->is_start) {
        k->n_starts++;
        k->n_cached = ev->n_cached;
    }
    if (ev->has_token) k->tokens[k->n_tokens++] = ev->token;
    k->digest = ev->digest;
    if (ev->finish == FINISH_NONE) return;
    k->n_finishes++;
    k->finish = ev->finish;
    k->stop_id = ev->has_token ? 0 : ev->token;
    k->error = ev->error;
    snprintf(k->message, sizeof k->message, "%s", ev->message);
}

// --- a group of toy ranks and the pipeline between

uint64_t group_draw(struct group *g, uint64_t n) {
    g->rng = g->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (g->rng >> 33) % n;
}

void group_form(struct group *g, uint32_t kv_blocks) {
    struct rank_room rooms[RANKS_TOP];
    for (uint32_t i = 0; i < g->config.n_ranks; i++) {
        toy_destroy(g->ranks[i]);
        struct toy_config toy = {.rank = i,
                                 .n_slots = g->config.max_num_seqs,
                                 .rows_max = g->config.max_num_batched_tokens,
                                 .kv_blocks = kv_blocks,
                                 .stateful = g->config.snapshot_tokens != 0,
                                 .snapshots = g->snapshots,
                                 .max_model_len = MODEL_LEN,
                                 .vocab = VOCAB,
                                 .nonfinite_token = VOCAB - 1};
        g->ranks[i] = toy_create(&toy);
        rooms[i] = (struct rank_room){.kv_blocks = kv_blocks, .snapshots = g->snapshots};
    }
    g->n_flights = 0;
    ck_assert_int_eq(sched_form(g->sched, rooms), 0);
}

static void start(struct group *g, const struct sched_config *shape, uint32_t depth) {
    ck_assert_uint_le(depth, DEPTH_TOP);
    *g = (struct group){.depth = depth, .rng = 1, .config = *shape};
    ck_assert_int_eq(sched_create(&g->sched, &g->config, NULL), 0);
    ck_assert_int_eq(wire_create(&g->wire, &g->config), 0);
    for (uint32_t i = 0; i < depth; i++)
        ck_assert_int_eq(step_plan_init(&g->plans[i], &g->config), 0);
}

static struct sched_config shape_of(uint32_t n_ranks, uint32_t seqs, uint32_t budget) {
    return (struct sched_config){.n_ranks = n_ranks,
                                 .max_num_seqs = seqs,
                                 .max_num_batched_tokens = budget,
                                 .max_model_len = MODEL_LEN,
                                 .vocab = VOCAB,
                                 .digest = true,
                                 .prefix_caching = true,
                                 .recovery_timeout_ns = 1000};
}

void group_start(struct group *g, uint32_t n_ranks, uint32_t seqs, uint32_t budget,
                 uint32_t depth) {
    const struct sched_config shape = shape_of(n_ranks, seqs, budget);
    start(g, &shape, depth);
}

void group_start_stateful(struct group *g, uint32_t snapshots, uint32_t snapshot_tokens,
                          uint32_t depth) {
    struct sched_config shape = shape_of(1, 8, 64);
    shape.snapshot_tokens = snapshot_tokens;
    start(g, &shape, depth);
    g->snapshots = snapshots;
}

void group_start_staged(struct group *g, uint32_t seqs, uint32_t budget, uint32_t depth) {
    struct sched_config shape = shape_of(1, seqs, budget);
    shape.n_batches = depth;
    start(g, &shape, depth);
}

void group_check(struct group *g) {
    struct err_text e;
    int err = sched_check(g->sched, &e);
    ck_assert_msg(err == 0, "%s", e.text);
}

void group_finish(struct group *g) {
    sched_close(g->sched, "the test ends");
    group_check(g);
    for (uint32_t i = 0; i < g->config.n_ranks; i++) {
        ck_assert_uint_eq(g->sched->ranks[i].pages.n_free, g->sched->ranks[i].pages.n_blocks);
        ck_assert_uint_eq(g->sched->ranks[i].n_free_slots, g->config.max_num_seqs);
        toy_destroy(g->ranks[i]);
    }
    for (uint32_t i = 0; i < g->depth; i++) {
        step_plan_finish(&g->plans[i]);
        for (uint32_t rank = 0; rank < RANKS_TOP; rank++)
            mem_free(g->buffers[i][rank].data);
    }
    wire_destroy(g->wire);
    sched_destroy(g->sched);
}

bool group_plan(struct group *g) {
    if (g->n_flights == g->depth) return false;
    uint32_t at = (g->first + g->n_flights) % g->depth;
    if (!sched_plan(g->sched, &g->plans[at])) return false;
    for (uint32_t rank = 0; rank < g->config.n_ranks; rank++)
        ck_assert_int_eq(wire_encode(g->wire, EPOCH, g->plans[at].number, &g->plans[at].ranks[rank],
                                     &g->buffers[at][rank]),
                         0);
    g->n_flights++;
    return true;
}

bool group_answer(struct group *g, uint32_t rank) {
    for (uint32_t i = 0; i < g->n_flights; i++) {
        uint32_t at = (g->first + i) % g->depth;
        struct step_plan *plan = &g->plans[at];
        if (plan->ranks[rank].answered) continue;
        size_t bytes;
        uint8_t *data =
            toy_step(g->ranks[rank], g->buffers[at][rank].data, g->buffers[at][rank].bytes, &bytes);
        struct wire_answer answer = {.data = data,
                                     .bytes = bytes,
                                     .epoch = EPOCH,
                                     .step = plan->number,
                                     .rank = rank,
                                     .plan = &plan->ranks[rank]};
        struct wire_result result;
        struct err_text e;
        int err = wire_decode(g->wire, &answer, &result, &e);
        free(data);
        ck_assert_msg(err == 0, "%s", e.text);
        if (sched_apply(g->sched, plan, rank, result.results)) {
            ck_assert_uint_eq(i, 0);
            g->first = (g->first + 1) % g->depth;
            g->n_flights--;
        }
        return true;
    }
    return false;
}

void group_step(struct group *g) {
    while (group_plan(g))
        continue;
    uint32_t from = (uint32_t)group_draw(g, g->config.n_ranks);
    for (uint32_t i = 0; i < g->config.n_ranks; i++) {
        if (group_answer(g, (from + i) % g->config.n_ranks)) return;
    }
}

void group_run(struct group *g) {
    while (sched_has_work(g->sched) || g->n_flights > 0)
        group_step(g);
    group_check(g);
}

void group_run_losing(struct group *g, struct group_losses losses) {
    while (sched_has_work(g->sched)) {
        group_step(g);
        group_check(g);
        if (losses.n == 0 || group_draw(g, losses.one_in) != 0) continue;
        sched_lose(g->sched, 0);
        group_check(g);
        group_form(g, losses.kv_blocks);
        losses.n--;
    }
    group_run(g);
}

struct request *group_request(struct sink *k, uint64_t id, uint32_t n_prompt, uint32_t max_tokens) {
    struct request *r = request_create(n_prompt);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = (uint32_t)((id * 31 + i * 7) % (VOCAB - 1));
    *k = (struct sink){.id = id};
    r->id = id;
    r->max_tokens = max_tokens;
    r->emit = emit;
    r->sink_context = k;
    return r;
}

// The copy lets the sink look at the prompt while the scheduler owns it; static, freed by nobody.
void group_score(struct request *r, struct sink *k, uint32_t n_top) {
    static uint32_t copies[128][MODEL_LEN];
    memcpy(copies[r->id % 128], r->prompt, r->n_prompt * sizeof *r->prompt);
    k->prompt = copies[r->id % 128];
    k->n_prompt = r->n_prompt;
    r->score_prompt = true;
    r->n_score_top = k->n_score_top = n_top;
}

void group_submit(struct group *g, struct sink *k, uint64_t id, uint32_t n_prompt,
                  uint32_t max_tokens) {
    sched_submit(g->sched, group_request(k, id, n_prompt, max_tokens), 0);
}

struct request *group_crowd_request(struct sink *k, uint32_t i) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 33, 100, 190};
    struct request *r = group_request(k, 1000 + i, lengths[i % 8], 1 + i * 5 % 40);
    if (i % 2 == 1) r->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = i};
    if (i % 5 == 1) group_score(r, k, i % 21);
    r->n_stop_ids = i % 3 == 0 ? 2 : 0;
    r->stop_ids[0] = i;
    r->stop_ids[1] = i / 2 + 1;
    return r;
}

void group_expect(const struct sink *k, const struct toy_answer *a) {
    ck_assert_uint_eq(k->n_starts, 1);
    ck_assert_uint_eq(k->n_finishes, 1);
    // The toy's own last token makes rows that are not finite; the plain answer does not know that.
    if (k->finish == FINISH_ERROR) return;
    ck_assert_uint_eq(k->n_scores, k->n_prompt == 0 ? 0 : k->n_prompt - 1);
    ck_assert_int_eq(k->finish, a->finish);
    ck_assert_uint_eq(k->n_tokens, a->n_tokens);
    ck_assert_mem_eq(k->tokens, a->tokens, a->n_tokens * sizeof a->tokens[0]);
    ck_assert_uint_eq(k->digest, a->digest);
}

void group_expect_all(const struct sink *sinks, struct toy_answer *answers, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        group_expect(&sinks[i], &answers[i]);
        free(answers[i].tokens);
    }
}

struct request *group_whole(struct sink *k, uint64_t *id, uint32_t max_tokens,
                            struct toy_answer *a) {
    for (;;) {
        struct request *r = group_request(k, (*id)++, 4, max_tokens);
        bool whole = true;
        toy_answer(r, VOCAB, a);
        for (uint32_t i = 0; i < a->n_tokens; i++)
            whole &= a->tokens[i] != VOCAB - 1;
        if (whole) return r;
        request_destroy(r);
        free(a->tokens);
    }
}
