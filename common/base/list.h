// list.h: an intrusive doubly linked list. The list owns nothing; an item may be on one list per
// struct list_node it embeds.
//
// Removal and moving need no search, which is what queues of requests live on: an abort takes an
// item out of the middle.
#ifndef MOESAIC_COMMON_BASE_LIST_H
#define MOESAIC_COMMON_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_node {
    struct list_node *prev, *next; // both NULL while on no list
};

struct list {
    struct list_node head; // of a ring; head.next is the first item
    uint32_t count;
};

#define list_item(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *l) {
    l->head.prev = l->head.next = &l->head;
    l->count = 0;
}

// Behind `before`, which is an item or the head.
static inline void list_insert(struct list *l, struct list_node *before, struct list_node *n) {
    n->prev = before;
    n->next = before->next;
    before->next->prev = n;
    before->next = n;
    l->count++;
}

static inline void list_push(struct list *l, struct list_node *n) {
    list_insert(l, l->head.prev, n);
}

static inline void list_remove(struct list *l, struct list_node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = NULL;
    l->count--;
}

// NULL when the list is empty, or after its last item.
static inline struct list_node *list_first(const struct list *l) {
    return l->head.next == &l->head ? NULL : l->head.next;
}
static inline struct list_node *list_last(const struct list *l) {
    return l->head.prev == &l->head ? NULL : l->head.prev;
}
static inline struct list_node *list_next(const struct list *l, const struct list_node *n) {
    return n->next == &l->head ? NULL : n->next;
}

#endif
