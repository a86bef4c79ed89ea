// rpc_info.c: see rpc_info.h.
#include "leader/rpc_info.h"

#include "common/base/mem.h"
#include "generate.pb-c.h"
#include "leader/members.h"
#include "leader/rpc_call.h"

// Their requests are empty messages.
static int check_empty(const ProtobufCMessageDescriptor *kind, const struct rpc_message *message,
                       struct api_error *e) {
    struct rpc_unpacked u;
    int rc = rpc_unpack(&u, kind, message, e);
    rpc_unpacked_finish(&u);
    return rc;
}

static int look(const struct serving *s, struct leader_view *view, struct api_error *e) {
    int rc = s->engine->view(s->engine->self, view);
    return rc == 0 ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

static char *text_of(const char *text) {
    return (char *)(uintptr_t)(text == NULL ? "" : text);
}

// --- the model

static uint32_t count_moe_layers(const struct model_spec *spec) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        n += spec->ffn[i] == FFN_MOE;
    return n;
}

int rpc_model_info(struct rpc *r, const struct rpc_message *message, struct buf *out,
                   struct api_error *e) {
    const struct serving *s = r->config.serving;
    const struct model_spec *spec = s->spec;
    Moesaic__V1__GetModelInfoResponse m = MOESAIC__V1__GET_MODEL_INFO_RESPONSE__INIT;
    int rc = check_empty(&moesaic__v1__get_model_info_request__descriptor, message, e);
    if (rc != 0) return rc;
    m.name = text_of(s->model_name);
    m.architecture = text_of(spec->architecture);
    m.vocab_size = spec->vocab;
    m.max_model_len = s->max_model_len;
    m.bos_token_ids = (uint32_t *)(uintptr_t)&spec->bos_id;
    m.n_bos_token_ids = spec->bos_id == UINT32_MAX ? 0 : 1;
    m.eos_token_ids = (uint32_t *)(uintptr_t)spec->stop_ids;
    m.n_eos_token_ids = spec->n_stop_ids;
    m.dtype = text_of(s->dtype);
    m.kv_dtype = text_of(s->kv_dtype);
    m.layers = spec->n_layers;
    m.moe_layers = count_moe_layers(spec);
    m.experts = spec->router.n_experts;
    m.experts_per_token = spec->router.top_k;
    m.model_digest = s->model_digest;
    m.has_chat_template = s->chat_template != NULL;
    m.arithmetic_class = text_of(ARITHMETIC_CLASS);
    rpc_pack(out, &m.base);
    return 0;
}

// --- the server

static bool is_present(const struct member_view *k) {
    return k->state != MEMBER_FREE && k->state != MEMBER_LOST;
}

static void fill_group(Moesaic__V1__GetServerInfoResponse *m, struct serving *s,
                       const struct leader_view *view) {
    m->ready = s->engine->ready(s->engine->self) && !s->draining;
    m->state = text_of(s->draining ? "the server is shutting down" : view->state);
    m->ranks_wanted = view->layout.n_ranks;
    for (uint32_t i = 0; i < view->layout.n_ranks; i++)
        m->ranks_present += is_present(&view->members[i]);
    m->epoch = view->epoch;
}

static void fill_limits(Moesaic__V1__GetServerInfoResponse *m, const struct serving *s) {
    m->max_queued_requests = s->admit.max;
    m->max_running_per_rank = s->max_num_seqs;
    m->max_batched_tokens = s->max_num_batched_tokens;
    m->kv_block_tokens = KV_BLOCK_TOKENS;
    m->pipeline_depth = s->pipeline_depth;
    m->digest = s->digest;
    m->max_logprobs = TOP_LOGPROBS_MAX;
    m->max_choices = CHOICES_MAX;
}

int rpc_server_info(struct rpc *r, const struct rpc_message *message, struct buf *out,
                    struct api_error *e) {
    struct serving *s = r->config.serving;
    struct leader_view view;
    Moesaic__V1__GetServerInfoResponse m = MOESAIC__V1__GET_SERVER_INFO_RESPONSE__INIT;
    int rc = check_empty(&moesaic__v1__get_server_info_request__descriptor, message, e);
    if (rc == 0) rc = look(s, &view, e);
    if (rc != 0) return rc;
    m.version = text_of(s->version);
    m.build_id = text_of(s->build_id);
    m.started_unix_s = (uint64_t)s->started_s;
    m.uptime_s = (double)(env_now_ns(s->env) - s->started_ns) / (double)NS_PER_S;
    fill_group(&m, s, &view);
    fill_limits(&m, s);
    rpc_pack(out, &m.base);
    leader_view_finish(&view);
    return 0;
}

// --- the load

static float share(uint32_t used, uint32_t all) {
    return all == 0 ? 0 : (float)used / (float)all;
}

static void fill_rank(Moesaic__V1__RankLoad *m, uint32_t rank, const struct member_view *k) {
    *m = (Moesaic__V1__RankLoad)MOESAIC__V1__RANK_LOAD__INIT;
    m->rank = rank;
    m->ready = k->state == MEMBER_READY;
    m->running = k->n_running;
    m->kv_blocks = k->kv_blocks;
    m->kv_blocks_used = k->kv_blocks_used;
    m->kv_usage = share(k->kv_blocks_used, k->kv_blocks);
}

static void fill_load(Moesaic__V1__GetLoadResponse *m, struct serving *s,
                      const struct leader_view *view) {
    struct meter_recent recent;
    meter_recent(&s->meter, &recent);
    m->prompt_tokens_per_s = recent.prompt_tokens_per_s;
    m->generation_tokens_per_s = recent.generation_tokens_per_s;
    m->time_ns = (uint64_t)env_now_ns(s->env);
    m->running = view->n_running;
    m->waiting = view->n_waiting;
    m->admitted = s->admit.in_flight;
    m->max_queued_requests = s->admit.max;
    m->kv_blocks = view->kv_blocks;
    m->kv_blocks_used = view->kv_blocks_used;
    m->kv_usage = share(view->kv_blocks_used, view->kv_blocks);
    m->prompt_tokens = view->prompt_tokens;
    m->generation_tokens = view->generation_tokens;
    m->steps = view->steps;
}

static int pack_load(struct serving *s, const struct leader_view *view, struct buf *out,
                     struct api_error *e) {
    Moesaic__V1__GetLoadResponse m = MOESAIC__V1__GET_LOAD_RESPONSE__INIT;
    Moesaic__V1__RankLoad *ranks = mem_array(view->layout.n_ranks, sizeof *ranks);
    Moesaic__V1__RankLoad **list = mem_array(view->layout.n_ranks, sizeof *list);
    bool ok = ranks != NULL && list != NULL;
    for (uint32_t i = 0; i < view->layout.n_ranks && ok; i++) {
        fill_rank(&ranks[i], i, &view->members[i]);
        list[i] = &ranks[i];
    }
    m.ranks = list;
    m.n_ranks = view->layout.n_ranks;
    fill_load(&m, s, view);
    if (ok) rpc_pack(out, &m.base);
    mem_free(list);
    mem_free(ranks);
    return ok ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

int rpc_load(struct rpc *r, const struct rpc_message *message, struct buf *out,
             struct api_error *e) {
    struct leader_view view;
    int rc = check_empty(&moesaic__v1__get_load_request__descriptor, message, e);
    if (rc == 0) rc = look(r->config.serving, &view, e);
    if (rc != 0) return rc;
    rc = pack_load(r->config.serving, &view, out, e);
    leader_view_finish(&view);
    return rc;
}
