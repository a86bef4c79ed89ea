// leader_sched.c: the scheduler with toy ranks that answer its plans: no network, no clock, any
// order of results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/sched_state.h"
#include "leader/wire.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_rank.h"

#define VOCAB 97
#define MODEL_LEN 300
#define RANKS_TOP 4
#define EPOCH 5

// --- a client that notes what it is told

struct sink {
    uint32_t tokens[MODEL_LEN];
    const uint32_t *prompt; // to look at its scores
    uint32_t n_prompt, n_score_top, n_scores;
    uint32_t n_tokens, n_starts, n_finishes, stop_id;
    enum finish finish;
    int error;
    uint64_t digest;
    char message[160];
    uint64_t id;
};

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
    if (ev->is_start) k->n_starts++;
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

struct group {
    struct sched_config config;
    struct sched *sched;
    struct wire *wire;
    uint32_t depth;
    struct toy_rank *ranks[RANKS_TOP];
    struct step_plan plans[2];
    struct wire_buffer buffers[2][RANKS_TOP];
    uint32_t first, n_flights;
    uint64_t rng;
};

static uint64_t draw(struct group *g, uint64_t n) {
    g->rng = g->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (g->rng >> 33) % n;
}

static void group_form(struct group *g, uint32_t kv_blocks) {
    uint32_t blocks[RANKS_TOP];
    for (uint32_t i = 0; i < g->config.n_ranks; i++) {
        toy_destroy(g->ranks[i]);
        struct toy_config toy = {.rank = i,
                                 .n_slots = g->config.max_num_seqs,
                                 .rows_max = g->config.max_num_batched_tokens,
                                 .kv_blocks = kv_blocks,
                                 .max_model_len = MODEL_LEN,
                                 .vocab = VOCAB,
                                 .nonfinite_token = VOCAB - 1};
        g->ranks[i] = toy_create(&toy);
        blocks[i] = kv_blocks;
    }
    g->n_flights = 0;
    ck_assert_int_eq(sched_form(g->sched, blocks), 0);
}

static void group_start(struct group *g, uint32_t n_ranks, uint32_t seqs, uint32_t budget,
                        uint32_t depth) {
    *g = (struct group){.depth = depth, .rng = 1};
    g->config = (struct sched_config){.n_ranks = n_ranks,
                                      .max_num_seqs = seqs,
                                      .max_num_batched_tokens = budget,
                                      .max_model_len = MODEL_LEN,
                                      .vocab = VOCAB,
                                      .digest = true,
                                      .queue_wait_ns = 1000};
    ck_assert_int_eq(sched_create(&g->sched, &g->config, NULL), 0);
    ck_assert_int_eq(wire_create(&g->wire, &g->config), 0);
    for (uint32_t i = 0; i < depth; i++)
        ck_assert_int_eq(step_plan_init(&g->plans[i], &g->config), 0);
}

static void group_check(struct group *g) {
    struct err_text e;
    int err = sched_check(g->sched, &e);
    ck_assert_msg(err == 0, "%s", e.text);
}

static void group_finish(struct group *g) {
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

// Plans one more step, if the pipeline takes one and there is work.
static bool group_plan(struct group *g) {
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

// Lets one rank answer the oldest step it owes.
static bool group_answer(struct group *g, uint32_t rank) {
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

static void group_step(struct group *g) {
    while (group_plan(g))
        continue;
    uint32_t from = (uint32_t)draw(g, g->config.n_ranks);
    for (uint32_t i = 0; i < g->config.n_ranks; i++) {
        if (group_answer(g, (from + i) % g->config.n_ranks)) return;
    }
}

static void group_run(struct group *g) {
    while (sched_has_work(g->sched) || g->n_flights > 0)
        group_step(g);
    group_check(g);
}

static struct request *make(struct sink *k, uint64_t id, uint32_t n_prompt, uint32_t max_tokens) {
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
static void score(struct request *r, struct sink *k, uint32_t n_top) {
    static uint32_t copies[128][MODEL_LEN];
    memcpy(copies[r->id % 128], r->prompt, r->n_prompt * sizeof *r->prompt);
    k->prompt = copies[r->id % 128];
    k->n_prompt = r->n_prompt;
    r->score_prompt = true;
    r->n_score_top = k->n_score_top = n_top;
}

static void submit(struct group *g, struct sink *k, uint64_t id, uint32_t n_prompt,
                   uint32_t max_tokens) {
    sched_submit(g->sched, make(k, id, n_prompt, max_tokens), 0);
}

// --- one answer

#define CROWD 64

static struct request *crowd_request(struct sink *k, uint32_t i) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 33, 100, 190};
    struct request *r = make(k, 1000 + i, lengths[i % 8], 1 + i * 5 % 40);
    if (i % 2 == 1) r->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = i};
    if (i % 5 == 1) score(r, k, i % 21);
    r->n_stop_ids = i % 3 == 0 ? 2 : 0;
    r->stop_ids[0] = i;
    r->stop_ids[1] = i / 2 + 1;
    return r;
}

static void expect_answer(const struct sink *k, const struct toy_answer *a,
                          const struct request *r) {
    (void)r;
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

static void crowd(uint32_t n_ranks, uint32_t seqs, uint32_t budget, uint32_t depth) {
    static struct sink sinks[CROWD];
    struct toy_answer answers[CROWD];
    struct group g;
    group_start(&g, n_ranks, seqs, budget, depth);
    group_form(&g, 40);
    uint32_t n_errors = 0;
    for (uint32_t i = 0; i < CROWD; i++) {
        struct request *r = crowd_request(&sinks[i], i);
        toy_answer(r, VOCAB, &answers[i]);
        sched_submit(g.sched, r, 0);
        if (draw(&g, 3) == 0) group_step(&g);
    }
    group_run(&g);
    for (uint32_t i = 0; i < CROWD; i++) {
        expect_answer(&sinks[i], &answers[i], NULL);
        n_errors += sinks[i].finish == FINISH_ERROR ? 1 : 0;
        free(answers[i].tokens);
    }
    ck_assert_uint_lt(n_errors, CROWD / 2);
    group_finish(&g);
}

START_TEST(sched_answers_do_not_depend_on_ranks_slots_chunks_or_depth) {
    static const uint32_t ranks[] = {1, 2, 4}, seqs[] = {1, 5, 64}, budgets[] = {1, 7, 512};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            for (int c = 0; c < 3; c++) {
                crowd(ranks[a], seqs[b], budgets[c], 1);
                crowd(ranks[a], seqs[b], budgets[c], 2);
            }
        }
    }
}
END_TEST

START_TEST(sched_ends_a_request_that_only_reads_its_prompt) {
    static const uint32_t budgets[] = {1, 7, 64};
    for (uint32_t i = 0; i < 12; i++) {
        struct group g;
        struct sink k, other;
        group_start(&g, 1, 4, budgets[i % 3], 1 + i / 3 % 2);
        group_form(&g, 40);
        struct request *r = make(&k, 1, i < 6 ? 20 : 1, 0);
        if (i % 2 == 0) score(r, &k, 3);
        sched_submit(g.sched, r, 0);
        submit(&g, &other, 2, 5, 9);
        group_run(&g);
        ck_assert_int_eq(k.finish, FINISH_LENGTH);
        ck_assert_uint_eq(k.n_finishes, 1);
        ck_assert_uint_eq(k.n_tokens, 0);
        ck_assert_uint_eq(k.n_scores, i % 2 == 0 ? k.n_prompt - 1 : 0);
        ck_assert_uint_eq(other.n_tokens, 9);
        group_finish(&g);
    }
}
END_TEST

// More than a prompt of the small model has: ranks with many rows share the bound.
START_TEST(sched_bounds_the_scores_of_a_step) {
    struct group g;
    struct sink k[8], plain;
    group_start(&g, 1, 16, 4096, 1);
    group_form(&g, 200);
    for (uint32_t i = 0; i < 8; i++) {
        struct request *r = make(&k[i], i, 200, 1);
        score(r, &k[i], TOP_LOGPROBS_MAX);
        sched_submit(g.sched, r, 0);
    }
    submit(&g, &plain, 100, 50, 1);
    uint32_t n_steps = 0;
    for (; sched_has_work(g.sched); n_steps++) {
        ck_assert(group_plan(&g));
        const struct rank_plan *plan = &g.plans[g.first].ranks[0];
        uint32_t n_items = 0;
        for (uint32_t i = 0; i < plan->n_seqs; i++)
            n_items += plan->seqs[i].n_scored * (TOP_LOGPROBS_MAX + 1);
        ck_assert_uint_le(n_items, SCORES_STEP_ITEMS_MAX);
        ck_assert(group_answer(&g, 0));
        if (n_steps == 0) ck_assert_uint_eq(plain.n_tokens, 1); // it passes those that wait
    }
    ck_assert_uint_eq(n_steps, (8 * 199 * 21 + SCORES_STEP_ITEMS_MAX - 1) / SCORES_STEP_ITEMS_MAX);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(k[i].n_scores, 199);
    group_finish(&g);
}
END_TEST

// --- order and fairness

START_TEST(sched_plans_decodes_before_prompts_under_the_budget) {
    struct group g;
    struct sink a, b;
    group_start(&g, 1, 4, 8, 1);
    group_form(&g, 40);
    submit(&g, &a, 1, 3, 10);
    group_step(&g); // the prompt of a, and its first token
    submit(&g, &b, 2, 20, 1);
    ck_assert(group_plan(&g));
    const struct rank_plan *plan = &g.plans[g.first].ranks[0];
    ck_assert_uint_eq(plan->n_seqs, 2);
    ck_assert_uint_eq(plan->seqs[0].n_tokens, 1); // the decode
    ck_assert_uint_eq(plan->seqs[1].n_tokens, 7); // a chunk in what is left of the budget
    ck_assert(!plan->seqs[1].sample);
    group_run(&g);
    group_finish(&g);
}
END_TEST

START_TEST(sched_gives_requests_to_the_least_loaded_rank_and_the_lowest_of_equals) {
    struct group g;
    struct sink k[4];
    group_start(&g, 2, 8, 512, 1);
    group_form(&g, 40);
    submit(&g, &k[0], 1, 100, 1); // rank 0, 7 blocks
    submit(&g, &k[1], 2, 10, 1);  // rank 1, 1 block
    submit(&g, &k[2], 3, 10, 1);  // rank 1
    submit(&g, &k[3], 4, 10, 1);  // rank 1
    ck_assert(group_plan(&g));
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_seqs, 1);
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_rows, 100);
    ck_assert_uint_eq(g.plans[g.first].ranks[1].n_seqs, 3);
    group_run(&g);
    group_finish(&g);
}
END_TEST

START_TEST(sched_plans_every_rank_and_runs_no_step_without_work) {
    struct group g;
    struct sink k;
    group_start(&g, 3, 4, 16, 1);
    group_form(&g, 40);
    ck_assert(!group_plan(&g));
    submit(&g, &k, 1, 4, 3);
    group_run(&g);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(toy_steps(g.ranks[i]), 3);
    ck_assert_uint_eq(toy_idle_steps(g.ranks[0]), 0);
    ck_assert_uint_eq(toy_idle_steps(g.ranks[1]), 3);
    ck_assert(!group_plan(&g));
    group_finish(&g);
}
END_TEST

START_TEST(sched_lets_small_requests_pass_one_that_waits_for_blocks) {
    struct group g;
    struct sink big, huge, small;
    group_start(&g, 1, 8, 512, 1);
    group_form(&g, 10);
    submit(&g, &big, 1, 100, 20);  // 8 blocks
    submit(&g, &huge, 2, 100, 20); // must wait for them
    submit(&g, &small, 3, 1, 1);   // fits beside the first
    group_step(&g);
    ck_assert_uint_eq(big.n_starts, 1);
    ck_assert_uint_eq(huge.n_starts, 0);
    ck_assert_uint_eq(small.n_starts, 1);
    group_run(&g);
    ck_assert_uint_eq(huge.n_starts, 1);
    group_finish(&g);
}
END_TEST

START_TEST(sched_lets_each_request_be_passed_only_so_often) {
    struct group g;
    struct sink big, huge, later, small[OVERTAKEN_MAX + 8];
    group_start(&g, 1, 2, 512,
                1); // two slots: big has one, the small ones follow each other in the other
    group_form(&g, 20);
    submit(&g, &big, 7, 250, 45); // 19 blocks, for longer than they take
    submit(&g, &huge, 2, 250, 45);
    submit(&g, &later, 3, 240, 50); // just as large
    for (uint32_t i = 0; i < OVERTAKEN_MAX + 8; i++)
        submit(&g, &small[i], 100 + i, 1, 1);
    while (big.n_finishes == 0)
        group_step(&g);
    ck_assert_int_eq(big.finish, FINISH_LENGTH); // it did not leave early
    uint32_t n_passed = 0;
    for (uint32_t i = 0; i < OVERTAKEN_MAX + 8; i++)
        n_passed += small[i].n_starts;
    ck_assert_uint_eq(n_passed, OVERTAKEN_MAX);
    group_step(&g);
    ck_assert_uint_eq(huge.n_starts, 1);
    while (huge.n_finishes == 0)
        group_step(&g);
    for (uint32_t i = OVERTAKEN_MAX; i < OVERTAKEN_MAX + 8; i++)
        ck_assert_uint_eq(small[i].n_starts, 0);
    group_run(&g);
    ck_assert_uint_eq(later.n_starts, 1);
    group_finish(&g);
}
END_TEST

START_TEST(sched_holds_the_queue_and_lets_run_what_runs) {
    struct group g;
    struct sink a, b;
    group_start(&g, 1, 8, 512, 2);
    group_form(&g, 40);
    submit(&g, &a, 1, 20, 9);
    group_step(&g);
    sched_hold(g.sched, true);
    submit(&g, &b, 2, 20, 9);
    while (a.n_finishes == 0 || g.n_flights > 0)
        group_step(&g);
    ck_assert_int_eq(a.finish, FINISH_LENGTH);
    ck_assert(!group_plan(&g));
    ck_assert_uint_eq(b.n_starts, 0);
    sched_hold(g.sched, false);
    group_run(&g);
    ck_assert_int_eq(b.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

// --- ends

START_TEST(sched_does_not_deliver_the_stop_id) {
    struct group g;
    struct sink k;
    struct toy_answer a;
    group_start(&g, 1, 2, 16, 2);
    group_form(&g, 40);
    struct request *r = make(&k, 1, 4, 20);
    toy_answer(r, VOCAB, &a);
    r->n_stop_ids = 1;
    r->stop_ids[0] = a.tokens[6];
    uint32_t first = 6;
    for (uint32_t i = 6; i-- > 0;)
        first = a.tokens[i] == a.tokens[6] ? i : first;
    sched_submit(g.sched, r, 0);
    group_run(&g);
    ck_assert_int_eq(k.finish, FINISH_STOP);
    ck_assert_uint_eq(k.stop_id, a.tokens[6]);
    ck_assert_uint_eq(k.n_tokens, first);
    free(a.tokens);
    group_finish(&g);
}
END_TEST

START_TEST(sched_ends_a_request_whose_logits_are_not_finite_and_no_other) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink bad, good;
        struct toy_answer a;
        group_start(&g, 1, 4, 64, depth);
        group_form(&g, 40);
        struct request *r = make(&bad, 1, 5, 20);
        r->prompt[2] = VOCAB - 1;
        sched_submit(g.sched, r, 0);
        r = make(&good, 2, 9, 4);
        toy_answer(r, VOCAB, &a);
        sched_submit(g.sched, r, 0);
        group_run(&g);
        ck_assert_int_eq(bad.finish, FINISH_ERROR);
        ck_assert_int_eq(bad.error, ERR_REQ_NONFINITE);
        ck_assert_uint_eq(bad.n_tokens, 0);
        expect_answer(&good, &a, NULL);
        free(a.tokens);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_aborts_at_every_stage_and_gets_everything_back) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        for (int stage = 0; stage < 12; stage++) {
            struct group g;
            struct sink k, other;
            group_start(&g, 2, 2, 8, depth);
            group_form(&g, 40);
            submit(&g, &other, 2, 3, 9);
            submit(&g, &k, 1, 30, 9); // 0: queued; then chunks; then tokens
            for (int i = 0; i < stage; i++)
                group_step(&g);
            sched_abort(g.sched, 1);
            ck_assert_int_eq(k.finish, FINISH_ABORT);
            sched_abort(g.sched, 1);  // again: unknown by now
            sched_abort(g.sched, 77); // never known
            group_check(&g);
            group_run(&g);
            ck_assert_int_eq(other.finish, FINISH_LENGTH);
            group_finish(&g);
        }
    }
}
END_TEST

START_TEST(sched_keeps_slot_and_blocks_until_the_last_step_is_over) {
    struct group g;
    struct sink k;
    group_start(&g, 1, 1, 64, 2);
    group_form(&g, 40);
    submit(&g, &k, 1, 20, 9);
    while (group_plan(&g))
        continue; // two steps on the way
    sched_abort(g.sched, 1);
    const struct sched_rank *rank = &g.sched->ranks[0];
    ck_assert_uint_eq(rank->n_free_slots, 0);
    ck_assert_uint_lt(rank->pages.n_free, rank->pages.n_blocks);
    ck_assert(group_answer(&g, 0));
    ck_assert_uint_eq(rank->n_free_slots, 0); // the second is still on the way
    ck_assert(group_answer(&g, 0));
    ck_assert_uint_eq(rank->n_free_slots, 1);
    ck_assert_uint_eq(pages_available(&rank->pages), rank->pages.n_blocks);
    group_finish(&g);
}
END_TEST

static void expect_refused(struct group *g, struct request *r, struct sink *k, int error) {
    sched_submit(g->sched, r, 0);
    ck_assert_int_eq(k->finish, FINISH_ERROR);
    ck_assert_int_eq(k->error, error);
    ck_assert(k->message[0] != '\0');
}

START_TEST(sched_refuses_requests_that_cannot_run) {
    struct group g;
    struct sink k, first;
    group_start(&g, 1, 2, 64, 1);
    group_form(&g, 10);
    expect_refused(&g, make(&k, 1, 0, 1), &k, ERR_REQ_INVALID);
    expect_refused(&g, make(&k, 1, MODEL_LEN, 1), &k, ERR_REQ_TOO_LARGE);
    expect_refused(&g, make(&k, 1, 10, UINT32_MAX), &k, ERR_REQ_TOO_LARGE);
    struct request *r = make(&k, 1, 4, 1);
    r->prompt[3] = VOCAB;
    expect_refused(&g, r, &k, ERR_REQ_INVALID);
    submit(&g, &first, 9, 4, 1);
    expect_refused(&g, make(&k, 9, 4, 1), &k, ERR_REQ_INVALID);
    submit(&g, &k, 2, 200, 1); // fits the model, not the pages
    group_run(&g);
    ck_assert_int_eq(k.error, ERR_REQ_TOO_LARGE);
    ck_assert_int_eq(first.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

// --- the group is lost

START_TEST(sched_lose_ends_who_ran_and_keeps_who_waited) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink running, waiting;
        struct toy_answer a;
        group_start(&g, 1, 1, 64, depth);
        group_form(&g, 40);
        submit(&g, &running, 1, 20, 9);
        group_step(&g);
        while (group_plan(&g))
            continue;
        struct request *r = make(&waiting, 2, 20, 9);
        toy_answer(r, VOCAB, &a);
        sched_submit(g.sched, r, 0);
        sched_lose(g.sched, 10);
        ck_assert_int_eq(running.error, ERR_REQ_WORKER_LOST);
        ck_assert_ptr_nonnull(strstr(running.message, "the worker group was lost"));
        ck_assert_uint_eq(waiting.n_finishes, 0);
        group_check(&g);
        group_form(&g, 40);
        group_run(&g);
        expect_answer(&waiting, &a, NULL);
        free(a.tokens);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_expire_ends_the_queue_when_no_group_comes) {
    struct group g;
    struct sink running, waiting;
    group_start(&g, 1, 1, 64, 1);
    group_form(&g, 40);
    submit(&g, &running, 1, 20, 9);
    group_step(&g);
    submit(&g, &waiting, 2, 20, 9);
    ck_assert_int_eq(sched_deadline(g.sched), NO_DEADLINE);
    sched_lose(g.sched, 10);
    ck_assert_int_eq(sched_deadline(g.sched), 1010);
    sched_expire(g.sched, 1009);
    ck_assert_uint_eq(waiting.n_finishes, 0);
    sched_expire(g.sched, 1010);
    ck_assert_int_eq(waiting.error, ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(sched_deadline(g.sched), NO_DEADLINE);
    group_form(&g, 40);
    group_finish(&g);
}
END_TEST

START_TEST(sched_check_sees_books_that_do_not_add_up) {
    struct group g;
    struct sink k;
    struct err_text e;
    group_start(&g, 1, 4, 64, 1);
    group_form(&g, 40);
    submit(&g, &k, 1, 20, 9);
    group_step(&g);
    struct sched_rank *rank = &g.sched->ranks[0];
    rank->n_free_slots--;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    rank->n_free_slots++;
    rank->pages.n_promised++;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    rank->pages.n_promised--;
    g.sched->n_live++;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    g.sched->n_live--;
    group_check(&g);
    group_finish(&g);
}
END_TEST

START_TEST(request_moves_only_along_its_table) {
    ck_assert(request_may_move(REQ_QUEUED, REQ_PREFILLING));
    ck_assert(request_may_move(REQ_DECODING, REQ_ENDED));
    ck_assert(!request_may_move(REQ_QUEUED, REQ_DECODING));
    ck_assert(!request_may_move(REQ_DECODING, REQ_PREFILLING));
    for (int to = REQ_QUEUED; to <= REQ_ENDED; to++)
        ck_assert(!request_may_move(REQ_ENDED, (enum request_state)to));
}
END_TEST

int main(void) {
    TCase *t = tcase_create("sched");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, sched_answers_do_not_depend_on_ranks_slots_chunks_or_depth);
    tcase_add_test(t, sched_ends_a_request_that_only_reads_its_prompt);
    tcase_add_test(t, sched_bounds_the_scores_of_a_step);
    tcase_add_test(t, sched_plans_decodes_before_prompts_under_the_budget);
    tcase_add_test(t, sched_gives_requests_to_the_least_loaded_rank_and_the_lowest_of_equals);
    tcase_add_test(t, sched_plans_every_rank_and_runs_no_step_without_work);
    tcase_add_test(t, sched_lets_small_requests_pass_one_that_waits_for_blocks);
    tcase_add_test(t, sched_lets_each_request_be_passed_only_so_often);
    tcase_add_test(t, sched_holds_the_queue_and_lets_run_what_runs);
    tcase_add_test(t, sched_does_not_deliver_the_stop_id);
    tcase_add_test(t, sched_ends_a_request_whose_logits_are_not_finite_and_no_other);
    tcase_add_test(t, sched_aborts_at_every_stage_and_gets_everything_back);
    tcase_add_test(t, sched_keeps_slot_and_blocks_until_the_last_step_is_over);
    tcase_add_test(t, sched_refuses_requests_that_cannot_run);
    tcase_add_test(t, sched_lose_ends_who_ran_and_keeps_who_waited);
    tcase_add_test(t, sched_expire_ends_the_queue_when_no_group_comes);
    tcase_add_test(t, sched_check_sees_books_that_do_not_add_up);
    tcase_add_test(t, request_moves_only_along_its_table);
    Suite *s = suite_create("leader_sched");
    suite_add_tcase(s, t);
    return suite_run(s);
}
