// rows.c: see rows.h. Behind the fabric, before those who add and multiply what has come.
#include "worker/rows.h"

#include <string.h>

#include "common/base/check.h"

static int check_size(const struct fabric_piece *first, const struct rows_shape *shape,
                      struct err_text *e) {
    uint64_t bytes = 0, expected = shape->head_bytes + (uint64_t)shape->n_rows * shape->row_bytes;
    for (const struct fabric_piece *p = first; p != NULL; p = p->next)
        bytes += p->bytes;
    if (bytes == expected && first->bytes >= shape->head_bytes) return 0;
    return err_set(e, ERR_PEER_PROTOCOL, "%llu bytes instead of %llu", (unsigned long long)bytes,
                   (unsigned long long)expected);
}

int rows_check(const struct fabric_piece *first, const struct rows_shape *shape,
               struct err_text *e) {
    int rc = check_size(first, shape, e);
    size_t head_bytes = shape->head_bytes;
    for (const struct fabric_piece *p = first; rc == 0 && p != NULL; p = p->next) {
        if ((p->bytes - head_bytes) % shape->row_bytes != 0)
            rc = err_set(e, ERR_PEER_PROTOCOL, "a piece of %zu bytes cuts a row", p->bytes);
        head_bytes = 0;
    }
    return rc;
}

void rows_find(const float **rows, const struct fabric_piece *first,
               const struct rows_shape *shape) {
    size_t at = shape->head_bytes;
    for (const struct fabric_piece *p = first; p != NULL; p = p->next) {
        for (; at < p->bytes; at += shape->row_bytes)
            *rows++ = (const float *)(p->data + at);
        at = 0;
    }
}

void rows_copy(float *to, const struct fabric_piece *first, const struct rows_shape *shape) {
    size_t at = shape->head_bytes;
    for (const struct fabric_piece *p = first; p != NULL; p = p->next) {
        size_t bytes = p->bytes - at;
        if (bytes > 0) memcpy(to, p->data + at, bytes);
        to += bytes / sizeof *to;
        at = 0;
    }
}

int rows_parse(struct rows_shape *out, const struct fabric_piece *first,
               const struct rows_rules *rules, struct err_text *e) {
    struct rows_head head;
    if (first->bytes < sizeof head)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes are less than a head", first->bytes);
    check((uintptr_t)first->data % WIRE_ALIGN == 0); // the fabric's promise
    memcpy(&head, first->data, sizeof head);
    if (head.n_rows != rules->n_rows || head.hidden != rules->hidden)
        return err_set(e, ERR_PEER_PROTOCOL, "n_rows %u and hidden %u instead of %u and %u",
                       head.n_rows, head.hidden, rules->n_rows, rules->hidden);
    *out = (struct rows_shape){sizeof head, rules->hidden * sizeof(float), rules->n_rows};
    return rows_check(first, out, e);
}
