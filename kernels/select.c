// select.c: which back ends this CPU runs, the scratch that all of them are given, and the state a
// compute thread needs.
#include <fenv.h>

#include "common/base/limits.h"
#include "kernels/ops.h"
#include "kernels/tables.h"

#ifdef KERNELS_X86
#include <immintrin.h>

// The compiler's CPU test includes whether the operating system saves the wide registers.
static bool runs_avx2(void) {
    bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#ifndef __clang__ // clang 14 does not know the name; every CPU with AVX2 has it
    runs = runs && __builtin_cpu_supports("f16c");
#endif
    return runs;
}

static bool runs_avx512(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}
#endif

static bool runs_always(void) {
    return true;
}

// Best first.
static const struct {
    bool (*runs)(void);
    const struct kernel_ops *(*ops)(void);
    const char *names; // this one and those behind it
} tables[] = {
#ifdef KERNELS_X86
    {runs_avx512, kernel_ops_avx512, "avx512,avx2,ref"},
    {runs_avx2, kernel_ops_avx2, "avx2,ref"},
#endif
    {runs_always, kernel_ops_ref, "ref"},
};

#define TABLE_COUNT (sizeof tables / sizeof *tables)

const struct kernel_ops *kernel_ops_select(const char *name) {
    bool best = name == NULL || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (!tables[i].runs()) continue;
        const struct kernel_ops *ops = tables[i].ops();
        if (best || strcmp(name, ops->name) == 0) return ops;
    }
    return NULL;
}

const char *kernel_ops_available(void) {
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (tables[i].runs()) return tables[i].names;
    return "ref";
}

// For each query of a bunch the scores of one partition and both sums, and for many a copy of some
// keys or values.
size_t attend_scratch_floats(uint32_t n_q, uint32_t head_dim, uint32_t value_dim) {
    size_t n_bunch = n_q < ATTEND_BUNCH_MAX ? n_q : ATTEND_BUNCH_MAX;
    size_t padded = ((size_t)value_dim + PANEL_COLS - 1) / PANEL_COLS * PANEL_COLS;
    size_t keys = (size_t)attend_slice_keys(head_dim) * head_dim,
           values = (size_t)attend_slice_keys(value_dim) * value_dim;
    return n_bunch * (ATTN_PARTITION_TOKENS + 2 * padded) + (keys > values ? keys : values);
}

// For each query of a tile scores and both sums, and four blocks of keys with their tokens in
// lanes.
size_t attend_latent_scratch_floats(uint32_t key_dim, uint32_t value_dim) {
    size_t padded = ((size_t)value_dim + PANEL_COLS - 1) / PANEL_COLS * PANEL_COLS;
    return LATENT_TILE_MAX * (ATTN_PARTITION_TOKENS + 2 * padded) +
           (size_t)LATENT_PANELS * KV_BLOCK_TOKENS * key_dim;
}

void kernel_thread_init(void) {
    fesetenv(FE_DFL_ENV);
#ifdef KERNELS_X86
    _mm_setcsr(0x1f80); // nearest even, denormals kept, all exceptions masked
#endif
}
