// grpc_accept.c: see grpc_accept.h. The kernel gives out the lowest free number, so the number of a
// new descriptor tells how many are in use.
#include "common/net/grpc_accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of the whole process, as its descriptors are; 0: free.
static _Atomic uint16_t ports[GRPC_ACCEPT_PORTS_MAX];
static _Atomic uint32_t closed[GRPC_ACCEPT_PORTS_MAX]; // of the port at the same place

static void replace(uint16_t old, uint16_t new) {
    for (int i = 0; i < GRPC_ACCEPT_PORTS_MAX; i++) {
        uint16_t expected = old;
        if (atomic_compare_exchange_strong(&ports[i], &expected, new)) return;
    }
}

void grpc_accept_guard(uint16_t port) {
    if (port != 0) replace(0, port);
}

void grpc_accept_unguard(uint16_t port) {
    if (port != 0) replace(port, 0);
}

static int place_of(uint16_t port) {
    for (int i = 0; i < GRPC_ACCEPT_PORTS_MAX; i++) {
        if (port != 0 && atomic_load(&ports[i]) == port) return i;
    }
    return -1;
}

uint32_t grpc_accept_take_closed(uint16_t port) {
    int place = place_of(port);
    return place < 0 ? 0 : atomic_exchange(&closed[place], 0);
}

// The place of its port, or -1: not guarded.
static int guarded_place(int listening) {
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof own;
    if (getsockname(listening, (struct sockaddr *)&own, &bytes) != 0) return -1;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return -1;
    // The port stands in the same place in both.
    return place_of(ntohs(((const struct sockaddr_in *)(const void *)&own)->sin_port));
}

static int fd_max(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 1u << 30) return 1 << 30;
    int all = (int)limit.rlim_cur, spare = all / 4;
    return all - (spare > GRPC_ACCEPT_SPARE ? spare : GRPC_ACCEPT_SPARE);
}

// What the caller does about EAGAIN, waiting for the next connection, is right for the others too.
static int errno_for_caller(int error) {
    bool exhausted = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    return exhausted || error == ECONNABORTED ? EAGAIN : error;
}

int accept4(int listening, __SOCKADDR_ARG address, socklen_t *restrict address_bytes, int flags) {
    const socklen_t room = address_bytes != NULL ? *address_bytes : 0;
    int place = guarded_place(listening);
    for (;;) {
        if (address_bytes != NULL) *address_bytes = room;
        int fd = (int)syscall(SYS_accept4, listening, address.__sockaddr__, address_bytes, flags);
        if (place < 0 || (fd >= 0 && fd < fd_max())) return fd;
        if (fd < 0) {
            errno = errno_for_caller(errno);
            return fd;
        }
        close(fd);
        atomic_fetch_add(&closed[place], 1);
    }
}
