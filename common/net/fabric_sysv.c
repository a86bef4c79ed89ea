// fabric_sysv.c: see fabric_sysv.h. Reads the kernel's list, /proc/sysvipc/shm.
#include "common/net/fabric_sysv.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/shm.h>
#include <unistd.h>

// A process has a handful of segments an epoch; a machine has a few hundred at most.
#define KINDS_MAX 16
#define MODE_MASK 0777u

struct segment {
    int key, id, maker, user; // maker, user: process ids, as this process sees them
    unsigned mode, n_attached, uid;
    uint64_t bytes;
};

// False at a line that is none, as the first one is.
static bool parse(const char *line, struct segment *s) {
    unsigned gid, creator, creator_group;
    int n = sscanf(line, "%d %d %o %" SCNu64 " %d %d %u %u %u %u %u", &s->key, &s->id, &s->mode,
                   &s->bytes, &s->maker, &s->user, &s->n_attached, &s->uid, &gid, &creator,
                   &creator_group);
    return n == 11;
}

static bool is_dead(int pid) {
    return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

// Process id 0 is one of another pid namespace: nobody here can say whether it lives.
static bool is_orphan(const struct segment *s) {
    return s->key == 0 && s->n_attached == 0 && s->uid == geteuid() && is_dead(s->maker) &&
           (s->user == s->maker || is_dead(s->user));
}

static bool equal_kind(const struct segment *a, const struct segment *b) {
    return a->bytes == b->bytes && (a->mode & MODE_MASK) == (b->mode & MODE_MASK);
}

static bool is_known(const struct segment *kinds, size_t n, const struct segment *s) {
    for (size_t i = 0; i < n; i++) {
        if (equal_kind(&kinds[i], s)) return true;
    }
    return false;
}

static size_t read_own(FILE *list, struct segment kinds[KINDS_MAX]) {
    char line[512];
    struct segment s;
    size_t n = 0;
    while (n < KINDS_MAX && fgets(line, sizeof line, list) != NULL) {
        if (parse(line, &s) && s.key == 0 && s.maker == getpid() && !is_known(kinds, n, &s))
            kinds[n++] = s;
    }
    return n;
}

void fabric_sysv_sweep(struct fabric_swept *out) {
    char line[512];
    struct segment kinds[KINDS_MAX], s;
    *out = (struct fabric_swept){0};
    FILE *list = fopen("/proc/sysvipc/shm", "re");
    if (list == NULL) return; // no such memory here
    size_t n_kinds = read_own(list, kinds);
    rewind(list);
    while (n_kinds > 0 && fgets(line, sizeof line, list) != NULL) {
        if (!parse(line, &s) || !is_orphan(&s) || !is_known(kinds, n_kinds, &s)) continue;
        if (shmctl(s.id, IPC_RMID, NULL) != 0) continue; // another worker was faster
        out->n++;
        out->bytes += s.bytes;
    }
    fclose(list);
}
