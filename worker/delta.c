// delta.c: see delta.h. A row's projections, convolution and norms need no other row's results, so
// they are split by rows; the recurrence goes through a sequence's rows in order, and is split by
// sequences and value heads.
#include "worker/delta.h"

#include <math.h>
#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

// Of the sum of squares, as in the programs that the models were trained with.
#define L2_EPS 1e-6f

static void find_places(struct delta *d, const struct model_spec *spec) {
    const struct delta_spec *s = &spec->delta;
    uint32_t values = d->group * s->v_dim, keys = d->keys;
    if (s->by_head)
        d->at = (struct delta_places){.k = s->k_dim,
                                      .v = 2 * s->k_dim,
                                      .z = 2 * s->k_dim + values,
                                      .key_stride = 2 * (s->k_dim + values),
                                      .value_stride = 2 * (s->k_dim + values),
                                      .a = d->group,
                                      .gate_stride = 2 * d->group};
    else
        d->at = (struct delta_places){.k = keys,
                                      .v = 2 * keys,
                                      .z = 2 * keys + d->values,
                                      .key_stride = s->k_dim,
                                      .value_stride = values,
                                      .a = d->n_v_heads,
                                      .gate_stride = d->group};
}

static void lay_states(struct forward *f) {
    struct delta *d = &f->delta;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        uint32_t layer = f->first_layer + i;
        d->index[layer] = n;
        if (!spec_layer_recurrent(f->spec, layer)) continue;
        d->state_floats = spec_layer_state_bytes(f->spec, layer, f->tp.n) / sizeof(float);
        n++;
    }
    d->states = state_take(&f->state, n, d->state_floats * sizeof(float));
}

void delta_lay(struct forward *f, struct scratch *s) {
    struct delta *d = &f->delta;
    const struct delta_spec *spec = &f->spec->delta;
    size_t rows = f->config.rows_max;
    if (spec_recurrent_layers(f->spec) == 0) return;
    d->n_k_heads = f->slice.n_k_heads;
    d->n_v_heads = f->slice.n_v_heads;
    d->group = spec->n_v_heads / spec->n_k_heads;
    d->keys = d->n_k_heads * spec->k_dim;
    d->values = d->n_v_heads * spec->v_dim;
    d->channels = 2 * d->keys + d->values;
    d->in_dim = d->channels + d->values;
    find_places(d, f->spec);
    d->q_weight = scratch_take(s, spec->k_dim, sizeof(float));
    d->k_weight = scratch_take(s, spec->k_dim, sizeof(float));
    d->zeros = scratch_take(s, d->channels, sizeof(float));
    d->in = scratch_take(s, rows * d->in_dim, sizeof(float));
    d->gates = scratch_take(s, rows * 2 * d->n_v_heads, sizeof(float));
    d->qkv = scratch_take(s, rows * d->channels, sizeof(float));
    d->beta = scratch_take(s, rows * d->n_v_heads, sizeof(float));
    d->decay = scratch_take(s, rows * d->n_v_heads, sizeof(float));
    d->out = scratch_take(s, rows * d->values, sizeof(float));
    lay_states(f);
    for (uint32_t i = 0; d->k_weight != NULL && i < spec->k_dim; i++) {
        d->k_weight[i] = 1.0f / sqrtf((float)spec->k_dim);
        d->q_weight[i] = 1.0f / (float)spec->k_dim;
    }
}

struct delta_layer {
    struct forward *f;
    const struct layer_weights *w;
    uint32_t layer; // its number in the model
    uint32_t index; // and among the recurrent layers of this rank
};

static float *inputs_of(const struct delta_layer *dl, uint32_t slot) {
    const struct forward *f = dl->f;
    size_t place = (size_t)dl->index * f->config.n_slots + slot;
    return f->delta.states + place * f->delta.state_floats;
}

static float *state_of(const struct delta_layer *dl, uint32_t slot, uint32_t head) {
    const struct delta *d = &dl->f->delta;
    const struct delta_spec *spec = &dl->f->spec->delta;
    float *states = inputs_of(dl, slot) + (size_t)(spec->kernel - 1) * d->channels;
    return states + (size_t)head * spec->k_dim * spec->v_dim;
}

// Channels that lie together both in a projected row and in the convolution.
struct channel_run {
    uint32_t from, channel, n;
};

#define PARTS 3 // q, k and v of a key head

static void parts_of(const struct forward *f, uint32_t k_head, struct channel_run *parts) {
    const struct delta *d = &f->delta;
    const struct delta_spec *spec = &f->spec->delta;
    uint32_t keys = d->keys, key = k_head * d->at.key_stride;
    uint32_t values = d->group * spec->v_dim;
    parts[0] = (struct channel_run){d->at.q + key, k_head * spec->k_dim, spec->k_dim};
    parts[1] = (struct channel_run){d->at.k + key, keys + k_head * spec->k_dim, spec->k_dim};
    parts[2] = (struct channel_run){d->at.v + k_head * d->at.value_stride,
                                    2 * keys + k_head * values, values};
}

// --- row by row

// Rows of the same run in front of this one, as far as the convolution sees.
static uint32_t rows_before(const struct forward *f, uint32_t row) {
    const uint32_t *slot = f->batch.slot;
    uint32_t n = 0;
    while (n < f->spec->delta.kernel - 1 && n < row && slot[row - n - 1] == slot[row])
        n++;
    return n;
}

// What the channels of a part were so many tokens before the row: zero before position 0, of this
// run, or kept from the one before.
static const float *input_at(const struct delta_layer *dl, const struct channel_run *part,
                             uint32_t row, uint32_t distance) {
    const struct forward *f = dl->f;
    const struct delta *d = &f->delta;
    if (distance > f->batch.position[row]) return d->zeros;
    uint32_t before = rows_before(f, row);
    if (distance <= before) return d->in + (size_t)(row - distance) * d->in_dim + part->from;
    uint32_t kept = f->spec->delta.kernel - 1 + before - distance;
    return inputs_of(dl, f->batch.slot[row]) + (size_t)kept * d->channels + part->channel;
}

static void convolve(const struct delta_layer *dl, const struct channel_run *part, uint32_t row) {
    const struct forward *f = dl->f;
    const float *x[CONV_KERNEL_MAX];
    uint32_t n_taps = f->spec->delta.kernel;
    for (uint32_t tap = 0; tap < n_taps; tap++)
        x[tap] = input_at(dl, part, row, n_taps - 1 - tap);
    const struct conv_taps taps = {x, dl->w->delta.conv + part->channel, f->delta.channels, n_taps};
    f->ops->conv_silu(f->delta.qkv + (size_t)row * f->delta.channels + part->channel, &taps,
                      part->n);
}

static void prepare_head(const struct delta_layer *dl, uint32_t k_head, uint32_t row) {
    const struct forward *f = dl->f;
    const struct delta *d = &f->delta;
    uint32_t k_dim = f->spec->delta.k_dim;
    struct channel_run parts[PARTS];
    parts_of(f, k_head, parts);
    for (int i = 0; i < PARTS; i++)
        convolve(dl, &parts[i], row);
    float *q = d->qkv + (size_t)row * d->channels + parts[0].channel;
    float *k = d->qkv + (size_t)row * d->channels + parts[1].channel;
    f->ops->rms_norm(q, q, d->q_weight, k_dim, L2_EPS / (float)k_dim);
    f->ops->rms_norm(k, k, d->k_weight, k_dim, L2_EPS / (float)k_dim);
}

static void prepare_gates(const struct delta_layer *dl, uint32_t row) {
    const struct delta *d = &dl->f->delta;
    const struct delta_weights *w = &dl->w->delta;
    uint32_t n = d->n_v_heads;
    const float *gates = d->gates + (size_t)row * 2 * n;
    for (uint32_t h = 0; h < n; h++) {
        uint32_t at = h / d->group * d->at.gate_stride + h % d->group;
        float step = elementary_softplus(gates[d->at.a + at] + w->dt_bias[h]);
        d->beta[(size_t)row * n + h] = elementary_sigmoid(gates[d->at.b + at]);
        d->decay[(size_t)row * n + h] = elementary_exp(-(elementary_exp(w->a_log[h]) * step));
    }
}

static void prepare_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct delta_layer *dl = context;
    for (uint32_t row = row_begin; row < row_end; row++) {
        for (uint32_t k_head = 0; k_head < dl->f->delta.n_k_heads; k_head++)
            prepare_head(dl, k_head, row);
        prepare_gates(dl, row);
    }
}

// --- sequence by sequence

// The convolution's last inputs, for the run that follows this one. Rows move to the front, so the
// order is safe.
static void keep_inputs(const struct delta_layer *dl, const struct channel_run *part,
                        const struct batch_seq *seq) {
    const struct delta *d = &dl->f->delta;
    uint32_t n = dl->f->spec->delta.kernel - 1, end = seq->row_begin + seq->n_rows;
    float *kept = inputs_of(dl, seq->slot) + part->channel;
    for (uint32_t i = 0; i < n; i++) {
        const float *from = n - i <= seq->n_rows
                                ? d->in + (size_t)(end - (n - i)) * d->in_dim + part->from
                                : kept + (size_t)(i + seq->n_rows) * d->channels;
        memcpy(kept + (size_t)i * d->channels, from, part->n * sizeof *kept);
    }
}

static void recur(const struct delta_layer *dl, const struct batch_seq *seq, uint32_t head) {
    const struct forward *f = dl->f;
    const struct delta *d = &f->delta;
    const struct delta_spec *spec = &f->spec->delta;
    size_t first = seq->row_begin, k_head = head / d->group;
    const float *qkv = d->qkv + first * d->channels;
    struct delta_job job = {.state = state_of(dl, seq->slot, head),
                            .q = qkv + k_head * spec->k_dim,
                            .k = qkv + d->keys + k_head * spec->k_dim,
                            .v = qkv + 2 * d->keys + (size_t)head * spec->v_dim,
                            .out = d->out + first * d->values + (size_t)head * spec->v_dim,
                            .decay = d->decay + first * d->n_v_heads + head,
                            .beta = d->beta + first * d->n_v_heads + head,
                            .qkv_stride = d->channels,
                            .out_stride = d->values,
                            .gate_stride = d->n_v_heads,
                            .n_tokens = seq->n_rows,
                            .k_dim = spec->k_dim,
                            .v_dim = spec->v_dim};
    if (f->batch.position[first] == 0)
        memset(job.state, 0, (size_t)spec->k_dim * spec->v_dim * sizeof *job.state);
    f->ops->delta_rule(&job);
}

static void gate_outputs(const struct delta_layer *dl, const struct batch_seq *seq, uint32_t head) {
    const struct forward *f = dl->f;
    const struct delta *d = &f->delta;
    uint32_t v_dim = f->spec->delta.v_dim;
    size_t z_at = d->at.z + (size_t)(head / d->group) * d->at.value_stride +
                  (size_t)(head % d->group) * v_dim;
    for (uint32_t row = seq->row_begin; row < seq->row_begin + seq->n_rows; row++) {
        float *out = d->out + (size_t)row * d->values + (size_t)head * v_dim;
        f->ops->rms_norm(out, out, dl->w->delta.norm, v_dim, f->spec->norm_eps);
        f->ops->silu_mul(out, d->in + (size_t)row * d->in_dim + z_at, out, v_dim);
    }
}

// Item i: a sequence and a value head; the first of those that share a key head keeps its inputs.
static void recur_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct delta_layer *dl = context;
    uint32_t n_heads = dl->f->delta.n_v_heads, head = i % n_heads;
    const struct batch_seq *seq = &dl->f->batch.seqs[i / n_heads];
    struct channel_run parts[PARTS];
    recur(dl, seq, head);
    gate_outputs(dl, seq, head);
    if (head % dl->f->delta.group != 0) return;
    parts_of(dl->f, head / dl->f->delta.group, parts);
    for (int p = 0; p < PARTS; p++)
        keep_inputs(dl, &parts[p], seq);
}

// --- the block

static int project_out(const struct delta_layer *dl, struct err_text *e) {
    struct forward *f = dl->f;
    const float *post_norm = dl->w->attn_post_norm;
    bool alone = f->tp.n == 1;
    struct linear out = {.ops = f->ops,
                         .w = &dl->w->o,
                         .x = f->delta.out,
                         .ldx = f->delta.values,
                         .y = f->partial,
                         .ldy = f->spec->hidden,
                         .n_rows = f->batch.n_rows,
                         .residual = alone && post_norm == NULL ? f->x : NULL,
                         .residual_scale = f->spec->scale.residual};
    linear_run(f->pool, &out);
    if (!alone)
        return tp_reduce(f, tp_block(dl->layer, TP_ATTN), &(struct tp_after){NULL, post_norm}, e);
    if (post_norm != NULL) forward_return_rows(f, post_norm);
    return 0;
}

int delta_forward(struct forward *f, uint32_t layer, struct err_text *e) {
    if (f->batch.n_rows == 0) return 0;
    struct delta_layer dl = {f, forward_layer(f, layer), layer, f->delta.index[layer]};
    forward_norm(f, layer, BLOCK_ATTN);
    int rc = tp_gather(f, tp_block(layer, TP_ATTN), f->tp.row_first, e);
    if (rc != 0) return rc;
    struct row_range all = {0, f->batch.n_rows};
    forward_project(f, &dl.w->delta.in, all, f->all_normed, f->delta.in);
    forward_project(f, &dl.w->delta.gates, all, f->all_normed, f->delta.gates);
    pool_run_rows(f->pool, f->batch.n_rows, (size_t)f->delta.channels * 8, prepare_rows, &dl);
    pool_run(f->pool, f->batch.n_seqs * f->delta.n_v_heads, recur_item, &dl);
    return project_out(&dl, e);
}
