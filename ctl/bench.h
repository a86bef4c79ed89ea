// bench.h: what the closed loop (bench.c) and the open one (bench_open.c) share.
#ifndef MOESAIC_CTL_BENCH_H
#define MOESAIC_CTL_BENCH_H

#include "ctl/client.h"

const char *bench_prompt(uint32_t i);
// Sorts the values; p within 0 to 1. 0 for none.
double bench_percentile(double *values, uint32_t n, double p);

// The rows of --rate; c->model is known. The process's exit code.
int bench_open(struct ctl *c);

#endif
