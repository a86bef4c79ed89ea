// ring.c: see ring.h. One lock, held for one copy: the rings of this program carry requests, not
// rows.
#include "common/base/ring.h"

#include <pthread.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"

struct ring {
    pthread_mutex_t lock;
    size_t capacity, item_bytes;
    size_t first, count; // under the lock, as is the memory of items
    bool closed;
    unsigned char *items;
};

int ring_create(struct ring **out, size_t capacity, size_t item_bytes) {
    check(capacity > 0 && item_bytes > 0);
    struct ring *r = mem_zalloc(sizeof *r);
    unsigned char *items = mem_array(capacity, item_bytes);
    if (r == NULL || items == NULL) {
        mem_free(items);
        mem_free(r);
        return ERR_FATAL_NOMEM;
    }
    r->capacity = capacity;
    r->item_bytes = item_bytes;
    r->items = items;
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return 0;
}

void ring_destroy(struct ring *r) {
    if (r == NULL) return;
    pthread_mutex_destroy(&r->lock);
    mem_free(r->items);
    mem_free(r);
}

bool ring_push(struct ring *r, const void *item, size_t keep_free) {
    pthread_mutex_lock(&r->lock);
    bool fits = !r->closed && r->capacity - r->count > keep_free;
    if (fits) {
        size_t place = (r->first + r->count) % r->capacity;
        memcpy(r->items + place * r->item_bytes, item, r->item_bytes);
        r->count++;
    }
    pthread_mutex_unlock(&r->lock);
    return fits;
}

bool ring_pop(struct ring *r, void *item) {
    pthread_mutex_lock(&r->lock);
    bool some = r->count > 0;
    if (some) {
        memcpy(item, r->items + r->first * r->item_bytes, r->item_bytes);
        r->first = (r->first + 1) % r->capacity;
        r->count--;
    }
    pthread_mutex_unlock(&r->lock);
    return some;
}

void ring_close(struct ring *r) {
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_mutex_unlock(&r->lock);
}
