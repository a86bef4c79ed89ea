// ranked.c: see ranked.h.
#include "common/text/ranked.h"

struct splits {
    struct vocab *v;
    const char *file;
    struct err_text *e;
    uint32_t n;
};

// Both halves of each place where a token can be split.
typedef int split_user(struct splits *s, struct merge m);

static int for_each_split(struct splits *s, split_user *use) {
    const struct vocab *v = s->v;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        const struct token *t = &v->tokens[id];
        for (uint32_t i = 1; t->ordinary && i < t->n_bytes; i++) {
            struct merge m = {.rank = id, .id = id, .left = vocab_id(v, t->bytes, i, true)};
            if (m.left == ID_NONE) continue;
            m.right = vocab_id(v, t->bytes + i, t->n_bytes - i, true);
            int rc = m.right == ID_NONE ? 0 : use(s, m);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

static int count_split(struct splits *s, struct merge m) {
    (void)m;
    if (++s->n <= MERGES_MAX) return 0;
    return err_set(s->e, ERR_FATAL_MODEL, "%s: its tokens have more than %d parts", s->file,
                   MERGES_MAX);
}

static int add_split(struct splits *s, struct merge m) {
    return vocab_add_merge(s->v, m, s->e);
}

int ranked_merges(struct vocab *v, const char *file, struct err_text *e) {
    struct splits s = {.v = v, .file = file, .e = e};
    int rc = for_each_split(&s, count_split);
    if (rc == 0) rc = vocab_resize_merges(v, s.n, e);
    return rc != 0 ? rc : for_each_split(&s, add_split);
}

int ranked_add_special(struct tokenizer *t, const struct ranked_special *token, const char *file,
                       struct err_text *e) {
    struct vocab *v = &t->vocab;
    if (token->n_bytes == 0 || token->n_bytes > ADDED_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "%s: the special token %u has %zu bytes", file,
                       token->id, token->n_bytes);
    int rc = vocab_store_bytes(v, token->id, token->content, token->n_bytes, e);
    if (rc != 0) return rc;
    struct token *stored = &v->tokens[token->id];
    stored->in_alphabet = false;
    stored->added = stored->only_mark = true;
    stored->special = token->special;
    struct added_token added = {
        .content = stored->bytes, .n_bytes = stored->n_bytes, .id = token->id};
    return added_set_add(&t->raw, added, e);
}
