// bytes.c: doubles its room, so that appending n bytes one by one is O(n).
#include "common/text/bytes.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

bool bytes_would_exceed(const struct bytes *b, size_t more) {
    return b->n_max != 0 && more > b->n_max - b->n;
}

bool bytes_reserve(struct bytes *b, size_t more) {
    size_t need;
    if (bytes_would_exceed(b, more) || !size_add(b->n, more, &need)) return false;
    if (need <= b->capacity && b->data != NULL) return true;
    size_t capacity = b->capacity < 64 ? 64 : b->capacity;
    while (capacity < need) {
        if (!size_mul(capacity, 2, &capacity)) return false;
    }
    char *data = mem_resize(b->data, capacity);
    if (data == NULL) return false;
    b->data = data;
    b->capacity = capacity;
    return true;
}

bool bytes_append(struct bytes *b, const char *data, size_t n) {
    if (n == 0) return true;
    if (!bytes_reserve(b, n)) return false;
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return true;
}

void bytes_finish(struct bytes *b) {
    mem_free(b->data);
    *b = (struct bytes){0};
}
