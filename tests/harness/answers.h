// answers.h: five fixed requests, one of them steered, served on a tiny model in any way; what they
// answer must be the same bits.
#ifndef MOESAIC_TESTS_HARNESS_ANSWERS_H
#define MOESAIC_TESTS_HARNESS_ANSWERS_H

#include "tests/harness/serve.h"
#include "tests/harness/tiny.h"

#define ANSWERS_REQUESTS 5
#define ANSWERS_TOKENS 4
#define ANSWERS_ROWS 600

struct answers {
    struct serve_token of[ANSWERS_REQUESTS][ANSWERS_TOKENS];
    struct serve_score scores[ANSWERS_ROWS]; // of all prompts, one after the other
};

// How the requests are served; zero fields mean the plain way: one rank and thread, everything at
// once.
struct answers_way {
    void (*spec)(struct model_spec *spec);
    const struct layout *layout; // or NULL: so many ranks, each with requests of its own
    uint32_t n_ranks, n_threads;
    const struct kernel_ops *ops;
    enum dtype weights, kv;
    struct serve_way serve;
};

struct answers answers_of(struct answers_way way);
// Aborts the test with the first difference; what names the case.
void answers_compare(const struct answers *a, const struct answers *b, const char *what);
void answers_expect_same(struct answers_way a, struct answers_way b, const char *what);

#endif
