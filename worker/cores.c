// cores.c: see cores.h.
#include "worker/cores.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cgroup.h"
#include "common/base/limits.h"
#include "common/base/log.h"

bool cores_parse_cpu_max(const char *text, double *cpus) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long quota = strtoull(text, &end, 10);
    if (errno != 0 || *end != ' ') return false;
    uint64_t period;
    if (!cgroup_parse_bytes(end + 1, &period) || period == 0 || quota == 0) return false;
    *cpus = (double)quota / (double)period;
    return true;
}

static void visit_quota_v2(const char *folder, void *context) {
    char path[PATH_BYTES_MAX + 128], text[256];
    double cpus, *least = context;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (cgroup_read_text(path, text, sizeof text) && cores_parse_cpu_max(text, &cpus) &&
        cpus < *least)
        *least = cpus;
}

static void visit_quota_v1(const char *folder, void *context) {
    uint64_t quota, period;
    double *least = context;
    if (!cgroup_read_number(folder, "cpu.cfs_quota_us", &quota) ||
        !cgroup_read_number(folder, "cpu.cfs_period_us", &period))
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
    cgroup_visit("", visit_quota_v2, &least);
    cgroup_visit("cpu", visit_quota_v1, &least);
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
