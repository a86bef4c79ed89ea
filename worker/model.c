// model.c: one rank's forward pass. Between step (the plan that arrived) and sample (the tokens
// that leave) in the walk.
//
// One pass serves every decoder that struct model_spec can describe. It never looks into other
// requests' rows to decide anything about one: that is what makes answers independent of the batch.
#include "worker/model.h"

#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/forward.h"
#include "worker/linear.h"

struct model {
    struct forward forward;
    struct scratch scratch; // all memory of a step
    struct scratch kept;    // pages, states and snapshots
    uint32_t n_rows;        // of the last step
    uint64_t phase_ns[PHASE_COUNT];
    int64_t phase_began_ns;
};

// --- creation

static int check_config(const struct model_config *c, struct err_text *e) {
    const struct model_spec *spec = c->weights->spec;
    if (!dtype_is_kv(c->kv_dtype))
        return err_set(e, ERR_FATAL_CONFIG,
                       "kv_cache_dtype %s is not float32, bfloat16, fp8_e4m3 or int8",
                       dtype_name(c->kv_dtype));
    if (c->n_slots == 0 || c->n_slots > SEQS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "max_num_seqs %u is not within 1 to %d", c->n_slots,
                       SEQS_MAX);
    if (c->rows_max == 0 || c->rows_max > BATCHED_TOKENS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "max_num_batched_tokens %u is not within 1 to %d",
                       c->rows_max, BATCHED_TOKENS_MAX);
    if (c->max_model_len == 0 || c->max_model_len > spec->max_position)
        return err_set(e, ERR_FATAL_CONFIG, "max_model_len %u is not within 1 to the model's %u",
                       c->max_model_len, spec->max_position);
    if (c->n_snapshots > SNAPSHOTS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "snapshots %u are above %u", c->n_snapshots,
                       SNAPSHOTS_MAX);
    if (c->kv_blocks == 0)
        return err_set(e, ERR_FATAL_CONFIG, "there is no memory for a single KV block");
    return 0;
}

static bool has_moe(const struct model_spec *spec) {
    for (uint32_t layer = 0; layer < spec->n_layers; layer++) {
        if (spec->ffn[layer] == FFN_MOE) return true;
    }
    return false;
}

// The most that one rank of a TP group has of a step's rows.
static uint32_t own_rows_max(const struct layout *l, uint32_t rows_max) {
    return (rows_max + l->tp - 1) / l->tp;
}

static void place_rank(struct forward *f) {
    const struct layout *l = f->config.layout;
    f->place = layout_place(l, f->rank);
    f->slice = slice_of(f->spec, l, f->rank);
    f->stage_ranks = layout_stage_ranks(l);
    f->stage_first = f->place.stage * f->stage_ranks;
    f->self = f->rank - f->stage_first;
    f->first_layer = layout_layer_first(l, f->spec->n_layers, f->place.stage);
    f->n_layers = layout_layer_count(l, f->spec->n_layers, f->place.stage);
    f->own_max = own_rows_max(l, f->config.rows_max);
}

static bool is_last_stage(const struct forward *f) {
    return f->place.stage + 1 == f->config.layout->pp;
}

// What of the pages is this rank's.
static struct kv_sizes kv_sizes(const struct model_config *c) {
    const struct model_spec *spec = c->weights->spec;
    uint32_t stage = layout_place(c->layout, c->rank).stage;
    return (struct kv_sizes){.spec = spec,
                             .dtype = c->kv_dtype,
                             .first_layer = layout_layer_first(c->layout, spec->n_layers, stage),
                             .n_layers = layout_layer_count(c->layout, spec->n_layers, stage),
                             .n_heads = slice_of(spec, c->layout, c->rank).n_kv_heads,
                             .n_slots = c->n_slots,
                             .n_blocks = c->kv_blocks,
                             .max_model_len = c->max_model_len};
}

static void lay(struct forward *f, struct scratch *s, struct scratch *kept) {
    const struct model_config *c = &f->config;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    f->x = scratch_take(s, f->own_max, spec_stream_dim(f->spec) * sizeof(float));
    f->all_normed = scratch_take(s, c->rows_max, row_bytes);
    f->partial = scratch_take(s, c->rows_max, row_bytes);
    tp_lay(f, s);
    struct batch_sizes batch = {.n_slots = c->n_slots,
                                .rows_max = c->rows_max,
                                .max_model_len = c->max_model_len,
                                .kv_blocks = c->kv_blocks,
                                .vocab = f->spec->vocab,
                                .n_snapshots = c->n_snapshots,
                                .pipelined = c->layout->pp > 1,
                                .stateful = spec_state_bytes(f->spec) > 0};
    batch_lay(&f->batch, &batch, s);
    struct kv_sizes kv = kv_sizes(c);
    kv_lay(&f->kv, &kv, s, kept);
    state_begin(&f->state, c->n_slots, c->n_snapshots, kept);
    attn_lay(f, s);
    joint_lay(f, s);
    hyper_lay(f, s);
    delta_lay(f, s);
    state_lay(&f->state);
    expert_lay(f, s);
    if (is_last_stage(f)) head_lay(f, s);
    if (!has_moe(f->spec)) return;
    route_lay(f, s);
    dispatch_lay(f, s);
    combine_lay(f, s);
}

// Pages, states and snapshots lie where the owner of the store has them, or are the model's own.
static int place_kept(struct model *m, struct err_text *e) {
    struct store *store = m->forward.config.store;
    void *base = NULL;
    if (store == NULL || m->kept.overflow) return scratch_allocate(&m->kept, e);
    int rc = store_take(store, &base, m->kept.used, e);
    return rc == 0 ? scratch_place(&m->kept, base, e) : rc;
}

int model_create(struct model **out, const struct model_config *config, struct err_text *e) {
    int rc = check_config(config, e);
    if (rc != 0) return rc;
    struct model *m = mem_zalloc(sizeof *m);
    if (m == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a model");
    struct forward *f = &m->forward;
    f->config = *config;
    f->spec = config->weights->spec;
    f->ops = config->ops;
    f->pool = config->pool;
    f->n_threads = pool_threads(config->pool);
    f->n_ranks = config->layout->n_ranks;
    f->rank = config->rank;
    place_rank(f);
    check(f->rank < f->n_ranks && (f->n_ranks == 1 || config->fabric != NULL));
    lay(f, &m->scratch, &m->kept);
    rc = place_kept(m, e); // first: it says what there is not enough of
    if (rc == 0) rc = scratch_allocate(&m->scratch, e);
    if (rc != 0) {
        model_destroy(m);
        return rc;
    }
    lay(f, &m->scratch, &m->kept);
    *out = m;
    return 0;
}

void model_destroy(struct model *m) {
    if (m == NULL) return;
    mem_free(m->forward.head.kept);
    scratch_finish(&m->scratch);
    scratch_finish(&m->kept);
    mem_free(m);
}

// --- one step

// The time since the last mark belongs to this phase, but what its exchanges waited.
static void phase_end(struct model *m, enum step_phase phase) {
    int64_t now = env_now_ns(m->forward.config.env);
    uint64_t passed = (uint64_t)(now - m->phase_began_ns), waited = m->forward.tp.wait_ns;
    m->phase_ns[phase] += passed - waited;
    m->phase_ns[PHASE_TENSOR] += waited;
    m->phase_began_ns = now;
    m->forward.tp.wait_ns = 0;
}

static void own_rows(struct forward *f) {
    const struct layout *l = f->config.layout;
    f->own_first = layout_row_first(l, f->batch.n_rows, f->place.tp);
    f->n_own = layout_row_first(l, f->batch.n_rows, f->place.tp + 1) - f->own_first;
    f->normed = f->all_normed + (size_t)f->own_first * f->spec->hidden;
}

static void embed_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    const struct weights *w = f->config.weights;
    size_t hidden = f->spec->hidden, row_bytes = hidden * dtype_bytes(w->dtype);
    float multiplier = f->spec->scale.embedding;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *x = f->x + row * (size_t)spec_stream_dim(f->spec);
        uint32_t token = f->batch.token[f->own_first + row];
        f->ops->unpack(x, (const uint8_t *)w->embed + token * row_bytes, w->dtype, f->spec->hidden);
        if (multiplier != 0) f->ops->scale(x, x, multiplier, f->spec->hidden);
        for (uint32_t stream = 1; stream < f->spec->hyper.n; stream++)
            memcpy(x + stream * hidden, x, hidden * sizeof *x);
    }
}

void forward_project(struct forward *f, const struct matrix *w, struct row_range rows,
                     const float *x, float *y) {
    struct linear l = {.ops = f->ops,
                       .w = w,
                       .x = x + (size_t)rows.first * w->n_in,
                       .y = y + (size_t)rows.first * w->n_out,
                       .ldx = w->n_in,
                       .ldy = w->n_out,
                       .n_rows = rows.n};
    linear_run(f->pool, &l);
}

// Of a norm, one vector of weights and one of biases.
struct norm_rows {
    struct forward *f;
    struct norm_weights weights;
};

static void norm_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct norm_rows *norm = context;
    struct forward *f = norm->f;
    size_t hidden = f->spec->hidden;
    for (uint32_t row = row_begin; row < row_end; row++)
        forward_norm_row(f, f->normed + row * hidden, f->x + row * hidden, &norm->weights);
}

void forward_norm(struct forward *f, uint32_t layer, enum forward_block block) {
    const struct layer_weights *w = forward_layer(f, layer);
    bool attn = block == BLOCK_ATTN;
    struct norm_rows norm = {f, {w->ffn_norm, w->ffn_norm_bias}};
    if (attn) norm.weights = (struct norm_weights){w->attn_norm, w->attn_norm_bias};
    if (f->spec->hyper.n != 0)
        hyper_collapse(f, attn ? &w->attn_hyper : &w->ffn_hyper, &norm.weights);
    else
        pool_run_rows(f->pool, f->n_own, f->spec->hidden, norm_rows, &norm);
}

static void return_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct norm_rows *post = context;
    struct forward *f = post->f;
    size_t hidden = f->spec->hidden;
    for (uint32_t row = row_begin; row < row_end; row++)
        forward_return(f, row, f->partial + (f->own_first + row) * hidden, post->weights.w);
}

void forward_return_rows(struct forward *f, const float *post_norm) {
    pool_run_rows(f->pool, f->n_own, f->spec->hidden, return_rows,
                  &(struct norm_rows){f, {post_norm, NULL}});
}

static int moe_forward(struct model *m, uint32_t layer, struct err_text *e) {
    struct forward *f = &m->forward;
    bool on_input = f->spec->router.on_input;
    route_topk(f, layer);
    phase_end(m, PHASE_ROUTE);
    if (on_input) shared_forward(f, layer); // before its input is weighed
    phase_end(m, PHASE_DENSE);
    route_weigh_input(f);
    int rc = dispatch_send(f, layer, e);
    phase_end(m, PHASE_DISPATCH);
    if (rc != 0) return rc;
    if (!on_input) shared_forward(f, layer); // while rows are on their way
    phase_end(m, PHASE_DENSE);
    rc = dispatch_receive(f, layer, e);
    phase_end(m, PHASE_DISPATCH);
    if (rc != 0) return rc;
    expert_run(f, layer);
    phase_end(m, PHASE_EXPERT);
    rc = combine_rows(f, layer, e);
    phase_end(m, PHASE_COMBINE);
    return rc;
}

static int layer_forward(struct model *m, uint32_t layer, struct err_text *e) {
    struct forward *f = &m->forward;
    bool recurrent = spec_layer_recurrent(f->spec, layer);
    int rc = recurrent ? delta_forward(f, layer, e) : attn_forward(f, layer, e);
    phase_end(m, PHASE_ATTN);
    if (rc != 0) return rc;
    forward_norm(f, layer, BLOCK_FFN);
    if (f->spec->ffn[layer] == FFN_MOE) return moe_forward(m, layer, e);
    rc = dense_forward(f, layer, e);
    phase_end(m, PHASE_DENSE);
    return rc;
}

static int sample_tokens(struct model *m, struct err_text *e) {
    struct forward *f = &m->forward;
    int rc = head_begin(f, e);
    for (uint32_t first = 0; rc == 0 && first < f->head.n_rows; first += f->head.tile_rows) {
        rc = head_logits(f, first, e);
        phase_end(m, PHASE_HEAD);
        if (rc == 0) rc = head_sample(f, first, e);
        phase_end(m, PHASE_SAMPLE);
    }
    if (rc == 0) rc = head_end(f, e);
    phase_end(m, PHASE_SAMPLE);
    return rc;
}

// Where the residual stream begins on this rank.
static int begin_rows(struct model *m, struct err_text *e) {
    struct forward *f = &m->forward;
    int rc = 0;
    attn_begin(f);
    if (f->place.stage == 0) pool_run_rows(f->pool, f->n_own, f->spec->hidden, embed_rows, f);
    phase_end(m, PHASE_EMBED);
    if (f->place.stage != 0) rc = stage_receive(f, e);
    phase_end(m, PHASE_STAGE);
    return rc;
}

// And where it ends: in tokens, or in the next stage.
static int end_rows(struct model *m, struct err_text *e) {
    if (is_last_stage(&m->forward)) return sample_tokens(m, e);
    int rc = stage_send(&m->forward, e);
    phase_end(m, PHASE_STAGE);
    return rc;
}

static int run_rows(struct model *m, struct err_text *e) {
    struct forward *f = &m->forward;
    state_restore(f);
    int rc = begin_rows(m, e);
    for (uint32_t i = 0; rc == 0 && i < f->n_layers; i++)
        rc = layer_forward(m, f->first_layer + i, e);
    if (rc == 0) rc = end_rows(m, e);
    if (rc == 0) state_save(f);
    phase_end(m, PHASE_ATTN);
    return rc;
}

int model_step(struct model *m, const Moesaic__Step__V1__StepPlan *plan, struct step_output *out,
               struct err_text *e) {
    struct forward *f = &m->forward;
    int64_t began_ns = env_now_ns(f->config.env);
    int rc = batch_check(&f->batch, &f->kv, plan, e);
    if (rc != 0) return rc;
    kernel_thread_init();
    memset(m->phase_ns, 0, sizeof m->phase_ns);
    m->phase_began_ns = began_ns;
    f->step = plan->step;
    batch_fill(&f->batch, &f->kv, plan);
    m->n_rows = f->batch.n_rows;
    own_rows(f);
    tp_begin(f);
    f->tp.wait_ns = 0;
    rc = run_rows(m, e);
    if (rc != 0) {
        dispatch_release(f);
        combine_release(f);
        return rc;
    }
    bool answers = is_last_stage(f) && f->place.tp == 0;
    *out =
        (struct step_output){.n_seqs = answers ? f->batch.n_answered : 0, .seqs = f->head.results};
    memcpy(out->phase_ns, m->phase_ns, sizeof out->phase_ns);
    out->total_ns = (uint64_t)(env_now_ns(f->config.env) - began_ns);
    return 0;
}

// --- what others may ask

int model_keep_logits(struct model *m, bool keep) {
    struct forward *f = &m->forward;
    bool here = keep && is_last_stage(f) && f->place.tp == 0;
    mem_free(f->head.kept);
    f->head.keep = keep;
    f->head.kept = here ? mem_array(f->config.rows_max, f->spec->vocab * sizeof(float)) : NULL;
    return here && f->head.kept == NULL ? ERR_FATAL_NOMEM : 0;
}

const float *model_logits(const struct model *m, uint32_t *n_rows) {
    *n_rows = m->n_rows;
    return m->forward.head.kept;
}

const _Atomic uint64_t *model_expert_tokens(const struct model *m) {
    return m->forward.expert.tokens;
}

uint32_t model_expert_counters(const struct model *m) {
    return m->forward.n_layers * m->forward.config.weights->n_local_experts;
}

// A page also costs its tokens and its note of who writes it.
uint64_t model_kv_block_bytes(const struct model_config *config) {
    struct kv_sizes sizes = kv_sizes(config);
    uint64_t notes = KV_BLOCK_TOKENS * sizeof(uint32_t) + sizeof(struct batch_writer);
    return kv_block_bytes(&sizes) + notes;
}

uint32_t model_kv_blocks_fit(const struct model_config *config, uint64_t bytes) {
    uint64_t n = bytes / model_kv_block_bytes(config);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

size_t model_message_bytes_max(const struct model_spec *spec, const struct layout *layout,
                               uint32_t rows_max) {
    uint32_t own = own_rows_max(layout, rows_max);
    const size_t sizes[] = {dispatch_bytes_max(spec, own),
                            combine_bytes_max(spec, own),
                            stage_bytes_max(spec, own),
                            tp_bytes_max(spec->hidden, own),
                            layout->tp > 1 ? mla_bytes_max(spec, own) : 0,
                            attn_heads_bytes_max(spec, layout, rows_max),
                            head_bytes_max(spec, layout, rows_max)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

// A TP group's peers may be one exchange ahead, and two tiles of logits (head.c).
static uint64_t tp_message_bytes(const struct model_config *c) {
    const struct model_spec *spec = c->weights->spec;
    uint32_t own = own_rows_max(c->layout, c->rows_max);
    return (c->layout->tp - 1) *
           (2 * (uint64_t)tp_bytes_max(spec->hidden, own) + mla_bytes_max(spec, own) +
            attn_heads_bytes_max(spec, c->layout, c->rows_max) +
            2 * (uint64_t)head_bytes_max(spec, c->layout, c->rows_max));
}

// A peer may send all its rows; answers come for this rank's own rows only, from each rank that
// shares an expert. The stage before may be as many steps ahead as there are stages.
static uint64_t message_bytes(const struct model_config *c) {
    const struct model_spec *spec = c->weights->spec;
    const struct layout *l = c->layout;
    uint32_t stage_ranks = layout_stage_ranks(l), rows = own_rows_max(l, c->rows_max);
    uint64_t bytes = tp_message_bytes(c);
    if (stage_ranks > 1 && has_moe(spec))
        bytes += (stage_ranks - 1) * (uint64_t)dispatch_bytes_max(spec, rows) +
                 l->etp * (uint64_t)combine_bytes_max(spec, rows);
    if (layout_place(l, c->rank).stage > 0) bytes += l->pp * (uint64_t)stage_bytes_max(spec, rows);
    return bytes;
}

// Without memory behind it, laying only counts.
static void measure(struct forward *f, struct scratch *s, const struct model_config *config,
                    uint32_t n_threads) {
    *f = (struct forward){.config = *config,
                          .spec = config->weights->spec,
                          .n_threads = n_threads,
                          .n_ranks = config->layout->n_ranks,
                          .rank = config->rank};
    f->config.kv_blocks = f->config.n_snapshots = 0;
    place_rank(f);
    lay(f, s, s);
}

uint64_t model_step_bytes(const struct model_config *config, uint32_t n_threads) {
    struct scratch s = {0};
    struct forward f;
    measure(&f, &s, config, n_threads);
    return s.overflow ? UINT64_MAX : s.used + message_bytes(config);
}

uint64_t model_state_bytes(const struct model_config *config) {
    struct scratch s = {0};
    struct forward f;
    measure(&f, &s, config, 1);
    return f.state.bytes;
}

// A snapshot also costs its note of how far it has come.
uint32_t model_snapshots_fit(const struct model_config *config, uint64_t bytes) {
    uint64_t each = model_state_bytes(config), n = SNAPSHOTS_MAX;
    if (spec_state_bytes(config->weights->spec) == 0) return 0;
    if (each > 0) n = bytes / (each + sizeof(struct batch_snapshot));
    return n < SNAPSHOTS_MAX ? (uint32_t)n : SNAPSHOTS_MAX;
}

uint64_t model_digest_row(const float *logits, uint32_t n) {
    return XXH3_64bits(logits, n * sizeof *logits);
}
