// bench.h: what the closed loop (bench.c) and the open one (bench_open.c) share.
#ifndef MOESAIC_CTL_BENCH_H
#define MOESAIC_CTL_BENCH_H

#include "ctl/client.h"

// What each of the answers is asked for: its prompt, seed and length.
void bench_plan(const struct ctl *c, struct answer *answers, uint32_t n);
// The next number of a sequence that only its state decides.
uint64_t bench_draw(uint64_t *state);
// Sorts the values; p within 0 to 1. 0 for none.
double bench_percentile(double *values, uint32_t n, double p);

// What the process ends with: 2 for wrong flags, 1 for any other error (which is printed, like
// those) and when requests failed.
int bench_exit_code(int err, uint32_t n_failures, const struct err_text *e);

// The rows of --rate. The process's exit code.
int bench_open(struct ctl *c);

#endif
