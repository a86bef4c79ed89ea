// test_drain.c: a worker is asked to stop under load: what runs ends as ever, what waits waits for
// the group's return, and nothing is lost.
#include "common/base/log.h"
#include "tests/harness/suite.h"
#include "tests/sim/cluster.h"

#define N_JOBS 16
#define N_TOKENS 24

static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];

static uint32_t count_begun(const struct cluster *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_JOBS; i++)
        n += c->turns[i].answer.n_tokens > 0;
    return n;
}

static bool some_run(void *arg) {
    return count_begun(arg) >= 3;
}

// With two slots on each of two workers, most of the jobs wait.
static void start(struct cluster *c, struct turn *turns, uint64_t seed) {
    struct cluster_config config = cluster_config_default(&model, seed);
    config.max_num_seqs = 2;
    config.max_num_batched_tokens = 16;
    config.pipeline_depth = 1 + (uint32_t)(seed & 1);
    turns_make(turns, &pool);
    cluster_create(c, &config, turns, N_JOBS);
    ck_assert_int_eq(sim_run_until(c->sim, 60 * NS_PER_S, some_run, c), SIM_UNTIL);
}

static bool worker_left(void *arg) {
    const struct cluster *c = arg;
    return sim_done(c->workers[c->config.world.seed % 2]);
}

static void check_all_answered(const struct turn *turns) {
    char text[256];
    for (uint32_t i = 0; i < N_JOBS; i++) {
        const struct answer *a = &turns[i].answer;
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
        ck_assert(a->finish == FINISH_STOP || a->finish == FINISH_LENGTH);
        ck_assert_uint_eq(a->n_finals, 1);
    }
}

START_TEST(a_drained_worker_ends_no_request_and_the_queue_goes_on_with_the_next_one) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    uint64_t seed = 70 + (uint64_t)_i;
    uint32_t victim = (uint32_t)(seed % 2);
    start(&c, turns, seed);
    cluster_drain_worker(&c, victim);
    ck_assert_int_eq(sim_run_until(c.sim, sim_now_ns(c.sim) + 20 * NS_PER_S, worker_left, &c),
                     SIM_UNTIL);
    ck_assert(!leader_ready(c.leader));
    ck_assert(!leader_takes_requests(c.leader)); // nobody knows whether another one comes
    ck_assert_uint_lt(c.n_ended, N_JOBS);        // or nothing waited, and this shows little
    ck_assert_uint_eq(c.n_ended, count_begun(&c));
    cluster_start_worker(&c, victim);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_all_answered(turns);
}
END_TEST

static bool none_is_ready(void *arg) {
    const struct cluster *c = arg;
    return !leader_ready(c->leader);
}

// Of two workers one has left and the other is dead. New requests are for a group that nobody may
// bring; the old ones wait for it, as ever.
static void expect_only_the_old_ones_wait(struct cluster *c, struct turn *turns) {
    ck_assert_int_eq(sim_run_until(c->sim, sim_now_ns(c->sim) + 20 * NS_PER_S, worker_left, c),
                     SIM_UNTIL);
    cluster_start_worker(c, 0); // which is not enough; the leader has heard of all by then
    ck_assert_int_eq(sim_run(c->sim, sim_now_ns(c->sim) + 2 * NS_PER_S), SIM_TIME);
    ck_assert(!leader_ready(c->leader) && !leader_takes_requests(c->leader));
    ck_assert_uint_lt(c->n_ended, N_JOBS);
    cluster_start_worker(c, 1);
    ck_assert_int_eq(cluster_run(c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c->check_result, 0);
    cluster_destroy(c);
    check_all_answered(turns);
}

START_TEST(nothing_new_is_taken_when_another_worker_dies_while_one_drains) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    uint64_t seed = 90 + (uint64_t)_i;
    start(&c, turns, seed);
    cluster_drain_worker(&c, (uint32_t)(seed % 2));
    ck_assert_int_eq(sim_run_until(c.sim, sim_now_ns(c.sim) + 20 * NS_PER_S, none_is_ready, &c),
                     SIM_UNTIL);
    ck_assert(!sim_done(c.workers[seed % 2])); // what runs still needs it
    cluster_kill_worker(&c, (uint32_t)((seed + 1) % 2));
    expect_only_the_old_ones_wait(&c, turns);
}
END_TEST

START_TEST(nothing_new_is_taken_when_a_worker_leaves_a_group_that_forms_again) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    uint64_t seed = 94 + (uint64_t)_i;
    start(&c, turns, seed);
    cluster_kill_worker(&c, (uint32_t)((seed + 1) % 2));
    ck_assert_int_eq(sim_run_until(c.sim, sim_now_ns(c.sim) + 20 * NS_PER_S, none_is_ready, &c),
                     SIM_UNTIL);
    ck_assert(
        leader_takes_requests(c.leader)); // another one may come, and the survivor waits for it
    cluster_drain_worker(&c, (uint32_t)(seed % 2));
    expect_only_the_old_ones_wait(&c, turns);
}
END_TEST

START_TEST(a_leader_that_leaves_too_keeps_its_workers_until_the_queue_is_empty) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 80 + (uint64_t)_i);
    leader_drain(c.leader);
    cluster_drain_worker(&c, 0);
    cluster_drain_worker(&c, 1);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_all_answered(turns);
}
END_TEST

int main(void) {
    struct job_mix mix = {
        .seed = 31, .n_jobs = N_JOBS, .prompt_min = 2, .prompt_max = 60, .tokens_max = N_TOKENS};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    for (uint32_t i = 0; i < N_JOBS; i++)
        pool.jobs[i].max_tokens = N_TOKENS;
    reference_run(&model, &pool, reference);
    TCase *tcase = tcase_create("drain");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(
        tcase, a_drained_worker_ends_no_request_and_the_queue_goes_on_with_the_next_one, 0, 4);
    tcase_add_loop_test(tcase, nothing_new_is_taken_when_another_worker_dies_while_one_drains, 0,
                        4);
    tcase_add_loop_test(tcase, nothing_new_is_taken_when_a_worker_leaves_a_group_that_forms_again,
                        0, 4);
    tcase_add_loop_test(tcase, a_leader_that_leaves_too_keeps_its_workers_until_the_queue_is_empty,
                        0, 4);
    Suite *suite = suite_create("sim_drain");
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return code;
}
