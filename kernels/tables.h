// tables.h: what select.c and the back ends share and nobody else needs.
#ifndef MOESAIC_KERNELS_TABLES_H
#define MOESAIC_KERNELS_TABLES_H

#include "kernels/ops.h"

// Queries of the vectorised attention that pass over a partition of keys before the next one is
// read; scratch is sized for them.
#define ATTEND_BUNCH_MAX 64
// Bunches of so many turn keys and values into float32 once for all their tiles, where it pays;
// with fewer, each tile does so for itself as quickly.
#define ATTEND_COPY_MIN 17
// Keys or values of dim elements that are turned at a time: a third of a first-level cache, and no
// fewer than make it worth to take up a tile's sums.
static inline uint32_t attend_slice_keys(uint32_t dim) {
    uint32_t n_blocks = 4096 / KV_BLOCK_TOKENS / dim;
    return (n_blocks < 4 ? 4 : n_blocks > 32 ? 32 : n_blocks) * KV_BLOCK_TOKENS;
}
// The same of latent attention: each tile puts all keys that it reads into lanes anew, so more
// queries share that; and the blocks of keys that stand in lanes at once.
#define LATENT_TILE_MAX 32
#define LATENT_PANELS 4

// simd_rows.c, once for each instruction set. Only to be called where the CPU runs it.
const struct kernel_ops *kernel_ops_avx2(void);
const struct kernel_ops *kernel_ops_avx512(void);

#endif
