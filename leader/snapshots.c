// snapshots.c: see snapshots.h.
#include "leader/snapshots.h"

#include "common/base/check.h"
#include "common/base/mem.h"

// --- those that can be taken

static void unlink_place(struct snapshots *x, uint32_t place) {
    const struct snapshot *p = &x->places[place];
    *(p->prev == SNAPSHOT_NONE ? &x->first : &x->places[p->prev].next) = p->next;
    *(p->next == SNAPSHOT_NONE ? &x->last : &x->places[p->next].prev) = p->prev;
}

static void link_place(struct snapshots *x, uint32_t place, bool at_end) {
    struct snapshot *p = &x->places[place];
    p->prev = at_end ? x->last : SNAPSHOT_NONE;
    p->next = at_end ? SNAPSHOT_NONE : x->first;
    *(p->prev == SNAPSHOT_NONE ? &x->first : &x->places[p->prev].next) = place;
    *(p->next == SNAPSHOT_NONE ? &x->last : &x->places[p->next].prev) = place;
}

int snapshots_init(struct snapshots *x, uint32_t n) {
    *x = (struct snapshots){.n = n, .first = SNAPSHOT_NONE, .last = SNAPSHOT_NONE, .n_buckets = 16};
    while (x->n_buckets < n)
        x->n_buckets *= 2;
    x->places =
        mem_array((size_t)n + 1, sizeof *x->places); // one more, so that 0 is no special case
    x->buckets = mem_array(x->n_buckets, sizeof *x->buckets);
    if (x->places == NULL || x->buckets == NULL) {
        snapshots_finish(x);
        return ERR_FATAL_NOMEM;
    }
    for (uint32_t i = 0; i < x->n_buckets; i++)
        x->buckets[i] = SNAPSHOT_NONE;
    for (uint32_t i = 0; i < n; i++)
        link_place(x, i, true);
    return 0;
}

void snapshots_finish(struct snapshots *x) {
    mem_free(x->places);
    mem_free(x->buckets);
    *x = (struct snapshots){0};
}

// --- the index

// Contents are numbered one by one, so the low bits spread them.
static uint32_t *bucket_of(const struct snapshots *x, uint64_t contents) {
    return &x->buckets[contents & (x->n_buckets - 1)];
}

uint32_t snapshots_find(const struct snapshots *x, uint64_t contents) {
    if (x->n_bound == 0) return SNAPSHOT_NONE;
    uint32_t place = *bucket_of(x, contents);
    while (place != SNAPSHOT_NONE && x->places[place].contents != contents)
        place = x->places[place].next_in_chain;
    return place;
}

static void unbind(struct snapshots *x, uint32_t place) {
    struct snapshot *p = &x->places[place];
    if (p->contents == 0) return;
    uint32_t *at = bucket_of(x, p->contents);
    while (*at != place)
        at = &x->places[*at].next_in_chain;
    *at = p->next_in_chain;
    p->contents = 0;
    x->n_bound--;
}

// --- lives of places

// What this step writes already stands where it was bound, at the end, or in front, where it was
// given back or forgotten in the same step: the walk is no longer than the step has saves.
uint32_t snapshots_take(struct snapshots *x, uint64_t step) {
    uint32_t place = x->n == 0 ? SNAPSHOT_NONE : x->first;
    while (place != SNAPSHOT_NONE && x->places[place].step == step)
        place = x->places[place].next;
    if (place == SNAPSHOT_NONE) return place;
    unlink_place(x, place);
    unbind(x, place);
    x->places[place].held = true;
    x->places[place].step = step;
    x->n_held++;
    return place;
}

void snapshots_give(struct snapshots *x, uint32_t place) {
    check(place < x->n && x->places[place].held);
    x->places[place].held = false;
    x->n_held--;
    link_place(x, place, false);
}

void snapshots_bind(struct snapshots *x, uint32_t place, uint64_t contents) {
    check(place < x->n && x->places[place].held && contents != 0);
    check(snapshots_find(x, contents) == SNAPSHOT_NONE);
    uint32_t *bucket = bucket_of(x, contents);
    struct snapshot *p = &x->places[place];
    p->held = false;
    p->contents = contents;
    p->next_in_chain = *bucket;
    *bucket = place;
    x->n_held--;
    x->n_bound++;
    link_place(x, place, true);
}

void snapshots_touch(struct snapshots *x, uint32_t place) {
    check(place < x->n && x->places[place].contents != 0);
    unlink_place(x, place);
    link_place(x, place, true);
}

void snapshots_forget(struct snapshots *x, uint64_t contents) {
    uint32_t place = contents == 0 ? SNAPSHOT_NONE : snapshots_find(x, contents);
    if (place == SNAPSHOT_NONE) return;
    unbind(x, place);
    unlink_place(x, place);
    link_place(x, place, false);
}

// --- recount

// Free ones are in front of bound ones, as they are taken first.
static int check_list(const struct snapshots *x, struct err_text *e) {
    uint32_t n = 0, before = SNAPSHOT_NONE;
    for (uint32_t i = x->first; i != SNAPSHOT_NONE && n <= x->n; i = x->places[i].next, n++) {
        const struct snapshot *p = &x->places[i];
        bool behind_bound = before != SNAPSHOT_NONE && x->places[before].contents != 0;
        if (p->held || p->prev != before || (p->contents == 0 && behind_bound))
            return err_set(e, ERR_FATAL_BOOKS, "snapshot %u is in the list where it must not be",
                           i);
        before = i;
    }
    if (n + x->n_held == x->n && x->last == before) return 0;
    return err_set(e, ERR_FATAL_BOOKS, "%u snapshots can be taken and %u are held, of %u", n,
                   x->n_held, x->n);
}

int snapshots_check(const struct snapshots *x, uint32_t n_held, struct err_text *e) {
    if (x->places == NULL && n_held == 0) return 0; // no group has formed yet
    uint32_t n_bound = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct snapshot *p = &x->places[i];
        n_bound += p->contents != 0;
        if (p->contents != 0 && snapshots_find(x, p->contents) != i)
            return err_set(e, ERR_FATAL_BOOKS, "snapshot %u is not what the index says", i);
    }
    if (n_bound != x->n_bound || n_held != x->n_held)
        return err_set(e, ERR_FATAL_BOOKS, "%u snapshots are bound and %u held, not %u and %u",
                       n_bound, n_held, x->n_bound, x->n_held);
    return check_list(x, e);
}
