// queue.h: an intrusive first-in first-out list between threads whose taker sleeps until something
// is there.
//
// For pools that wait for nothing else (render, stream). A thread that also waits for a channel or
// the fabric uses ring.h and a waker instead. The items' links are inside the items, so a push
// cannot fail.
#ifndef MOESAIC_COMMON_BASE_QUEUE_H
#define MOESAIC_COMMON_BASE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

struct queue_link {
    struct queue_link *next;
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct queue_link *first, **last;
    bool closed;
};

void queue_init(struct queue *q);
void queue_finish(struct queue *q); // must be empty

void queue_push(struct queue *q, struct queue_link *item);
// Sleeps until there is an item. NULL when the queue is closed and empty.
struct queue_link *queue_take(struct queue *q);
// Takers get what is inside, then NULL.
void queue_close(struct queue *q);

#endif
