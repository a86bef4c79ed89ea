// http_watch.c: see http_watch.h.
#include "leader/http_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "leader/http_call.h"

#define EVENTS_MAX 64
#define STOP_KEY UINT64_MAX

// By descriptor. The generation tells a late event of an old connection from the number's new
// owner.
struct watched {
    struct http_call *call; // held; NULL between two requests
    uint32_t generation;
    bool open, left;
};

struct http_watch {
    int epoll_fd, stop_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    struct watched *table;
    size_t n_table;
};

// Notes that the client left and makes MHD see it. Returns the call it left, held, or NULL.
static struct http_call *take_leave(struct http_watch *w, uint64_t key) {
    size_t fd = (size_t)(key & UINT32_MAX);
    struct http_call *c = NULL;
    pthread_mutex_lock(&w->lock);
    if (fd < w->n_table && w->table[fd].open && w->table[fd].generation == key >> 32) {
        w->table[fd].left = true;
        c = w->table[fd].call;
        if (c != NULL) http_call_hold(c);
        shutdown((int)fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&w->lock);
    return c;
}

static void *watch_thread(void *context) {
    struct http_watch *w = context;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR) log_error("http", "epoll_wait failed errno %d", errno);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == STOP_KEY) return NULL;
            struct http_call *c = take_leave(w, events[i].data.u64);
            if (c == NULL) continue;
            http_call_mark_gone(c);
            http_call_release(c);
        }
    }
}

static int watch_open(struct http_watch *w) {
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = STOP_KEY};
    if (w->epoll_fd < 0 || w->stop_fd < 0) return -1;
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->stop_fd, &stop) != 0) return -1;
    return pthread_create(&w->thread, NULL, watch_thread, w) == 0 ? 0 : -1;
}

static void watch_free(struct http_watch *w) {
    if (w->epoll_fd >= 0) close(w->epoll_fd);
    if (w->stop_fd >= 0) close(w->stop_fd);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->table);
    mem_free(w);
}

int http_watch_create(struct http_watch **out, struct err_text *e) {
    struct http_watch *w = mem_zalloc(sizeof *w);
    if (w == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the disconnect watch");
    w->epoll_fd = w->stop_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    if (watch_open(w) != 0) {
        int error = errno;
        watch_free(w);
        return err_set(e, ERR_FATAL_IO, "cannot start the disconnect watch: %s", strerror(error));
    }
    *out = w;
    return 0;
}

void http_watch_destroy(struct http_watch *w) {
    if (w == NULL) return;
    uint64_t one = 1;
    check(write(w->stop_fd, &one, sizeof one) == sizeof one);
    pthread_join(w->thread, NULL);
    watch_free(w);
}

static bool grow(struct http_watch *w, size_t need) {
    if (need <= w->n_table) return true;
    size_t n = w->n_table < 64 ? 64 : w->n_table;
    while (n < need)
        n *= 2;
    struct watched *table = mem_array(n, sizeof *table);
    if (table == NULL) return false;
    if (w->n_table != 0) memcpy(table, w->table, w->n_table * sizeof *table);
    mem_free(w->table);
    w->table = table;
    w->n_table = n;
    return true;
}

void http_watch_open(struct http_watch *w, int fd) {
    bool added = false;
    check(fd >= 0);
    pthread_mutex_lock(&w->lock);
    if (grow(w, (size_t)fd + 1)) {
        struct watched *entry = &w->table[fd];
        check(!entry->open && entry->call == NULL);
        *entry = (struct watched){.generation = entry->generation + 1, .open = true};
        struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET,
                                 .data.u64 = (uint64_t)entry->generation << 32 | (uint32_t)fd};
        added = epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
    }
    pthread_mutex_unlock(&w->lock);
    if (!added) log_warn("http", "cannot watch fd %d: its client's leaving is seen late", fd);
}

void http_watch_close(struct http_watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].open) {
        check(w->table[fd].call == NULL);
        w->table[fd].open = false;
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
    pthread_mutex_unlock(&w->lock);
}

void http_watch_set(struct http_watch *w, int fd, struct http_call *c) {
    bool left = false;
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].open) {
        check(w->table[fd].call == NULL);
        http_call_hold(c);
        w->table[fd].call = c;
        left = w->table[fd].left;
    }
    pthread_mutex_unlock(&w->lock);
    if (left) http_call_mark_gone(c);
}

void http_watch_clear(struct http_watch *w, int fd) {
    struct http_call *c = NULL;
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table) {
        c = w->table[fd].call;
        w->table[fd].call = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    if (c != NULL) http_call_release(c);
}

void http_watch_cut(struct http_watch *w, int fd, const struct http_call *c) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].call == c) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}
