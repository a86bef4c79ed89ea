// toy_crowd.c: see toy_crowd.h.
#include "tests/harness/toy_crowd.h"

#include <check.h>
#include <stdlib.h>

// --- the gate

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

void toy_gate_set(bool closed) {
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

void toy_gate_await_held(void) {
    pthread_mutex_lock(&gate.lock);
    while (!gate.held)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

// --- the group

void toy_start_layout(struct toy_cluster *c, struct layout layout, uint32_t depth) {
    toy_cluster_prepare(c, layout.n_ranks);
    c->config.layout = layout;
    c->config.pipeline_depth = depth;
    toy_cluster_start(c);
    leader_on_step(c->leader, pass_gate, NULL); // no step can run before a worker is there
    for (uint32_t i = 0; i < layout.n_ranks; i++)
        toy_worker_start(c, i);
    toy_await_ready(c, true);
}

void toy_start(struct toy_cluster *c, uint32_t n_ranks, uint32_t depth) {
    toy_start_layout(c, layout_even(n_ranks), depth);
}

// A request's last event comes a moment before the last rank's answer gives its slot and blocks
// back.
void toy_expect_all_back(struct toy_cluster *c) {
    struct leader_view v = {.n_running = 1};
    struct timespec pause = {.tv_nsec = NS_PER_MS};
    for (int i = 0; i < 10000 && v.n_running + v.n_waiting + v.kv_blocks_used > 0; i++) {
        nanosleep(&pause, NULL);
        ck_assert_int_eq(leader_check(c->leader), 0);
        ck_assert_int_eq(leader_view(c->leader, &v), 0);
        leader_view_finish(&v);
    }
    ck_assert_uint_eq(v.n_running + v.n_waiting + v.kv_blocks_used, 0);
}

void toy_set_fault(struct toy_cluster *c, uint32_t n_workers, enum toy_fault fault) {
    for (uint32_t i = 0; i < n_workers; i++) {
        atomic_store(&c->workers[i].fault_after, 3);
        atomic_store(&c->workers[i].fault, fault);
    }
}

// --- the crowd

void toy_crowd_start(struct toy_cluster *c, struct toy_crowd *crowd, uint64_t first_id) {
    for (uint32_t i = 0; i < TOY_CROWD; i++) {
        struct toy_client *k = &crowd->clients[i];
        toy_client_init(k, first_id + i);
        struct request *r = toy_request(k, 1 + i * 37 % 200, 1 + i % 20);
        if (i % 2 == 1) r->sampling = (struct sampling){.temperature = 1, .seed = i};
        toy_answer(r, TOY_VOCAB, &crowd->answers[i]);
        ck_assert_int_eq(leader_submit(c->leader, r), 0);
    }
}

void toy_crowd_check(struct toy_crowd *crowd) {
    for (uint32_t i = 0; i < TOY_CROWD; i++) {
        struct toy_client *k = &crowd->clients[i];
        const struct toy_answer *answer = &crowd->answers[i];
        toy_client_await_end(k);
        ck_assert_int_eq(k->finish, FINISH_LENGTH);
        ck_assert_uint_eq(k->n_starts, 1);
        ck_assert_uint_eq(k->n_tokens, answer->n_tokens);
        ck_assert_mem_eq(k->tokens, answer->tokens, answer->n_tokens * sizeof(uint32_t));
        ck_assert_uint_eq(k->digest, answer->digest);
        free(answer->tokens);
        toy_client_finish(k);
    }
}
