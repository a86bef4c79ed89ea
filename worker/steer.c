// steer.c: see steer.h. Allowed ids first, then bans, biases and penalties, as vLLM has them.
#include "worker/steer.h"

#include <math.h>
#include <string.h>

#include "common/base/limits.h"

void steer_lay(struct steer_slot *s, struct scratch *memory) {
    uint32_t *items = scratch_take(memory, STEERING_ITEMS_MAX, sizeof *items);
    if (items != NULL) s->items = items;
}

void steer_scratch_lay(struct steer_scratch *s, uint32_t vocab, struct scratch *memory) {
    s->logits = scratch_take(memory, vocab, sizeof *s->logits);
    s->counts = scratch_take(memory, vocab, sizeof *s->counts);
}

// --- from the plan

static int check_ids(const uint32_t *ids, size_t n, uint32_t vocab, struct err_text *e) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= vocab)
            return err_set(e, ERR_PEER_PROTOCOL, "steering: id %u is not below %u", ids[i], vocab);
    }
    return 0;
}

static int check_words(const Moesaic__Step__V1__Steering *pb, struct err_text *e) {
    size_t left = pb->n_word_ids;
    for (size_t i = 0; i < pb->n_word_lengths; i++) {
        if (pb->word_lengths[i] == 0 || pb->word_lengths[i] > left)
            return err_set(e, ERR_PEER_PROTOCOL,
                           "steering.word_lengths[%zu] is %u, with %zu ids left", i,
                           pb->word_lengths[i], left);
        left -= pb->word_lengths[i];
    }
    return left == 0
               ? 0
               : err_set(e, ERR_PEER_PROTOCOL, "steering.word_ids: %zu belong to no word", left);
}

// Far above what clients may ask, and so far below the largest float that no sum of such terms and
// no product with a count leaves the finite numbers.
#define TERM_MAX 0x1p64f

static bool is_term(float x) {
    return x >= -TERM_MAX && x <= TERM_MAX; // false when it is no number
}

static int check_numbers(const Moesaic__Step__V1__Steering *pb, struct err_text *e) {
    if (!is_term(pb->presence_penalty) || !is_term(pb->frequency_penalty))
        return err_set(e, ERR_PEER_PROTOCOL, "steering: a penalty is not finite or beyond 2^64");
    if (!(pb->repetition_penalty >= 0 && pb->repetition_penalty <= TERM_MAX))
        return err_set(e, ERR_PEER_PROTOCOL, "steering.repetition_penalty %g is not in [0, 2^64]",
                       (double)pb->repetition_penalty);
    for (size_t i = 0; i < pb->n_bias; i++) {
        if (!is_term(pb->bias[i]))
            return err_set(e, ERR_PEER_PROTOCOL, "steering.bias[%zu] is not finite or beyond 2^64",
                           i);
    }
    return 0;
}

int steer_check(const Moesaic__Step__V1__Steering *pb, uint32_t vocab, struct err_text *e) {
    // A list's length is bounded by the message's bytes, so the sum does not wrap.
    size_t n_items = pb->n_stop_ids + pb->n_bias_ids + pb->n_bias + pb->n_allowed_ids +
                     pb->n_word_ids + pb->n_word_lengths;
    if (n_items > STEERING_ITEMS_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "steering: %zu items are more than %d", n_items,
                       STEERING_ITEMS_MAX);
    if (pb->n_bias != pb->n_bias_ids)
        return err_set(e, ERR_PEER_PROTOCOL, "steering.bias: %zu numbers for %zu ids", pb->n_bias,
                       pb->n_bias_ids);
    int rc = check_numbers(pb, e);
    if (rc == 0) rc = check_words(pb, e);
    if (rc == 0) rc = check_ids(pb->stop_ids, pb->n_stop_ids, vocab, e);
    if (rc == 0) rc = check_ids(pb->bias_ids, pb->n_bias_ids, vocab, e);
    if (rc == 0) rc = check_ids(pb->allowed_ids, pb->n_allowed_ids, vocab, e);
    if (rc == 0) rc = check_ids(pb->word_ids, pb->n_word_ids, vocab, e);
    return rc;
}

static uint32_t *add_list(struct steer_slot *s, enum steer_list list, uint32_t *to,
                          const void *items, size_t n) {
    s->n[list] = (uint32_t)n;
    if (n != 0) memcpy(to, items, n * sizeof *to);
    return to + n;
}

void steer_set(struct steer_slot *s, const Moesaic__Step__V1__Steering *pb) {
    s->known = true;
    s->n_prompt = pb->n_prompt;
    s->min_tokens = pb->min_tokens;
    s->presence_penalty = pb->presence_penalty;
    s->frequency_penalty = pb->frequency_penalty;
    s->repetition_penalty = pb->repetition_penalty;
    uint32_t *to = s->items;
    to = add_list(s, STEER_STOP_IDS, to, pb->stop_ids, pb->n_stop_ids);
    to = add_list(s, STEER_BIAS_IDS, to, pb->bias_ids, pb->n_bias_ids);
    to = add_list(s, STEER_BIAS, to, pb->bias, pb->n_bias);
    to = add_list(s, STEER_ALLOWED_IDS, to, pb->allowed_ids, pb->n_allowed_ids);
    to = add_list(s, STEER_WORD_IDS, to, pb->word_ids, pb->n_word_ids);
    add_list(s, STEER_WORD_LENGTHS, to, pb->word_lengths, pb->n_word_lengths);
}

static const uint32_t *list_of(const struct steer_slot *s, enum steer_list list) {
    const uint32_t *at = s->items;
    for (int i = 0; i < (int)list; i++)
        at += s->n[i];
    return at;
}

// --- one row

struct steered {
    const struct steer_slot *s;
    const struct kv *kv;
    const struct steer_row *row;
    float *x;
    uint32_t *counts;
    uint32_t n_known; // tokens before the one that is chosen now
};

static uint32_t n_generated(const struct steered *t) {
    return t->n_known > t->s->n_prompt ? t->n_known - t->s->n_prompt : 0;
}

static void start(const struct steered *t) {
    uint32_t n = t->s->n[STEER_ALLOWED_IDS];
    const uint32_t *allowed = list_of(t->s, STEER_ALLOWED_IDS);
    if (n == 0) {
        memcpy(t->x, t->row->logits, t->row->vocab * sizeof *t->x);
        return;
    }
    for (uint32_t id = 0; id < t->row->vocab; id++)
        t->x[id] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        t->x[allowed[i]] = t->row->logits[allowed[i]];
}

// True when the last n generated tokens are these.
static bool just_generated(const struct steered *t, const uint32_t *ids, uint32_t n) {
    if (n > n_generated(t)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (kv_token(t->kv, t->row->slot, t->n_known - n + i) != ids[i]) return false;
    }
    return true;
}

static void ban(const struct steered *t) {
    const uint32_t *word = list_of(t->s, STEER_WORD_IDS);
    const uint32_t *lengths = list_of(t->s, STEER_WORD_LENGTHS);
    for (uint32_t i = 0; i < t->s->n[STEER_WORD_LENGTHS]; word += lengths[i++]) {
        uint32_t last = lengths[i] - 1;
        if (just_generated(t, word, last)) t->x[word[last]] = -INFINITY;
    }
    if (n_generated(t) >= t->s->min_tokens) return;
    const uint32_t *stop = list_of(t->s, STEER_STOP_IDS);
    for (uint32_t i = 0; i < t->s->n[STEER_STOP_IDS]; i++)
        t->x[stop[i]] = -INFINITY;
}

static bool all_banned(const struct steered *t) {
    for (uint32_t id = 0; id < t->row->vocab; id++) {
        if (t->x[id] != -INFINITY) return false;
    }
    return true;
}

static void add_biases(const struct steered *t) {
    const uint32_t *ids = list_of(t->s, STEER_BIAS_IDS), *bits = list_of(t->s, STEER_BIAS);
    for (uint32_t i = 0; i < t->s->n[STEER_BIAS_IDS]; i++)
        t->x[ids[i]] += bits_to_f32(bits[i]);
}

// Each distinct token of the text so far, once; only generated ones are counted.
static void repeat_penalty(const struct steered *t) {
    float penalty = t->s->repetition_penalty;
    if (penalty == 0.0f || penalty == 1.0f) return;
    for (uint32_t p = 0; p < t->n_known; p++) {
        uint32_t id = kv_token(t->kv, t->row->slot, p);
        if (t->counts[id]++ != 0) continue;
        t->x[id] = t->x[id] > 0 ? t->x[id] / penalty : t->x[id] * penalty;
    }
    for (uint32_t p = 0; p < t->n_known; p++)
        t->counts[kv_token(t->kv, t->row->slot, p)] = 0;
}

static void count_penalties(const struct steered *t) {
    float presence = t->s->presence_penalty, frequency = t->s->frequency_penalty;
    if (presence == 0.0f && frequency == 0.0f) return;
    for (uint32_t p = t->s->n_prompt; p < t->n_known; p++)
        t->counts[kv_token(t->kv, t->row->slot, p)]++;
    for (uint32_t p = t->s->n_prompt; p < t->n_known; p++) {
        uint32_t id = kv_token(t->kv, t->row->slot, p), n = t->counts[id];
        if (n == 0) continue; // met before
        t->x[id] -= frequency * (float)n;
        t->x[id] -= presence;
        t->counts[id] = 0;
    }
}

const float *steer_row(const struct steer_slot *s, const struct kv *kv, const struct steer_row *row,
                       const struct steer_scratch *scratch) {
    struct steered t = {s, kv, row, scratch->logits, scratch->counts, row->position + 1};
    start(&t);
    ban(&t);
    if (all_banned(&t)) start(&t);
    add_biases(&t);
    repeat_penalty(&t);
    count_penalties(&t);
    return t.x;
}
