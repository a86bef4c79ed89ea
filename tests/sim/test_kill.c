// test_kill.c: a worker is killed under load: requests pause, go on when the group has formed
// again, and their answers are as if nothing had been; when none forms in time, they end with one
// error.
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/harness/suite.h"
#include "tests/sim/cluster.h"

#define N_JOBS 16
#define N_BEFORE 8 // these are asked at once, the others after the kill

static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];

static void check_equal(const struct turn *turns, uint32_t first, uint32_t last) {
    char text[256];
    for (uint32_t i = first; i < last; i++) {
        const struct answer *a = &turns[i].answer;
        ck_assert_uint_eq(a->n_finals, 1);
        ck_assert_uint_eq(a->n_late, 0);
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
    }
}

static bool is_decoding(void *arg) {
    const struct cluster *c = arg;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_BEFORE; i++)
        n += c->turns[i].answer.n_tokens > 0;
    return n >= 3;
}

static bool first_have_ended(void *arg) {
    const struct cluster *c = arg;
    return c->n_ended >= N_BEFORE;
}

// A world whose first N_BEFORE requests run, and whose others arrive only after 60 s.
static void start(struct cluster *c, struct turn *turns, uint64_t seed, int64_t recovery_s) {
    struct cluster_config config = cluster_config_default(&model, seed);
    config.n_workers = 3;
    config.max_num_batched_tokens = 16;
    config.pipeline_depth = 1 + (uint32_t)(seed & 1);
    config.recovery_timeout_ns = recovery_s * NS_PER_S;
    turns_make(turns, &pool);
    for (uint32_t i = N_BEFORE; i < N_JOBS; i++)
        turns[i].arrival_ns = 60 * NS_PER_S;
    cluster_create(c, &config, turns, N_JOBS);
    ck_assert_int_eq(sim_run_until(c->sim, 60 * NS_PER_S, is_decoding, c), SIM_UNTIL);
}

static void check_whole(const struct turn *turns) {
    check_equal(turns, 0, N_JOBS);
    for (uint32_t i = 0; i < N_JOBS; i++)
        ck_assert_msg(turns[i].answer.finish == FINISH_STOP ||
                          turns[i].answer.finish == FINISH_LENGTH,
                      "job %u: %s", i, turns[i].answer.message);
}

static bool is_not_ready(void *arg) {
    return !leader_ready(((struct cluster *)arg)->leader);
}

// Three heartbeats and a little until the loss is noticed.
static void await_loss(struct cluster *c) {
    ck_assert_int_eq(sim_run_until(c->sim, sim_now_ns(c->sim) + 9 * NS_PER_S, is_not_ready, c),
                     SIM_UNTIL);
}

START_TEST(killed_worker_costs_a_pause_and_no_request) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 40 + (uint64_t)_i, 60);
    cluster_kill_worker(&c, (uint32_t)_i % 3);
    await_loss(&c);
    uint32_t n_ended = c.n_ended;
    (void)cluster_run(&c, sim_now_ns(c.sim) + 20 * NS_PER_S);
    ck_assert_uint_eq(c.n_ended, n_ended); // they wait
    ck_assert_uint_lt(n_ended, N_BEFORE);
    cluster_start_worker(&c, (uint32_t)_i % 3);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    ck_assert_uint_ge(c.view.replays, 1);
    ck_assert_uint_eq(c.view.replay_mismatches, 0);
    cluster_destroy(&c);
    check_whole(turns);
}
END_TEST

START_TEST(killed_worker_that_stays_away_costs_each_running_request_one_error) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    uint32_t n_lost = 0;
    start(&c, turns, 45, 5);
    cluster_kill_worker(&c, 1);
    await_loss(&c);
    ck_assert_int_eq(sim_run_until(c.sim, sim_now_ns(c.sim) + 6 * NS_PER_S, first_have_ended, &c),
                     SIM_UNTIL);
    for (uint32_t i = 0; i < N_BEFORE; i++) {
        if (turns[i].answer.finish != FINISH_ERROR) continue;
        ck_assert_int_eq(turns[i].answer.error, ERR_REQ_WORKER_LOST);
        n_lost++;
    }
    ck_assert_uint_ge(n_lost, 1);
    cluster_start_worker(&c, 1);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_equal(turns, 0, N_JOBS);
}
END_TEST

START_TEST(paused_worker_is_lost_after_three_missed_beats_and_joins_again) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 50, 60);
    sim_pause(c.sim, c.workers[1], 20 * NS_PER_S);
    await_loss(&c);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_whole(turns);
}
END_TEST

START_TEST(group_forms_again_when_every_worker_was_killed) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 60, 60);
    for (uint32_t i = 0; i < 3; i++)
        cluster_kill_worker(&c, i);
    await_loss(&c);
    for (uint32_t i = 0; i < 3; i++)
        cluster_start_worker(&c, i);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_whole(turns);
}
END_TEST

int main(void) {
    struct job_mix mix = {
        .seed = 21, .n_jobs = N_JOBS, .prompt_min = 2, .prompt_max = 60, .tokens_max = 24};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    for (uint32_t i = 0; i < N_JOBS; i++)
        pool.jobs[i].max_tokens = 24;
    reference_run(&model, &pool, reference);
    Suite *suite = suite_create("sim_kill");
    TCase *tcase = tcase_create("kill");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, killed_worker_costs_a_pause_and_no_request, 0, 4);
    tcase_add_test(tcase, killed_worker_that_stays_away_costs_each_running_request_one_error);
    tcase_add_test(tcase, paused_worker_is_lost_after_three_missed_beats_and_joins_again);
    tcase_add_test(tcase, group_forms_again_when_every_worker_was_killed);
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return code;
}
