// render_queue.h: what waits for the render threads, first come first served, but for one rule:
// large bodies never have all threads.
//
// A small request waits for as long as those before it take, and they are small, too, or leave a
// thread free. The items' links are inside the items, so a push cannot fail.
#ifndef MOESAIC_LEADER_RENDER_QUEUE_H
#define MOESAIC_LEADER_RENDER_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// From this size on a body is large: about 60,000 tokens of text, a tenth of a second's work.
#define RENDER_LARGE_BYTES (256u << 10)

struct render_item {
    struct render_item *next;
    uint64_t number; // in the order of arrival
    bool large;
};

struct render_line {
    struct render_item *first, **last;
};

struct render_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct render_line small, large;
    uint64_t n_pushed;
    uint32_t n_large, large_max; // being worked on
    bool closed;
};

// large_max: that may be worked on at once, at least 1.
void render_queue_init(struct render_queue *q, uint32_t large_max);
void render_queue_finish(struct render_queue *q); // must be empty

void render_queue_push(struct render_queue *q, struct render_item *item, size_t bytes);
// Sleeps until there is an item that may be worked on. NULL when the queue is closed and empty.
struct render_item *render_queue_take(struct render_queue *q);
// The taker of an item has done its work; large: what the item said.
void render_queue_done(struct render_queue *q, bool large);
// Takers get what is inside, then NULL.
void render_queue_close(struct render_queue *q);

#endif
