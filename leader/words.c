// words.c: see words.h. In the middle of a text a word begins with a token that has the space in
// it, so each word has two spellings in tokens.
#include "leader/words.h"

#include <jansson.h>
#include <string.h>

#include "common/base/limits.h"

struct words {
    const struct tokenizer *tokenizer;
    struct api_error *error;
    struct steering *steering;
    uint32_t *ids, *lengths; // [BAD_WORD_TOKENS_MAX], [2 * BAD_WORDS_MAX], the arena's
};

static int encode(struct words *w, const char *text, size_t bytes, struct id_list *out) {
    struct err_text cause;
    struct encode_text whole = {text, bytes, false, BAD_WORD_TOKENS_MAX, false, NULL};
    int rc = tokenizer_encode(w->tokenizer, &whole, out, &cause);
    if (rc == 0) return 0;
    if (rc == ERR_REQ_TOO_LARGE)
        return api_error_set(w->error, 400, "bad_words", "'bad_words' have more than %d tokens.",
                             BAD_WORD_TOKENS_MAX);
    return api_error_set(w->error, rc == ERR_REQ_INVALID ? 400 : 500, "bad_words", "%s",
                         cause.text);
}

static int add(struct words *w, const struct id_list *run) {
    struct steering *s = w->steering;
    if (run->n == 0)
        return api_error_set(w->error, 400, "bad_words",
                             "'bad_words' have one without a token, which cannot be kept out.");
    if (run->n > BAD_WORD_TOKENS_MAX - s->n_word_ids)
        return api_error_set(w->error, 400, "bad_words", "'bad_words' have more than %d tokens.",
                             BAD_WORD_TOKENS_MAX);
    memcpy(w->ids + s->n_word_ids, run->ids, run->n * sizeof *run->ids);
    w->lengths[s->n_words++] = (uint32_t)run->n;
    s->n_word_ids += (uint32_t)run->n;
    return 0;
}

static bool same_run(const struct id_list *a, const struct id_list *b) {
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0;
}

// text has a space before the word.
static int add_word(struct words *w, const char *text, size_t bytes) {
    struct id_list bare = {0}, spaced = {0};
    int rc = encode(w, text + 1, bytes - 1, &bare);
    if (rc == 0) rc = encode(w, text, bytes, &spaced);
    if (rc == 0) rc = add(w, &bare);
    if (rc == 0 && !same_run(&bare, &spaced)) rc = add(w, &spaced);
    id_list_finish(&bare);
    id_list_finish(&spaced);
    return rc;
}

int words_encode(const struct tokenizer *t, struct openai_request *r, struct api_error *e) {
    char text[STOP_STRING_BYTES_MAX + 1];
    size_t n = json_array_size(r->bad_words); // 0 for NULL
    if (n == 0) return 0;
    struct words w = {t, e, &r->steering, NULL, NULL};
    w.ids = arena_alloc(&r->arena, BAD_WORD_TOKENS_MAX * sizeof *w.ids);
    w.lengths = arena_alloc(&r->arena, 2 * n * sizeof *w.lengths);
    if (w.ids == NULL || w.lengths == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *word = json_array_get(r->bad_words, i);
        const char *begin = json_string_value(word);
        size_t bytes = json_string_length(word);
        for (; bytes > 0 && *begin == ' '; begin++)
            bytes--;
        text[0] = ' ';
        memcpy(text + 1, begin, bytes);
        rc = add_word(&w, text, bytes + 1);
    }
    r->steering.word_ids = w.ids;
    r->steering.word_lengths = w.lengths;
    return rc;
}
