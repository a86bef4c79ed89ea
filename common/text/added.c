// added.c: a sorted list narrowed byte by byte: at most ADDED_BYTES_MAX steps a position, whatever
// the file holds.
#include "common/text/added.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

int added_set_add(struct added_set *s, struct added_token token, struct err_text *e) {
    if (s->n == ADDED_TOKENS_MAX)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: more than %d added_tokens",
                       ADDED_TOKENS_MAX);
    if (s->n == s->capacity) {
        uint32_t capacity = s->capacity < 16 ? 16 : 2 * s->capacity;
        struct added_token *tokens = mem_resize(s->tokens, capacity * sizeof *tokens);
        if (tokens == NULL)
            return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for added_tokens");
        s->tokens = tokens;
        s->capacity = capacity;
    }
    s->tokens[s->n++] = token;
    return 0;
}

static int compare(const char *a, size_t n_a, const char *b, size_t n_b) {
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    if (order != 0) return order;
    return n_a < n_b ? -1 : n_a > n_b;
}

static int compare_tokens(const void *a, const void *b) {
    const struct added_token *x = a, *y = b;
    return compare(x->content, x->n_bytes, y->content, y->n_bytes);
}

int added_set_sort(struct added_set *s, struct err_text *e) {
    if (s->n > 0) qsort(s->tokens, s->n, sizeof *s->tokens, compare_tokens);
    for (uint32_t i = 1; i < s->n; i++) {
        if (compare_tokens(&s->tokens[i - 1], &s->tokens[i]) == 0)
            return err_set(e, ERR_FATAL_MODEL,
                           "tokenizer.json: added_tokens: ids %u and %u have the same content",
                           s->tokens[i - 1].id, s->tokens[i].id);
    }
    uint32_t i = 0;
    for (uint32_t b = 0; b < 256; b++) {
        s->first[b] = i;
        while (i < s->n && (unsigned char)s->tokens[i].content[0] == b)
            i++;
    }
    s->first[256] = i;
    return 0;
}

void added_set_finish(struct added_set *s) {
    mem_free(s->tokens);
    *s = (struct added_set){0};
}

const struct added_token *added_set_find(const struct added_set *s, const char *content, size_t n) {
    uint32_t low = 0, high = s->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct added_token *t = &s->tokens[middle];
        int order = compare(t->content, t->n_bytes, content, n);
        if (order == 0) return t;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// The first of tokens[low, high), which agree before depth, whose byte at depth is byte or more. A
// token that ends at depth sorts before all others.
static uint32_t lower_bound(const struct added_set *s, uint32_t low, uint32_t high, size_t depth,
                            uint32_t byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct added_token *t = &s->tokens[middle];
        bool before = t->n_bytes <= depth || (unsigned char)t->content[depth] < byte;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct added_token *added_set_match(const struct added_set *s, const char *text,
                                          struct added_range r) {
    const struct added_token *best = NULL;
    unsigned char byte = (unsigned char)text[r.at];
    uint32_t low = s->first[byte], high = s->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        const struct added_token *t = &s->tokens[low];
        // Of those that agree on depth bytes, the one that ends here comes first.
        if (t->n_bytes == depth && (t->blank || r.at + depth <= r.trusted_end)) best = t;
        if (r.at + depth >= r.n) break;
        byte = (unsigned char)text[r.at + depth];
        low = lower_bound(s, low, high, depth, byte);
        high = lower_bound(s, low, high, depth, byte + 1u);
    }
    return best;
}
