// cluster.c: see cluster.h.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/folder.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"
#include "worker/worker.h"

#define BUILD_ID "simulated"
#define ADDRESS "leader"
#define MESSAGE_BYTES_MAX ((size_t)256 << 20)
#define POLL_NS NS_PER_MS
#define RETRY_NS (20 * NS_PER_MS)

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s: %s\n", err_name(rc), e->text);
    check(!"the set-up of a simulated process failed");
}

// --- one copy of the weights

void model_cache_open(struct model_cache *m, const char *folder) {
    struct err_text e = {0};
    memset(m, 0, sizeof *m);
    m->folder = folder;
    must(spec_load(&m->spec, folder, &e), &e);
    must(model_folder_digest(&m->digest, folder, &e), &e);
    m->dtype = m->spec.dtype;
    m->kv_dtype = DTYPE_F32;
    for (uint32_t n = 1; n <= CLUSTER_WORKERS_MAX; n++)
        must(layout_make(&m->layouts[n], n, &e), &e);
}

static void forget_other(struct model_cache *m) {
    for (uint32_t rank = 0; rank < CLUSTER_WORKERS_MAX; rank++) {
        weights_destroy(m->other_weights[rank]);
        m->other_weights[rank] = NULL;
    }
}

void model_cache_close(struct model_cache *m) {
    forget_other(m);
    for (uint32_t n = 1; n <= CLUSTER_WORKERS_MAX; n++) {
        for (uint32_t rank = 0; rank < n; rank++)
            weights_destroy(m->weights[n][rank]);
    }
}

static int lend_weights(void *context, struct weights **out, const struct weights_config *config,
                        struct err_text *e) {
    struct cluster *c = context;
    struct model_cache *m = c->config.model;
    struct weights_config own = *config;
    c->n_loads++;
    uint32_t n = config->layout->n_ranks;
    check(n <= CLUSTER_WORKERS_MAX && config->dtype == m->dtype);
    check(config->spec->mla.expanded == m->spec.mla.expanded); // as the welcome said
    bool even = layout_equal(config->layout, &m->layouts[n]);
    if (!even && !layout_equal(config->layout, &m->other)) {
        forget_other(m);
        m->other = *config->layout;
    }
    struct weights **slot = even ? &m->weights[n][config->rank] : &m->other_weights[config->rank];
    own.spec = &m->spec; // the worker's copies die with it
    own.layout = even ? &m->layouts[n] : &m->other;
    own.progress = NULL;
    own.cancel = NULL;
    int rc = *slot != NULL ? 0 : weights_load(slot, &own, e);
    if (rc == 0) *out = *slot;
    return rc;
}

static void keep_weights(void *context, struct weights *w) {
    (void)context;
    (void)w;
}

// --- the processes

static void worker_main(struct env *env, void *arg) {
    struct cluster_worker *self = arg;
    struct cluster *c = self->cluster;
    struct err_text e = {0};
    struct waker *waker = NULL;
    struct fabric *fabric = NULL;
    struct channel *channel = NULL;
    struct worker *worker = NULL;
    char name[16];
    const char *build = c->config.builds[self->index];
    snprintf(name, sizeof name, "worker%u", self->index);
    struct weights_source source = {lend_weights, keep_weights, c};
    must(waker_create(env, &waker), &e);
    struct fabric_config fabric_config = {.env = env,
                                          .waker = waker,
                                          .message_bytes_max = MESSAGE_BYTES_MAX,
                                          .hub = sim_fabric_hub(c->sim)};
    must(fabric_open(&fabric, FABRIC_MEM, &fabric_config, &e), &e);
    struct worker_config config = {.env = env,
                                   .waker = waker,
                                   .fabric = fabric,
                                   .build_id = build != NULL ? build : BUILD_ID,
                                   .kernels = c->config.kernels,
                                   .name = name,
                                   .wanted_rank = -1,
                                   .memory_bytes = UINT64_C(1) << 34,
                                   .heartbeat_ns = NS_PER_S,
                                   .single_thread = true,
                                   .source = &source};
    must(worker_create(&worker, &config, &e), &e);
    struct channel_config channel_config = {.env = env,
                                            .waker = waker,
                                            .address = ADDRESS,
                                            .hub = sim_channel_hub(c->sim),
                                            .peek = worker_peek,
                                            .lost = worker_lost,
                                            .peek_context = worker};
    must(channel_dial_mem(&channel, &channel_config, &e), &e);
    worker_attach(worker, channel);
    self->worker = worker;
    must(worker_run(worker), &e);
    self->worker = NULL;
    channel_close(channel);
    worker_destroy(worker);
    fabric_close(fabric);
    waker_destroy(waker);
}

static void leader_main(struct env *env, void *arg) {
    struct cluster *c = arg;
    const struct cluster_config *config = &c->config;
    struct err_text e = {0};
    struct waker *waker = NULL;
    struct fabric *fabric = NULL;
    struct channel *channel = NULL;
    struct leader *leader = NULL;
    must(waker_create(env, &waker), &e);
    struct fabric_config fabric_config = {.env = env,
                                          .waker = waker,
                                          .message_bytes_max = MESSAGE_BYTES_MAX,
                                          .hub = sim_fabric_hub(c->sim)};
    must(fabric_open(&fabric, FABRIC_MEM, &fabric_config, &e), &e);
    struct channel_config channel_config = {
        .env = env, .waker = waker, .address = ADDRESS, .hub = sim_channel_hub(c->sim)};
    must(channel_listen_mem(&channel, &channel_config, &e), &e);
    struct leader_config leader_config = {
        .env = env,
        .waker = waker,
        .channel = channel,
        .fabric = fabric,
        .spec = &config->model->spec,
        .model = config->model->folder,
        .model_digest = config->leader_digest != 0 ? config->leader_digest : config->model->digest,
        .build_id = BUILD_ID,
        .dtype = "auto",
        .kv_dtype = config->model->kv_dtype,
        .layout = config->layout.n_ranks != 0 ? config->layout : layout_even(config->n_workers),
        .max_num_seqs = config->max_num_seqs,
        .max_num_batched_tokens = config->max_num_batched_tokens,
        .max_model_len = config->max_model_len,
        .pipeline_depth = config->pipeline_depth,
        .kv_cache_bytes = UINT64_C(1) << 30,
        .kv_blocks_max = config->kv_blocks,
        .snapshot_bytes = UINT64_C(1) << 30,
        .snapshots_max = config->snapshots,
        .snapshot_tokens = config->snapshot_tokens,
        .step_timeout_ns = 30 * NS_PER_S,
        .recovery_timeout_ns = config->recovery_timeout_ns,
        .digest = true,
        .no_prefix_caching = config->no_prefix_caching};
    must(leader_create(&leader, &leader_config, &e), &e);
    c->leader = leader;
    must(leader_run(leader), &e);
    c->leader = NULL;
    leader_destroy(leader);
    channel_close(channel);
    fabric_close(fabric);
    waker_destroy(waker);
}

static void on_token(const struct token_event *ev) {
    struct turn *turn = ev->sink_context;
    struct answer *a = &turn->answer;
    if (a->n_finals > 0) a->n_late++;
    if (ev->has_token && a->n_tokens < JOB_TOKENS_MAX) {
        a->tokens[a->n_tokens] = ev->token;
        a->logprobs[a->n_tokens] = ev->logprob;
        a->digests[a->n_tokens] = ev->digest;
        a->n_tokens++;
    }
    answer_take_scores(a, ev->scores);
    sim_note(turn->cluster->sim, ev->request_id << 32 ^ ev->token ^ ev->digest ^ a->scores);
    if (ev->finish == FINISH_NONE) return;
    a->n_finals++;
    a->finish = ev->finish;
    a->last_digest = ev->digest;
    a->error = ev->error;
    snprintf(a->message, sizeof a->message, "%s", ev->message);
    turn->cluster->n_ended += a->n_finals == 1;
    waker_wake(turn->cluster->client_waker);
}

static bool submit(struct cluster *c, uint32_t index) {
    struct turn *turn = &c->turns[index];
    const struct job *job = turn->job;
    struct request *r = request_create(job->n_prompt);
    check(r != NULL);
    r->id = index + 1;
    memcpy(r->prompt, job->prompt, job->n_prompt * sizeof *r->prompt);
    r->sampling = job->sampling;
    if (!steering_is_idle(&job->steering)) r->steering = steering_copy(&job->steering);
    r->max_tokens = job->max_tokens;
    r->score_prompt = job->score_prompt;
    r->n_score_top = job->n_score_top;
    r->n_stop_ids = job->n_stop_ids;
    memcpy(r->stop_ids, job->stop_ids, sizeof r->stop_ids);
    r->emit = on_token;
    r->sink_context = turn;
    int rc = leader_submit(c->leader, r);
    check(rc == 0 || rc == ERR_REQ_UNAVAILABLE || rc == ERR_REQ_QUEUE_FULL);
    c->n_submits_refused += rc != 0;
    return rc == 0;
}

// Does what is due for one turn and returns when it wants to be looked at again.
static int64_t play(struct cluster *c, uint32_t index, int64_t now_ns) {
    struct turn *turn = &c->turns[index];
    if (turn->answer.n_finals > 0) return NO_DEADLINE;
    if (!turn->accepted) {
        if (now_ns < turn->due_ns) return turn->due_ns;
        turn->accepted = submit(c, index);
        turn->due_ns = now_ns + RETRY_NS;
        turn->abort_due_ns =
            turn->accepted && turn->abort_ns != 0 ? now_ns + turn->abort_ns : NO_DEADLINE;
        return turn->accepted ? turn->abort_due_ns : turn->due_ns;
    }
    if (turn->abort_sent || now_ns < turn->abort_due_ns)
        return turn->abort_sent ? NO_DEADLINE : turn->abort_due_ns;
    leader_abort(c->leader, index + 1);
    turn->abort_sent = true;
    return NO_DEADLINE;
}

static void client_main(struct env *env, void *arg) {
    struct cluster *c = arg;
    check(waker_create(env, &c->client_waker) == 0);
    while (c->leader == NULL && !env_stopped(env))
        waker_wait(c->client_waker, env_now_ns(env) + POLL_NS);
    int64_t start_ns = env_now_ns(env);
    for (uint32_t i = 0; i < c->n_turns; i++)
        c->turns[i].due_ns = start_ns + c->turns[i].arrival_ns;
    while (c->n_ended < c->n_turns && !env_stopped(env)) {
        int64_t now_ns = env_now_ns(env), deadline_ns = NO_DEADLINE;
        for (uint32_t i = 0; i < c->n_turns; i++) {
            int64_t due_ns = play(c, i, now_ns);
            if (due_ns < deadline_ns) deadline_ns = due_ns;
        }
        if (c->n_ended < c->n_turns) waker_wait(c->client_waker, deadline_ns);
    }
    if (!env_stopped(env)) {
        c->check_result = leader_check(c->leader);
        check(leader_view(c->leader, &c->view) == 0);
        leader_view_finish(&c->view);
        leader_stop(c->leader);
    }
    waker_destroy(c->client_waker);
}

// --- the script's side

struct cluster_config cluster_config_default(struct model_cache *model, uint64_t seed) {
    struct cluster_config config = {.world = sim_config_default(seed),
                                    .model = model,
                                    .n_workers = 2,
                                    .max_num_seqs = 8,
                                    .max_num_batched_tokens = 64,
                                    .max_model_len = model->spec.max_position,
                                    .pipeline_depth = 1,
                                    .snapshots = 12,
                                    .snapshot_tokens = 32,
                                    .recovery_timeout_ns = 60 * NS_PER_S};
    uint32_t blocks_a_seq = (config.max_model_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    config.kv_blocks = blocks_a_seq * 2;
    return config;
}

void cluster_start_worker(struct cluster *c, uint32_t index) {
    char name[16];
    snprintf(name, sizeof name, "worker%u", index);
    c->worker_args[index] = (struct cluster_worker){.cluster = c, .index = index};
    c->workers[index] = sim_spawn(c->sim, name, worker_main, &c->worker_args[index]);
}

void cluster_kill_worker(struct cluster *c, uint32_t index) {
    sim_kill(c->sim, c->workers[index]);
}

void cluster_drain_worker(struct cluster *c, uint32_t index) {
    check(c->worker_args[index].worker != NULL);
    worker_drain(c->worker_args[index].worker);
}

void cluster_start_leader(struct cluster *c) {
    for (uint32_t i = 0; i < c->n_turns; i++) {
        if (c->turns[i].answer.n_finals > 0) continue;
        c->turns[i].accepted = c->turns[i].abort_sent = false;
        c->turns[i].answer = (struct answer){0};
    }
    c->leader_process = sim_spawn(c->sim, "leader", leader_main, c);
    sim_spawn_thread(c->leader_process, "client", client_main, c); // as the API's threads are
}

// Its threads return in their own time; nothing of this cluster may point into them before the next
// one starts.
void cluster_kill_leader(struct cluster *c) {
    sim_kill(c->sim, c->leader_process);
    while (!sim_done(c->leader_process))
        (void)sim_run(c->sim, sim_now_ns(c->sim) + POLL_NS);
}

void cluster_create(struct cluster *c, const struct cluster_config *config, struct turn *turns,
                    uint32_t n_turns) {
    memset(c, 0, sizeof *c);
    c->config = *config;
    c->turns = turns;
    c->n_turns = n_turns;
    c->check_result = ERR_AGAIN;
    c->sim = sim_create(&config->world);
    check(c->sim != NULL);
    for (uint32_t i = 0; i < n_turns; i++)
        turns[i].cluster = c;
    cluster_start_leader(c);
    if (config->layout.n_ranks != 0) c->config.n_workers = config->layout.n_ranks;
    for (uint32_t i = 0; i < c->config.n_workers; i++)
        cluster_start_worker(c, i);
}

void cluster_destroy(struct cluster *c) {
    sim_destroy(c->sim);
    c->sim = NULL;
}

static bool has_finished(void *arg) {
    const struct cluster *c = arg;
    return sim_done(c->leader_process);
}

enum sim_end cluster_run(struct cluster *c, int64_t until_ns) {
    enum sim_end end = sim_run_until(c->sim, until_ns, has_finished, c);
    c->finished = has_finished(c);
    return end;
}

void turns_make(struct turn *turns, const struct job_pool *pool) {
    for (uint32_t i = 0; i < pool->n_jobs; i++)
        turns[i] = (struct turn){.job = &pool->jobs[i]};
}

void reference_run(struct model_cache *model, const struct job_pool *pool, struct answer *answers) {
    struct cluster c;
    struct cluster_config config = cluster_config_default(model, 1);
    config.n_workers = 1;
    config.max_num_seqs = 1;
    config.max_num_batched_tokens = 512;
    config.no_prefix_caching = true;
    struct turn *turns = mem_array(pool->n_jobs, sizeof *turns);
    check(turns != NULL);
    turns_make(turns, pool);
    cluster_create(&c, &config, turns, pool->n_jobs);
    check(cluster_run(&c, NO_DEADLINE) == SIM_UNTIL && c.check_result == 0);
    cluster_destroy(&c);
    for (uint32_t i = 0; i < pool->n_jobs; i++) {
        check(turns[i].answer.n_finals == 1 && turns[i].answer.n_late == 0);
        check(turns[i].answer.finish == FINISH_STOP || turns[i].answer.finish == FINISH_LENGTH);
        answers[i] = turns[i].answer;
    }
    mem_free(turns);
}
