// bench_load.c: how fast the first rank of several layouts reads its slices of a checkpoint, as one
// fixed CSV: tp,etp,cache,mib,seconds,mib_per_s. mib is of the slices.
//
// "cold" drops the folder's files from the page cache before each load, which says something only
// where the disk is not a cache itself. Usage: bench_load FOLDER [THREADS].
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/model/legal.h"
#include "worker/weights.h"

#define MIB (1024.0 * 1024.0)

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void drop_cache(const char *folder) {
    char path[4096];
    DIR *d = opendir(folder);
    if (d == NULL) return;
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        if (fdatasync(fd) == 0) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    closedir(d);
}

static struct env *env;

static void load(const char *folder, const struct layout *layout, uint32_t n_threads, bool cold) {
    static struct model_spec spec;
    struct weights_progress progress = {0};
    struct weights *w = NULL;
    struct err_text e = {""};
    must(spec_load(&spec, folder, &e), &e);
    if (legal_check(&spec, layout, NULL) != 0) return;
    struct weights_config config = {.folder = folder,
                                    .spec = &spec,
                                    .layout = layout,
                                    .dtype = spec.dtype,
                                    .n_threads = n_threads,
                                    .progress = &progress};
    if (cold) drop_cache(folder);
    int64_t began_ns = env_now_ns(env);
    must(weights_load(&w, &config, &e), &e);
    double seconds = (double)(env_now_ns(env) - began_ns) * 1e-9,
           mib = (double)atomic_load(&progress.bytes_done) / MIB;
    weights_destroy(w);
    printf("%u,%u,%s,%.1f,%.2f,%.0f\n", layout->tp, layout->etp, cold ? "cold" : "warm", mib,
           seconds, mib / seconds);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const uint32_t sizes[][2] = {{1, 1}, {2, 1}, {2, 2}, {4, 4}, {8, 8}};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_load FOLDER [THREADS]\n");
        return 2;
    }
    uint32_t n_threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
    log_setup("bench", LOG_ERROR);
    env = env_real_create();
    printf("tp,etp,cache,mib,seconds,mib_per_s\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t tp = sizes[i][0], etp = sizes[i][1];
        const struct layout l = {
            .n_ranks = tp, .pp = 1, .dp = 1, .tp = tp, .ep = tp / etp, .etp = etp};
        load(argv[1], &l, n_threads, true);
        load(argv[1], &l, n_threads, false);
    }
    env_real_destroy(env);
    return 0;
}
