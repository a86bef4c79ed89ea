// cgroup.h: what the cgroups of this process, version 2 or 1, let it use, at every level that is
// visible.
//
// Any thread; called at start and at a Welcome, never in a step.
#ifndef MOESAIC_COMMON_BASE_CGROUP_H
#define MOESAIC_COMMON_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes this process may still use: what the machine has available, or what the cgroup leaves,
// whichever is less.
uint64_t cgroup_memory_bytes(void);
// The most that could still be had before the kernel must kill somebody: with all of the page cache
// and the swap space, which nobody should plan with.
uint64_t cgroup_memory_left(void);

// Calls visit with each directory of this process's cgroup for the controller ("" = version 2),
// from its own up to the mount point. In a container the path may lie outside of what is mounted:
// then only the mount point itself answers.
void cgroup_visit(const char *controller, void (*visit)(const char *folder, void *context),
                  void *context);

// What such a directory holds. False when there is no such file, or the number is none ("max").
bool cgroup_read_text(const char *path, char *buf, size_t bytes);
bool cgroup_read_number(const char *folder, const char *file, uint64_t *out);

// How much of the machine's free swap space such a directory lets its processes use; all where it
// says nothing of swap.
uint64_t cgroup_swap_left(const char *folder, uint64_t of_machine);

// Parsers behind the above, for tests. False when the text is not of the form or says "no limit".
bool cgroup_parse_bytes(const char *text, uint64_t *bytes);
// The path of a controller ("" = version 2) in the text of /proc/self/cgroup.
bool cgroup_parse_path(const char *text, const char *controller, char *path, uint32_t path_bytes);

#endif
