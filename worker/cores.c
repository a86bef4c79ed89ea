// cores.c: see cores.h. Limits are read at each level from the process's own cgroup up to the
// mount, because any of them binds.
#include "worker/cores.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/log.h"

#define FILE_TEXT_MAX 8192
#define CGROUP_ROOT "/sys/fs/cgroup"

static bool read_text(const char *path, char *buf, size_t bytes) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    size_t n = fread(buf, 1, bytes - 1, f);
    bool ok = ferror(f) == 0 && n > 0;
    fclose(f);
    buf[n] = '\0';
    return ok;
}

bool cores_parse_bytes(const char *text, uint64_t *bytes) {
    char *end;
    if (*text < '0' || *text > '9') return false; // "max", or a sign that strtoull would take
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || (*end != '\0' && *end != '\n')) return false;
    *bytes = value;
    return true;
}

bool cores_parse_cpu_max(const char *text, double *cpus) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long quota = strtoull(text, &end, 10);
    if (errno != 0 || *end != ' ') return false;
    uint64_t period;
    if (!cores_parse_bytes(end + 1, &period) || period == 0 || quota == 0) return false;
    *cpus = (double)quota / (double)period;
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

bool cores_parse_cgroup(const char *text, const char *controller, char *path, uint32_t path_bytes) {
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

// Calls visit with each directory of this process's cgroup for the controller, from its own up to
// the mount point. In a container the path may lie outside of what is mounted: then only the mount
// point itself answers.
static void visit_cgroup(const char *controller, void (*visit)(const char *folder, void *context),
                         void *context) {
    char text[FILE_TEXT_MAX], path[PATH_BYTES_MAX], folder[PATH_BYTES_MAX + 64];
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return;
    if (!cores_parse_cgroup(text, controller, path, sizeof path)) return;
    for (;;) {
        snprintf(folder, sizeof folder, CGROUP_ROOT "%s%s%s", *controller != '\0' ? "/" : "",
                 controller, path);
        visit(folder, context);
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[0] == '\0' || strcmp(path, "/") == 0) return;
        *slash = '\0';
    }
}

static bool read_number(const char *folder, const char *file, uint64_t *out) {
    char path[PATH_BYTES_MAX + 128], text[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(path, text, sizeof text) && cores_parse_bytes(text, out);
}

static void visit_quota_v2(const char *folder, void *context) {
    char path[PATH_BYTES_MAX + 128], text[256];
    double cpus, *least = context;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_text(path, text, sizeof text) && cores_parse_cpu_max(text, &cpus) && cpus < *least)
        *least = cpus;
}

static void visit_quota_v1(const char *folder, void *context) {
    uint64_t quota, period;
    double *least = context;
    if (!read_number(folder, "cpu.cfs_quota_us", &quota) ||
        !read_number(folder, "cpu.cfs_period_us", &period))
        return;
    if (period != 0 && quota != 0 && (double)quota / (double)period < *least)
        *least = (double)quota / (double)period;
}

void cores_read(struct core_set *out) {
    cpu_set_t mask;
    out->n = 0;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        for (size_t cpu = 0; cpu < CPU_SETSIZE && out->n < CORES_MAX; cpu++) {
            if (CPU_ISSET(cpu, &mask)) out->cpus[out->n++] = (int)cpu;
        }
    }
    if (out->n == 0)
        out->cpus[out->n++] = 0; // more CPUs than the mask holds: one thread still works
    double least = out->n;
    visit_cgroup("", visit_quota_v2, &least);
    visit_cgroup("cpu", visit_quota_v1, &least);
    out->usable = least < 1.0 ? 1 : (uint32_t)least;
}

void cores_bind(const struct core_set *set) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (uint32_t i = 0; i < set->n; i++)
        CPU_SET((size_t)set->cpus[i], &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0)
        log_warn("cores", "cannot widen a thread's cpu mask");
}

void cores_share(struct core_share *out, const struct core_set *set, uint32_t host_index,
                 uint32_t n_on_host, uint32_t wanted) {
    uint32_t first = (uint32_t)((uint64_t)host_index * set->n / n_on_host);
    uint32_t last = (uint32_t)((uint64_t)(host_index + 1) * set->n / n_on_host);
    uint32_t own = last - first;
    uint32_t quota = set->usable / n_on_host;
    uint32_t share = own < quota ? own : quota;
    out->n_threads = wanted != 0 ? wanted : share;
    if (out->n_threads == 0) out->n_threads = 1;
    if (out->n_threads > CORES_MAX) out->n_threads = CORES_MAX;
    out->exclusive = out->n_threads <= share;
    if (out->exclusive) memcpy(out->cpus, set->cpus + first, out->n_threads * sizeof out->cpus[0]);
}

// What a cgroup leaves: its limit less what it uses, without the page cache that it would give
// back.
static void visit_memory(const char *folder, const char *limit_file, const char *usage_file,
                         uint64_t *least) {
    uint64_t limit, usage = 0, cache = 0;
    char path[PATH_BYTES_MAX + 128], text[FILE_TEXT_MAX];
    if (!read_number(folder, limit_file, &limit)) return;
    (void)read_number(folder, usage_file, &usage);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_text(path, text, sizeof text)) {
        const char *at = strstr(text, "inactive_file ");
        if (at != NULL) cache = strtoull(at + sizeof "inactive_file " - 1, NULL, 10);
    }
    usage -= cache < usage ? cache : usage;
    uint64_t left = usage < limit ? limit - usage : 0;
    if (left < *least) *least = left;
}

static void visit_memory_v2(const char *folder, void *context) {
    visit_memory(folder, "memory.max", "memory.current", context);
}

static void visit_memory_v1(const char *folder, void *context) {
    visit_memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", context);
}

uint64_t cores_memory_bytes(void) {
    char text[FILE_TEXT_MAX];
    uint64_t least =
        UINT64_C(1) << 30; // if nothing can be read: small, but enough to say so later by name
    if (read_text("/proc/meminfo", text, sizeof text)) {
        const char *at = strstr(text, "MemAvailable:");
        uint64_t kib = 0;
        if (at != NULL && sscanf(at + sizeof "MemAvailable:" - 1, "%" SCNu64, &kib) == 1 &&
            kib < UINT64_MAX >> 10)
            least = kib << 10;
    }
    visit_cgroup("", visit_memory_v2, &least);
    visit_cgroup("memory", visit_memory_v1, &least);
    return least;
}
