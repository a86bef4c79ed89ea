// hyper.c: see hyper.h.
#include "worker/hyper.h"

#include "worker/forward.h"

static uint32_t mix_count(const struct model_spec *spec) {
    return (2 + spec->hyper.n) * spec->hyper.n;
}

void hyper_lay(struct forward *f, struct scratch *s) {
    struct hyper *h = &f->hyper;
    if (f->spec->hyper.n == 0) return;
    h->mixes = scratch_take(s, (size_t)f->own_max * mix_count(f->spec), sizeof(float));
    h->ends = scratch_take(s, (size_t)f->n_threads * f->spec->hyper.n, sizeof(float));
}

// Each row (step 1) or column (step n) is divided by its sum.
static void divide_by_sums(float *comb, uint32_t n, bool columns, float eps) {
    uint32_t line = columns ? 1 : n, step = columns ? n : 1;
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0.0f, *at = comb + (size_t)i * line;
        for (uint32_t k = 0; k < n; k++)
            sum += at[(size_t)k * step];
        sum += eps;
        for (uint32_t k = 0; k < n; k++)
            at[(size_t)k * step] /= sum;
    }
}

// Sinkhorn's iteration: rows and columns come to sums of one.
static void weigh_comb(const struct hyper_spec *h, const struct kernel_ops *ops, float *comb) {
    for (uint32_t j = 0; j < h->n; j++)
        ops->softmax(comb + (size_t)j * h->n, h->n);
    for (uint32_t i = 0; i < h->n * h->n; i++)
        comb[i] += h->eps;
    divide_by_sums(comb, h->n, true, h->eps);
    for (uint32_t round = 1; round < h->rounds; round++) {
        divide_by_sums(comb, h->n, false, h->eps);
        divide_by_sums(comb, h->n, true, h->eps);
    }
}

void hyper_weigh(const struct model_spec *spec, const struct kernel_ops *ops,
                 const struct hyper_weights *w, float *mixes) {
    const struct hyper_spec *h = &spec->hyper;
    for (uint32_t i = 0; i < mix_count(spec); i++) {
        uint32_t part = i / h->n < 2 ? i / h->n : 2;
        mixes[i] = mixes[i] * w->scale[part] + w->base[i];
    }
    ops->sigmoid(mixes, 2 * h->n);
    for (uint32_t i = 0; i < h->n; i++) {
        mixes[i] += h->eps;
        mixes[h->n + i] *= 2.0f;
    }
    weigh_comb(h, ops, mixes + (size_t)2 * h->n);
}

struct collapsing {
    struct forward *f;
    const struct hyper_weights *w;
    const struct norm_weights *norm;
};

static void collapse_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct collapsing *c = context;
    struct forward *f = c->f;
    const struct model_spec *spec = f->spec;
    uint32_t width = spec_stream_dim(spec), n_mixes = mix_count(spec);
    for (uint32_t row = row_begin; row < row_end; row++) {
        const float *x = f->x + (size_t)row * width;
        float *mixes = f->hyper.mixes + (size_t)row * n_mixes,
              *y = f->normed + (size_t)row * spec->hidden;
        f->ops->scale(mixes, mixes, f->ops->inverse_rms(x, width, spec->norm_eps), n_mixes);
        hyper_weigh(spec, f->ops, c->w, mixes);
        f->ops->collapse(y, x, mixes, spec->hyper.n, spec->hidden);
        forward_norm_row(f, y, y, c->norm);
    }
}

void hyper_collapse(struct forward *f, const struct hyper_weights *w,
                    const struct norm_weights *norm) {
    uint32_t width = spec_stream_dim(f->spec);
    struct row_range own = {0, f->n_own};
    forward_project(f, &w->mix, own, f->x, f->hyper.mixes);
    pool_run_rows(f->pool, f->n_own, (size_t)width * 2, collapse_rows,
                  &(struct collapsing){f, w, norm});
}

void hyper_take_in(const struct forward *f, uint32_t own_row, const float *y) {
    const struct model_spec *spec = f->spec;
    uint32_t n = spec->hyper.n;
    const float *mixes = f->hyper.mixes + (size_t)own_row * mix_count(spec);
    const struct stream_mix mix = {n, mixes + n, mixes + (size_t)2 * n};
    f->ops->expand(f->x + (size_t)own_row * spec_stream_dim(spec), y, &mix, spec->hidden);
}

void hyper_end(const struct forward *f, float *y, uint32_t own_row, uint32_t thread) {
    const struct model_spec *spec = f->spec;
    const struct hyper_weights *w = &f->config.weights->head_hyper;
    uint32_t n = spec->hyper.n, width = spec_stream_dim(spec);
    const float *x = f->x + (size_t)own_row * width;
    float *pre = f->hyper.ends + (size_t)thread * n;
    f->ops->matmul(pre, n, x, width, 1, &w->mix, 0, matrix_panels(&w->mix));
    float r = f->ops->inverse_rms(x, width, spec->norm_eps);
    for (uint32_t i = 0; i < n; i++)
        pre[i] = pre[i] * r * w->scale[0] + w->base[i];
    f->ops->sigmoid(pre, n);
    for (uint32_t i = 0; i < n; i++)
        pre[i] += spec->hyper.eps;
    f->ops->collapse(y, x, pre, n, spec->hidden);
}
