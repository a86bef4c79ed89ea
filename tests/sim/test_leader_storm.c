// test_leader_storm.c: the leader with toy workers that die, stall, lie and come back at random, in
// virtual time. No model runs, so thousands of schedules of joining, forming, losing and recovering
// fit into seconds; test_storm has the real workers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_cluster.h"
#include "tests/sim/world.h"

#define N_REQUESTS 40
#define N_BLOWS 6
#define SEEDS_DEFAULT 100

struct storm;

struct storm_request {
    struct storm *storm;
    struct toy_answer expected;
    struct request *made; // until it is submitted
    uint64_t id;
    int64_t submit_ns, abort_ns; // abort_ns 0 = never
    bool accepted, done;
    uint32_t tokens[TOY_MODEL_LEN], n_tokens, n_starts, n_finishes;
    enum finish finish;
    int error;
    uint64_t digest;
    char message[160];
};

struct storm {
    struct sim *sim;
    struct toy_cluster cluster;
    struct sim_process *workers[TOY_WORKERS_MAX];
    struct worker_place {
        struct storm *storm;
        struct toy_worker worker;
    } places[TOY_WORKERS_MAX];
    uint32_t n_ranks;
    struct leader *leader;
    struct waker *client_waker; // while the client lives
    struct storm_request requests[N_REQUESTS];
    bool client_done, leader_done;
    int check_result;
    struct leader_view view; // as of then, numbers only
};

// --- processes

static void leader_process(struct env *env, void *arg) {
    struct storm *s = arg;
    struct leader_config *c = &s->cluster.config;
    struct fabric *fabric;
    struct channel *channel;
    struct waker *waker;
    c->env = env;
    check(waker_create(env, &waker) == 0);
    struct fabric_config fc = {
        .env = env, .waker = waker, .message_bytes_max = 1 << 20, .hub = s->cluster.fabrics};
    struct channel_config cc = {
        .env = env, .waker = waker, .address = TOY_ADDRESS, .hub = s->cluster.channels};
    check(fabric_open(&fabric, FABRIC_MEM, &fc, NULL) == 0 &&
          channel_listen_mem(&channel, &cc, NULL) == 0);
    c->waker = waker;
    c->fabric = fabric;
    c->channel = channel;
    struct leader *l;
    check(leader_create(&l, c, NULL) == 0);
    s->leader = l;
    leader_run(l);
    s->leader = NULL;
    s->leader_done = true;
    leader_destroy(l);
    channel_close(channel);
    fabric_close(fabric);
    waker_destroy(waker);
}

static void worker_process(struct env *env, void *arg) {
    struct worker_place *p = arg;
    int fault = atomic_load(&p->worker.fault), after = atomic_load(&p->worker.fault_after);
    toy_worker_open(&p->worker, &p->storm->cluster, env);
    atomic_store(&p->worker.fault_after, after);
    atomic_store(&p->worker.fault, fault);
    toy_worker_loop(&p->worker);
    toy_worker_close(&p->worker);
}

static void emit(const struct token_event *ev) {
    struct storm_request *q = ev->sink_context;
    check(q->n_finishes == 0 && ev->request_id == q->id);
    q->n_starts += ev->is_start ? 1 : 0;
    if (ev->has_token) q->tokens[q->n_tokens++] = ev->token;
    q->digest = ev->digest;
    if (ev->finish == FINISH_NONE) return;
    q->n_finishes++;
    q->finish = ev->finish;
    q->error = ev->error;
    q->done = true;
    snprintf(q->message, sizeof q->message, "%s", ev->message);
    if (q->storm->client_waker != NULL) waker_wake(q->storm->client_waker);
}

static void act(struct storm *s, struct storm_request *q, int64_t now_ns, int64_t *next_ns) {
    if (q->made != NULL && now_ns >= q->submit_ns) {
        struct request *r = q->made;
        q->made = NULL;
        bool takes = leader_takes_requests(s->leader);
        int err = leader_submit(s->leader, r);
        check(err == (takes ? 0 : ERR_REQ_UNAVAILABLE));
        q->accepted = err == 0;
        q->done = err != 0;
    }
    if (q->accepted && !q->done && q->abort_ns != 0 && now_ns >= q->abort_ns) {
        leader_abort(s->leader, q->id);
        q->abort_ns = 0;
    }
    if (q->made != NULL && q->submit_ns < *next_ns) *next_ns = q->submit_ns;
    if (!q->done && q->abort_ns != 0 && q->abort_ns > now_ns && q->abort_ns < *next_ns)
        *next_ns = q->abort_ns;
}

// Submits and aborts at the drawn times, and when all is over checks and stops the leader.
static void client_process(struct env *env, void *arg) {
    struct storm *s = arg;
    check(waker_create(env, &s->client_waker) == 0);
    for (bool left = true; left && !env_stopped(env);) {
        int64_t next_ns = NO_DEADLINE;
        left = false;
        for (uint32_t i = 0; i < N_REQUESTS && s->leader != NULL; i++) {
            act(s, &s->requests[i], env_now_ns(env), &next_ns);
            left = left || !s->requests[i].done;
        }
        left = left || s->leader == NULL;
        if (left)
            waker_wait(s->client_waker, s->leader == NULL ? env_now_ns(env) + NS_PER_MS : next_ns);
    }
    s->check_result = leader_check(s->leader);
    check(leader_view(s->leader, &s->view) == 0);
    leader_view_finish(&s->view);
    leader_stop(s->leader);
    waker_destroy(s->client_waker);
    s->client_waker = NULL;
    s->client_done = true;
}

// --- the script

static void start_worker(struct storm *s, uint32_t i) {
    char name[16];
    snprintf(name, sizeof name, "worker %u", i);
    s->places[i].storm = s;
    s->workers[i] = sim_spawn(s->sim, name, worker_process, &s->places[i]);
}

static void make_requests(struct storm *s) {
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct storm_request *q = &s->requests[i];
        struct request *r = request_create(1 + (uint32_t)sim_random(s->sim, 120));
        for (uint32_t t = 0; t < r->n_prompt; t++)
            r->prompt[t] = (uint32_t)sim_random(s->sim, TOY_VOCAB);
        r->id = i + 1;
        r->max_tokens = 1 + (uint32_t)sim_random(s->sim, 40);
        r->emit = emit;
        r->sink_context = q;
        r->sampling.temperature = (float)sim_random(s->sim, 2);
        r->sampling.seed = sim_random(s->sim, 1000);
        toy_answer(r, TOY_VOCAB, &q->expected);
        q->storm = s;
        q->made = r;
        q->id = r->id;
        q->submit_ns = NS_PER_S / 5 + (int64_t)sim_random(s->sim, (uint64_t)(8 * NS_PER_S));
        if (sim_random(s->sim, 5) == 0)
            q->abort_ns =
                q->submit_ns + (int64_t)sim_random(s->sim, (uint64_t)(20 * NS_PER_MS)) + 1;
    }
}

// One misfortune of a worker.
static void deal_blow(struct storm *s) {
    uint32_t i = (uint32_t)sim_random(s->sim, s->n_ranks);
    switch (sim_random(s->sim, 4)) {
    case 0: // it dies, and another takes its place some time later
        sim_kill(s->sim, s->workers[i]);
        sim_run(s->sim, sim_now_ns(s->sim) + (int64_t)sim_random(s->sim, (uint64_t)(2 * NS_PER_S)));
        atomic_store(&s->places[i].worker.fault, TOY_HONEST);
        if (!sim_done(s->workers[i])) sim_run(s->sim, sim_now_ns(s->sim) + NS_PER_S);
        start_worker(s, i);
        break;
    case 1:
        sim_pause(s->sim, s->workers[i], (int64_t)sim_random(s->sim, (uint64_t)(6 * NS_PER_S)));
        break;
    default:
        atomic_store(&s->places[i].worker.fault_after, (int)sim_random(s->sim, 5));
        atomic_store(&s->places[i].worker.fault, 1 + (int)sim_random(s->sim, TOY_CLOSES));
    }
}

static void storm_begin(struct storm *s, uint64_t seed) {
    memset(s, 0, sizeof *s);
    struct sim_config config = sim_config_default(seed);
    s->sim = sim_create(&config);
    s->n_ranks = 1 + (uint32_t)sim_random(s->sim, 4);
    s->cluster.channels = sim_channel_hub(s->sim);
    s->cluster.fabrics = sim_fabric_hub(s->sim);
    toy_cluster_config(&s->cluster, NULL, s->n_ranks);
    s->cluster.config.pipeline_depth = 1 + (uint32_t)sim_random(s->sim, 2);
    s->cluster.config.max_num_seqs = 1 + (uint32_t)sim_random(s->sim, 8);
    s->cluster.config.max_num_batched_tokens = 1 + (uint32_t)sim_random(s->sim, 64);
    s->cluster.config.step_timeout_ns = NS_PER_S;
    make_requests(s);
    bool leader_first = sim_random(s->sim, 2) == 0;
    for (uint32_t i = 0; i < s->n_ranks && !leader_first; i++)
        start_worker(s, i);
    struct sim_process *leader = sim_spawn(s->sim, "leader", leader_process, s);
    sim_spawn_thread(leader, "client", client_process,
                     s); // leader_check wants a thread of its process
    for (uint32_t i = 0; i < s->n_ranks && leader_first; i++)
        start_worker(s, i);
}

static bool client_is_gone(void *arg) {
    struct storm *s = arg;
    return s->client_done && s->leader_done;
}

// A request under which group after group is lost may be the cause, and is given up. A storm's
// blows do that to few.
static bool given_up(const struct storm_request *q) {
    return q->finish == FINISH_ERROR && q->error == ERR_REQ_WORKER_LOST;
}

static void expect_right(const struct storm_request *q) {
    ck_assert(q->done);
    if (!q->accepted) {
        ck_assert_uint_eq(q->n_finishes + q->n_starts, 0);
        return;
    }
    ck_assert_uint_eq(q->n_finishes, 1);
    ck_assert_uint_le(q->n_starts, 1);
    ck_assert_uint_le(q->n_tokens, q->expected.n_tokens);
    ck_assert_mem_eq(q->tokens, q->expected.tokens, q->n_tokens * sizeof q->tokens[0]);
    if (q->finish == FINISH_ABORT || given_up(q)) return;
    ck_assert_msg(q->finish == FINISH_LENGTH, "%s", q->message);
    ck_assert_uint_eq(q->n_tokens, q->expected.n_tokens);
    ck_assert_uint_eq(q->digest, q->expected.digest);
}

struct tally {
    uint64_t n_replays, n_given_up;
};

// Returns the trace's hash, and adds to what happened to requests.
static uint64_t storm_run(uint64_t seed, bool blows, struct tally *sum) {
    static struct storm s;
    storm_begin(&s, seed);
    for (int i = 0; i < N_BLOWS && blows; i++) {
        sim_run(s.sim, sim_now_ns(s.sim) + (int64_t)sim_random(s.sim, (uint64_t)(2 * NS_PER_S)));
        if (s.client_done) break; // all requests ended already
        deal_blow(&s);
    }
    enum sim_end end = sim_run_until(s.sim, sim_now_ns(s.sim) + 300 * NS_PER_S, client_is_gone, &s);
    ck_assert_msg(end == SIM_UNTIL, "seed %llu ended with %d", (unsigned long long)seed, (int)end);
    ck_assert_int_eq(s.check_result, 0);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        expect_right(&s.requests[i]);
        sum->n_given_up += given_up(&s.requests[i]);
        free(s.requests[i].expected.tokens);
    }
    sum->n_replays += s.view.replays;
    ck_assert_uint_eq(s.view.replay_mismatches, 0);
    uint64_t hash = sim_trace_hash(s.sim);
    sim_destroy(s.sim);
    return hash;
}

static uint64_t n_seeds(void) {
    const char *text = getenv("SIM_SEEDS");
    return text == NULL ? SEEDS_DEFAULT : strtoull(text, NULL, 10);
}

START_TEST(leader_answers_all_in_fair_weather) {
    struct tally sum = {0};
    for (uint64_t seed = 1; seed <= n_seeds() / 4 + 1; seed++)
        storm_run(seed, false, &sum);
    ck_assert_uint_eq(sum.n_replays + sum.n_given_up, 0);
}
END_TEST

START_TEST(leader_ends_every_request_rightly_in_any_storm) {
    struct tally sum = {0};
    uint64_t first = sim_seed(1);
    for (uint64_t seed = first; seed < first + n_seeds(); seed++) {
        if (getenv("SIM_TRACE") != NULL) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        storm_run(seed, true, &sum);
    }
    uint64_t n_requests = n_seeds() * N_REQUESTS;
    printf("%llu replays and %llu given up of %llu requests\n", (unsigned long long)sum.n_replays,
           (unsigned long long)sum.n_given_up, (unsigned long long)n_requests);
    ck_assert(sum.n_replays > 0 || n_seeds() < 10); // the blows do hit
    ck_assert_uint_le(sum.n_given_up, n_requests / 1000);
}
END_TEST

START_TEST(leader_storm_replays_from_its_seed) {
    struct tally sum = {0};
    for (uint64_t seed = 1; seed <= 5; seed++)
        ck_assert_uint_eq(storm_run(seed, true, &sum), storm_run(seed, true, &sum));
}
END_TEST

int main(void) {
    if (getenv("SIM_TRACE") == NULL) log_setup("sim", LOG_SILENT);
    TCase *t = tcase_create("storm");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, leader_answers_all_in_fair_weather);
    tcase_add_test(t, leader_ends_every_request_rightly_in_any_storm);
    tcase_add_test(t, leader_storm_replays_from_its_seed);
    Suite *s = suite_create("leader_storm");
    suite_add_tcase(s, t);
    return suite_run(s);
}
