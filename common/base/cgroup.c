// cgroup.c: see cgroup.h. Limits are read at each level from the process's own cgroup up to the
// mount, because any of them binds.
#include "common/base/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

#define FILE_TEXT_MAX 8192
#define CGROUP_ROOT "/sys/fs/cgroup"

bool cgroup_read_text(const char *path, char *buf, size_t bytes) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    size_t n = fread(buf, 1, bytes - 1, f);
    bool ok = ferror(f) == 0 && n > 0;
    fclose(f);
    buf[n] = '\0';
    return ok;
}

bool cgroup_parse_bytes(const char *text, uint64_t *bytes) {
    char *end;
    if (*text < '0' || *text > '9') return false; // "max", or a sign that strtoull would take
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || (*end != '\0' && *end != '\n')) return false;
    *bytes = value;
    return true;
}

// True when the comma-separated list holds name; an empty list is the one of version 2 and holds
// only "".
static bool list_has(const char *list, size_t list_bytes, const char *name) {
    size_t name_bytes = strlen(name);
    if (list_bytes == 0 || name_bytes == 0) return list_bytes == name_bytes;
    const char *end = list + list_bytes;
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t n = (size_t)((comma != NULL ? comma : end) - list);
        if (n == name_bytes && memcmp(list, name, n) == 0) return true;
        list += n + 1;
    }
    return false;
}

bool cgroup_parse_path(const char *text, const char *controller, char *path, uint32_t path_bytes) {
    while (*text != '\0') {
        size_t line_bytes = strcspn(text, "\n");
        const char *first = memchr(text, ':', line_bytes);
        const char *second =
            first == NULL ? NULL : memchr(first + 1, ':', line_bytes - (size_t)(first + 1 - text));
        if (second != NULL && list_has(first + 1, (size_t)(second - first - 1), controller)) {
            size_t n = line_bytes - (size_t)(second + 1 - text);
            if (n >= path_bytes) return false;
            memcpy(path, second + 1, n);
            path[n] = '\0';
            return true;
        }
        text += line_bytes + (text[line_bytes] == '\n');
    }
    return false;
}

void cgroup_visit(const char *controller, void (*visit)(const char *folder, void *context),
                  void *context) {
    char text[FILE_TEXT_MAX], path[PATH_BYTES_MAX], folder[PATH_BYTES_MAX + 64];
    if (!cgroup_read_text("/proc/self/cgroup", text, sizeof text)) return;
    if (!cgroup_parse_path(text, controller, path, sizeof path)) return;
    for (;;) {
        snprintf(folder, sizeof folder, CGROUP_ROOT "%s%s%s", *controller != '\0' ? "/" : "",
                 controller, path);
        visit(folder, context);
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[0] == '\0' || strcmp(path, "/") == 0) return;
        *slash = '\0';
    }
}

bool cgroup_read_number(const char *folder, const char *file, uint64_t *out) {
    char path[PATH_BYTES_MAX + 128], text[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return cgroup_read_text(path, text, sizeof text) && cgroup_parse_bytes(text, out);
}

// What is looked for, and the least of what was found so far.
struct memory_view {
    bool to_the_last; // all of the page cache, and swap
    uint64_t swap;    // of the machine
    uint64_t least;
};

// The number behind a name that begins a line; 0 without such a line.
static uint64_t line_value(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, n) == 0) return strtoull(at + n, NULL, 10);
    }
    return 0;
}

// The page cache that a cgroup would give back. Version 1 counts its children's apart.
static uint64_t cache_bytes(const char *folder, bool all) {
    char path[PATH_BYTES_MAX + 128], text[FILE_TEXT_MAX];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!cgroup_read_text(path, text, sizeof text)) return 0;
    uint64_t own = line_value(text, "inactive_file "), total = 0;
    if (!all) return own;
    own += line_value(text, "active_file ");
    total = line_value(text, "total_inactive_file ") + line_value(text, "total_active_file ");
    return own > total ? own : total;
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

// Version 1 bounds memory and swap together: swap is what that leaves beside memory.
static bool swap_left_v1(const char *folder, uint64_t *left) {
    uint64_t both, memory, usage = 0;
    if (!cgroup_read_number(folder, "memory.memsw.limit_in_bytes", &both)) return false;
    if (!cgroup_read_number(folder, "memory.limit_in_bytes", &memory)) return false;
    if (cgroup_read_number(folder, "memory.memsw.usage_in_bytes", &usage)) both = less(both, usage);
    if (cgroup_read_number(folder, "memory.usage_in_bytes", &usage)) memory = less(memory, usage);
    *left = less(both, memory);
    return true;
}

static bool swap_left_v2(const char *folder, uint64_t *left) {
    uint64_t limit, usage = 0;
    if (!cgroup_read_number(folder, "memory.swap.max", &limit)) return false;
    (void)cgroup_read_number(folder, "memory.swap.current", &usage);
    *left = less(limit, usage);
    return true;
}

uint64_t cgroup_swap_left(const char *folder, uint64_t of_machine) {
    uint64_t left;
    if (!swap_left_v2(folder, &left) && !swap_left_v1(folder, &left)) return of_machine;
    return left < of_machine ? left : of_machine;
}

// What a cgroup leaves: its limit less what it uses, without the page cache that it would give
// back.
static void visit_memory(const char *folder, const char *limit_file, const char *usage_file,
                         struct memory_view *view) {
    uint64_t limit, usage = 0;
    if (!cgroup_read_number(folder, limit_file, &limit)) return;
    (void)cgroup_read_number(folder, usage_file, &usage);
    uint64_t cache = cache_bytes(folder, view->to_the_last);
    usage -= cache < usage ? cache : usage;
    uint64_t left = less(limit, usage);
    if (view->to_the_last) left += cgroup_swap_left(folder, view->swap); // both far below 2^63
    if (left < view->least) view->least = left;
}

static void visit_memory_v2(const char *folder, void *context) {
    visit_memory(folder, "memory.max", "memory.current", context);
}

static void visit_memory_v1(const char *folder, void *context) {
    visit_memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", context);
}

// If nothing can be read: small, but enough to say so later by name.
#define MEMORY_UNKNOWN_BYTES (UINT64_C(1) << 30)

static uint64_t look(bool to_the_last) {
    char text[FILE_TEXT_MAX];
    struct memory_view view = {.to_the_last = to_the_last, .least = MEMORY_UNKNOWN_BYTES};
    if (cgroup_read_text("/proc/meminfo", text, sizeof text)) {
        uint64_t kib = line_value(text, "MemAvailable:"), swap_kib = line_value(text, "SwapFree:");
        view.swap = to_the_last && swap_kib < UINT64_MAX >> 12 ? swap_kib << 10 : 0;
        if (kib > 0 && kib < UINT64_MAX >> 12) view.least = (kib << 10) + view.swap;
    }
    cgroup_visit("", visit_memory_v2, &view);
    cgroup_visit("memory", visit_memory_v1, &view);
    return view.least;
}

uint64_t cgroup_memory_bytes(void) {
    return look(false);
}

uint64_t cgroup_memory_left(void) {
    return look(true);
}
