// bpe_buckets.h: the merges that a long piece offers, by rank: a list of positions for each.
//
// For vocabularies where a token is made before it is used (vocab.h's ordered): then a merge offers
// only later ranks, so one walk over the ranks, each list from left to right, takes candidates in
// the order in which bpe.c's heap would, in linear time and without its jumps through memory.
#ifndef MOESAIC_COMMON_TEXT_BPE_BUCKETS_H
#define MOESAIC_COMMON_TEXT_BPE_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe_bucket {
    uint32_t first, last; // entries; meaningless when n is 0
    uint32_t n;
};

struct bpe_entry {
    uint32_t position, next;
};

struct bpe_buckets {
    struct bpe_bucket *buckets; // [n_ranks]
    uint32_t n_ranks;
    struct bpe_entry *entries;
    size_t n_entries, entries_capacity;
    uint32_t free;               // list of entries that were taken; ID_NONE: none
    uint32_t *positions, *spare; // of the list at hand
    size_t positions_capacity;
};

void bpe_buckets_finish(struct bpe_buckets *b);
// Empty, with room for 2 * n offers at once. 0 or ERR_FATAL_NOMEM.
int bpe_buckets_start(struct bpe_buckets *b, uint32_t n_ranks, size_t n);
void bpe_buckets_add(struct bpe_buckets *b, uint32_t rank, uint32_t position);
// Takes a rank's positions out, ascending; *n = 0 when it has none. *out is good until the next
// call. 0 or ERR_FATAL_NOMEM.
int bpe_buckets_take(struct bpe_buckets *b, uint32_t rank, const uint32_t **out, size_t *n);

#endif
