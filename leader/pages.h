// pages.h: the accounts of one rank's KV blocks: which are free, which are taken.
//
// Owned by the scheduler thread. Blocks are taken as sequences grow; who finds none takes them from
// a later sequence (plan.c).
#ifndef MOESAIC_LEADER_PAGES_H
#define MOESAIC_LEADER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct pages {
    uint32_t n_blocks, n_free;
    uint32_t *free_blocks; // [n_blocks], owned; the first n_free are the free ones, the last of
                           // them is taken next
    bool *taken;           // [n_blocks], owned
};

int pages_init(struct pages *p, uint32_t n_blocks); // ERR_FATAL_NOMEM
void pages_finish(struct pages *p);

// Blocks that n_tokens tokens fill.
uint32_t pages_needed(uint64_t n_tokens);

uint32_t pages_take(struct pages *p);             // n_free is not 0
void pages_give(struct pages *p, uint32_t block); // a taken one, free from now on

// Recounts: the free list and the marks agree, and n_taken is what the scheduler's sequences hold.
int pages_check(const struct pages *p, uint32_t n_taken, struct err_text *e);

#endif
