// scratch.c: see scratch.h.
#include "worker/scratch.h"

#include "common/base/check.h"
#include "common/base/mem.h"

#define SCRATCH_ALIGN ((size_t)64)

void *scratch_take(struct scratch *s, size_t count, size_t bytes) {
    size_t total, end;
    bool fits = size_mul(count, bytes, &total) && size_add(total, SCRATCH_ALIGN - 1, &total);
    total &= ~(SCRATCH_ALIGN - 1);
    if (!fits || !size_add(s->used, total, &end)) {
        s->overflow = true;
        return NULL;
    }
    void *p = NULL;
    if (s->base != NULL) {
        check(end <= s->capacity);
        p = s->base + s->used;
    }
    s->used = end;
    return p;
}

int scratch_place(struct scratch *s, void *base, struct err_text *e) {
    check(s->base == NULL);
    if (s->overflow)
        return err_set(e, ERR_FATAL_NOMEM, "step memory does not fit the address space");
    s->base = base;
    s->borrowed = true;
    s->capacity = s->used;
    s->used = 0;
    return 0;
}

int scratch_allocate(struct scratch *s, struct err_text *e) {
    void *base = s->overflow ? NULL : mem_pages(s->used, SCRATCH_ALIGN);
    if (base == NULL && !s->overflow)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %zu bytes of step memory and KV pages",
                       s->used);
    int rc = scratch_place(s, base, e);
    s->borrowed = false;
    return rc;
}

void scratch_finish(struct scratch *s) {
    if (s->base != NULL && !s->borrowed) mem_pages_free(s->base, s->capacity);
    *s = (struct scratch){0};
}
