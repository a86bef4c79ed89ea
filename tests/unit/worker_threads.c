// worker_threads.c: real workers with all their threads (loader, control, engine, compute) and a
// real leader over the memory channel and fabric: made for the thread sanitizer. One worker leaves
// and comes back; the answers stay.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/model/folder.h"
#include "common/net/channel_mem.h"
#include "common/net/fabric_mem.h"
#include "leader/leader.h"
#include "tests/harness/suite.h"
#include "worker/worker.h"

#define FOLDER SOURCE_ROOT "/tests/data/models/tiny-qwen3-moe"
#define N_WORKERS 2
#define N_REQUESTS 6
#define N_TOKENS 8
#define BEAT_NS (20 * NS_PER_MS)
#define PATIENCE_NS (60 * NS_PER_S)

// One process: its env, its doors, and the threads that a real one has.
struct process {
    struct env *env;
    struct waker *waker, *control_waker;
    struct fabric *fabric;
    struct channel *channel;
    struct worker *worker;
    pthread_t main_thread, control_thread;
    atomic_bool ended;
    int result;
};

static struct channel_mem_hub *channels;
static struct fabric_mem_hub *fabrics;
static struct process leader_process, workers[N_WORKERS];
static struct leader *leader;
static struct model_spec spec;
static struct waker *client_waker;
static struct answer {
    atomic_uint n_finals;
    uint32_t n_tokens, tokens[N_TOKENS];
    uint64_t digest;
    enum finish finish;
} answers[2][N_REQUESTS];

static void open_process(struct process *p) {
    struct err_text e = {0};
    memset(p, 0, sizeof *p);
    p->env = env_real_create();
    ck_assert_ptr_nonnull(p->env);
    ck_assert_int_eq(waker_create(p->env, &p->waker), 0);
    ck_assert_int_eq(waker_create(p->env, &p->control_waker), 0);
    struct fabric_config config = {
        .env = p->env, .waker = p->waker, .message_bytes_max = 1 << 24, .hub = fabrics};
    ck_assert_int_eq(fabric_open(&p->fabric, FABRIC_MEM, &config, &e), 0);
}

static void close_process(struct process *p) {
    channel_close(p->channel);
    worker_destroy(p->worker);
    fabric_close(p->fabric);
    waker_destroy(p->control_waker);
    waker_destroy(p->waker);
    env_real_destroy(p->env);
}

static void *worker_thread(void *arg) {
    struct process *p = arg;
    p->result = worker_run(p->worker);
    return NULL;
}

static void *control_thread(void *arg) {
    struct process *p = arg;
    while (!atomic_load(&p->ended)) {
        worker_heartbeat(p->worker);
        waker_wait(p->control_waker, env_now_ns(p->env) + BEAT_NS);
    }
    return NULL;
}

static void start_worker(struct process *p) {
    struct err_text e = {0};
    open_process(p);
    struct worker_config config = {.env = p->env,
                                   .waker = p->waker,
                                   .fabric = p->fabric,
                                   .build_id = "test",
                                   .wanted_rank = -1,
                                   .n_threads = 2,
                                   .memory_bytes = UINT64_C(1) << 30,
                                   .heartbeat_ns = BEAT_NS};
    ck_assert_int_eq(worker_create(&p->worker, &config, &e), 0);
    struct channel_config channel = {.env = p->env,
                                     .waker = p->waker,
                                     .address = "leader",
                                     .hub = channels,
                                     .peek = worker_peek,
                                     .peek_context = p->worker};
    ck_assert_int_eq(channel_dial_mem(&p->channel, &channel, &e), 0);
    worker_attach(p->worker, p->channel);
    ck_assert_int_eq(pthread_create(&p->main_thread, NULL, worker_thread, p), 0);
    ck_assert_int_eq(pthread_create(&p->control_thread, NULL, control_thread, p), 0);
}

// As SIGTERM does it in main.c.
static void stop_worker(struct process *p) {
    env_real_stop(p->env);
    fabric_interrupt(p->fabric);
    waker_wake(p->waker);
    pthread_join(p->main_thread, NULL);
    atomic_store(&p->ended, true);
    waker_wake(p->control_waker);
    pthread_join(p->control_thread, NULL);
    ck_assert_int_eq(p->result, 0);
    close_process(p);
}

static void *leader_thread(void *arg) {
    (void)arg;
    leader_process.result = leader_run(leader);
    return NULL;
}

static void start_leader(void) {
    struct err_text e = {0};
    uint64_t digest;
    struct process *p = &leader_process;
    open_process(p);
    ck_assert_int_eq(spec_load(&spec, FOLDER, &e), 0);
    ck_assert_int_eq(model_folder_digest(&digest, FOLDER, &e), 0);
    struct channel_config channel = {
        .env = p->env, .waker = p->waker, .address = "leader", .hub = channels};
    ck_assert_int_eq(channel_listen_mem(&p->channel, &channel, &e), 0);
    struct leader_config config = {.env = p->env,
                                   .waker = p->waker,
                                   .channel = p->channel,
                                   .fabric = p->fabric,
                                   .spec = &spec,
                                   .model = FOLDER,
                                   .model_digest = digest,
                                   .build_id = "test",
                                   .dtype = "auto",
                                   .kv_dtype = DTYPE_F32,
                                   .layout = layout_even(N_WORKERS),
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 8,
                                   .max_model_len = 128,
                                   .pipeline_depth = 2,
                                   .kv_cache_percent = 1,
                                   .step_timeout_ns = 30 * NS_PER_S,
                                   .recovery_timeout_ns = 30 * NS_PER_S,
                                   .digest = true};
    ck_assert_int_eq(leader_create(&leader, &config, &e), 0);
    ck_assert_int_eq(waker_create(p->env, &client_waker), 0);
    ck_assert_int_eq(pthread_create(&p->main_thread, NULL, leader_thread, NULL), 0);
}

static void stop_leader(void) {
    leader_stop(leader);
    pthread_join(leader_process.main_thread, NULL);
    ck_assert_int_eq(leader_process.result, 0);
    leader_destroy(leader);
    waker_destroy(client_waker);
    close_process(&leader_process);
}

static void on_token(const struct token_event *ev) {
    struct answer *a = ev->sink_context;
    if (ev->has_token && a->n_tokens < N_TOKENS) a->tokens[a->n_tokens++] = ev->token;
    a->digest = ev->digest;
    if (ev->finish == FINISH_NONE) return;
    a->finish = ev->finish;
    atomic_fetch_add(&a->n_finals, 1);
    waker_wake(client_waker);
}

static void await_ready(bool ready) {
    int64_t deadline = env_now_ns(leader_process.env) + PATIENCE_NS;
    while (leader_ready(leader) != ready) {
        ck_assert_int_lt(env_now_ns(leader_process.env), deadline);
        waker_wait(client_waker, env_now_ns(leader_process.env) + NS_PER_MS);
    }
}

static void ask(struct answer *to, uint64_t first_id) {
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct request *r = request_create(3 + 5 * i);
        ck_assert_ptr_nonnull(r);
        r->id = first_id + i;
        for (uint32_t t = 0; t < r->n_prompt; t++)
            r->prompt[t] = (7 * t + i) % spec.vocab;
        r->sampling =
            (struct sampling){.temperature = i % 2 ? 1.0f : 0.0f, .top_p = 1.0f, .seed = i};
        r->max_tokens = N_TOKENS;
        r->emit = on_token;
        r->sink_context = &to[i];
        ck_assert_int_eq(leader_submit(leader, r), 0);
    }
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        int64_t deadline = env_now_ns(leader_process.env) + PATIENCE_NS;
        while (atomic_load(&to[i].n_finals) == 0) {
            ck_assert_int_lt(env_now_ns(leader_process.env), deadline);
            waker_wait(client_waker, deadline);
        }
        ck_assert_int_eq(to[i].finish, FINISH_LENGTH);
    }
}

START_TEST(workers_answer_alike_before_and_after_one_of_them_left_and_came_back) {
    channels = channel_mem_hub_create(&(struct channel_mem_options){0});
    fabrics = fabric_mem_hub_create(&(struct fabric_mem_options){0});
    start_worker(&workers[0]); // before the leader
    start_leader();
    start_worker(&workers[1]);
    await_ready(true);
    ask(answers[0], 1);
    stop_worker(&workers[1]);
    await_ready(false);
    start_worker(&workers[1]);
    await_ready(true);
    ask(answers[1], 100);
    ck_assert_int_eq(leader_check(leader), 0);
    stop_leader();
    for (uint32_t i = 0; i < N_WORKERS; i++)
        stop_worker(&workers[i]);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        ck_assert_uint_eq(answers[0][i].digest, answers[1][i].digest);
        ck_assert_int_eq(
            memcmp(answers[0][i].tokens, answers[1][i].tokens, sizeof answers[0][i].tokens), 0);
    }
    fabric_mem_hub_destroy(fabrics);
    channel_mem_hub_destroy(channels);
}
END_TEST

int main(void) {
    log_setup("test", LOG_SILENT);
    Suite *suite = suite_create("worker_threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, workers_answer_alike_before_and_after_one_of_them_left_and_came_back);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
