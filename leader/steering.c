// steering.c: see steering.h.
#include "leader/steering.h"

#include <string.h>

#include "common/base/mem.h"

static const void *place(uint8_t **at, const void *items, size_t bytes) {
    void *to = *at;
    if (bytes != 0) memcpy(to, items, bytes);
    *at += bytes;
    return to;
}

// Every list has elements of four bytes, so each stays aligned behind the one before.
struct steering *steering_copy(const struct steering *from) {
    size_t ids = sizeof(uint32_t),
           n = (size_t)from->n_bias * 2 + from->n_allowed + from->n_words + from->n_word_ids;
    struct steering *s = mem_alloc(sizeof *s + n * ids);
    if (s == NULL) return NULL;
    uint8_t *at = (uint8_t *)(s + 1);
    *s = *from;
    s->bias_ids = place(&at, from->bias_ids, from->n_bias * ids);
    s->bias = place(&at, from->bias, from->n_bias * ids);
    s->allowed_ids = place(&at, from->allowed_ids, from->n_allowed * ids);
    s->word_ids = place(&at, from->word_ids, from->n_word_ids * ids);
    s->word_lengths = place(&at, from->word_lengths, from->n_words * ids);
    return s;
}

bool steering_is_idle(const struct steering *s) {
    bool repetition = s->repetition_penalty != 0 && s->repetition_penalty != 1;
    return s->presence_penalty == 0 && s->frequency_penalty == 0 && !repetition &&
           s->min_tokens == 0 && s->n_bias == 0 && s->n_allowed == 0 && s->n_words == 0;
}

uint32_t steering_items(const struct steering *s, uint32_t n_stop_ids) {
    return 2 * s->n_bias + s->n_allowed + s->n_words + s->n_word_ids +
           (s->min_tokens != 0 ? n_stop_ids : 0);
}

static bool has_id(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

// Of longer words only the last token is banned, and only behind the others.
static bool is_bad_word(const struct steering *s, uint32_t id) {
    const uint32_t *word = s->word_ids;
    for (uint32_t i = 0; i < s->n_words; word += s->word_lengths[i++]) {
        if (s->word_lengths[i] == 1 && word[0] == id) return true;
    }
    return false;
}

bool steering_conflicts(const struct steering *s, const uint32_t *stop_ids, uint32_t n_stop_ids,
                        struct steering_conflict *out) {
    *out = (struct steering_conflict){false, false};
    for (uint32_t i = 0; i < s->n_allowed; i++) {
        bool word = is_bad_word(s, s->allowed_ids[i]);
        bool stop = s->min_tokens != 0 && has_id(stop_ids, n_stop_ids, s->allowed_ids[i]);
        if (!word && !stop) return false;
        out->words |= word;
        out->stops |= stop && !word;
    }
    return s->n_allowed != 0;
}
