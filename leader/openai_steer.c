// openai_steer.c: the fields that steer which tokens may come: logit_bias, allowed_token_ids,
// bad_words. Lists of the client's become lists of checked ids in the request's arena.
#include <stdlib.h>
#include <string.h>

#include "leader/openai_fields.h"

static int no_memory(struct openai_reader *r) {
    return api_error_set(r->error, 500, NULL, "memory is out.");
}

static int too_many(struct openai_reader *r, const struct openai_field *f, uint32_t max) {
    return api_error_set(r->error, 400, f->name, "'%s' may have at most %u entries.", f->name, max);
}

// An id is written as the digits that a JSON number would have.
static bool parse_id(const char *text, uint32_t vocab, uint32_t *id) {
    if (text[0] < '0' || text[0] > '9' || (text[0] == '0' && text[1] != '\0')) return false;
    uint64_t x = 0;
    for (; *text >= '0' && *text <= '9' && x < vocab; text++)
        x = x * 10 + (uint64_t)(*text - '0');
    *id = (uint32_t)x;
    return *text == '\0' && x < vocab;
}

int openai_read_logit_bias(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    struct steering *s = &r->request->steering;
    if (!json_is_object(value))
        return openai_field_wrong(r, f, "an object of token ids and numbers");
    size_t n = json_object_size(value);
    if (n > LOGIT_BIAS_MAX) return too_many(r, f, LOGIT_BIAS_MAX);
    uint32_t *ids = arena_alloc(&r->request->arena, n * sizeof *ids);
    float *bias = arena_alloc(&r->request->arena, n * sizeof *bias);
    if (n != 0 && (ids == NULL || bias == NULL)) return no_memory(r);
    const char *key;
    json_t *number;
    s->n_bias = 0;
    json_object_foreach((json_t *)value, key, number) {
        double x = json_number_value(number);
        if (!parse_id(key, r->defaults->vocab, &ids[s->n_bias]))
            return openai_field_wrong(r, f, "an object whose keys are token ids of this model");
        if (!json_is_number(number)) return openai_field_wrong(r, f, "an object of numbers");
        if (!(x >= f->min && x <= f->max)) return openai_field_range(r, f);
        bias[s->n_bias++] = (float)x;
    }
    s->bias_ids = ids;
    s->bias = bias;
    return 0;
}

int openai_read_allowed_ids(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    struct steering *s = &r->request->steering;
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n == 0)
        return openai_field_wrong(r, f, "a list of at least one token id");
    if (n > ALLOWED_IDS_MAX) return too_many(r, f, ALLOWED_IDS_MAX);
    uint32_t *ids = arena_alloc(&r->request->arena, n * sizeof *ids);
    if (ids == NULL) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->defaults->vocab)
            return openai_field_wrong(r, f, "a list of token ids of this model");
        ids[i] = (uint32_t)json_integer_value(id);
    }
    s->allowed_ids = ids;
    s->n_allowed = (uint32_t)n;
    return 0;
}

// Their tokens are made where prompts are (words.c).
int openai_read_bad_words(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value) {
    struct openai_request *q = r->request;
    if (!json_is_array(value)) return openai_field_wrong(r, f, "a list of strings");
    size_t n = json_array_size(value);
    if (n > BAD_WORDS_MAX) return too_many(r, f, BAD_WORDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_array_get(value, i);
        size_t bytes = json_string_length(word);
        if (bytes == 0 || bytes > STOP_STRING_BYTES_MAX)
            return api_error_set(r->error, 400, f->name,
                                 "each of '%s' must be a string of 1 to %d bytes.", f->name,
                                 STOP_STRING_BYTES_MAX);
    }
    q->bad_words = value;
    return 0;
}
