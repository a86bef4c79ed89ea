// tables.h: what select.c and the back ends share and nobody else needs.
#ifndef MOESAIC_KERNELS_TABLES_H
#define MOESAIC_KERNELS_TABLES_H

#include "kernels/ops.h"

// Queries that the vectorised attention takes at once, and those that pass over a partition of keys
// before the next one is read; scratch is sized for them.
#define ATTEND_TILE_MAX 8
#define ATTEND_BUNCH_MAX 64
// The same of latent attention: each tile puts all keys that it reads into lanes anew, so more
// queries share that; and the blocks of keys that stand in lanes at once.
#define LATENT_TILE_MAX 32
#define LATENT_PANELS 4

// simd_rows.c, once for each instruction set. Only to be called where the CPU runs it.
const struct kernel_ops *kernel_ops_avx2(void);
const struct kernel_ops *kernel_ops_avx512(void);

#endif
