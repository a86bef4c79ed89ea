// queue.c: see queue.h.
#include "common/base/queue.h"

#include <stddef.h>

#include "common/base/check.h"

void queue_init(struct queue *q) {
    check(pthread_mutex_init(&q->lock, NULL) == 0);
    check(pthread_cond_init(&q->filled, NULL) == 0);
    q->first = NULL;
    q->last = &q->first;
    q->closed = false;
}

void queue_finish(struct queue *q) {
    check(q->first == NULL);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
}

void queue_push(struct queue *q, struct queue_link *item) {
    item->next = NULL;
    pthread_mutex_lock(&q->lock);
    *q->last = item;
    q->last = &item->next;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

struct queue_link *queue_take(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    while (q->first == NULL && !q->closed)
        pthread_cond_wait(&q->filled, &q->lock);
    struct queue_link *item = q->first;
    if (item != NULL) {
        q->first = item->next;
        if (q->first == NULL) q->last = &q->first;
        item->next = NULL;
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
}
