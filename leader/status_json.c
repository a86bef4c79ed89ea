// status_json.c: GET /status: what moectl status shows, as one JSON object. docs/operations.md
// documents the names; they stay.
#include <string.h>

#include "leader/readiness.h"
#include "leader/status.h"

static void member_text(struct buf *out, const char *key, const char *text) {
    buf_format(out, "\"%s\":", key);
    buf_json(out, text, strlen(text));
    buf_text(out, ",");
}

static void member_count(struct buf *out, const char *key, uint64_t n) {
    buf_format(out, "\"%s\":%llu,", key, (unsigned long long)n);
}

// Below 0: not known.
static void member_real(struct buf *out, const char *key, double value) {
    if (value < 0)
        buf_format(out, "\"%s\":null,", key);
    else
        buf_format(out, value < 1000 ? "\"%s\":%.6g," : "\"%s\":%.3f,", key, value);
}

static void open(struct buf *out, const char *key) {
    buf_format(out, "\"%s\":{", key);
}

// Replaces the last member's comma.
static void close_as(struct buf *out, const char *end) {
    if (out->bytes > 0 && !out->failed) out->bytes--;
    buf_text(out, end);
}

// --- parts

// A group that is formed and takes nothing new has a worker that was asked to leave.
static const char *group_name(enum readiness r, const struct leader_view *v) {
    static const char *const names[] = {"waiting", "loading", "forming", "leaving"};
    switch (r) {
    case READY: return "ready";
    case NOT_READY_DRAINING: return "draining";
    case NOT_READY_GROUP: return names[v->group];
    default: return "stuck";
    }
}

static void group(struct buf *out, const struct serving *s, const struct leader_view *v) {
    uint64_t done = 0, total = 0;
    uint32_t n_ready = 0;
    for (uint32_t i = 0; i < v->layout.n_ranks; i++) {
        const struct member_view *k = &v->members[i];
        bool present = k->state != MEMBER_FREE && k->state != MEMBER_LOST;
        n_ready += k->state == MEMBER_READY;
        done += present ? k->bytes_done : 0;
        total += present ? k->bytes_total : 0;
    }
    enum readiness r = readiness(s);
    member_text(out, "state", group_name(r, v));
    member_text(out, "reason", r == NOT_READY_GROUP ? v->state : readiness_sentence(r));
    buf_format(out, "\"ready\":%s,", r == READY ? "true" : "false");
    member_count(out, "epoch", v->epoch);
    member_count(out, "workers_wanted", v->layout.n_ranks);
    member_count(out, "workers_ready", n_ready);
    member_real(out, "load_share", total == 0 ? -1 : (double)done / (double)total);
}

static void identity(struct buf *out, const struct serving *s) {
    member_text(out, "object", "moesaic.status");
    member_text(out, "model", s->model_name);
    member_text(out, "version", s->version);
    member_text(out, "build", s->build_id);
    member_count(out, "started", (uint64_t)s->started_s);
    member_real(out, "uptime_s", (double)(env_now_ns(s->env) - s->started_ns) / (double)NS_PER_S);
}

static void requests(struct buf *out, const struct serving *s, const struct leader_view *v) {
    const struct meter *m = &s->meter;
    open(out, "requests");
    member_count(out, "running", v->n_running);
    member_count(out, "waiting", v->n_waiting);
    member_count(out, "admitted", s->admit.in_flight);
    member_count(out, "admitted_max", s->admit.max);
    member_count(out, "resuming", v->n_resuming);
    member_count(out, "preempted", v->preemptions);
    member_count(out, "replayed", v->replays);
    member_count(out, "lost", v->requests_lost);
    open(out, "finished");
    for (int f = FINISH_STOP; f <= FINISH_ERROR; f++)
        member_count(out, status_finish_name((enum finish)f), counter_get(&m->finished[f]));
    close_as(out, "},");
    open(out, "rejected");
    for (int i = 0; i < REJECT_COUNT; i++)
        member_count(out, status_rejection_name((enum rejection)i), counter_get(&m->rejected[i]));
    close_as(out, "}},");
}

static void numbers(struct buf *out, const struct serving *s, const struct leader_view *v) {
    open(out, "kv");
    member_count(out, "block_tokens", KV_BLOCK_TOKENS);
    member_count(out, "blocks", v->kv_blocks);
    member_count(out, "blocks_used", v->kv_blocks_used);
    member_count(out, "snapshots", v->snapshots);
    member_count(out, "snapshots_used", v->snapshots_used);
    member_text(out, "dtype", s->kv_dtype);
    close_as(out, "},");
    open(out, "totals");
    member_count(out, "prompt_tokens", v->prompt_tokens);
    member_count(out, "generation_tokens", v->generation_tokens);
    member_count(out, "steps", v->steps);
    close_as(out, "},");
    open(out, "limits");
    member_count(out, "max_model_len", s->max_model_len);
    member_count(out, "max_num_seqs", s->max_num_seqs);
    close_as(out, "},");
}

static void quantiles(struct buf *out, const char *key, double p50, double p95) {
    open(out, key);
    member_real(out, "p50", p50);
    member_real(out, "p95", p95);
    close_as(out, "},");
}

static void recent(struct buf *out, struct serving *s) {
    struct meter_recent r;
    meter_recent(&s->meter, &r);
    open(out, "recent");
    member_real(out, "seconds", r.span_s);
    member_real(out, "prompt_tokens_per_s", r.prompt_tokens_per_s);
    member_real(out, "generation_tokens_per_s", r.generation_tokens_per_s);
    quantiles(out, "first_token_s", r.first_token_p50_s, r.first_token_p95_s);
    quantiles(out, "between_tokens_s", r.between_tokens_p50_s, r.between_tokens_p95_s);
    close_as(out, "},");
}

static void membership(struct buf *out, const struct member_counts *c) {
    open(out, "membership");
    member_count(out, "joined", c->joined);
    member_count(out, "refused", c->refused);
    member_count(out, "lost", c->lost);
    member_count(out, "left", c->left);
    member_count(out, "formed", c->formed);
    member_count(out, "closed", c->closed);
    close_as(out, "},");
}

static void layout(struct buf *out, const struct layout *l) {
    open(out, "layout");
    member_count(out, "pp", l->pp);
    member_count(out, "dp", l->dp);
    member_count(out, "tp", l->tp);
    member_count(out, "ep", l->ep);
    member_count(out, "etp", l->etp);
    close_as(out, "},");
}

// What the rank is for, whether or not a worker has it.
static void place(struct buf *out, const struct serving *s, const struct layout *l, uint32_t rank) {
    const struct layout_place p = layout_place(l, rank);
    uint32_t n_layers = s->spec->n_layers, n_experts = s->spec->router.n_experts;
    member_count(out, "stage", p.stage);
    member_count(out, "dp_group", p.dp);
    member_count(out, "tp_index", p.tp);
    member_count(out, "ep_place", p.ep);
    member_count(out, "etp_index", p.etp);
    member_count(out, "first_layer", layout_layer_first(l, n_layers, p.stage));
    member_count(out, "layers", layout_layer_count(l, n_layers, p.stage));
    member_count(out, "first_expert", layout_expert_first(l, n_experts, rank));
    member_count(out, "experts", layout_expert_count(l, n_experts, rank));
}

static void worker(struct buf *out, const struct serving *s, const struct leader_view *v,
                   uint32_t rank, int64_t now_ns) {
    const struct member_view *k = &v->members[rank];
    double age_s = (double)(now_ns - k->heard_ns) / (double)NS_PER_S;
    buf_text(out, "{");
    member_count(out, "rank", rank);
    place(out, s, &v->layout, rank);
    member_text(out, "name", k->name);
    member_text(out, "host", k->host);
    member_text(out, "state", status_worker_state(k->state));
    member_text(out, "kernels", k->kernels);
    member_count(out, "cores", k->n_cores);
    member_count(out, "bytes_loaded", k->bytes_done);
    member_count(out, "bytes_to_load", k->bytes_total);
    member_real(out, "heartbeat_age_s", k->heard_ns == 0 ? -1 : age_s < 0 ? 0 : age_s);
    member_real(out, "engine_age_s", k->engine_age_ms / 1e3);
    member_count(out, "steps", k->steps);
    member_count(out, "requests_running", k->n_running);
    member_count(out, "generation_tokens", k->generation_tokens);
    member_real(out, "tokens_per_s", k->tokens_per_s);
    member_count(out, "kv_blocks", k->kv_blocks);
    member_count(out, "kv_blocks_used", k->kv_blocks_used);
    member_count(out, "bytes_sent", k->bytes_sent);
    member_count(out, "bytes_received", k->bytes_received);
    close_as(out, "},");
}

void status_json(struct buf *out, struct serving *s) {
    struct leader_view view;
    if (s->engine->view(s->engine->self, &view) != 0) {
        out->failed = true;
        return;
    }
    int64_t now_ns = env_now_ns(s->env);
    buf_text(out, "{");
    identity(out, s);
    group(out, s, &view);
    requests(out, s, &view);
    numbers(out, s, &view);
    recent(out, s);
    membership(out, &view.counts);
    layout(out, &view.layout);
    buf_text(out, "\"workers\":[");
    for (uint32_t i = 0; i < view.layout.n_ranks; i++)
        worker(out, s, &view, i, now_ns);
    if (view.layout.n_ranks > 0) close_as(out, "");
    buf_text(out, "]}\n");
    leader_view_finish(&view);
}
