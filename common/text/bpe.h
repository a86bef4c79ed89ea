// bpe.h: merges the bytes or characters of one pre-tokenised piece into tokens.
//
// The pair with the lowest rank merges first, the leftmost of equals, as in Hugging Face
// tokenizers. A heap of candidates makes it O(n log n); a long piece, where the heap is beyond the
// caches, takes them from lists by rank (bpe_buckets.h). One struct bpe belongs to one call of
// encode and is reused over its pieces.
#ifndef MOESAIC_COMMON_TEXT_BPE_H
#define MOESAIC_COMMON_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/text/bpe_buckets.h"
#include "common/text/vocab.h"

// From this many bytes on a piece is long.
#define BPE_LONG 16384

struct bpe_symbol {
    uint32_t id;             // ID_NONE: merged into the symbol on its left
    uint32_t previous, next; // indexes; ID_NONE at the ends
};

struct bpe_candidate {
    uint32_t rank, position, id;
};

struct bpe {
    const struct vocab *vocab;
    struct bpe_symbol *symbols;
    struct bpe_candidate *heap;
    struct bpe_buckets buckets;
    bool in_buckets; // the piece at hand is
    bool heap_only;  // for tests: none is
    size_t n_symbols, n_heap, symbols_capacity, heap_capacity;
    uint64_t steps; // moves of candidates so far, for tests of the complexity
};

void bpe_init(struct bpe *b, const struct vocab *v);
void bpe_finish(struct bpe *b);

// Merges piece[0, n), valid UTF-8 unless the vocabulary is byte-level, 1 <= n < 2^31. The result is
// the chain that begins at symbols[0]. 0 or ERR_FATAL_NOMEM.
int bpe_run(struct bpe *b, const char *piece, size_t n);

#endif
