// mem.c: heap door, huge pages, arena.
#include "common/base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/check.h"

// The only state: the fault countdown, off (0) outside of tests.
static _Atomic long fail_countdown;

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define SMALL_PAGE_BYTES ((size_t)4 << 10)
#ifndef MADV_POPULATE_WRITE // Linux 5.14; older C libraries do not name it
#define MADV_POPULATE_WRITE 23
#endif
#define ARENA_CHUNK_BYTES ((size_t)16 << 10)

struct arena_chunk {
    struct arena_chunk *next;
    size_t capacity;
    _Alignas(16) unsigned char data[];
};

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

void mem_fail_after(long n) {
    atomic_store(&fail_countdown, n);
}

void *mem_alloc(size_t bytes) {
    return must_fail() ? NULL : malloc(bytes ? bytes : 1);
}

void *mem_zalloc(size_t bytes) {
    return must_fail() ? NULL : calloc(1, bytes ? bytes : 1);
}

void *mem_array(size_t count, size_t bytes) {
    size_t total;
    return size_mul(count, bytes, &total) ? mem_zalloc(total) : NULL;
}

void *mem_resize(void *p, size_t bytes) {
    return must_fail() ? NULL : realloc(p, bytes ? bytes : 1);
}

char *mem_strndup(const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *copy = mem_alloc(len + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *mem_strdup(const char *s) {
    return mem_strndup(s, strlen(s));
}

void mem_free(void *p) {
    free(p);
}

void *mem_pages(size_t bytes, size_t align) {
    check(align != 0 && (align & (align - 1)) == 0);
    if (must_fail()) return NULL;
    size_t rounded;
    bool huge = bytes >= HUGE_PAGE_BYTES;
    size_t unit = huge && align < HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : align;
    if (unit < 64) unit = 64;
    if (!size_add(bytes ? bytes : 1, unit - 1, &rounded)) return NULL;
    rounded &= ~(unit - 1);
    void *p = aligned_alloc(unit, rounded);
    if (p == NULL) return NULL;
    if (huge) madvise(p, rounded, MADV_HUGEPAGE); // a hint: small pages work too
    memset(p, 0, rounded);
    return p;
}

void mem_pages_free(void *p, size_t bytes) {
    (void)bytes;
    free(p);
}

static bool map_bytes(size_t bytes, size_t *out) {
    if (!size_add(bytes ? bytes : 1, HUGE_PAGE_BYTES - 1, out)) return false;
    *out &= ~(HUGE_PAGE_BYTES - 1);
    return true;
}

// The kernel aligns to small pages, so one huge page too many is asked for and the ends go back.
void *mem_map(size_t bytes) {
    size_t kept, all;
    if (must_fail() || !map_bytes(bytes, &kept) || !size_add(kept, HUGE_PAGE_BYTES, &all))
        return NULL;
    uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)p & (HUGE_PAGE_BYTES - 1), behind = HUGE_PAGE_BYTES - before;
    if (before > 0) munmap(p, before);
    if (behind > 0) munmap(p + before + kept, behind);
    madvise(p + before, kept, MADV_HUGEPAGE); // a hint: small pages work too
    return p + before;
}

void mem_unmap(void *p, size_t bytes) {
    size_t kept;
    if (p != NULL && map_bytes(bytes, &kept)) munmap(p, kept);
}

// For kernels without a call for it. A 0 in place of a 0 changes nothing that another thread
// writes; an addition of 0 would not do: a compiler may make it a load, which brings no page.
static void touch(_Atomic uint8_t *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += SMALL_PAGE_BYTES) {
        uint8_t seen = 0;
        atomic_compare_exchange_strong_explicit(p + at, &seen, 0, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

// An older kernel, or a filter of system calls, does not know or allow the call.
static bool has_no_such_call(int why) {
    return why == EINVAL || why == EPERM || why == ENOSYS;
}

int mem_commit(void *p, size_t bytes) {
    while (madvise(p, bytes, MADV_POPULATE_WRITE) != 0) {
        if (has_no_such_call(errno)) {
            touch(p, bytes);
            return 0;
        }
        if (errno == ENOMEM) return ERR_FATAL_NOMEM;
        if (errno != EINTR && errno != EAGAIN) return ERR_FATAL_IO;
    }
    return 0;
}

size_t mem_resident(void *p, size_t bytes) {
    unsigned char there[1024];
    size_t all = bytes / SMALL_PAGE_BYTES + (bytes % SMALL_PAGE_BYTES != 0), found = 0;
    for (size_t at = 0; at < all; at += sizeof there) {
        size_t n = all - at < sizeof there ? all - at : sizeof there;
        if (mincore((uint8_t *)p + at * SMALL_PAGE_BYTES, n * SMALL_PAGE_BYTES, there) != 0) break;
        for (size_t i = 0; i < n; i++)
            found += there[i] & 1;
    }
    return found * SMALL_PAGE_BYTES < bytes ? found * SMALL_PAGE_BYTES : bytes;
}

void arena_init(struct arena *a, size_t bytes_max) {
    *a = (struct arena){.bytes_max = bytes_max};
}

static bool arena_grow(struct arena *a, size_t bytes) {
    size_t capacity = bytes > ARENA_CHUNK_BYTES ? bytes : ARENA_CHUNK_BYTES;
    size_t total, chunk_bytes;
    if (!size_add(a->total_bytes, capacity, &total)) return false;
    if (a->bytes_max != 0 && total > a->bytes_max) return false;
    if (!size_add(capacity, sizeof(struct arena_chunk), &chunk_bytes)) return false;
    struct arena_chunk *chunk = mem_alloc(chunk_bytes);
    if (chunk == NULL) return false;
    chunk->next = a->chunks;
    chunk->capacity = capacity;
    a->chunks = chunk;
    a->used_bytes = 0;
    a->total_bytes = total;
    return true;
}

void *arena_alloc(struct arena *a, size_t bytes) {
    size_t rounded;
    if (!size_add(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    if (a->chunks == NULL || a->chunks->capacity - a->used_bytes < rounded) {
        if (!arena_grow(a, rounded)) return NULL;
    }
    void *p = a->chunks->data + a->used_bytes;
    a->used_bytes += rounded;
    memset(p, 0, rounded);
    return p;
}

void arena_reset(struct arena *a) {
    if (a->chunks == NULL) return;
    while (a->chunks->next != NULL) {
        struct arena_chunk *old = a->chunks;
        a->chunks = old->next;
        a->total_bytes -= old->capacity;
        mem_free(old);
    }
    a->used_bytes = 0;
}

void arena_finish(struct arena *a) {
    while (a->chunks != NULL) {
        struct arena_chunk *old = a->chunks;
        a->chunks = old->next;
        mem_free(old);
    }
    *a = (struct arena){0};
}
