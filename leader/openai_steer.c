// openai_steer.c: the fields that steer which tokens may come: logit_bias, allowed_token_ids,
// bad_words. Lists of the client's become lists of checked ids in the request's arena.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
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

// A pattern that the numbers below n match, as they are written: 0, or without zeros in front.
// Piece by piece: equal to the largest one so far, then a smaller digit, then any digits.
static void add_pattern(struct buf *out, uint32_t n) {
    char top[16];
    int digits = snprintf(top, sizeof top, "%u", n - 1);
    buf_text(out, "^(?:");
    for (int k = 1; k < digits; k++)
        buf_format(out, k == 1 ? "[0-9]|" : "[1-9][0-9]{%d}|", k - 1);
    for (int i = 0; i < digits; i++) {
        char lowest = i == 0 && digits > 1 ? '1' : '0';
        if (top[i] == lowest) continue;
        buf_format(out, "%.*s[%c-%c]", i, top, lowest, top[i] - 1);
        if (i + 1 < digits) buf_format(out, "[0-9]{%d}", digits - i - 1);
        buf_text(out, "|");
    }
    buf_format(out, "%s)$", top);
}

json_t *openai_schema_logit_bias(const struct openai_field *f, const struct openai_form *form) {
    const uint32_t vocab = form->facts->vocab;
    struct buf pattern;
    buf_init(&pattern, 0);
    add_pattern(&pattern, vocab != 0 ? vocab : VOCAB_MAX);
    buf_add(&pattern, "", 1);
    json_t *out = pattern.failed
                      ? NULL
                      : json_pack("{s:[s, s], s:{s:s}, s:{s:s, s:f, s:f}, s:i}", "type", "object",
                                  "null", "propertyNames", "pattern", pattern.data,
                                  "additionalProperties", "type", "number", "minimum", f->min,
                                  "maximum", f->max, "maxProperties", LOGIT_BIAS_MAX);
    buf_finish(&pattern);
    return out;
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
            return api_error_set(r->error, 400, f->name,
                                 "'%s' may have nothing but token ids of this model, below %u.",
                                 f->name, r->defaults->vocab);
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
        if (!openai_token_id(json_array_get(value, i), r->defaults->vocab, &ids[i]))
            return openai_field_wrong(r, f, "a list of token ids of this model");
    }
    s->allowed_ids = ids;
    s->n_allowed = (uint32_t)n;
    return 0;
}

json_t *openai_schema_allowed_ids(const struct openai_field *f, const struct openai_form *form) {
    (void)f;
    return openai_schema_ids(1, ALLOWED_IDS_MAX, form->facts);
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

json_t *openai_schema_bad_words(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:{s:s, s:s, s:i}, s:i}", "type", "array", "null", "items", "type",
                     "string", "pattern", "[^ ]", "maxLength", STOP_STRING_BYTES_MAX, "maxItems",
                     BAD_WORDS_MAX);
}
