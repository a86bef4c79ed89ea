// killed_in_shm.c: preloaded into a worker, kills it at the worst moment: UCX has made a segment of
// shared memory for its messages and is about to mark it for removal. What is left then is left for
// good. (Its page that only tries whether there is such memory does not count.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/shm.h>

int shmctl(int id, int command, struct shmid_ds *data) {
    int (*real)(int, int, struct shmid_ds *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "shmctl");
    struct shmid_ds about;
    if (command == IPC_RMID && real(id, IPC_STAT, &about) == 0 && about.shm_segsz > 4096)
        raise(SIGKILL);
    return real(id, command, data);
}
