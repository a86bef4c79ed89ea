// descriptors.c: see descriptors.h.
#include "common/base/descriptors.h"

#include <sys/resource.h>

int descriptors_claim(uint32_t least, uint64_t *out, struct err_text *e) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return err_set(e, ERR_FATAL_IO, "the limit of open files cannot be read");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    *out = limit.rlim_cur;
    if (*out >= least) return 0;
    return err_set(e, ERR_FATAL_IO,
                   "this process may open %llu files (ulimit -n); it needs at least %u",
                   (unsigned long long)*out, least);
}
