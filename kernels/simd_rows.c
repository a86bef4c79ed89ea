// simd_rows.c: the operations on single rows, and the table of this instruction set.
#include <math.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

// Every loop below takes whole vectors, then one tail of n lanes; the other lanes hold +0 and are
// not stored.
#define FOR_VECTORS(i, n) for (uint32_t i = 0; i < (n); i += VEC_LANES)

INLINE uint32_t lanes_at(uint32_t i, uint32_t n) {
    return n - i < VEC_LANES ? n - i : VEC_LANES;
}

static vec load_at(const float *x, uint32_t i, uint32_t n) {
    return n - i < VEC_LANES ? vec_load_n(x + i, n - i) : vec_load(x + i);
}

static void store_at(float *y, uint32_t i, uint32_t n, vec a) {
    if (n - i < VEC_LANES)
        vec_store_n(y + i, a, n - i);
    else
        vec_store(y + i, a);
}

static float lane_max(const float *x, uint32_t n) {
    vec a = vec_set(-INFINITY);
    FOR_VECTORS(i, n) {
        // A lane without an element keeps what it has.
        vec larger = vec_max(a, load_at(x, i, n));
        a = vec_first_n(larger, lanes_at(i, n), a);
    }
    return vec_tree_max(a);
}

static void rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
    vec a = vec_zero();
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        a = vec_fma(v, v, a);
    }
    vec r = vec_set(1.0f / sqrtf(vec_tree_sum(a) / (float)n + eps));
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_mul(vec_mul(load_at(x, i, n), r), load_at(w, i, n)));
    }
}

static float inverse_rms(const float *x, uint32_t n, float eps) {
    vec a = vec_zero();
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        a = vec_fma(v, v, a);
    }
    return 1.0f / sqrtf(vec_tree_sum(a) / (float)n + eps);
}

static void collapse(float *y, const float *x, const float *weights, uint32_t n, uint32_t dim) {
    FOR_VECTORS(d, dim) {
        vec sum = vec_zero();
        for (uint32_t i = 0; i < n; i++)
            sum = vec_fma(vec_set(weights[i]), load_at(x + (size_t)i * dim, d, dim), sum);
        store_at(y, d, dim, sum);
    }
}

static void expand(float *x, const float *y, const struct stream_mix *mix, uint32_t dim) {
    uint32_t n = mix->n;
    check(n <= HYPER_STREAMS_MAX);
    FOR_VECTORS(d, dim) {
        vec old[HYPER_STREAMS_MAX], row = load_at(y, d, dim);
        for (uint32_t j = 0; j < n; j++)
            old[j] = load_at(x + (size_t)j * dim, d, dim);
        for (uint32_t k = 0; k < n; k++) {
            vec sum = vec_zero();
            for (uint32_t j = 0; j < n; j++)
                sum = vec_fma(vec_set(mix->comb[j * n + k]), old[j], sum);
            store_at(x + (size_t)k * dim, d, dim, vec_fma(vec_set(mix->post[k]), row, sum));
        }
    }
}

static void layer_norm(float *y, const float *x, const struct norm_weights *w, uint32_t n,
                       float eps) {
    vec sum = vec_zero(), a = vec_zero();
    FOR_VECTORS(i, n) {
        sum = vec_add(sum, load_at(x, i, n));
    }
    vec mean = vec_set(vec_tree_sum(sum) / (float)n);
    FOR_VECTORS(i, n) {
        // A lane without an element must not take in the mean's square.
        vec d = vec_first_n(vec_sub(load_at(x, i, n), mean), lanes_at(i, n), vec_zero());
        a = vec_fma(d, d, a);
    }
    vec r = vec_set(1.0f / sqrtf(vec_tree_sum(a) / (float)n + eps));
    FOR_VECTORS(i, n) {
        vec v = vec_mul(vec_mul(vec_sub(load_at(x, i, n), mean), r), load_at(w->w, i, n));
        if (w->b != NULL) v = vec_add(v, load_at(w->b, i, n));
        store_at(y, i, n, v);
    }
}

static void rope(float *x, const float *cos, const float *sin, uint32_t rotary_dim) {
    uint32_t half = rotary_dim / 2;
    FOR_VECTORS(i, half) {
        vec a = load_at(x, i, half), b = load_at(x + half, i, half);
        vec c = load_at(cos, i, half), s = load_at(sin, i, half);
        store_at(x, i, half, vec_sub(vec_mul(a, c), vec_mul(b, s)));
        store_at(x + half, i, half, vec_add(vec_mul(b, c), vec_mul(a, s)));
    }
}

static void silu_mul(float *y, const float *gate, const float *up, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_mul(vec_silu(load_at(gate, i, n)), load_at(up, i, n)));
    }
}

static void gelu_mul(float *y, const float *gate, const float *up, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_mul(vec_gelu(load_at(gate, i, n)), load_at(up, i, n)));
    }
}

static void softcap(float *x, float cap, uint32_t n) {
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        store_at(x, i, n, vec_add(vec_softcap(v, vec_set(cap)), vec_mul(v, vec_zero())));
    }
}

static void clamped_glu(float *y, const float *up, const struct clamped_glu *act, uint32_t n) {
    vec high = vec_set(act->limit), low = vec_set(-act->limit);
    FOR_VECTORS(i, n) {
        vec g = load_at(y, i, n), u = load_at(up, i, n);
        g = vec_if_greater(g, high, high, g);
        u = vec_if_greater(u, high, high, u);
        u = vec_if_greater(low, u, low, u);
        vec s = vec_div(g, vec_one_plus_exp_minus(vec_mul(vec_set(act->alpha), g)));
        store_at(y, i, n, vec_mul(vec_add(u, vec_set(1.0f)), s));
    }
}

static void limited_glu(float *y, const float *up, float limit, uint32_t n) {
    vec high = vec_set(limit), low = vec_set(-limit);
    FOR_VECTORS(i, n) {
        vec g = load_at(y, i, n), u = load_at(up, i, n);
        g = vec_if_greater(g, high, high, g);
        u = vec_if_greater(u, high, high, u);
        u = vec_if_greater(low, u, low, u);
        store_at(y, i, n, vec_mul(vec_silu(g), u));
    }
}

static void sigmoid_mul(float *y, const float *gate, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_mul(load_at(y, i, n), vec_sigmoid(load_at(gate, i, n))));
    }
}

static void conv_silu(float *y, const struct conv_taps *taps, uint32_t n) {
    FOR_VECTORS(i, n) {
        vec acc = vec_zero();
        for (uint32_t t = 0; t < taps->n_taps; t++)
            acc = vec_fma(load_at(taps->w + t * taps->w_stride, i, n), load_at(taps->x[t], i, n),
                          acc);
        store_at(y, i, n, vec_silu(acc));
    }
}

static void add(float *y, const float *x, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_add(load_at(y, i, n), load_at(x, i, n)));
    }
}

static void scale(float *y, const float *x, float a, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_mul(vec_set(a), load_at(x, i, n)));
    }
}

static void axpy(float *y, const float *x, float a, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(y, i, n, vec_fma(vec_set(a), load_at(x, i, n), load_at(y, i, n)));
    }
}

static void clamp(float *x, float limit, uint32_t n) {
    vec high = vec_set(limit), low = vec_set(-limit);
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        v = vec_if_greater(v, high, high, v);
        store_at(x, i, n, vec_if_greater(low, v, low, v));
    }
}

// exp(x - m) of the elements at i, +0 in lanes without one.
static vec exp_at(const float *x, uint32_t i, uint32_t n, float m) {
    return vec_first_n(vec_exp(vec_sub(load_at(x, i, n), vec_set(m))), lanes_at(i, n), vec_zero());
}

static void softmax(float *x, uint32_t n) {
    float m = lane_max(x, n);
    vec a = vec_zero();
    FOR_VECTORS(i, n) {
        vec e = exp_at(x, i, n, m);
        a = vec_add(a, e);
        store_at(x, i, n, e);
    }
    vec sum = vec_set(vec_tree_sum(a));
    FOR_VECTORS(i, n) {
        store_at(x, i, n, vec_div(load_at(x, i, n), sum));
    }
}

static void sigmoid(float *x, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(x, i, n, vec_sigmoid(load_at(x, i, n)));
    }
}

static void exp_each(float *x, uint32_t n) {
    FOR_VECTORS(i, n) {
        store_at(x, i, n, vec_exp(load_at(x, i, n)));
    }
}

// A product with zero is NaN exactly where the factor is not finite, and NaN stays in a sum.
static bool all_finite(const float *x, uint32_t n) {
    vec a = vec_zero();
    FOR_VECTORS(i, n) {
        a = vec_fma(load_at(x, i, n), vec_zero(), a);
    }
    return !isnan(vec_tree_sum(a));
}

#define LSE_BLOCK 512

static bool log_sum_exp(const float *x, uint32_t n, float *max, float *lse) {
    if (!all_finite(x, n)) return false;
    float m = lane_max(x, n), sum = 0.0f;
    for (uint32_t begin = 0; begin < n; begin += LSE_BLOCK) {
        uint32_t end = n - begin < LSE_BLOCK ? n : begin + LSE_BLOCK;
        vec a = vec_zero();
        for (uint32_t i = begin; i < end; i += VEC_LANES)
            a = vec_add(a, exp_at(x, i, end, m));
        sum = sum + vec_tree_sum(a);
    }
    *max = m;
    *lse = m + elementary_log(sum);
    return true;
}

INLINE void unpack_as(float *y, const void *x, enum dtype dtype, uint32_t n) {
    FOR_VECTORS(i, n) {
        bool whole = n - i >= VEC_LANES;
        store_at(y, i, n, whole ? element_load(x, dtype, i) : element_load_n(x, dtype, i, n - i));
    }
}

static void unpack(float *y, const void *x, enum dtype dtype, uint32_t n) {
    switch (dtype) {
    case DTYPE_F16: unpack_as(y, x, DTYPE_F16, n); break;
    case DTYPE_BF16: unpack_as(y, x, DTYPE_BF16, n); break;
    case DTYPE_E4M3: unpack_as(y, x, DTYPE_E4M3, n); break;
    case DTYPE_I8: unpack_as(y, x, DTYPE_I8, n); break;
    default: memcpy(y, x, n * sizeof *y);
    }
}

INLINE void pack_as(void *y, const float *x, enum dtype dtype, uint32_t n) {
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        unsigned char *out = (unsigned char *)y + i * sizeof(uint16_t);
        half_store_n(out, dtype == DTYPE_F16 ? vec_to_f16(v) : vec_to_bf16(v), lanes_at(i, n));
    }
}

static void pack_e4m3(void *y, const float *x, uint32_t n) {
    FOR_VECTORS(i, n) {
        byte_store_n((unsigned char *)y + i, vec_to_e4m3(load_at(x, i, n)), lanes_at(i, n));
    }
}

// The largest magnitude, as the bits of a float: with these an infinity or a NaN is the largest.
static uint32_t largest_bits(const float *x, uint32_t n) {
    __m256i most = _mm256_setzero_si256(), mask = _mm256_set1_epi32(0x7fffffff);
    FOR_VECTORS(i, n) {
        vec v = load_at(x, i, n);
        __m256i low = _mm256_and_si256(_mm256_castps_si256(vec_low(v)), mask);
        __m256i high = _mm256_and_si256(_mm256_castps_si256(vec_high(v)), mask);
        most = _mm256_max_epi32(most, _mm256_max_epi32(low, high));
    }
    uint32_t lanes[8], largest = 0;
    _mm256_storeu_si256((__m256i *)(void *)lanes, most);
    for (int i = 0; i < 8; i++)
        if (lanes[i] > largest) largest = lanes[i];
    return largest;
}

static float pack_int8(int8_t *codes, const float *x, uint32_t n) {
    uint32_t largest = largest_bits(x, n);
    float scale = largest < 0x7f800000u ? bits_to_f32(largest) / 127.0f : NAN;
    if (!(scale > 0.0f)) {
        memset(codes, 0, n);
        return scale;
    }
    FOR_VECTORS(i, n) {
        vec v = vec_div(load_at(x, i, n), vec_set(scale));
        byte_store_n(codes + i, vec_to_int8(v), lanes_at(i, n));
    }
    return scale;
}

static void pack(void *y, const float *x, enum dtype dtype, uint32_t n) {
    switch (dtype) {
    case DTYPE_F16: pack_as(y, x, DTYPE_F16, n); break;
    case DTYPE_BF16: pack_as(y, x, DTYPE_BF16, n); break;
    case DTYPE_E4M3: pack_e4m3(y, x, n); break;
    case DTYPE_I8: check(!"int8 has a scale: pack_int8"); break;
    default: memcpy(y, x, n * sizeof *x);
    }
}

#define STRING(name) STRING2(name)
#define STRING2(name) #name

static const struct kernel_ops ops = {
    .name = STRING(KERNEL_ISA),
    .matmul = KERNEL_SYMBOL(matmul),
    .attend = KERNEL_SYMBOL(attend),
    .attend_latent = KERNEL_SYMBOL(attend_latent),
    .index_scores = KERNEL_SYMBOL(index_scores),
    .entry_scores = KERNEL_SYMBOL(entry_scores),
    .window_sum = KERNEL_SYMBOL(window_sum),
    .rms_norm = rms_norm,
    .inverse_rms = inverse_rms,
    .collapse = collapse,
    .expand = expand,
    .layer_norm = layer_norm,
    .rope = rope,
    .silu_mul = silu_mul,
    .clamped_glu = clamped_glu,
    .limited_glu = limited_glu,
    .gelu_mul = gelu_mul,
    .softcap = softcap,
    .sigmoid_mul = sigmoid_mul,
    .conv_silu = conv_silu,
    .delta_rule = KERNEL_SYMBOL(delta_rule),
    .add = add,
    .scale = scale,
    .axpy = axpy,
    .clamp = clamp,
    .softmax = softmax,
    .sigmoid = sigmoid,
    .exp = exp_each,
    .log_sum_exp = log_sum_exp,
    .unpack = unpack,
    .pack = pack,
    .pack_int8 = pack_int8,
};

const struct kernel_ops *KERNEL_SYMBOL(kernel_ops)(void) {
    return &ops;
}
