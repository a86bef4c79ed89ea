// places.c: see places.h.
#include "leader/places.h"

#include "common/base/mem.h"

int places_init(struct places *p, uint32_t n) {
    *p = (struct places){.first = PLACE_NONE, .last = PLACE_NONE, .n_buckets = 16};
    while (p->n_buckets < n)
        p->n_buckets *= 2;
    p->links = mem_array((size_t)n + 1, sizeof *p->links); // one more, so that 0 is no special case
    p->buckets = mem_array(p->n_buckets, sizeof *p->buckets);
    if (p->links == NULL || p->buckets == NULL) {
        places_finish(p);
        return ERR_FATAL_NOMEM;
    }
    for (uint32_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = PLACE_NONE;
    for (uint32_t i = 0; i < n; i++)
        places_link(p, i, true);
    return 0;
}

void places_finish(struct places *p) {
    mem_free(p->links);
    mem_free(p->buckets);
    *p = (struct places){0};
}

void places_unlink(struct places *p, uint32_t place) {
    const struct place_link *l = &p->links[place];
    *(l->prev == PLACE_NONE ? &p->first : &p->links[l->prev].next) = l->next;
    *(l->next == PLACE_NONE ? &p->last : &p->links[l->next].prev) = l->prev;
}

void places_link(struct places *p, uint32_t place, bool at_end) {
    struct place_link *l = &p->links[place];
    l->prev = at_end ? p->last : PLACE_NONE;
    l->next = at_end ? PLACE_NONE : p->first;
    *(l->prev == PLACE_NONE ? &p->first : &p->links[l->prev].next) = place;
    *(l->next == PLACE_NONE ? &p->last : &p->links[l->next].prev) = place;
}

void places_enter(struct places *p, uint64_t hash, uint32_t place) {
    uint32_t *bucket = &p->buckets[hash & (p->n_buckets - 1)];
    p->links[place].next_in_chain = *bucket;
    *bucket = place;
}

void places_leave(struct places *p, uint64_t hash, uint32_t place) {
    uint32_t *at = &p->buckets[hash & (p->n_buckets - 1)];
    while (*at != place)
        at = &p->links[*at].next_in_chain;
    *at = p->links[place].next_in_chain;
}
