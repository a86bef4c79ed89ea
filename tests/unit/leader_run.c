// leader_run.c: a whole leader on its own thread with toy workers on theirs: real threads, real
// waits, memory for a network. leader_losses.c has what happens when those workers fail.
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_crowd.h"

static struct toy_cluster c;

// --- answers

static void note_step(void *context, const struct step_report *r) {
    uint64_t *rows = context;
    *rows += r->n_prompt_tokens + r->n_decode_tokens;
}

START_TEST(run_answers_a_crowd_over_ranks_at_both_depths) {
    static struct toy_crowd crowd;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks *= 2) {
            toy_start(&c, n_ranks, depth);
            toy_crowd_start(&c, &crowd, 1);
            toy_crowd_check(&crowd);
            toy_expect_all_back(&c);
            toy_cluster_finish(&c);
        }
    }
}
END_TEST

// {workers, pp, dp, tp, ep, etp}
static const struct layout layouts[] = {{2, 2, 1, 1, 1, 1}, {2, 1, 1, 2, 1, 2}, {4, 4, 1, 1, 1, 1},
                                        {6, 1, 3, 2, 6, 1}, {6, 3, 2, 1, 1, 2}, {8, 2, 2, 2, 2, 2}};
#define N_LAYOUTS ((int)(sizeof layouts / sizeof *layouts))

START_TEST(run_answers_a_crowd_in_layouts_where_workers_share_requests) {
    static struct toy_crowd crowd;
    struct leader_view v;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        toy_start_layout(&c, layouts[_i], depth);
        toy_crowd_start(&c, &crowd, 1);
        toy_crowd_check(&crowd);
        toy_expect_all_back(&c);
        ck_assert_int_eq(leader_view(c.leader, &v), 0);
        ck_assert_uint_eq(v.kv_blocks, 40 * layouts[_i].dp); // each group's counted once
        uint64_t sampled = 0;
        for (uint32_t rank = 0; rank < layouts[_i].n_ranks; rank++) {
            ck_assert(layout_answers(&layouts[_i], rank) || v.members[rank].generation_tokens == 0);
            sampled += v.members[rank].generation_tokens;
        }
        ck_assert_uint_eq(sampled, v.generation_tokens);
        leader_view_finish(&v);
        toy_cluster_finish(&c);
    }
}
END_TEST

START_TEST(run_reports_steps_and_shows_what_happened) {
    static struct toy_client k;
    struct leader_view v;
    uint64_t rows = 0;
    toy_cluster_prepare(&c, 2);
    toy_cluster_start(&c);
    leader_on_step(c.leader, note_step, &rows); // no step can run before a worker is there
    for (uint32_t i = 0; i < 2; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 70, 5)), 0);
    toy_client_await_end(&k);
    toy_expect_all_back(&c);
    ck_assert_int_eq(leader_view(c.leader, &v), 0);
    ck_assert(v.ready);
    ck_assert_str_eq(v.state, "ready");
    ck_assert_uint_eq(v.layout.n_ranks, 2);
    ck_assert_uint_eq(v.kv_blocks, 80);
    ck_assert_uint_eq(v.kv_blocks_used, 0);
    ck_assert_uint_eq(v.prompt_tokens, 70);
    ck_assert_uint_eq(v.generation_tokens, 5);
    ck_assert_uint_eq(v.steps, 6); // two chunks, four decodes
    ck_assert_uint_eq(v.phase_ns[2], 6 * 2 * 3);
    ck_assert_int_eq(v.members[1].state, MEMBER_READY);
    ck_assert_str_eq(v.members[0].kernels, "toy");
    leader_view_finish(&v);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
    ck_assert_uint_eq(rows, 74);
}
END_TEST

// --- aborts from other threads

#define THREADS 4
#define EACH 50

static struct toy_client crowd_clients[THREADS][EACH];

static void *submit_and_abort(void *arg) {
    uint32_t thread = (uint32_t)(uintptr_t)arg;
    for (uint32_t i = 0; i < EACH; i++) {
        struct toy_client *k = &crowd_clients[thread][i];
        toy_client_init(k, thread * 1000 + i + 1);
        struct request *r = toy_request(k, 1 + i % 60, 1 + i * 7 % 60);
        ck_assert_int_eq(leader_submit(c.leader, r), 0);
        if (i % 3 == 0) leader_abort(c.leader, k->id); // probably still in the mailbox
        if (i % 3 == 1) {
            toy_client_await(k, 1 + i % 5);
            leader_abort(c.leader, k->id);
            leader_abort(c.leader, k->id);
        }
        if (i % 10 == 0) ck_assert_int_eq(leader_check(c.leader), 0);
    }
    for (uint32_t i = 0; i < EACH; i++)
        toy_client_await_end(&crowd_clients[thread][i]);
    return NULL;
}

START_TEST(run_ends_each_request_once_when_threads_abort_at_any_time) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        pthread_t threads[THREADS];
        toy_start(&c, 2, depth);
        for (uintptr_t i = 0; i < THREADS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_and_abort, (void *)i), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int t = 0; t < THREADS; t++) {
            for (int i = 0; i < EACH; i++) {
                ck_assert_uint_eq(crowd_clients[t][i].n_finishes, 1);
                ck_assert_int_ne(crowd_clients[t][i].finish, FINISH_ERROR);
                toy_client_finish(&crowd_clients[t][i]);
            }
        }
        toy_expect_all_back(&c);
        toy_cluster_finish(&c);
    }
}
END_TEST

// --- the mailbox

static uint32_t n_ended;

static void count_end(const struct token_event *ev) {
    n_ended += ev->finish != FINISH_NONE ? 1 : 0;
}

static struct request *counted(uint64_t id) {
    struct request *r = request_create(1);
    r->id = id;
    r->max_tokens = 1;
    r->emit = count_end;
    return r;
}

START_TEST(run_refuses_submits_when_the_mailbox_is_full_and_still_takes_aborts) {
    uint32_t n = 0;
    int err = 0;
    toy_start(&c, 1, 1);
    toy_gate_set(true);
    ck_assert_int_eq(leader_submit(c.leader, counted(1)), 0);
    toy_gate_await_held();
    while (n <= 2 * REQUESTS_LIVE_MAX && err == 0) {
        err = leader_submit(c.leader, counted(2 + n));
        n += err == 0 ? 1 : 0;
    }
    ck_assert_int_eq(err, ERR_REQ_QUEUE_FULL);
    ck_assert_uint_le(n, REQUESTS_LIVE_MAX);
    ck_assert_uint_ge(n, REQUESTS_LIVE_MAX - 8);
    for (uint32_t i = 0; i < n; i++)
        leader_abort(c.leader, 2 + i);
    toy_gate_set(false);
    toy_expect_all_back(&c);
    ck_assert_int_eq(leader_submit(c.leader, counted(1)), 0); // there is room again
    toy_cluster_finish(&c);
    ck_assert_uint_eq(n_ended, n + 2);
}
END_TEST

START_TEST(run_takes_no_request_before_the_first_group_nor_after_its_end) {
    static struct toy_client k;
    toy_client_init(&k, 1);
    toy_cluster_prepare(&c, 1);
    toy_cluster_start(&c);
    ck_assert(!leader_ready(c.leader) && !leader_takes_requests(c.leader));
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), ERR_REQ_UNAVAILABLE);
    toy_worker_start(&c, 0);
    toy_await_ready(&c, true);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, TOY_MODEL_LEN, 1)), ERR_REQ_TOO_LARGE);
    toy_set_fault(&c, 1, TOY_SWALLOWS); // so that it cannot end by itself
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 5, TOY_MODEL_LEN - 5)), 0);
    toy_client_await(&k, 3);
    toy_cluster_stop(&c);
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_ERROR);
    ck_assert_int_eq(k.error, ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(leader_check(c.leader), ERR_FATAL_STOPPED);
    ck_assert(!leader_ready(c.leader) && !leader_takes_requests(c.leader));
    toy_cluster_finish(&c);
    toy_client_finish(&k);
}
END_TEST

// --- its loop

START_TEST(run_is_not_alive_while_its_loop_does_not_come_round) {
    static struct toy_client k;
    struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
    toy_start(&c, 1, 1);
    nanosleep(&pause, NULL);
    ck_assert(leader_alive(c.leader, 10 * NS_PER_S)); // it waits for work
    toy_gate_set(true);
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 20, 4)), 0);
    toy_gate_await_held();
    nanosleep(&pause, NULL);
    ck_assert(!leader_alive(c.leader, 10 * NS_PER_MS));
    ck_assert(leader_alive(c.leader, 600 * NS_PER_S));
    toy_gate_set(false);
    toy_client_await_end(&k);
    toy_expect_all_back(&c);
    ck_assert(leader_alive(c.leader, 10 * NS_PER_S));
    toy_client_finish(&k);
    toy_cluster_finish(&c);
}
END_TEST

START_TEST(run_refuses_a_configuration_that_cannot_work) {
    struct err_text e;
    struct leader *l = NULL;
    toy_cluster_prepare(&c, 1);
    struct leader_config config = c.config;
    config.pipeline_depth = 3;
    ck_assert_int_eq(leader_create(&l, &config, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.text, "pipeline depth 3"));
    config = c.config;
    config.max_model_len = TOY_MODEL_LEN + 1;
    ck_assert_int_eq(leader_create(&l, &config, &e), ERR_FATAL_CONFIG);
    config = c.config;
    config.max_num_seqs = 0;
    ck_assert_int_eq(leader_create(&l, &config, &e), ERR_FATAL_CONFIG);
    config = c.config;
    config.kv_dtype = DTYPE_F16;
    ck_assert_int_eq(leader_create(&l, &config, &e), ERR_FATAL_CONFIG);
    for (long n = 1;; n++) { // every allocation of the way may fail
        mem_fail_after(n);
        int err = leader_create(&l, &c.config, &e);
        mem_fail_after(0);
        if (err == 0) break;
        ck_assert_int_eq(err, ERR_FATAL_NOMEM);
    }
    leader_destroy(l);
    env_real_destroy(c.env);
    channel_mem_hub_destroy(c.channels);
    fabric_mem_hub_destroy(c.fabrics);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("run");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, run_answers_a_crowd_over_ranks_at_both_depths);
    tcase_add_loop_test(t, run_answers_a_crowd_in_layouts_where_workers_share_requests, 0,
                        N_LAYOUTS);
    tcase_add_test(t, run_reports_steps_and_shows_what_happened);
    tcase_add_test(t, run_ends_each_request_once_when_threads_abort_at_any_time);
    tcase_add_test(t, run_refuses_submits_when_the_mailbox_is_full_and_still_takes_aborts);
    tcase_add_test(t, run_takes_no_request_before_the_first_group_nor_after_its_end);
    tcase_add_test(t, run_is_not_alive_while_its_loop_does_not_come_round);
    tcase_add_test(t, run_refuses_a_configuration_that_cannot_work);
    Suite *s = suite_create("leader_run");
    suite_add_tcase(s, t);
    return suite_run(s);
}
