// status.c: see status.h. vLLM's names where the meaning is the same, so that its dashboards,
// alerts and routers fit; moesaic_ for what no other server shows.
#include "leader/status.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/layout.h"
#include "common/base/mem.h"
#include "leader/readiness.h"

struct page {
    struct buf *out;
    struct buf model;  // labels of every vLLM family: model_name, engine
    struct buf labels; // scratch
};

// --- names

const char *status_worker_state(enum member_state state) {
    static const char *const names[] = {"free",    "joined", "loading", "loaded",
                                        "forming", "ready",  "lost"};
    return names[state];
}

const char *status_finish_name(enum finish finish) {
    static const char *const names[] = {"none", "stop", "length", "abort", "error"};
    return names[finish];
}

const char *status_rejection_name(enum rejection rejection) {
    static const char *const names[] = {"queue_full", "unavailable", "invalid"};
    return names[rejection];
}

// --- writers

static const struct buf *with(struct page *p, const char *key, const char *value) {
    buf_reset(&p->labels);
    buf_add(&p->labels, p->model.data, p->model.bytes);
    metrics_label(&p->labels, key, value);
    return &p->labels;
}

static const struct buf *number_label(struct page *p, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    metrics_label(&p->labels, key, text);
    return &p->labels;
}

static void gauge(struct page *p, const char *name, double value, const char *help) {
    metrics_family(p->out, name, "gauge", help);
    metrics_value(p->out, name, &p->model, value);
}

static void counter(struct page *p, const char *name, uint64_t value, const char *help) {
    metrics_family(p->out, name, "counter", help);
    metrics_count(p->out, name, &p->model, value);
}

static void histogram(struct page *p, const char *name, const struct histogram *h,
                      const char *help) {
    metrics_family(p->out, name, "histogram", help);
    metrics_histogram(p->out, name, &p->model, h);
}

// --- requests and tokens

static double kv_usage(const struct leader_view *v) {
    return v->kv_blocks == 0 ? 0 : (double)v->kv_blocks_used / v->kv_blocks;
}

static void queue_families(struct page *p, const struct serving *s, const struct leader_view *v) {
    gauge(p, "vllm:num_requests_running", v->n_running, "Requests that hold a slot of a worker.");
    gauge(p, "vllm:num_requests_waiting", v->n_waiting, "Requests that wait for a slot.");
    metrics_family(p->out, "vllm:num_requests_waiting_by_reason", "gauge",
                   "Waiting requests by reason; all wait for capacity.");
    metrics_count(p->out, "vllm:num_requests_waiting_by_reason", with(p, "reason", "capacity"),
                  v->n_waiting);
    metrics_count(p->out, "vllm:num_requests_waiting_by_reason", with(p, "reason", "deferred"), 0);
    gauge(p, "vllm:kv_cache_usage_perc", kv_usage(v), "Share of KV blocks in use, 0 to 1.");
    metrics_family(p->out, "vllm:cache_config_info", "gauge", "Size of the KV cache.");
    buf_reset(&p->labels);
    metrics_label(&p->labels, "engine", "0");
    number_label(p, "block_size", KV_BLOCK_TOKENS);
    number_label(p, "num_gpu_blocks", v->kv_blocks);
    metrics_label(&p->labels, "cache_dtype", s->kv_dtype);
    metrics_count(p->out, "vllm:cache_config_info", &p->labels, 1);
    gauge(p, "moesaic_state_snapshots", v->snapshots,
          "Places for copies of sequences' states, of models that keep one.");
    gauge(p, "moesaic_state_snapshots_used", v->snapshots_used,
          "Of these, how many requests can begin from.");
    counter(p, "vllm:prefix_cache_queries_total", v->prefix_queries,
            "Prompt tokens looked for in the prefix cache.");
    counter(p, "vllm:prefix_cache_hits_total", v->prefix_hits,
            "Prompt tokens found there, which were not computed.");
    counter(p, "vllm:num_preemptions_total", v->preemptions, "Requests that gave up their slot.");
    counter(p, "vllm:prompt_tokens_total", v->prompt_tokens, "Prompt tokens computed.");
    counter(p, "vllm:generation_tokens_total", v->generation_tokens, "Tokens sampled.");
}

static void request_families(struct page *p, const struct meter *m) {
    metrics_family(p->out, "vllm:request_success_total", "counter",
                   "Ended requests by the reason of their end.");
    for (int f = FINISH_STOP; f <= FINISH_ERROR; f++)
        metrics_count(p->out, "vllm:request_success_total",
                      with(p, "finished_reason", status_finish_name((enum finish)f)),
                      counter_get(&m->finished[f]));
    metrics_family(p->out, "vllm:admission_rejections_total", "counter",
                   "Calls that were refused before they were queued.");
    for (int i = 0; i < REJECT_COUNT; i++)
        metrics_count(p->out, "vllm:admission_rejections_total",
                      with(p, "reason", status_rejection_name((enum rejection)i)),
                      counter_get(&m->rejected[i]));
}

static void request_histograms(struct page *p, const struct meter *m) {
    const struct {
        const char *name;
        const struct histogram *h;
        const char *help;
    } rows[] = {
        {"vllm:time_to_first_token_seconds", &m->first_token_s, "From arrival to first token."},
        {"vllm:inter_token_latency_seconds", &m->between_tokens_s, "Between two tokens."},
        {"vllm:request_time_per_output_token_seconds", &m->per_token_s,
         "Mean time between tokens of a request."},
        {"vllm:e2e_request_latency_seconds", &m->whole_s, "From arrival to the end."},
        {"vllm:request_queue_time_seconds", &m->queue_s, "From arrival to a slot."},
        {"vllm:request_inference_time_seconds", &m->inference_s, "From a slot to the end."},
        {"vllm:request_prefill_time_seconds", &m->prefill_s, "From a slot to the first token."},
        {"vllm:request_decode_time_seconds", &m->decode_s, "From the first token to the last."},
        {"vllm:request_prompt_tokens", &m->prompt_tokens, "Prompt tokens of a request."},
        {"vllm:request_generation_tokens", &m->generation_tokens, "Sampled tokens of a request."},
        {"vllm:request_params_max_tokens", &m->max_tokens, "Token limit of a request."},
        {"vllm:request_params_n", &m->n_choices, "Choices asked for by a call."},
        {"vllm:iteration_tokens_total", &m->iteration_tokens, "Tokens of one step."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        histogram(p, rows[i].name, rows[i].h, rows[i].help);
}

// --- the cluster

// What workers that share requests have together: sums over groups are the whole.
static void group_families(struct page *p, const struct leader_view *v) {
    const char *const names[] = {"moesaic_dp_group_requests_running",
                                 "moesaic_dp_group_kv_blocks_used"};
    const char *const helps[] = {"Requests in slots of a data parallel group.",
                                 "KV blocks in use of a data parallel group."};
    for (int family = 0; family < 2; family++) {
        metrics_family(p->out, names[family], "gauge", helps[family]);
        for (uint32_t dp = 0; dp < v->layout.dp; dp++) {
            const struct member_view *k = &v->members[layout_rank(&v->layout, 0, dp, 0)];
            buf_reset(&p->labels);
            number_label(p, "group", dp);
            metrics_count(p->out, names[family], &p->labels,
                          family == 0 ? k->n_running : k->kv_blocks_used);
        }
    }
}

static void member_families(struct page *p, const struct leader_view *v) {
    metrics_family(p->out, "moesaic_worker_state", "gauge", "1 for the state a worker is in.");
    for (uint32_t i = 0; i < v->layout.n_ranks; i++) {
        for (uint32_t k = 0; k <= MEMBER_LOST; k++) {
            buf_reset(&p->labels);
            number_label(p, "worker", i);
            metrics_label(&p->labels, "state", status_worker_state((enum member_state)k));
            metrics_count(p->out, "moesaic_worker_state", &p->labels,
                          (uint32_t)v->members[i].state == k);
        }
    }
    const char *const kv_name = "moesaic_worker_kv_blocks_used";
    metrics_family(p->out, kv_name, "gauge", "KV blocks in use on a worker.");
    for (uint32_t i = 0; i < v->layout.n_ranks; i++) {
        buf_reset(&p->labels);
        metrics_count(p->out, kv_name, number_label(p, "worker", i), v->members[i].kv_blocks_used);
    }
    const char *const run_name = "moesaic_worker_requests_running";
    metrics_family(p->out, run_name, "gauge",
                   "Requests in slots of a worker, which are those of its data parallel group.");
    for (uint32_t i = 0; i < v->layout.n_ranks; i++) {
        buf_reset(&p->labels);
        metrics_count(p->out, run_name, number_label(p, "worker", i), v->members[i].n_running);
    }
}

// The first of those that hold it.
static uint32_t expert_worker(const struct serving *s, const struct leader_view *v, uint32_t layer,
                              uint32_t expert) {
    const struct layout *l = &v->layout;
    uint32_t stage = layout_layer_stage(l, s->spec->n_layers, layer);
    uint32_t ep = layout_expert_owner(l, s->spec->router.n_experts, expert);
    return layout_expert_rank(l, stage, ep, 0);
}

static void expert_family(struct page *p, const struct serving *s, const struct leader_view *v) {
    const char *const name = "moesaic_expert_tokens_total";
    uint32_t n_experts = s->spec->router.n_experts;
    if (n_experts == 0 || v->expert_tokens == NULL) return;
    metrics_family(p->out, name, "counter",
                   "Tokens that each expert computed, on the worker that holds it.");
    for (uint32_t l = 0; l < s->spec->n_layers; l++) {
        if (s->spec->ffn[l] != FFN_MOE) continue;
        for (uint32_t x = 0; x < n_experts; x++) {
            buf_reset(&p->labels);
            number_label(p, "layer", l);
            number_label(p, "expert", x);
            number_label(p, "worker", expert_worker(s, v, l, x));
            metrics_count(p->out, name, &p->labels, v->expert_tokens[(size_t)l * n_experts + x]);
        }
    }
}

// In the order of enum step_phase, which is the worker's and travels as numbers.
static const char *const phase_names[] = {"embed",  "attn",    "route", "dispatch",
                                          "expert", "combine", "dense", "head",
                                          "sample", "tensor",  "stage"};

static void step_families(struct page *p, const struct leader_view *v) {
    const char *const name = "moesaic_step_phase_seconds_total";
    metrics_family(p->out, name, "counter", "Time of steps by phase, summed over workers.");
    for (size_t i = 0; i < sizeof phase_names / sizeof *phase_names; i++) {
        buf_reset(&p->labels);
        metrics_label(&p->labels, "phase", phase_names[i]);
        metrics_value(p->out, name, &p->labels, (double)v->phase_ns[i] / (double)NS_PER_S);
    }
    const struct buf model = p->model;
    p->model = (struct buf){0}; // what follows has no labels
    metrics_family(p->out, "moesaic_step_seconds_total", "counter",
                   "Wall time of steps as the leader sees them.");
    metrics_value(p->out, "moesaic_step_seconds_total", NULL,
                  (double)v->step_ns / (double)NS_PER_S);
    counter(p, "moesaic_steps_total", v->steps, "Steps planned.");
    counter(p, "moesaic_requests_lost_total", v->requests_lost, "Requests lost with a group.");
    counter(p, "moesaic_replays_total", v->replays,
            "Requests that went on after their group was lost, counted for each group.");
    counter(p, "moesaic_replay_mismatches_total", v->replay_mismatches,
            "Requests whose last token came out otherwise when they were computed again.");
    counter(p, "moesaic_workers_joined_total", v->counts.joined, "Workers that came in.");
    counter(p, "moesaic_workers_refused_total", v->counts.refused, "Joins that were refused.");
    counter(p, "moesaic_workers_lost_total", v->counts.lost, "Workers that were lost.");
    counter(p, "moesaic_workers_left_total", v->counts.left, "Workers that left as told.");
    counter(p, "moesaic_groups_formed_total", v->counts.formed, "Times that a group got ready.");
    gauge(p, "moesaic_epoch", (double)v->epoch, "Grows with every change of the membership.");
    gauge(p, "moesaic_ready", v->ready, "1 while a group serves.");
    uint32_t n_ready = 0;
    for (uint32_t i = 0; i < v->layout.n_ranks; i++)
        n_ready += v->members[i].state == MEMBER_READY;
    gauge(p, "moesaic_workers_ready", n_ready, "Workers in the serving group.");
    gauge(p, "moesaic_workers_wanted", v->layout.n_ranks, "Workers that make a group.");
    p->model = model;
}

// --- the process

static uint32_t count_descriptors(void) {
    uint32_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return 0;
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n < 3 ? 0 : n - 3; // ".", ".." and the folder itself
}

static double resident_bytes(void) {
    unsigned long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) return 0;
    if (fscanf(f, "%llu %llu", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void process_families(struct page *p, const struct serving *s, struct http *http) {
    struct http_counters h = {0};
    const struct buf model = p->model;
    p->model = (struct buf){0};
    gauge(p, "process_open_fds", count_descriptors(), "Open file descriptors.");
    gauge(p, "process_resident_memory_bytes", resident_bytes(), "Resident memory.");
    gauge(p, "process_start_time_seconds", (double)s->started_s, "Start, in Unix time.");
    gauge(p, "moesaic_requests_admitted", s->admit.in_flight,
          "Choices that hold a place in the queue limit.");
    if (http != NULL) {
        http_count(http, &h);
        counter(p, "moesaic_http_requests_total", h.requests, "HTTP requests.");
        counter(p, "moesaic_http_disconnects_total", h.disconnects,
                "Clients that left before their answer was complete.");
        gauge(p, "moesaic_http_requests_in_flight", h.n_calls, "HTTP requests in flight.");
        counter(p, "moesaic_http_timeouts_total", h.late,
                "Connections ended because a request or its reader took too long.");
        counter(p, "moesaic_http_evictions_total", h.evicted,
                "Idle connections ended to make room for new ones.");
        metrics_family(p->out, "moesaic_http_responses_total", "counter",
                       "HTTP answers by class of status.");
        for (uint32_t i = 2; i < 6; i++) {
            char status[4];
            snprintf(status, sizeof status, "%uxx", i);
            buf_reset(&p->labels);
            metrics_label(&p->labels, "status", status);
            metrics_count(p->out, "moesaic_http_responses_total", &p->labels, h.by_status[i]);
        }
    }
    p->model = model;
}

void status_metrics(struct buf *out, struct serving *s, struct http *http) {
    struct page p = {.out = out};
    struct leader_view view;
    metrics_label(&p.model, "model_name", s->model_name);
    metrics_label(&p.model, "engine", "0");
    if (s->engine->view(s->engine->self, &view) == 0) {
        queue_families(&p, s, &view);
        member_families(&p, &view);
        group_families(&p, &view);
        expert_family(&p, s, &view);
        step_families(&p, &view);
        leader_view_finish(&view);
    } else {
        out->failed = true;
    }
    request_families(&p, &s->meter);
    request_histograms(&p, &s->meter);
    process_families(&p, s, http);
    out->failed |= p.model.failed | p.labels.failed;
    buf_finish(&p.model);
    buf_finish(&p.labels);
}

// --- small pages

// OpenAI's old list of who may do what with a model, which some clients still read. One key may do
// all that there is.
static void model_permission(struct buf *out, const struct serving *s) {
    buf_text(out, "{\"id\":\"modelperm-");
    buf_json_raw(out, s->model_name, strlen(s->model_name));
    buf_format(out, "\",\"object\":\"model_permission\",\"created\":%lld", (long long)s->started_s);
    buf_text(out, ",\"allow_create_engine\":false,\"allow_sampling\":true,"
                  "\"allow_logprobs\":true,\"allow_search_indices\":false,"
                  "\"allow_view\":true,\"allow_fine_tuning\":false,\"organization\":\"*\","
                  "\"group\":null,\"is_blocking\":false}");
}

static void model_object(struct buf *out, const struct serving *s) {
    size_t n = strlen(s->model_name);
    buf_text(out, "{\"id\":");
    buf_json(out, s->model_name, n);
    buf_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"moesaic\",\"root\":",
               (long long)s->started_s);
    buf_json(out, s->model_name, n);
    buf_format(out,
               ",\"parent\":null,\"max_model_len\":%u,\"meta\":{\"n_vocab\":%u},\"permission\":[",
               s->max_model_len, s->defaults.vocab);
    model_permission(out, s);
    buf_text(out, "]}");
}

void status_model(struct buf *out, const struct serving *s, bool list) {
    if (list) buf_text(out, "{\"object\":\"list\",\"data\":[");
    model_object(out, s);
    if (list) buf_text(out, "]}");
}

bool status_ready(struct buf *out, struct serving *s) {
    struct leader_view view;
    enum readiness found = readiness(s);
    bool ready = found == READY;
    const char *state = readiness_sentence(found);
    bool seen = found == NOT_READY_GROUP && s->engine->view(s->engine->self, &view) == 0;
    if (seen) state = view.state;
    buf_text(out, ready ? "{\"ready\":true,\"state\":" : "{\"ready\":false,\"state\":");
    buf_json(out, state, strlen(state));
    buf_text(out, "}");
    if (seen) leader_view_finish(&view);
    return ready;
}

void status_version(struct buf *out, const struct serving *s) {
    buf_text(out, "{\"version\":");
    buf_json(out, s->version, strlen(s->version));
    buf_text(out, ",\"build\":");
    buf_json(out, s->build_id, strlen(s->build_id));
    buf_text(out, "}");
}
