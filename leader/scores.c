// scores.c: see scores.h.
#include "leader/scores.h"

#include <string.h>

#include "common/base/mem.h"

static const void *place(uint8_t **at, const void *items, size_t n) {
    void *to = *at;
    if (n != 0) memcpy(to, items, n * 4);
    *at += n * 4;
    return to;
}

// Every list has elements of four bytes, so each stays aligned behind the one before.
struct prompt_scores *scores_copy(const struct prompt_scores *from) {
    size_t n = from->n_tokens, n_top = n * from->n_top;
    struct prompt_scores *s = mem_alloc(sizeof *s + (3 * n + 2 * n_top) * 4);
    if (s == NULL) return NULL;
    uint8_t *at = (uint8_t *)(s + 1);
    *s = *from;
    s->tokens = place(&at, from->tokens, n);
    s->logprobs = place(&at, from->logprobs, n);
    s->ranks = place(&at, from->ranks, n);
    s->top_ids = place(&at, from->top_ids, n_top);
    s->top_logprobs = place(&at, from->top_logprobs, n_top);
    return s;
}
