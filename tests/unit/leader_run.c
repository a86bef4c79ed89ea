// leader_run.c: a whole leader on its own thread with toy workers on theirs: real threads, real
// waits, memory for a network.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_cluster.h"

static struct toy_cluster c;

// --- a gate that can keep the scheduler's thread inside the report of a step

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed, held;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void pass_gate(void *context, const struct step_report *r) {
    (void)context;
    (void)r;
    pthread_mutex_lock(&gate.lock);
    while (gate.closed) {
        gate.held = true;
        pthread_cond_broadcast(&gate.changed);
        pthread_cond_wait(&gate.changed, &gate.lock);
    }
    gate.held = false;
    pthread_mutex_unlock(&gate.lock);
}

static void gate_set(bool closed) {
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_await_held(void) {
    pthread_mutex_lock(&gate.lock);
    while (!gate.held)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void start_layout(struct layout layout, uint32_t depth) {
    toy_cluster_prepare(&c, layout.n_ranks);
    c.config.layout = layout;
    c.config.pipeline_depth = depth;
    toy_cluster_start(&c);
    leader_on_step(c.leader, pass_gate, NULL); // no step can run before a worker is there
    for (uint32_t i = 0; i < layout.n_ranks; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
}

static void start(uint32_t n_ranks, uint32_t depth) {
    start_layout(layout_even(n_ranks), depth);
}

// A request's last event comes a moment before the last rank's answer gives its slot and blocks
// back.
static void expect_all_back(void) {
    struct leader_view v = {.n_running = 1};
    struct timespec pause = {.tv_nsec = NS_PER_MS};
    for (int i = 0; i < 10000 && v.n_running + v.n_waiting + v.kv_blocks_used > 0; i++) {
        nanosleep(&pause, NULL);
        ck_assert_int_eq(leader_check(c.leader), 0);
        ck_assert_int_eq(leader_view(c.leader, &v), 0);
        leader_view_finish(&v);
    }
    ck_assert_uint_eq(v.n_running + v.n_waiting + v.kv_blocks_used, 0);
}

// The workers misbehave at their fourth step with work, so what runs then cannot end before.
static void set_fault(uint32_t n_workers, enum toy_fault fault) {
    for (uint32_t i = 0; i < n_workers; i++) {
        atomic_store(&c.workers[i].fault_after, 3);
        atomic_store(&c.workers[i].fault, fault);
    }
}

// --- answers

#define CROWD 60

static void crowd_start(struct toy_client *clients, struct toy_answer *answers, uint64_t first_id) {
    for (uint32_t i = 0; i < CROWD; i++) {
        toy_client_init(&clients[i], first_id + i);
        struct request *r = toy_request(&clients[i], 1 + i * 37 % 200, 1 + i % 20);
        if (i % 2 == 1) r->sampling = (struct sampling){.temperature = 1, .seed = i};
        toy_answer(r, TOY_VOCAB, &answers[i]);
        ck_assert_int_eq(leader_submit(c.leader, r), 0);
    }
}

static void crowd_check(struct toy_client *clients, struct toy_answer *answers) {
    for (uint32_t i = 0; i < CROWD; i++) {
        toy_client_await_end(&clients[i]);
        ck_assert_int_eq(clients[i].finish, FINISH_LENGTH);
        ck_assert_uint_eq(clients[i].n_starts, 1);
        ck_assert_uint_eq(clients[i].n_tokens, answers[i].n_tokens);
        ck_assert_mem_eq(clients[i].tokens, answers[i].tokens,
                         answers[i].n_tokens * sizeof(uint32_t));
        ck_assert_uint_eq(clients[i].digest, answers[i].digest);
        free(answers[i].tokens);
        toy_client_finish(&clients[i]);
    }
}

static void note_step(void *context, const struct step_report *r) {
    uint64_t *rows = context;
    *rows += r->n_prompt_tokens + r->n_decode_tokens;
}

START_TEST(run_answers_a_crowd_over_ranks_at_both_depths) {
    static struct toy_client clients[CROWD];
    struct toy_answer answers[CROWD];
    for (uint32_t depth = 1; depth <= 2; depth++) {
        for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks *= 2) {
            start(n_ranks, depth);
            crowd_start(clients, answers, 1);
            crowd_check(clients, answers);
            expect_all_back();
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
    static struct toy_client clients[CROWD];
    struct toy_answer answers[CROWD];
    struct leader_view v;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        start_layout(layouts[_i], depth);
        crowd_start(clients, answers, 1);
        crowd_check(clients, answers);
        expect_all_back();
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

// Whichever rank it is: one that answers, or one whose answer is empty.
START_TEST(run_replays_when_any_worker_of_a_layout_is_lost) {
    static struct toy_client k;
    const struct layout layout = {8, 2, 2, 2, 2, 2};
    struct toy_answer answer;
    start_layout(layout, 2);
    toy_client_init(&k, 1);
    struct request *r = toy_request(&k, 50, 200);
    toy_answer(r, TOY_VOCAB, &answer);
    ck_assert_int_eq(leader_submit(c.leader, r), 0);
    for (uint32_t i = 0; i < layout.n_ranks; i++) {
        toy_client_await(&k, 20 * (i + 1));
        toy_worker_kill(&c, i);
        toy_await_ready(&c, false);
        toy_worker_start(&c, i);
        toy_await_ready(&c, true);
    }
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    ck_assert_uint_eq(k.digest, answer.digest);
    free(answer.tokens);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
}
END_TEST

START_TEST(run_refuses_an_answer_of_a_worker_that_has_none) {
    static struct toy_client k;
    const struct layout layout = {4, 2, 1, 2, 1, 2};
    struct leader_view v;
    start_layout(layout, 1);
    for (uint32_t i = 0; i < layout.n_ranks; i++)
        atomic_store(&c.workers[i].fault, TOY_ANSWERS);
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 10, 5)), 0);
    toy_await_ready(&c, false);
    for (uint32_t i = 0; i < layout.n_ranks; i++) {
        toy_worker_stop(&c, i); // a refused one would stay away
        toy_worker_start(&c, i);
    }
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    ck_assert_int_eq(leader_view(c.leader, &v), 0);
    ck_assert_uint_ge(v.counts.lost, 1);
    leader_view_finish(&v);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
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
    expect_all_back();
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
        start(2, depth);
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
        expect_all_back();
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
    start(1, 1);
    gate_set(true);
    ck_assert_int_eq(leader_submit(c.leader, counted(1)), 0);
    gate_await_held();
    while (n <= 2 * REQUESTS_LIVE_MAX && err == 0) {
        err = leader_submit(c.leader, counted(2 + n));
        n += err == 0 ? 1 : 0;
    }
    ck_assert_int_eq(err, ERR_REQ_QUEUE_FULL);
    ck_assert_uint_le(n, REQUESTS_LIVE_MAX);
    ck_assert_uint_ge(n, REQUESTS_LIVE_MAX - 8);
    for (uint32_t i = 0; i < n; i++)
        leader_abort(c.leader, 2 + i);
    gate_set(false);
    expect_all_back();
    ck_assert_int_eq(leader_submit(c.leader, counted(1)), 0); // there is room again
    toy_cluster_finish(&c);
    ck_assert_uint_eq(n_ended, n + 2);
}
END_TEST

START_TEST(run_takes_requests_only_while_a_group_is_ready) {
    static struct toy_client k;
    toy_client_init(&k, 1);
    toy_cluster_prepare(&c, 1);
    toy_cluster_start(&c);
    ck_assert(!leader_ready(c.leader));
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), ERR_REQ_UNAVAILABLE);
    toy_worker_start(&c, 0);
    toy_await_ready(&c, true);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, TOY_MODEL_LEN, 1)), ERR_REQ_TOO_LARGE);
    set_fault(1, TOY_SWALLOWS); // so that it cannot end by itself
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 5, TOY_MODEL_LEN - 5)), 0);
    toy_client_await(&k, 3);
    toy_cluster_stop(&c);
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_ERROR);
    ck_assert_int_eq(k.error, ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(leader_check(c.leader), ERR_FATAL_STOPPED);
    ck_assert(!leader_ready(c.leader));
    toy_cluster_finish(&c);
    toy_client_finish(&k);
}
END_TEST

// --- losses

// Runs what is submitted between the two for at least a step more, then as set_fault says.
static void begin_together(struct toy_client *first) {
    gate_set(true);
    toy_client_init(first, 7000);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(first, 1, 3)), 0);
    gate_await_held();
}

static void go_together(struct toy_client *last) {
    gate_set(false);
    toy_client_await_start(last);
}

// A request that is still there when the workers misbehave.
struct long_one {
    struct toy_client client;
    struct toy_answer answer;
};

static void submit_long(struct long_one *k, uint64_t id) {
    toy_client_init(&k->client, id);
    struct request *r = toy_request(&k->client, 20, 250);
    toy_answer(r, TOY_VOCAB, &k->answer);
    ck_assert_int_eq(leader_submit(c.leader, r), 0);
}

// The loss of its group is a pause to a client, and no more.
static void expect_whole(struct long_one *k) {
    toy_client_await_end(&k->client);
    ck_assert_int_eq(k->client.finish, FINISH_LENGTH);
    ck_assert_uint_eq(k->client.n_starts, 1);
    ck_assert_uint_eq(k->client.n_tokens, k->answer.n_tokens);
    ck_assert_mem_eq(k->client.tokens, k->answer.tokens, k->answer.n_tokens * sizeof(uint32_t));
    ck_assert_uint_eq(k->client.digest, k->answer.digest);
    free(k->answer.tokens);
    toy_client_finish(&k->client);
}

// A client hears that the group was lost, and nothing of who was at fault.
static void expect_lost(struct long_one *k) {
    toy_client_await_end(&k->client);
    ck_assert_int_eq(k->client.finish, FINISH_ERROR);
    ck_assert_int_eq(k->client.error, ERR_REQ_WORKER_LOST);
    ck_assert_str_eq(
        k->client.message,
        "the worker group was lost while the request ran, and none was formed in time");
    free(k->answer.tokens);
    toy_client_finish(&k->client);
}

static void expect_replays(uint64_t least) {
    struct leader_view v;
    ck_assert_int_eq(leader_check(c.leader), 0); // brings the view up to date
    ck_assert_int_eq(leader_view(c.leader, &v), 0);
    ck_assert_uint_ge(v.replays, least);
    ck_assert_uint_eq(v.replay_mismatches, 0);
    leader_view_finish(&v);
}

START_TEST(run_goes_on_after_a_killed_worker_with_the_same_answers) {
    static struct toy_client first, clients[CROWD];
    static struct long_one running[4];
    struct toy_answer answers[CROWD];
    for (uint32_t depth = 1; depth <= 2; depth++) {
        start(2, depth);
        begin_together(&first);
        for (uint32_t i = 0; i < 4; i++)
            submit_long(&running[i], 500 + i);
        set_fault(2, TOY_SWALLOWS);
        go_together(&running[3].client);
        toy_worker_kill(&c, 1);
        toy_await_ready(&c, false);
        ck_assert_int_eq(leader_check(c.leader), 0);
        set_fault(1, TOY_HONEST);
        toy_worker_start(&c, 1);
        toy_await_ready(&c, true);
        crowd_start(clients, answers, 1);
        for (uint32_t i = 0; i < 4; i++)
            expect_whole(&running[i]);
        crowd_check(clients, answers);
        expect_all_back();
        expect_replays(4);
        toy_client_finish(&first);
        toy_cluster_finish(&c);
    }
}
END_TEST

START_TEST(run_loses_who_ran_only_when_no_group_forms_in_time) {
    static struct long_one k;
    toy_cluster_prepare(&c, 2);
    c.config.recovery_timeout_ns = 200 * NS_PER_MS;
    toy_cluster_start(&c);
    for (uint32_t i = 0; i < 2; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
    set_fault(2, TOY_SWALLOWS);
    submit_long(&k, 1);
    toy_client_await_start(&k.client);
    toy_worker_kill(&c, 1);
    expect_lost(&k);
    toy_cluster_finish(&c);
}
END_TEST

START_TEST(run_keeps_the_queue_while_the_group_forms_again) {
    static struct toy_client first, waiting[9];
    static struct long_one running[2];
    start(1, 2);
    begin_together(&first);
    for (uint32_t i = 0; i < 2; i++)
        submit_long(&running[i], 10 + i);
    for (uint32_t i = 0; i < 9; i++) { // more than there are slots
        toy_client_init(&waiting[i], 99 + i);
        ck_assert_int_eq(leader_submit(c.leader, toy_request(&waiting[i], 200, 4)), 0);
    }
    set_fault(1, TOY_SWALLOWS);
    go_together(&running[1].client);
    toy_worker_kill(&c, 0);
    toy_await_ready(&c, false);
    ck_assert_int_eq(leader_check(c.leader), 0);
    ck_assert_uint_eq(waiting[8].n_starts + waiting[8].n_finishes, 0);
    toy_worker_start(&c, 0);
    for (uint32_t i = 0; i < 9; i++) {
        toy_client_await_end(&waiting[i]);
        ck_assert_int_eq(waiting[i].finish, FINISH_LENGTH);
        toy_client_finish(&waiting[i]);
    }
    for (uint32_t i = 0; i < 2; i++)
        expect_whole(&running[i]);
    toy_client_finish(&first);
    expect_all_back();
    toy_cluster_finish(&c);
}
END_TEST

// Long before the step's time is over, /ready and health must stop saying that all is well.
START_TEST(run_is_not_in_time_while_a_step_hangs) {
    static struct long_one k;
    struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
    start(1, 1);
    ck_assert(leader_in_time(c.leader, 0)); // nothing is under way
    set_fault(1, TOY_SWALLOWS);
    submit_long(&k, 1);
    while (leader_in_time(c.leader, 100 * NS_PER_MS))
        nanosleep(&pause, NULL);
    ck_assert(leader_ready(c.leader)); // the group is not lost yet
    ck_assert(leader_in_time(c.leader, 10 * NS_PER_S));
    toy_worker_kill(&c, 0);
    while (!leader_in_time(c.leader, 0)) // that step is over
        nanosleep(&pause, NULL);
    set_fault(1, TOY_HONEST);
    toy_worker_start(&c, 0);
    expect_whole(&k);
    toy_cluster_finish(&c);
}
END_TEST

static void fault_then_answer(enum toy_fault fault) {
    static struct long_one k, again;
    toy_cluster_prepare(&c, 2);
    c.config.step_timeout_ns = fault == TOY_SWALLOWS ? 300 * NS_PER_MS : 20 * NS_PER_S;
    toy_cluster_start(&c);
    for (uint32_t i = 0; i < 2; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
    set_fault(2, fault); // one of them has work
    submit_long(&k, 1);
    toy_await_ready(&c, false);
    set_fault(2, TOY_HONEST);
    if (fault == TOY_LIES) { // it was refused, so it stays away; its successor is welcome
        toy_worker_stop(&c, 0);
        toy_worker_stop(&c, 1);
        toy_worker_start(&c, 0);
        toy_worker_start(&c, 1);
    }
    expect_whole(&k);
    submit_long(&again, 2);
    expect_whole(&again);
    expect_all_back();
    toy_cluster_finish(&c);
}

START_TEST(run_loses_the_group_but_not_itself_when_a_worker_misbehaves) {
    fault_then_answer(TOY_SWALLOWS);
    fault_then_answer(TOY_LIES);
    fault_then_answer(TOY_GIVES_UP);
    fault_then_answer(TOY_CLOSES);
}
END_TEST

START_TEST(run_is_not_alive_while_its_loop_does_not_come_round) {
    static struct toy_client k;
    struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
    start(1, 1);
    nanosleep(&pause, NULL);
    ck_assert(leader_alive(c.leader, 10 * NS_PER_S)); // it waits for work
    gate_set(true);
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 20, 4)), 0);
    gate_await_held();
    nanosleep(&pause, NULL);
    ck_assert(!leader_alive(c.leader, 10 * NS_PER_MS));
    ck_assert(leader_alive(c.leader, 600 * NS_PER_S));
    gate_set(false);
    toy_client_await_end(&k);
    expect_all_back();
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
    tcase_add_test(t, run_replays_when_any_worker_of_a_layout_is_lost);
    tcase_add_test(t, run_refuses_an_answer_of_a_worker_that_has_none);
    tcase_add_test(t, run_reports_steps_and_shows_what_happened);
    tcase_add_test(t, run_ends_each_request_once_when_threads_abort_at_any_time);
    tcase_add_test(t, run_refuses_submits_when_the_mailbox_is_full_and_still_takes_aborts);
    tcase_add_test(t, run_takes_requests_only_while_a_group_is_ready);
    tcase_add_test(t, run_goes_on_after_a_killed_worker_with_the_same_answers);
    tcase_add_test(t, run_loses_who_ran_only_when_no_group_forms_in_time);
    tcase_add_test(t, run_keeps_the_queue_while_the_group_forms_again);
    tcase_add_test(t, run_loses_the_group_but_not_itself_when_a_worker_misbehaves);
    tcase_add_test(t, run_is_not_in_time_while_a_step_hangs);
    tcase_add_test(t, run_is_not_alive_while_its_loop_does_not_come_round);
    tcase_add_test(t, run_refuses_a_configuration_that_cannot_work);
    Suite *s = suite_create("leader_run");
    suite_add_tcase(s, t);
    return suite_run(s);
}
