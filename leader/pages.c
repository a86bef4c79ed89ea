// pages.c: see pages.h. seq.c is before and after it in the walk; the pages themselves live on the
// worker.
#include "leader/pages.h"

#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/mem.h"

// --- free blocks

static void unlink_free(struct pages *p, uint32_t block) {
    places_unlink(&p->places, block);
    p->n_free--;
}

static void link_free(struct pages *p, uint32_t block, bool at_end) {
    places_link(&p->places, block, at_end);
    p->n_free++;
}

int pages_init(struct pages *p, uint32_t n_blocks, uint64_t seed) {
    *p = (struct pages){.n_blocks = n_blocks, .n_free = n_blocks, .seed = seed};
    p->pages = mem_array(n_blocks, sizeof *p->pages);
    int rc = p->pages == NULL ? ERR_FATAL_NOMEM : places_init(&p->places, n_blocks);
    if (rc != 0) pages_finish(p);
    return rc;
}

void pages_finish(struct pages *p) {
    mem_free(p->pages);
    places_finish(&p->places);
    *p = (struct pages){0};
}

uint32_t pages_needed(uint64_t n_tokens) {
    return (uint32_t)((n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
}

// --- contents

static uint64_t hash_of(const struct pages *p, const struct prefix *before,
                        const uint32_t *tokens) {
    uint64_t seed = p->seed ^ before->id ^ before->root;
    return XXH3_64bits_withSeed(tokens, KV_BLOCK_TOKENS * sizeof *tokens, seed);
}

static bool contains(const struct page *g, const struct prefix *before, const uint32_t *tokens) {
    return g->before.id == before->id && g->before.root == before->root &&
           memcmp(g->tokens, tokens, sizeof g->tokens) == 0;
}

uint32_t pages_find(const struct pages *p, const struct prefix *before, const uint32_t *tokens) {
    uint32_t block = places_under(&p->places, hash_of(p, before, tokens));
    while (block != PAGE_NONE && !contains(&p->pages[block], before, tokens))
        block = p->places.links[block].next_in_chain;
    return block;
}

static void forget(struct pages *p, uint32_t block) {
    struct page *g = &p->pages[block];
    if (g->contents == 0) return;
    places_leave(&p->places, hash_of(p, &g->before, g->tokens), block);
    g->contents = 0;
    p->n_published--;
}

void pages_publish(struct pages *p, uint32_t block, struct prefix *prefix, const uint32_t *tokens) {
    struct page *g = &p->pages[block];
    check(g->n_holders > 0 && g->contents == 0);
    uint32_t same = pages_find(p, prefix, tokens);
    if (same == PAGE_NONE) {
        g->contents = ++p->n_contents;
        g->before = *prefix;
        memcpy(g->tokens, tokens, sizeof g->tokens);
        places_enter(&p->places, hash_of(p, prefix, tokens), block);
        same = block;
        p->n_published++;
    }
    *prefix = (struct prefix){.id = p->pages[same].contents};
}

// --- holders

uint64_t pages_next_contents(const struct pages *p) {
    return p->places.first == PAGE_NONE ? 0 : p->pages[p->places.first].contents;
}

uint32_t pages_take(struct pages *p) {
    uint32_t block = p->places.first;
    check(block != PAGE_NONE && p->pages[block].n_holders == 0);
    unlink_free(p, block);
    forget(p, block);
    p->pages[block].n_holders = 1;
    return block;
}

void pages_hold(struct pages *p, uint32_t block) {
    check(block < p->n_blocks && p->pages[block].contents != 0);
    if (p->pages[block].n_holders++ == 0) unlink_free(p, block);
}

void pages_give(struct pages *p, uint32_t block) {
    check(block < p->n_blocks && p->pages[block].n_holders > 0);
    if (--p->pages[block].n_holders == 0) link_free(p, block, p->pages[block].contents != 0);
}

// --- recount

static int check_free(const struct pages *p, struct err_text *e) {
    uint32_t n = 0, before = PAGE_NONE;
    const struct place_link *links = p->places.links;
    for (uint32_t i = p->places.first; i != PAGE_NONE && n <= p->n_blocks; i = links[i].next, n++) {
        if (p->pages[i].n_holders != 0 || links[i].prev != before)
            return err_set(e, ERR_FATAL_BOOKS, "block %u is on the free list and held", i);
        before = i;
    }
    if (n != p->n_free || p->places.last != before)
        return err_set(e, ERR_FATAL_BOOKS, "%u blocks are counted free, %u are", p->n_free, n);
    return 0;
}

static int check_index(const struct pages *p, struct err_text *e) {
    uint32_t n = 0;
    const struct place_link *links = p->places.links;
    for (uint32_t i = 0; i < p->places.n_buckets; i++) {
        uint32_t block = places_under(&p->places, i);
        for (; block != PAGE_NONE && n <= p->n_blocks; block = links[block].next_in_chain, n++) {
            const struct page *g = &p->pages[block];
            if (g->contents == 0 || g->contents > p->n_contents ||
                (g->before.root == 0 && g->before.id >= g->contents) ||
                pages_find(p, &g->before, g->tokens) != block)
                return err_set(e, ERR_FATAL_BOOKS, "block %u is not what the index says", block);
        }
    }
    if (n != p->n_published)
        return err_set(e, ERR_FATAL_BOOKS, "%u blocks are counted published, %u are",
                       p->n_published, n);
    return 0;
}

int pages_check(const struct pages *p, uint32_t n_held, struct err_text *e) {
    if (p->pages == NULL && n_held == 0) return 0; // no group has formed yet
    uint64_t n_holders = 0;
    uint32_t n_free = 0, n_published = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        n_holders += p->pages[i].n_holders;
        n_free += p->pages[i].n_holders == 0;
        n_published += p->pages[i].contents != 0;
    }
    if (n_holders != n_held)
        return err_set(e, ERR_FATAL_BOOKS, "blocks are held %llu times, but sequences hold %u",
                       (unsigned long long)n_holders, n_held);
    if (n_free != p->n_free || n_published != p->n_published)
        return err_set(e, ERR_FATAL_BOOKS, "%u blocks are free and %u published, not %u and %u",
                       n_free, n_published, p->n_free, p->n_published);
    int err = check_free(p, e);
    return err != 0 ? err : check_index(p, e);
}
