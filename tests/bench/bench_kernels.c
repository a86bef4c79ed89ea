// bench_kernels.c: speed of the kernels on one core as one fixed CSV:
// table,op,format,shape,rows,microseconds,gflops,gbytes_per_s.
//
// Arguments: a table's name (default: all that this CPU runs). Each line is the best of several
// timed runs, because other programs only ever make a run slower. Bytes are those of weights or
// pages, which is what a step's time is made of at one row.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/mem.h"
#include "kernels/ops.h"

// Many short runs: between the time slices of other programs some of them see a free core.
#define RUNS 40
#define RUN_NS (2 * NS_PER_MS)

struct bench {
    struct env *env;
    const struct kernel_ops *ops;
};

// What one line is about.
struct line {
    const char *op, *format;
    char shape[48];
    uint32_t rows;
    double flops, bytes; // of one call
};

static void print_line(const struct bench *b, const struct line *line, double ns) {
    printf("%s,%s,%s,%s,%u,%.2f,%.1f,%.1f\n", b->ops->name, line->op, line->format, line->shape,
           line->rows, ns / 1e3, line->flops / ns, line->bytes / ns);
    fflush(stdout);
}

// Nanoseconds of one call: enough calls for RUN_NS, the best of RUNS.
static double best_ns(const struct bench *b, void (*call)(const struct bench *, void *),
                      void *context) {
    double best = INFINITY;
    call(b, context);
    for (int run = 0; run < RUNS; run++) {
        int64_t start = env_now_ns(b->env), now;
        int64_t calls = 0;
        do {
            call(b, context);
            calls++;
            now = env_now_ns(b->env);
        } while (now - start < RUN_NS);
        double ns = (double)(now - start) / (double)calls;
        if (ns < best) best = ns;
    }
    return best;
}

static void fill(float *x, size_t n) {
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

static float *floats(size_t n) {
    float *x = mem_pages(n * sizeof *x, 64);
    check(x != NULL);
    fill(x, n);
    return x;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define PEAK_STEPS 4096

// Twelve chains: more than the two units and four cycles of latency ask for.
__attribute__((target("avx512f"))) static void call_peak_avx512(const struct bench *b,
                                                                void *context) {
    __m512 a[12], factor = _mm512_set1_ps(*(float *)context);
    (void)b;
    for (int i = 0; i < 12; i++)
        a[i] = factor;
    for (int k = 0; k < PEAK_STEPS; k++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            a[i] = _mm512_fmadd_ps(a[i], factor, factor);
    }
    for (int i = 1; i < 12; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    *(volatile float *)context = _mm512_cvtss_f32(a[0]) > 0 ? 0.5f : 0.25f;
}

__attribute__((target("avx2,fma"))) static void call_peak_avx2(const struct bench *b,
                                                               void *context) {
    __m256 a[12], factor = _mm256_set1_ps(*(float *)context);
    (void)b;
    for (int i = 0; i < 12; i++)
        a[i] = factor;
    for (int k = 0; k < PEAK_STEPS; k++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            a[i] = _mm256_fmadd_ps(a[i], factor, factor);
    }
    for (int i = 1; i < 12; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    *(volatile float *)context = _mm256_cvtss_f32(a[0]) > 0 ? 0.5f : 0.25f;
}

static void bench_peak(const struct bench *b) {
    float factor = 0.5f;
    bool wide = strcmp(b->ops->name, "avx512") == 0;
    if (!wide && strcmp(b->ops->name, "avx2") != 0) return;
    struct line line = {.op = "peak", .format = "float32", .shape = "-", .rows = 1};
    line.flops = 2.0 * 12 * PEAK_STEPS * (wide ? 16 : 8);
    print_line(b, &line, best_ns(b, wide ? call_peak_avx512 : call_peak_avx2, &factor));
}
#else
static void bench_peak(const struct bench *b) {
    (void)b;
}
#endif

struct memory {
    uint64_t *words;
    size_t n;
    volatile uint64_t sum;
};

static void call_read(const struct bench *b, void *context) {
    struct memory *m = context;
    uint64_t sum[8] = {0};
    (void)b;
    for (size_t i = 0; i < m->n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sum[j] += m->words[i + j];
    for (int j = 0; j < 8; j++)
        m->sum += sum[j];
}

static void bench_read(const struct bench *b) {
    struct memory m = {.n = (size_t)32 << 20};
    m.words = mem_pages(m.n * sizeof *m.words, 64);
    check(m.words != NULL);
    struct line line = {.op = "read", .format = "-", .shape = "256MiB", .rows = 1};
    line.bytes = (double)m.n * sizeof *m.words;
    print_line(b, &line, best_ns(b, call_read, &m));
    mem_pages_free(m.words, 0);
}

struct product {
    struct matrix w;
    float *x, *y;
    uint32_t n_rows;
};

static void call_matmul(const struct bench *b, void *context) {
    struct product *p = context;
    b->ops->matmul(p->y, p->w.n_out, p->x, p->w.n_in, p->n_rows, &p->w, 0, matrix_panels(&p->w));
}

// n_out * n_in decides whether weights come from a cache or from memory.
static void bench_matmul(const struct bench *b, struct matrix w) {
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 64, 256};
    size_t bytes = matrix_bytes(&w), n = bytes / dtype_bytes(w.dtype);
    float *source = floats(n);
    void *data = mem_pages(bytes, 64);
    check(data != NULL);
    b->ops->pack(data, source, w.dtype, (uint32_t)n);
    mem_pages_free(source, n * sizeof *source);
    w.data = data;
    struct product p = {.w = w};
    p.x = floats((size_t)256 * w.n_in);
    p.y = floats((size_t)256 * w.n_out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.n_rows = rows[i];
        struct line line = {.op = "matmul",
                            .format = dtype_name(w.dtype),
                            .rows = p.n_rows,
                            .bytes = (double)bytes};
        line.flops = 2.0 * p.n_rows * w.n_out * w.n_in;
        snprintf(line.shape, sizeof line.shape, "%ux%u/%u", w.n_out, w.n_in, w.n_segments);
        if (line.flops > 4e9)
            continue; // seconds a line, and no other answer than the smaller matrix gives
        print_line(b, &line, best_ns(b, call_matmul, &p));
    }
    mem_pages_free(p.x, (size_t)256 * w.n_in * sizeof *p.x);
    mem_pages_free(p.y, (size_t)256 * w.n_out * sizeof *p.y);
    mem_pages_free(data, bytes);
}

static void call_attend(const struct bench *b, void *context) {
    b->ops->attend(context);
}

// Halves of pages: codes or numbers, of int8 with any scale that is one.
static void fill_halves(const struct bench *b, unsigned char *half, uint32_t n, enum dtype dtype) {
    enum { DIM = 128 };
    float *source = floats(16 * DIM), scale[16];
    for (uint32_t i = 0; i < n; i++, half += 16 * kv_row_bytes(dtype, DIM)) {
        if (dtype != DTYPE_I8) {
            b->ops->pack(half, source, dtype, 16 * DIM);
            continue;
        }
        scale[0] = b->ops->pack_int8((int8_t *)half, source, 16 * DIM);
        for (int token = 1; token < 16; token++)
            scale[token] = scale[0];
        memcpy(half + 16 * DIM, scale, sizeof scale);
    }
    mem_pages_free(source, 0);
}

static void bench_attend(const struct bench *b, uint32_t n_keys, uint32_t n_q, enum dtype dtype) {
    enum { DIM = 128 };
    uint32_t n_blocks = n_keys / 16, first[256] = {0}, n[256],
             *table = mem_array(n_blocks, sizeof *table);
    size_t half = 16 * kv_row_bytes(dtype, DIM), bytes = n_blocks * 2 * half;
    float *q = floats((size_t)n_q * DIM), *out = floats((size_t)n_q * DIM);
    unsigned char *pages = mem_pages(bytes, 64);
    check(table != NULL && pages != NULL && n_q <= 256);
    fill_halves(b, pages, 2 * n_blocks, dtype);
    for (uint32_t i = 0; i < n_blocks; i++)
        table[i] = i * 7 % n_blocks;
    for (uint32_t i = 0; i < n_q; i++)
        n[i] = n_keys;
    size_t n_scratch = attend_scratch_floats(n_q, DIM, DIM);
    struct attend_job job = {.value_dim = DIM,
                             .q = q,
                             .out = out,
                             .q_stride = DIM,
                             .out_stride = DIM,
                             .n_q = n_q,
                             .head_dim = DIM,
                             .first_key = first,
                             .n_keys = n,
                             .block_table = table,
                             .k_base = pages,
                             .v_base = pages + half,
                             .block_stride = 2 * half,
                             .kv_dtype = dtype,
                             .scale = 0.088f,
                             .scratch = floats(n_scratch)};
    struct line line = {
        .op = "attend", .format = dtype_name(dtype), .rows = n_q, .bytes = (double)bytes};
    line.flops = 4.0 * n_q * n_keys * DIM;
    snprintf(line.shape, sizeof line.shape, "%ux%u", n_keys, (unsigned)DIM);
    print_line(b, &line, best_ns(b, call_attend, &job));
    mem_pages_free(q, 0);
    mem_pages_free(out, 0);
    mem_pages_free(pages, bytes);
    mem_pages_free(job.scratch, 0);
    mem_free(table);
}

static void call_attend_latent(const struct bench *b, void *context) {
    b->ops->attend_latent(context);
}

// Latents as DeepSeek-V2 and V3 have them, 512 and 64 rotated; n_q is the number of heads.
static void bench_attend_latent(const struct bench *b, uint32_t n_keys, uint32_t n_q,
                                enum dtype dtype) {
    enum { KEY = 576, VALUE = 512 };
    uint32_t n_blocks = n_keys / 16, n[256], *table = mem_array(n_blocks, sizeof *table);
    size_t page = 16 * latent_row_bytes(dtype, KEY), bytes = n_blocks * page;
    float *q = floats((size_t)n_q * KEY), *out = floats((size_t)n_q * VALUE);
    float *source = floats((size_t)16 * KEY), scales[32];
    unsigned char *pages = mem_pages(bytes, 64);
    check(table != NULL && pages != NULL && n_q <= 256);
    for (uint32_t i = 0; i < n_blocks; i++) {
        table[i] = i * 7 % n_blocks;
        unsigned char *at = pages + i * page;
        if (dtype != DTYPE_I8) {
            b->ops->pack(at, source, dtype, 16 * KEY);
            continue;
        }
        scales[0] = b->ops->pack_int8((int8_t *)at, source, 16 * KEY);
        for (int k = 1; k < 32; k++)
            scales[k] = scales[0];
        memcpy(at + (size_t)16 * KEY, scales, sizeof scales);
    }
    for (uint32_t i = 0; i < n_q; i++)
        n[i] = n_keys;
    const struct latent_keys keys = {.pages = pages, .block_stride = page, .rate = 1, .n = n};
    struct latent_job job = {.q = q,
                             .out = out,
                             .q_stride = KEY,
                             .out_stride = VALUE,
                             .n_q = n_q,
                             .key_dim = KEY,
                             .value_dim = VALUE,
                             .kinds = &keys,
                             .n_kinds = 1,
                             .block_table = table,
                             .kv_dtype = dtype,
                             .scale = 0.088f,
                             .scratch = floats(attend_latent_scratch_floats(KEY, VALUE))};
    struct line line = {
        .op = "attend_latent", .format = dtype_name(dtype), .rows = n_q, .bytes = (double)bytes};
    line.flops = 2.0 * n_q * n_keys * (KEY + VALUE);
    snprintf(line.shape, sizeof line.shape, "%ux%u+%u", n_keys, (unsigned)VALUE,
             (unsigned)(KEY - VALUE));
    print_line(b, &line, best_ns(b, call_attend_latent, &job));
    mem_pages_free(q, 0);
    mem_pages_free(out, 0);
    mem_pages_free(source, 0);
    mem_pages_free(pages, bytes);
    mem_pages_free(job.scratch, 0);
    mem_free(table);
}

struct row {
    float *x, *y, *w;
    uint32_t n;
    float kept; // so that no call is optimised away
};

static void call_rms_norm(const struct bench *b, void *c) {
    struct row *r = c;
    b->ops->rms_norm(r->y, r->x, r->w, r->n, 1e-6f);
}
static void call_silu_mul(const struct bench *b, void *c) {
    struct row *r = c;
    b->ops->silu_mul(r->y, r->x, r->w, r->n);
}
static void call_log_sum_exp(const struct bench *b, void *c) {
    struct row *r = c;
    float max;
    b->ops->log_sum_exp(r->x, r->n, &max, &r->kept);
}
static void call_axpy(const struct bench *b, void *c) {
    struct row *r = c;
    b->ops->axpy(r->y, r->x, 0.0f, r->n);
}

static void bench_rows(const struct bench *b, uint32_t n) {
    static const struct {
        const char *name;
        void (*call)(const struct bench *, void *);
    } ops[] = {{"rms_norm", call_rms_norm},
               {"silu_mul", call_silu_mul},
               {"log_sum_exp", call_log_sum_exp},
               {"axpy", call_axpy}};
    struct row r = {.x = floats(n), .y = floats(n), .w = floats(n), .n = n};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct line line = {
            .op = ops[i].name, .format = "float32", .rows = 1, .bytes = 4.0 * n, .flops = n};
        snprintf(line.shape, sizeof line.shape, "%u", n);
        print_line(b, &line, best_ns(b, ops[i].call, &r));
    }
    mem_pages_free(r.x, 0);
    mem_pages_free(r.y, 0);
    mem_pages_free(r.w, 0);
}

struct packing {
    struct matrix w;
    const float *source;
    void *data;
    enum dtype from;
};

static void call_pack(const struct bench *b, void *context) {
    struct packing *p = context;
    (void)b;
    matrix_pack(&p->w, p->data, p->source, p->from, p->w.n_in);
}

static void bench_packing(const struct bench *b) {
    struct packing p = {.w = {.dtype = DTYPE_BF16, .n_out = 2048, .n_in = 2048, .n_segments = 1}};
    p.source = floats((size_t)p.w.n_out * p.w.n_in);
    p.data = mem_pages(matrix_bytes(&p.w), 64);
    check(p.data != NULL);
    for (int from = 0; from < DTYPE_COUNT; from++) {
        p.from = (enum dtype)from;
        struct line line = {
            .op = "matrix_pack", .format = dtype_name(p.from), .shape = "2048x2048", .rows = 1};
        line.bytes = (double)p.w.n_out * p.w.n_in * (double)dtype_bytes(p.from);
        print_line(b, &line, best_ns(b, call_pack, &p));
    }
    mem_pages_free((void *)p.source, 0);
    mem_pages_free(p.data, 0);
}

static void bench_table(const struct bench *b) {
    static const struct {
        uint32_t n_out, n_in, n_segments;
    } shapes[] = {{320, 320, 1}, {768, 2048, 1}, {2048, 768, 8}, {16384, 4096, 1}};
    bool slow = strcmp(b->ops->name, "ref") == 0;
    bench_peak(b);
    bench_read(b);
    for (size_t s = 0; s < (slow ? 1 : sizeof shapes / sizeof *shapes); s++)
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            bench_matmul(b, (struct matrix){.dtype = (enum dtype)dtype,
                                            .n_out = shapes[s].n_out,
                                            .n_in = shapes[s].n_in,
                                            .n_segments = shapes[s].n_segments});
    for (int dtype = DTYPE_F32; dtype < DTYPE_KV_COUNT; dtype++) {
        if (!dtype_is_kv((enum dtype)dtype)) continue;
        bench_attend(b, 2048, 1, (enum dtype)dtype);
        bench_attend(b, 2048, 8, (enum dtype)dtype);
        bench_attend_latent(b, 2048, 16, (enum dtype)dtype);
        if (!slow) bench_attend_latent(b, 2048, 128, (enum dtype)dtype);
        if (!slow) bench_attend(b, 32768, 8, (enum dtype)dtype);
        if (!slow) bench_attend(b, 2048, 256, (enum dtype)dtype);
    }
    bench_rows(b, 4096);
    bench_rows(b, 151936);
    bench_packing(b);
}

int main(int argc, char **argv) {
    struct bench b = {.env = env_real_create()};
    check(b.env != NULL);
    kernel_thread_init();
    puts("table,op,format,shape,rows,microseconds,gflops,gbytes_per_s");
    static const char *const names[] = {"avx512", "avx2", "ref"};
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (argc > 1 && strcmp(argv[1], names[i]) != 0) continue;
        b.ops = kernel_ops_select(names[i]);
        if (b.ops == NULL) continue;
        found++;
        bench_table(&b);
    }
    env_real_destroy(b.env);
    if (found == 0)
        fprintf(stderr, "bench_kernels: this CPU runs only %s\n", kernel_ops_available());
    return found == 0;
}
