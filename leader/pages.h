// pages.h: the accounts of one rank's KV blocks: which are free, which are taken, how many are
// promised.
//
// Owned by the scheduler thread. A request promises itself every block it can ever need before it
// starts and takes them one by one as its sequence grows, so a running request never waits for a
// block: no deadlock, and nothing to preempt. The price is that a long max_tokens holds blocks that
// it may not use; taking less and preempting the newest request is later work.
#ifndef MOESAIC_LEADER_PAGES_H
#define MOESAIC_LEADER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct pages {
    uint32_t n_blocks, n_free, n_promised;
    uint32_t *free_blocks; // [n_blocks], owned; the first n_free are the free ones, the last of
                           // them is taken next
    bool *taken;           // [n_blocks], owned
};

int pages_init(struct pages *p, uint32_t n_blocks); // ERR_FATAL_NOMEM
void pages_finish(struct pages *p);

// Blocks that n_tokens tokens fill.
uint32_t pages_needed(uint64_t n_tokens);
// Free and not promised to anyone.
uint32_t pages_available(const struct pages *p);

bool pages_promise(struct pages *p,
                   uint32_t n); // false, and nothing changed, when n are not available
void pages_unpromise(struct pages *p, uint32_t n); // of what pages_take has not used up
uint32_t pages_take(struct pages *p);              // one promised block
void pages_give(struct pages *p, uint32_t block);  // a taken one, free from now on

// Recounts: the free list and the marks agree, and n_taken and n_promised are what the scheduler's
// sequences hold.
int pages_check(const struct pages *p, uint32_t n_taken, uint32_t n_promised, struct err_text *e);

#endif
