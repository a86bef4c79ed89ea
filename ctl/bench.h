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

// The rows of --rate; c->model is known. The process's exit code.
int bench_open(struct ctl *c);

#endif
