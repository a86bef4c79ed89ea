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
    *v = (struct vocab){.n_ids = n_ids};
    arena_init(&v->arena, (size_t)4 * TOKENIZER_BYTES_MAX);
    v->text_mask = table_size(n_ids) - 1;
    v->merge_mask = table_size(n_merges) - 1;
    v->tokens = mem_array(n_ids, sizeof *v->tokens);
    v->text_slots = mem_array((size_t)v->text_mask + 1, sizeof *v->text_slots);
    v->merges = mem_array((size_t)v->merge_mask + 1, sizeof *v->merges);
    if (v->tokens == NULL || v->text_slots == NULL || v->merges == NULL) {
        vocab_finish(v);
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for %u ids and %u merges",
                       n_ids, n_merges);
    }
    for (uint32_t i = 0; i <= v->merge_mask; i++)
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

size_t vocab_content_bytes(const char *content, size_t content_bytes, char *out,
                           bool *in_alphabet) {
    size_t n = 0;
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

int vocab_store(struct vocab *v, uint32_t id, const char *content, size_t content_bytes,
                struct err_text *e) {
    check(id < v->n_ids);
    struct token *t = &v->tokens[id];
    if (t->bytes != NULL)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: id %u is given twice", id);
    if (content_bytes == 0 || content_bytes > TOKEN_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: the content of id %u has %zu bytes", id,
                       content_bytes);
    char *bytes = arena_alloc(&v->arena, content_bytes);
    if (bytes == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for the vocabulary");
    t->n_bytes = (uint32_t)vocab_content_bytes(content, content_bytes, bytes, &t->in_alphabet);
    t->bytes = bytes;
    if (t->n_bytes > v->token_bytes_max) v->token_bytes_max = t->n_bytes;
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

int vocab_find_bytes(struct vocab *v, struct err_text *e) {
    for (uint32_t b = 0; b < 256; b++) {
        char byte = (char)b;
        v->byte_ids[b] = vocab_id(v, &byte, 1, true);
        if (v->byte_ids[b] == ID_NONE)
            return err_set(e, ERR_FATAL_MODEL,
                           "tokenizer.json: model.vocab has no token for byte 0x%02x", b);
    }
    return 0;
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
