// snapshots.c: see snapshots.h.
#include "leader/snapshots.h"

#include "common/base/check.h"
#include "common/base/mem.h"

int snapshots_init(struct snapshots *x, uint32_t n) {
    *x = (struct snapshots){.n = n};
    // One more, so that 0 is no special case.
    x->snapshots = mem_array((size_t)n + 1, sizeof *x->snapshots);
    int rc = x->snapshots == NULL ? ERR_FATAL_NOMEM : places_init(&x->places, n);
    if (rc != 0) snapshots_finish(x);
    return rc;
}

void snapshots_finish(struct snapshots *x) {
    mem_free(x->snapshots);
    places_finish(&x->places);
    *x = (struct snapshots){0};
}

// --- the index

// Contents are numbered one by one, so they are their own hash: the low bits spread them.
uint32_t snapshots_find(const struct snapshots *x, uint64_t contents) {
    if (x->n_bound == 0) return SNAPSHOT_NONE;
    uint32_t place = places_under(&x->places, contents);
    while (place != SNAPSHOT_NONE && x->snapshots[place].contents != contents)
        place = x->places.links[place].next_in_chain;
    return place;
}

static void unbind(struct snapshots *x, uint32_t place) {
    struct snapshot *p = &x->snapshots[place];
    if (p->contents == 0) return;
    places_leave(&x->places, p->contents, place);
    p->contents = 0;
    x->n_bound--;
}

// --- lives of places

// What this step writes already stands where it was bound, at the end, or in front, where it was
// given back or forgotten in the same step: the walk is no longer than the step has saves.
uint32_t snapshots_take(struct snapshots *x, uint64_t step) {
    uint32_t place = x->n == 0 ? SNAPSHOT_NONE : x->places.first;
    while (place != SNAPSHOT_NONE && x->snapshots[place].step == step)
        place = x->places.links[place].next;
    if (place == SNAPSHOT_NONE) return place;
    places_unlink(&x->places, place);
    unbind(x, place);
    x->snapshots[place].held = true;
    x->snapshots[place].step = step;
    x->n_held++;
    return place;
}

void snapshots_give(struct snapshots *x, uint32_t place) {
    check(place < x->n && x->snapshots[place].held);
    x->snapshots[place].held = false;
    x->n_held--;
    places_link(&x->places, place, false);
}

void snapshots_bind(struct snapshots *x, uint32_t place, uint64_t contents) {
    check(place < x->n && x->snapshots[place].held && contents != 0);
    check(snapshots_find(x, contents) == SNAPSHOT_NONE);
    x->snapshots[place].held = false;
    x->snapshots[place].contents = contents;
    places_enter(&x->places, contents, place);
    x->n_held--;
    x->n_bound++;
    places_link(&x->places, place, true);
}

void snapshots_touch(struct snapshots *x, uint32_t place) {
    check(place < x->n && x->snapshots[place].contents != 0);
    places_unlink(&x->places, place);
    places_link(&x->places, place, true);
}

void snapshots_forget(struct snapshots *x, uint64_t contents) {
    uint32_t place = contents == 0 ? SNAPSHOT_NONE : snapshots_find(x, contents);
    if (place == SNAPSHOT_NONE) return;
    unbind(x, place);
    places_unlink(&x->places, place);
    places_link(&x->places, place, false);
}

// --- recount

// Free ones are in front of bound ones, as they are taken first.
static int check_list(const struct snapshots *x, struct err_text *e) {
    uint32_t n = 0, before = SNAPSHOT_NONE;
    const struct place_link *links = x->places.links;
    for (uint32_t i = x->places.first; i != SNAPSHOT_NONE && n <= x->n; i = links[i].next, n++) {
        const struct snapshot *p = &x->snapshots[i];
        bool behind_bound = before != SNAPSHOT_NONE && x->snapshots[before].contents != 0;
        if (p->held || links[i].prev != before || (p->contents == 0 && behind_bound))
            return err_set(e, ERR_FATAL_BOOKS, "snapshot %u is in the list where it must not be",
                           i);
        before = i;
    }
    if (n + x->n_held == x->n && x->places.last == before) return 0;
    return err_set(e, ERR_FATAL_BOOKS, "%u snapshots can be taken and %u are held, of %u", n,
                   x->n_held, x->n);
}

int snapshots_check(const struct snapshots *x, uint32_t n_held, struct err_text *e) {
    if (x->snapshots == NULL && n_held == 0) return 0; // no group has formed yet
    uint32_t n_bound = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct snapshot *p = &x->snapshots[i];
        n_bound += p->contents != 0;
        if (p->contents != 0 && snapshots_find(x, p->contents) != i)
            return err_set(e, ERR_FATAL_BOOKS, "snapshot %u is not what the index says", i);
    }
    if (n_bound != x->n_bound || n_held != x->n_held)
        return err_set(e, ERR_FATAL_BOOKS, "%u snapshots are bound and %u held, not %u and %u",
                       n_bound, n_held, x->n_bound, x->n_held);
    return check_list(x, e);
}
