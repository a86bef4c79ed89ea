// simd_tables.h: the operations of one instruction set that are defined outside of simd_rows.c,
// which holds its table.
#ifndef MOESAIC_KERNELS_SIMD_TABLES_H
#define MOESAIC_KERNELS_SIMD_TABLES_H

#include "kernels/tables.h"
#include "kernels/vec.h"

void KERNEL_SYMBOL(matmul)(float *y, size_t ldy, const float *x, size_t ldx, uint32_t n_rows,
                           const struct matrix *w, uint32_t panel_begin, uint32_t panel_end);
void KERNEL_SYMBOL(attend)(const struct attend_job *job);
void KERNEL_SYMBOL(delta_rule)(const struct delta_job *job);
void KERNEL_SYMBOL(attend_latent)(const struct latent_job *job);
void KERNEL_SYMBOL(index_scores)(const struct index_job *job);
void KERNEL_SYMBOL(entry_scores)(const struct entry_job *job);
void KERNEL_SYMBOL(window_sum)(float *y, const struct window *w, uint32_t n);

#endif
