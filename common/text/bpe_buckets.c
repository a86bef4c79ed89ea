// bpe_buckets.c: see bpe_buckets.h.
#include "common/text/bpe_buckets.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/vocab.h"

#define SHORT 64 // positions that insertion sorts quickest

void bpe_buckets_finish(struct bpe_buckets *b) {
    mem_free(b->buckets);
    mem_free(b->entries);
    mem_free(b->positions);
    mem_free(b->spare);
    *b = (struct bpe_buckets){0};
}

int bpe_buckets_start(struct bpe_buckets *b, uint32_t n_ranks, size_t n) {
    if (b->buckets == NULL) {
        b->buckets = mem_array(n_ranks, sizeof *b->buckets);
        if (b->buckets == NULL) return ERR_FATAL_NOMEM;
        b->n_ranks = n_ranks;
    }
    check(b->n_ranks == n_ranks);
    if (b->entries_capacity < 2 * n) {
        struct bpe_entry *entries = mem_resize(b->entries, 2 * n * sizeof *entries);
        if (entries == NULL) return ERR_FATAL_NOMEM;
        b->entries = entries;
        b->entries_capacity = 2 * n;
    }
    b->n_entries = 0;
    b->free = ID_NONE;
    return 0;
}

void bpe_buckets_add(struct bpe_buckets *b, uint32_t rank, uint32_t position) {
    struct bpe_bucket *bucket = &b->buckets[rank];
    uint32_t i = b->free;
    if (i != ID_NONE) {
        b->free = b->entries[i].next;
    } else {
        check(b->n_entries < b->entries_capacity);
        i = (uint32_t)b->n_entries++;
    }
    b->entries[i] = (struct bpe_entry){position, ID_NONE};
    if (bucket->n++ == 0)
        bucket->first = i;
    else
        b->entries[bucket->last].next = i;
    bucket->last = i;
}

static int reserve(struct bpe_buckets *b, size_t n) {
    if (b->positions_capacity >= n) return 0;
    size_t capacity = 2 * n;
    uint32_t *positions = mem_resize(b->positions, capacity * sizeof *positions);
    if (positions == NULL) return ERR_FATAL_NOMEM;
    b->positions = positions;
    uint32_t *spare = mem_resize(b->spare, capacity * sizeof *spare);
    if (spare == NULL) return ERR_FATAL_NOMEM;
    b->spare = spare;
    b->positions_capacity = capacity;
    return 0;
}

static void sort_short(uint32_t *list, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint32_t one = list[i];
        size_t k = i;
        for (; k > 0 && list[k - 1] > one; k--)
            list[k] = list[k - 1];
        list[k] = one;
    }
}

// By one byte, from list to out; false when all have the same, and nothing was done.
static bool sort_byte(const uint32_t *list, size_t n, unsigned shift, uint32_t *out) {
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++)
        starts[(list[i] >> shift & 255) + 1]++;
    if (starts[(list[0] >> shift & 255) + 1] == n) return false;
    for (size_t i = 1; i < 257; i++)
        starts[i] += starts[i - 1];
    for (size_t i = 0; i < n; i++)
        out[starts[list[i] >> shift & 255]++] = list[i];
    return true;
}

static void sort_long(struct bpe_buckets *b, size_t n) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
        if (!sort_byte(b->positions, n, shift, b->spare)) continue;
        uint32_t *sorted = b->spare;
        b->spare = b->positions;
        b->positions = sorted;
    }
}

int bpe_buckets_take(struct bpe_buckets *b, uint32_t rank, const uint32_t **out, size_t *n) {
    struct bpe_bucket *bucket = &b->buckets[rank];
    bool ascending = true;
    *n = bucket->n;
    if (*n == 0) return 0;
    if (reserve(b, *n) != 0) return ERR_FATAL_NOMEM;
    uint32_t entry = bucket->first;
    for (size_t i = 0; i < *n; i++) {
        b->positions[i] = b->entries[entry].position;
        ascending = ascending && (i == 0 || b->positions[i] >= b->positions[i - 1]);
        entry = b->entries[entry].next;
    }
    b->entries[bucket->last].next = b->free;
    b->free = bucket->first;
    bucket->n = 0;
    if (!ascending && *n <= SHORT) sort_short(b->positions, *n);
    if (!ascending && *n > SHORT) sort_long(b, *n);
    *out = b->positions;
    return 0;
}
