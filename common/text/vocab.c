// vocab.c: open-addressing tables with a bound on probes: a file made to collide is refused, not
// suffered.
#include "common/text/vocab.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/text/utf8.h"

// At half load the longest run in a million random keys is below 100.
#define PROBES_MAX 1024u

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

static uint64_t hash_bytes(const char *bytes, size_t n, bool in_alphabet) {
    uint64_t h = in_alphabet ? UINT64_C(0xcbf29ce484222325) : UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return mix(h);
}

static uint64_t hash_pair(uint32_t left, uint32_t right) {
    return mix(((uint64_t)left << 32 | right) + UINT64_C(0x9e3779b97f4a7c15));
}

static uint32_t table_size(uint32_t n) {
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

int vocab_init(struct vocab *v, uint32_t n_ids, uint32_t n_merges, struct err_text *e) {
    check(n_ids <= VOCAB_MAX && n_merges <= MERGES_MAX);
    *v = (struct vocab){.n_ids = n_ids, .unk_id = ID_NONE, .byte_level = v->byte_level};
    arena_init(&v->arena, (size_t)4 * TOKENIZER_BYTES_MAX);
    v->text_mask = table_size(n_ids) - 1;
    v->tokens = mem_array(n_ids, sizeof *v->tokens);
    v->text_slots = mem_array((size_t)v->text_mask + 1, sizeof *v->text_slots);
    if (v->tokens == NULL || v->text_slots == NULL || vocab_resize_merges(v, n_merges, e) != 0) {
        vocab_finish(v);
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for %u ids and %u merges",
                       n_ids, n_merges);
    }
    return 0;
}

int vocab_resize_merges(struct vocab *v, uint32_t n_merges, struct err_text *e) {
    uint32_t size = table_size(n_merges);
    mem_free(v->merges);
    v->merges = mem_array(size, sizeof *v->merges);
    if (v->merges == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for %u merges", n_merges);
    v->merge_mask = size - 1;
    for (uint32_t i = 0; i < size; i++)
        v->merges[i].left = ID_NONE;
    return 0;
}

void vocab_finish(struct vocab *v) {
    mem_free(v->merges);
    mem_free(v->text_slots);
    mem_free(v->tokens);
    arena_finish(&v->arena);
    *v = (struct vocab){0};
}

// The byte alphabet: the printable bytes of Latin-1 stand for themselves, the other 68 for U+0100
// to U+0143 in order.
static bool is_printable(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

static int alphabet_byte(uint32_t code) {
    if (code < 0x100) return is_printable(code) ? (int)code : -1;
    if (code < 0x121) return (int)(code - 0x100);        // 0x00 to 0x20
    if (code < 0x143) return (int)(code - 0x121 + 0x7f); // 0x7f to 0xa0
    return code == 0x143 ? 0xad : -1;
}

size_t vocab_content_bytes(const struct vocab *v, const char *content, size_t content_bytes,
                           char *out, bool *in_alphabet) {
    size_t n = 0;
    if (!v->byte_level) {
        memcpy(out, content, content_bytes);
        *in_alphabet = true;
        return content_bytes;
    }
    for (size_t i = 0; i < content_bytes;) {
        struct utf8_unit unit = utf8_next(content + i, content_bytes - i);
        int byte = unit.valid ? alphabet_byte(unit.code) : -1;
        if (byte < 0) {
            memcpy(out, content, content_bytes);
            *in_alphabet = false;
            return content_bytes;
        }
        out[n++] = (char)byte;
        i += unit.bytes;
    }
    *in_alphabet = true;
    return n;
}

// Room for a token of at most n bytes; NULL with e set when it cannot be.
static char *make_token(struct vocab *v, uint32_t id, size_t n, struct err_text *e) {
    check(id < v->n_ids);
    char *bytes = NULL;
    if (v->tokens[id].bytes != NULL)
        err_set(e, ERR_FATAL_MODEL, "tokenizer.json: id %u is given twice", id);
    else if (n == 0 || n > TOKEN_BYTES_MAX)
        err_set(e, ERR_FATAL_MODEL, "tokenizer.json: the content of id %u has %zu bytes", id, n);
    else if ((bytes = arena_alloc(&v->arena, n)) == NULL)
        err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for the vocabulary");
    return bytes;
}

static void set_token(struct vocab *v, struct token *t, const char *bytes, size_t n) {
    t->bytes = t->text = bytes;
    t->n_bytes = t->n_text = (uint32_t)n;
    if (t->n_bytes > v->token_bytes_max) v->token_bytes_max = t->n_bytes;
    if (t->n_text > v->text_bytes_max) v->text_bytes_max = t->n_text;
}

int vocab_store(struct vocab *v, uint32_t id, const char *content, size_t content_bytes,
                struct err_text *e) {
    char *bytes = make_token(v, id, content_bytes, e);
    if (bytes == NULL) return ERR_FATAL_MODEL;
    struct token *t = &v->tokens[id];
    set_token(v, t, bytes, vocab_content_bytes(v, content, content_bytes, bytes, &t->in_alphabet));
    return 0;
}

int vocab_store_bytes(struct vocab *v, uint32_t id, const char *bytes, size_t n,
                      struct err_text *e) {
    char *copy = make_token(v, id, n, e);
    if (copy == NULL) return ERR_FATAL_MODEL;
    memcpy(copy, bytes, n);
    v->tokens[id].in_alphabet = true;
    set_token(v, &v->tokens[id], copy, n);
    return 0;
}

static bool is_token(const struct token *t, const char *bytes, size_t n, bool in_alphabet) {
    return t->n_bytes == n && t->in_alphabet == in_alphabet && memcmp(t->bytes, bytes, n) == 0;
}

int vocab_index(struct vocab *v, uint32_t id, struct err_text *e) {
    struct token *t = &v->tokens[id];
    uint32_t slot = (uint32_t)hash_bytes(t->bytes, t->n_bytes, t->in_alphabet) & v->text_mask;
    for (uint32_t probes = 0; probes < PROBES_MAX; probes++) {
        uint32_t other = v->text_slots[slot];
        if (other == 0) {
            v->text_slots[slot] = id + 1;
            t->ordinary = true;
            return 0;
        }
        if (is_token(&v->tokens[other - 1], t->bytes, t->n_bytes, t->in_alphabet))
            return err_set(e, ERR_FATAL_MODEL,
                           "tokenizer.json: ids %u and %u have the same content", other - 1, id);
        slot = (slot + 1) & v->text_mask;
    }
    return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: model.vocab is made to collide at id %u",
                   id);
}

// Bytes that no valid UTF-8 has: text is repaired first, so no text needs their tokens.
static bool never_in_text(uint32_t byte) {
    return byte == 0xc0 || byte == 0xc1 || byte >= 0xf5;
}

static int find_level_bytes(struct vocab *v, struct err_text *e) {
    for (uint32_t b = 0; b < 256; b++) {
        char byte = (char)b;
        v->byte_ids[b] = vocab_id(v, &byte, 1, true);
        if (v->byte_ids[b] == ID_NONE && !never_in_text(b))
            return err_set(e, ERR_FATAL_MODEL,
                           "tokenizer.json: model.vocab has no token for byte 0x%02x", b);
    }
    return 0;
}

int vocab_find_bytes(struct vocab *v, struct err_text *e) {
    if (v->byte_level) return find_level_bytes(v, e);
    bool all = v->byte_fallback;
    for (uint32_t b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        v->byte_ids[b] = v->byte_fallback ? vocab_id(v, name, 6, true) : ID_NONE;
        if (v->byte_ids[b] == ID_NONE && !never_in_text(b)) all = false;
    }
    if (all || v->unk_id != ID_NONE) return 0;
    return err_set(e, ERR_FATAL_MODEL,
                   "tokenizer.json: model has neither all bytes to fall back to nor an unk_token: "
                   "text would be lost");
}

int vocab_add_merge(struct vocab *v, struct merge m, struct err_text *e) {
    uint32_t slot = (uint32_t)hash_pair(m.left, m.right) & v->merge_mask;
    for (uint32_t probes = 0; probes < PROBES_MAX; probes++) {
        struct merge *other = &v->merges[slot];
        if (other->left == ID_NONE || (other->left == m.left && other->right == m.right)) {
            *other = m;
            return 0;
        }
        slot = (slot + 1) & v->merge_mask;
    }
    return err_set(e, ERR_FATAL_MODEL,
                   "tokenizer.json: model.merges is made to collide at merge %u", m.rank);
}

void vocab_drop_merges(struct vocab *v) {
    for (uint32_t slot = 0; slot <= v->merge_mask; slot++) {
        struct merge *m = &v->merges[slot];
        if (m->left != ID_NONE && v->tokens[m->id].only_mark) m->left = ID_DEAD;
    }
}

static bool is_merge(const struct merge *m) {
    return m->left != ID_NONE && m->left != ID_DEAD;
}

// Each rank has one result; made gets the highest rank (plus one) that makes each token.
static bool note_results(struct vocab *v, uint32_t *made) {
    for (uint32_t slot = 0; slot <= v->merge_mask; slot++) {
        const struct merge *m = &v->merges[slot];
        if (!is_merge(m)) continue;
        uint32_t *id = &v->rank_ids[m->rank];
        if (*id != ID_NONE && *id != m->id) return false;
        *id = m->id;
        if (made[m->id] <= m->rank) made[m->id] = m->rank + 1;
    }
    return true;
}

static bool uses_are_later(const struct vocab *v, const uint32_t *made) {
    for (uint32_t slot = 0; slot <= v->merge_mask; slot++) {
        const struct merge *m = &v->merges[slot];
        if (is_merge(m) && (made[m->left] > m->rank || made[m->right] > m->rank)) return false;
    }
    return true;
}

int vocab_order_merges(struct vocab *v) {
    v->n_ranks = 0;
    for (uint32_t slot = 0; slot <= v->merge_mask; slot++) {
        const struct merge *m = &v->merges[slot];
        if (is_merge(m) && m->rank >= v->n_ranks) v->n_ranks = m->rank + 1;
    }
    if (v->n_ranks == 0 || v->n_ranks > VOCAB_RANKS_MAX) return 0;
    uint32_t *made = mem_array(v->n_ids, sizeof *made);
    v->rank_ids = arena_alloc(&v->arena, v->n_ranks * sizeof *v->rank_ids);
    if (made == NULL || v->rank_ids == NULL) {
        mem_free(made);
        return ERR_FATAL_NOMEM;
    }
    for (uint32_t rank = 0; rank < v->n_ranks; rank++)
        v->rank_ids[rank] = ID_NONE;
    v->ordered = note_results(v, made) && uses_are_later(v, made);
    mem_free(made);
    return 0;
}

uint32_t vocab_id(const struct vocab *v, const char *bytes, size_t n, bool in_alphabet) {
    uint32_t slot = (uint32_t)hash_bytes(bytes, n, in_alphabet) & v->text_mask;
    for (uint32_t probes = 0; probes < PROBES_MAX; probes++) {
        uint32_t id = v->text_slots[slot];
        if (id == 0) return ID_NONE;
        if (is_token(&v->tokens[id - 1], bytes, n, in_alphabet)) return id - 1;
        slot = (slot + 1) & v->text_mask;
    }
    return ID_NONE;
}

const struct merge *vocab_merge(const struct vocab *v, uint32_t left, uint32_t right) {
    uint32_t slot = (uint32_t)hash_pair(left, right) & v->merge_mask;
    for (uint32_t probes = 0; probes < PROBES_MAX; probes++) {
        const struct merge *m = &v->merges[slot];
        if (m->left == ID_NONE) return NULL;
        if (m->left == left && m->right == right) return m;
        slot = (slot + 1) & v->merge_mask;
    }
    return NULL;
}
