// render_queue.c: see render_queue.h.
#include "leader/render_queue.h"

#include "common/base/check.h"

static void line_init(struct render_line *l) {
    l->first = NULL;
    l->last = &l->first;
}

void render_queue_init(struct render_queue *q, uint32_t large_max) {
    check(large_max >= 1);
    *q = (struct render_queue){.large_max = large_max};
    check(pthread_mutex_init(&q->lock, NULL) == 0);
    check(pthread_cond_init(&q->changed, NULL) == 0);
    line_init(&q->small);
    line_init(&q->large);
}

void render_queue_finish(struct render_queue *q) {
    check(q->small.first == NULL && q->large.first == NULL && q->n_large == 0);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
}

void render_queue_push(struct render_queue *q, struct render_item *item, size_t bytes) {
    item->next = NULL;
    item->large = bytes >= RENDER_LARGE_BYTES;
    pthread_mutex_lock(&q->lock);
    struct render_line *line = item->large ? &q->large : &q->small;
    item->number = q->n_pushed++;
    *line->last = item;
    line->last = &item->next;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

// The line whose first item is next, among those that may be worked on; NULL when there is none.
static struct render_line *next_line(struct render_queue *q) {
    const struct render_item *small = q->small.first, *large = q->large.first;
    if (large == NULL || q->n_large == q->large_max) return small == NULL ? NULL : &q->small;
    return small == NULL || large->number < small->number ? &q->large : &q->small;
}

static bool is_empty(const struct render_queue *q) {
    return q->small.first == NULL && q->large.first == NULL;
}

static struct render_item *take_first(struct render_line *line) {
    struct render_item *item = line->first;
    line->first = item->next;
    if (line->first == NULL) line->last = &line->first;
    item->next = NULL;
    return item;
}

struct render_item *render_queue_take(struct render_queue *q) {
    struct render_item *item = NULL;
    struct render_line *line;
    pthread_mutex_lock(&q->lock);
    while ((line = next_line(q)) == NULL && !(q->closed && is_empty(q)))
        pthread_cond_wait(&q->changed, &q->lock);
    if (line != NULL) {
        item = take_first(line);
        q->n_large += item->large;
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

void render_queue_done(struct render_queue *q, bool large) {
    if (!large) return;
    pthread_mutex_lock(&q->lock);
    check(q->n_large > 0);
    q->n_large--;
    pthread_cond_broadcast(&q->changed); // also to those that wait for the end
    pthread_mutex_unlock(&q->lock);
}

void render_queue_close(struct render_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}
