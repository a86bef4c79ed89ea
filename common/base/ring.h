// ring.h: a bounded queue of fixed-size items between threads: any thread pushes, any thread pops.
//
// Full means back-pressure: ring_push refuses and the caller says so to whoever asked. Items are
// copied in and out, so what they point to is handed over with them.
#ifndef MOESAIC_COMMON_BASE_RING_H
#define MOESAIC_COMMON_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>

struct ring;

int ring_create(struct ring **out, size_t capacity, size_t item_bytes); // ERR_FATAL_NOMEM
void ring_destroy(struct ring *r); // items still inside are dropped

// Copies the item in. False when fewer than keep_free places would stay free (0: use the last one),
// or after ring_close.
bool ring_push(struct ring *r, const void *item, size_t keep_free);
// Takes the oldest item. False when there is none.
bool ring_pop(struct ring *r, void *item);
// From now on every push is refused; what is inside can still be popped.
void ring_close(struct ring *r);

#endif
