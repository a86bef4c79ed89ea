// mem.h: the one door to the heap, with a countdown for fault tests, and the arena.
//
// mem_* never return NULL for a size of 0. Every allocation can fail; callers return
// ERR_FATAL_NOMEM or, for a request's own memory, fail the request. Thread-safe.
#ifndef MOESAIC_COMMON_BASE_MEM_H
#define MOESAIC_COMMON_BASE_MEM_H

#include <stddef.h>

#include "common/base/err.h"

void *mem_alloc(size_t bytes);
void *mem_zalloc(size_t bytes);
void *mem_array(size_t count, size_t bytes); // zeroed; NULL when count * bytes overflows
void *mem_resize(void *p, size_t bytes);     // like realloc: p stays valid when NULL is returned
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p); // NULL is fine

// Aligned to align (a power of two), zeroed, in huge pages where the kernel gives them and the
// block is large.
void *mem_pages(size_t bytes, size_t align);
void mem_pages_free(void *p, size_t bytes);

// Much memory that lives long: zeroed addresses, aligned to 2 MiB, of which nothing is there until
// it is written, in huge pages where the kernel gives them. NULL only when there are no addresses.
void *mem_map(size_t bytes);
void mem_unmap(void *p, size_t bytes);
// Makes these whole pages of a map be there, and keeps what they hold; another thread may use them
// meanwhile. ERR_FATAL_NOMEM when the kernel has none; a cgroup's limit it does not say, but kills:
// whoever calls looks at cgroup_memory_left before. ERR_FATAL_IO: the kernel cannot do it for some
// other reason, which says nothing about memory.
int mem_commit(void *p, size_t bytes);
// How much of these pages of a map, from the start of one on, is there. May be less than it is.
size_t mem_resident(void *p, size_t bytes);

// Makes the n-th allocation from now fail, once (0 = never). For tests.
void mem_fail_after(long n);

// A bump arena: allocation by pointer, freed as a whole. Not thread-safe.
struct arena {
    struct arena_chunk *chunks; // owned
    size_t used_bytes;          // in the newest chunk
    size_t total_bytes;
    size_t bytes_max; // refuses to grow beyond; 0 = no limit
};

void arena_init(struct arena *a, size_t bytes_max);
void *arena_alloc(struct arena *a,
                  size_t bytes);   // 16-byte aligned, zeroed; NULL when it may not or cannot grow
void arena_reset(struct arena *a); // keeps one chunk
void arena_finish(struct arena *a);

#endif
