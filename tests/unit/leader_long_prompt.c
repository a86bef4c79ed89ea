// leader_long_prompt.c: the longest prompt delays no other stream's next token: every step that is
// planned while a stream decodes has its token in it, and texts are made to ids beside the steps.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "leader/api.h"
#include "leader/pages.h"
#include "leader/sched.h"
#include "tests/harness/http_client.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_house.h"

// --- steps

#define MODEL_LEN 2048
#define STREAM_TOKENS 400
#define KV_BLOCKS 4096

struct sink {
    uint32_t n_tokens;
    bool ended;
};

static void emit(const struct token_event *ev) {
    struct sink *k = ev->sink_context;
    k->n_tokens += ev->has_token;
    k->ended |= ev->finish != FINISH_NONE;
}

static void submit(struct sched *s, struct sink *sink, uint32_t n_prompt, uint32_t max_tokens) {
    static uint64_t id;
    struct request *r = request_create(n_prompt);
    ck_assert_ptr_nonnull(r);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = i % 90;
    r->id = ++id;
    r->max_tokens = max_tokens;
    r->emit = emit;
    r->sink_context = sink;
    sched_submit(s, r, 0);
}

struct pipeline {
    struct sched *sched;
    struct step_plan plans[2];
    uint32_t depth, first, n_flights;
};

static struct step_plan *plan_next(struct pipeline *p) {
    struct step_plan *plan = &p->plans[(p->first + p->n_flights) % p->depth];
    if (p->n_flights == p->depth || !sched_plan(p->sched, plan)) return NULL;
    p->n_flights++;
    return plan;
}

// Every rank answers the oldest step, each sampled row with the token 1.
static void answer_oldest(struct pipeline *p) {
    static struct sampled results[64];
    struct step_plan *plan = &p->plans[p->first];
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        ck_assert_uint_le(plan->ranks[i].n_answered, 64);
        for (uint32_t k = 0; k < plan->ranks[i].n_answered; k++)
            results[k] = (struct sampled){.token = 1};
        sched_apply(p->sched, plan, i, results);
    }
    p->first = (p->first + 1) % p->depth;
    p->n_flights--;
}

struct shape {
    uint32_t n_ranks, budget, depth;
};

static void start(struct pipeline *p, const struct shape *shape) {
    const struct rank_room rooms[] = {{.kv_blocks = KV_BLOCKS}, {.kv_blocks = KV_BLOCKS}};
    const struct sched_config config = {.n_ranks = shape->n_ranks,
                                        .max_num_seqs = 16,
                                        .max_num_batched_tokens = shape->budget,
                                        .max_model_len = MODEL_LEN,
                                        .vocab = 97};
    *p = (struct pipeline){.depth = shape->depth};
    ck_assert_int_eq(sched_create(&p->sched, &config, NULL), 0);
    for (uint32_t i = 0; i < shape->depth; i++)
        ck_assert_int_eq(step_plan_init(&p->plans[i], &config), 0);
    ck_assert_int_eq(sched_form(p->sched, rooms), 0);
}

static void finish(struct pipeline *p) {
    while (p->n_flights > 0)
        answer_oldest(p);
    sched_close(p->sched, "the test ends");
    for (uint32_t i = 0; i < p->depth; i++)
        step_plan_finish(&p->plans[i]);
    sched_destroy(p->sched);
}

// The streams' rows of one token that is sampled. The rest of the step is prompts.
static uint32_t count_decodes(const struct step_plan *plan) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        for (uint32_t k = 0; k < plan->ranks[i].n_seqs; k++) {
            const struct planned *one = &plan->ranks[i].seqs[k];
            n += one->sample && one->n_tokens == 1 && one->tokens == NULL;
        }
    }
    return n;
}

// One step, then the answer to an older one. A decode whose token is known comes with it.
static bool turn(struct pipeline *p, uint32_t *n_decodes, uint32_t *n_prompt_rows) {
    struct step_plan *plan = plan_next(p);
    if (plan != NULL) {
        *n_decodes = plan->n_decode_tokens;
        *n_prompt_rows = plan->n_prompt_tokens;
        ck_assert_uint_le(count_decodes(plan), plan->n_decode_tokens);
    }
    if (p->n_flights == p->depth || plan == NULL) answer_oldest(p);
    return plan != NULL;
}

static void check_shape(const struct shape *shape) {
    struct pipeline p;
    struct sink stream = {0}, longest[3] = {{0}};
    uint32_t n_decodes = 0, n_rows = 0, n_steps = 0, n_mixed = 0;
    start(&p, shape);
    submit(p.sched, &stream, 5, STREAM_TOKENS);
    while (stream.n_tokens == 0)
        turn(&p, &n_decodes, &n_rows);
    for (uint32_t i = 0; i < 3; i++)
        submit(p.sched, &longest[i], MODEL_LEN - 1, 1);
    uint32_t before = stream.n_tokens + p.n_flights;
    while (before + n_steps < STREAM_TOKENS) {
        if (!turn(&p, &n_decodes, &n_rows)) continue;
        n_steps++;
        ck_assert_uint_ge(n_decodes, 1); // the stream's, whatever else
        n_mixed += n_rows > 0;
    }
    while (!stream.ended)
        turn(&p, &n_decodes, &n_rows);
    // No step went by without it: as many steps as tokens.
    ck_assert_uint_eq(stream.n_tokens, STREAM_TOKENS);
    uint32_t rows = shape->budget - 1; // beside the stream's
    uint32_t least = 3 * (MODEL_LEN - 1) / (shape->n_ranks * (rows + 1));
    ck_assert_msg(n_mixed >= (least < n_steps ? least : n_steps), "%u of %u steps", n_mixed,
                  n_steps);
    finish(&p);
}

START_TEST(every_step_beside_the_longest_prompts_has_the_streams_token) {
    static const struct shape shapes[] = {{1, 512, 1}, {1, 512, 2}, {1, 64, 2},
                                          {2, 64, 2},  {1, 2, 1},   {2, 2048, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}
END_TEST

// --- rendering

// A clock that holds the first who asks for the time of day, as whoever makes a text does, until
// the gate opens.
struct gate {
    struct env env; // first member
    struct env *real;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut, holds;
};

static struct gate *gate_of(struct env *env) {
    return (struct gate *)(void *)env;
}

static int64_t gate_now_ns(struct env *env) {
    return env_now_ns(gate_of(env)->real);
}

static int64_t gate_wall_ns(struct env *env) {
    struct gate *g = gate_of(env);
    pthread_mutex_lock(&g->lock);
    bool first = g->shut && !g->holds;
    g->holds |= first;
    pthread_cond_broadcast(&g->changed);
    while (first && g->shut)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return env_wall_ns(g->real);
}

static void gate_random(struct env *env, void *buf, size_t bytes) {
    env_random(gate_of(env)->real, buf, bytes);
}

static bool gate_stopped(struct env *env) {
    return env_stopped(gate_of(env)->real);
}

static int gate_waker_create(struct env *env, struct waker **out) {
    return waker_create(gate_of(env)->real, out);
}

static const struct env_ops gate_ops = {.now_ns = gate_now_ns,
                                        .wall_ns = gate_wall_ns,
                                        .random = gate_random,
                                        .stopped = gate_stopped,
                                        .waker_create = gate_waker_create};

static void gate_set(struct gate *g, bool shut) {
    pthread_mutex_lock(&g->lock);
    g->shut = shut;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void gate_await(struct gate *g) {
    pthread_mutex_lock(&g->lock);
    while (!g->holds)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

struct asker {
    uint16_t port;
    struct buf answer;
};

static void *ask(void *context) {
    struct asker *a = context;
    http_client_post(a->port, "/v1/chat/completions",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"a long one\"}]}", &a->answer);
    return NULL;
}

START_TEST(a_stream_goes_on_from_beginning_to_end_while_a_prompt_is_rendered) {
    struct toy_house h;
    struct api *api;
    struct err_text e = {""};
    uint16_t port;
    pthread_t thread;
    const struct toy_house_config config = {SOURCE_ROOT "/models/seedling", {0}, 8, 256};
    toy_house_start(&h, &config);
    struct gate gate = {.env = {&gate_ops},
                        .real = h.env,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER};
    h.serving->env = &gate.env;
    struct api_config http = {
        .serving = h.serving, .host = "127.0.0.1", .connections_max = 64, .timeout_s = 75};
    ck_assert_msg(api_start(&api, &http, &port, &e) == 0, "%s", e.text);
    gate_set(&gate, true);
    struct asker asker = {.port = port};
    ck_assert_int_eq(pthread_create(&thread, NULL, ask, &asker), 0);
    gate_await(&gate); // its text is being made
    struct buf stream;
    http_client_post(port, "/v1/completions", "{\"prompt\":[1,2,3],\"stream\":true,\"seed\":1}",
                     &stream);
    ck_assert_msg(strstr(stream.data, "data: [DONE]") != NULL, "%s", stream.data);
    ck_assert_uint_eq(toy_engine_counts(h.toy).submitted, 1); // the other is still at it
    gate_set(&gate, false);
    pthread_join(thread, NULL);
    ck_assert_int_eq(http_client_status(&asker.answer), 200);
    buf_finish(&stream);
    buf_finish(&asker.answer);
    api_stop(api);
    toy_engine_stop(h.toy);
    api_destroy(api);
    toy_house_stop(&h);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("long_prompt");
    TCase *tc = tcase_create("long_prompt");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_step_beside_the_longest_prompts_has_the_streams_token);
    tcase_add_test(tc, a_stream_goes_on_from_beginning_to_end_while_a_prompt_is_rendered);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
