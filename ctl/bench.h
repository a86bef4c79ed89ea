// bench.h: what the closed loop (bench.c) and the open one (bench_open.c) share (bench_load.c).
#ifndef MOESAIC_CTL_BENCH_H
#define MOESAIC_CTL_BENCH_H

#include "ctl/client.h"

// What all rows are asked for. Of drawn prompts no two are the same, whichever rows they are in, or
// a prefix cache would answer the second row.
struct bench_load {
    struct drawn drawn;
    bool is_drawn; // else the prompts are a few short chats
    uint64_t n_asked;
};

// Checks the flags that need no server. Then bench_find asks it for what they do not say.
int bench_check(const struct ctl *c, struct err_text *e);
int bench_find(struct ctl *c, struct bench_load *load, struct err_text *e);

// What each of the answers is asked for: its prompt, seed and length.
void bench_plan(const struct ctl *c, struct bench_load *load, struct answer *answers, uint32_t n);
// Sorts the values; p within 0 to 1. 0 for none.
double bench_percentile(double *values, uint32_t n, double p);

// One row, as CSV under a header where it is the first, or as an object of JSON.
struct bench_field {
    const char *name;
    int decimals; // BENCH_SHORTEST: as few as say it
    double value;
};
#define BENCH_SHORTEST (-1)
void bench_print(const struct ctl *c, const struct bench_field *fields, size_t n, bool first);

// What the process ends with: 2 for wrong flags, 1 for any other error (which is printed, like
// those) and when requests failed.
int bench_exit_code(int err, uint32_t n_failures, const struct err_text *e);

// The rows of --rate. The process's exit code.
int bench_open(struct ctl *c);

#endif
