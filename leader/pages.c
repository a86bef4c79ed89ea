// pages.c: see pages.h. sched.c is before and after it in the walk; the pages themselves live on
// the worker.
#include "leader/pages.h"

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

int pages_init(struct pages *p, uint32_t n_blocks) {
    uint32_t *free_blocks = mem_array(n_blocks, sizeof *free_blocks);
    bool *taken = mem_array(n_blocks, sizeof *taken);
    if (free_blocks == NULL || taken == NULL) {
        mem_free(free_blocks);
        mem_free(taken);
        return ERR_FATAL_NOMEM;
    }
    for (uint32_t i = 0; i < n_blocks; i++)
        free_blocks[i] = n_blocks - 1 - i;
    *p = (struct pages){
        .n_blocks = n_blocks, .n_free = n_blocks, .free_blocks = free_blocks, .taken = taken};
    return 0;
}

void pages_finish(struct pages *p) {
    mem_free(p->free_blocks);
    mem_free(p->taken);
    *p = (struct pages){0};
}

uint32_t pages_needed(uint64_t n_tokens) {
    return (uint32_t)((n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
}

uint32_t pages_take(struct pages *p) {
    check(p->n_free > 0);
    uint32_t block = p->free_blocks[--p->n_free];
    check(!p->taken[block]);
    p->taken[block] = true;
    return block;
}

void pages_give(struct pages *p, uint32_t block) {
    check(block < p->n_blocks && p->taken[block] && p->n_free < p->n_blocks);
    p->taken[block] = false;
    p->free_blocks[p->n_free++] = block;
}

int pages_check(const struct pages *p, uint32_t n_taken, struct err_text *e) {
    uint32_t marked = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        marked += p->taken[i] ? 1 : 0;
    for (uint32_t i = 0; i < p->n_free; i++) {
        if (p->taken[p->free_blocks[i]])
            return err_set(e, ERR_FATAL_BOOKS, "block %u is on the free list and taken",
                           p->free_blocks[i]);
    }
    if (marked != n_taken || p->n_blocks - p->n_free != n_taken)
        return err_set(e, ERR_FATAL_BOOKS,
                       "%u blocks are marked taken and %u are not free, but sequences hold %u",
                       marked, p->n_blocks - p->n_free, n_taken);
    return 0;
}
