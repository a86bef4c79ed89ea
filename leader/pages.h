// pages.h: the accounts of one rank's KV blocks: who holds them, which are free, and what the full
// ones contain (the prefix cache).
//
// Owned by the scheduler thread. A block that nobody holds is free, but what stands in it stays
// until it is taken for something else: first those without contents, then the ones that were given
// back longest ago. A full block can be published: its contents are then known by the contents
// before it and its own tokens, and both are compared whole on every look-up, so a clash of hashes
// can never give one request another one's keys and values. The chain begins at a root, which is
// what requests must have in common beside tokens to share blocks (their salt); model and KV format
// are the same for all blocks of a leader.
#ifndef MOESAIC_LEADER_PAGES_H
#define MOESAIC_LEADER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "leader/places.h"

#define PAGE_NONE PLACE_NONE

// What a block's keys and values depend on, beside its own tokens: a root, or the contents of the
// block before, by a number that no other contents ever had.
struct prefix {
    uint64_t id, root; // root 0: id is that number
};

struct page {
    uint32_t n_holders;
    uint64_t contents;    // the number of what it contains, 0 = not published
    struct prefix before; // with contents, as are
    uint32_t tokens[KV_BLOCK_TOKENS];
};

struct pages {
    uint32_t n_blocks, n_free, n_published;
    struct page *pages;   // [n_blocks], owned
    struct places places; // free ones in order; published ones
    uint64_t n_contents;  // numbered so far
    uint64_t seed;        // of the hash: nobody outside can aim at one bucket
};

// What a rank has room for.
struct rank_room {
    uint32_t kv_blocks;
    uint32_t snapshots; // snapshots.h
};

int pages_init(struct pages *p, uint32_t n_blocks, uint64_t seed); // ERR_FATAL_NOMEM
void pages_finish(struct pages *p);

// Blocks that n_tokens tokens fill.
uint32_t pages_needed(uint64_t n_tokens);

// What the block that is taken next contains until then, 0 = nothing that is published.
uint64_t pages_next_contents(const struct pages *p);
uint32_t pages_take(struct pages *p);             // a block without contents; n_free is not 0
void pages_hold(struct pages *p, uint32_t block); // one more holder of a published one
void pages_give(struct pages *p, uint32_t block); // one less; the last leaves it free

// The block that contains these KV_BLOCK_TOKENS tokens behind `before`, or PAGE_NONE.
uint32_t pages_find(const struct pages *p, const struct prefix *before, const uint32_t *tokens);
// The held block is full of these tokens. Moves *prefix from what is before the block to what is
// before the next one. Where another block contains the same already, this one stays unpublished.
void pages_publish(struct pages *p, uint32_t block, struct prefix *prefix, const uint32_t *tokens);

// Recounts: the free list, the index and n_held, the sum over sequences of the blocks they hold.
int pages_check(const struct pages *p, uint32_t n_held, struct err_text *e);

#endif
