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
#define TICK_MS_MIN 20
#define TICK_MS_MAX 1000
#define NEVER INT64_MAX
#define STOP_KEY UINT64_MAX

// By descriptor. The generation tells a late event of an old connection from the number's new
// owner.
struct watched {
    struct http_call *call; // held; NULL between two requests
    uint32_t generation;
    bool open, left;
    bool waits;          // for a request or the rest of one
    int64_t since_ns;    // then: since when
    uint64_t received;   // bytes of its body
    int64_t deadline_ns; // it is ended then; NEVER while we owe the client
};

struct http_watch {
    struct http_watch_config config;
    int epoll_fd, stop_fd, tick_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    struct watched *table;
    size_t n_table;
    uint32_t n_open;
    uint64_t n_late, n_evicted;
};

static int64_t credit_ns(uint64_t bytes) {
    return (int64_t)(bytes / CREDIT_BYTES) * NS_PER_S;
}

// --- leaving

// Under the lock. Makes MHD see the end. Returns the call that it hits, held, or NULL.
static struct http_call *end(struct http_watch *w, size_t fd) {
    struct watched *entry = &w->table[fd];
    entry->left = true;
    entry->waits = false;
    entry->deadline_ns = NEVER;
    if (entry->call != NULL) http_call_hold(entry->call);
    shutdown((int)fd, SHUT_RDWR);
    return entry->call;
}

static void tell(struct http_call *c) {
    if (c == NULL) return;
    http_call_mark_gone(c);
    http_call_release(c);
}

// A connection that was ended for its time has left already: its event is our own shutdown.
static void take_leave(struct http_watch *w, uint64_t key) {
    size_t fd = (size_t)(key & UINT32_MAX);
    struct http_call *c = NULL;
    pthread_mutex_lock(&w->lock);
    const struct watched *entry = fd < w->n_table ? &w->table[fd] : NULL;
    if (entry != NULL && entry->open && !entry->left && entry->generation == key >> 32)
        c = end(w, fd);
    pthread_mutex_unlock(&w->lock);
    tell(c);
}

static void end_late(struct http_watch *w, int64_t now_ns) {
    for (size_t fd = 0;; fd++) {
        struct http_call *c = NULL;
        pthread_mutex_lock(&w->lock);
        while (fd < w->n_table && (!w->table[fd].open || w->table[fd].deadline_ns > now_ns))
            fd++;
        bool found = fd < w->n_table;
        if (found) c = end(w, fd);
        w->n_late += found;
        pthread_mutex_unlock(&w->lock);
        if (!found) return;
        tell(c);
    }
}

// The table is walked, not sorted: it happens only when nearly all connections are in use.
static void make_room(struct http_watch *w) {
    struct http_call *c = NULL;
    size_t oldest = SIZE_MAX;
    pthread_mutex_lock(&w->lock);
    for (size_t fd = 0; w->n_open > w->config.connections_max && fd < w->n_table; fd++) {
        const struct watched *entry = &w->table[fd];
        if (!entry->open || !entry->waits) continue;
        if (oldest == SIZE_MAX || entry->since_ns < w->table[oldest].since_ns) oldest = fd;
    }
    if (oldest != SIZE_MAX) {
        w->n_evicted++;
        c = end(w, oldest);
    }
    pthread_mutex_unlock(&w->lock);
    tell(c);
}

// --- the thread

static void *watch_thread(void *context) {
    struct http_watch *w = context;
    struct epoll_event events[EVENTS_MAX];
    int64_t walk_ns = 0; // the table is not walked for each client that leaves
    for (;;) {
        int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, w->tick_ms);
        if (n < 0 && errno != EINTR) log_error("http", "epoll_wait failed errno %d", errno);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == STOP_KEY) return NULL;
            take_leave(w, events[i].data.u64);
        }
        int64_t now_ns = env_now_ns(w->config.env);
        if (now_ns < walk_ns) continue;
        end_late(w, now_ns);
        walk_ns = now_ns + w->tick_ms * NS_PER_MS;
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

static int tick_ms(int64_t patience_ns) {
    int64_t ms = patience_ns / 8 / NS_PER_MS;
    return (int)(ms < TICK_MS_MIN ? TICK_MS_MIN : ms > TICK_MS_MAX ? TICK_MS_MAX : ms);
}

int http_watch_create(struct http_watch **out, const struct http_watch_config *config,
                      struct err_text *e) {
    struct http_watch *w = mem_zalloc(sizeof *w);
    if (w == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the disconnect watch");
    w->config = *config;
    w->tick_ms = tick_ms(config->patience_ns);
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

// --- the table

// Under the lock.
static void begin_wait(struct http_watch *w, struct watched *entry) {
    entry->since_ns = env_now_ns(w->config.env);
    entry->received = 0;
    entry->waits = !entry->left;
    entry->deadline_ns = entry->left ? NEVER : entry->since_ns + w->config.patience_ns;
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
        begin_wait(w, entry);
        w->n_open++;
        // Once: our own shutdown is an event too, and one more each time, so that this thread would
        // spin until MHD has closed the socket.
        struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT,
                                 .data.u64 = (uint64_t)entry->generation << 32 | (uint32_t)fd};
        added = epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
    }
    pthread_mutex_unlock(&w->lock);
    if (!added) log_warn("http", "cannot watch fd %d: its client's leaving is seen late", fd);
    make_room(w);
}

void http_watch_close(struct http_watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].open) {
        check(w->table[fd].call == NULL);
        w->table[fd].open = false;
        w->n_open--;
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
        begin_wait(w, &w->table[fd]);
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
        if (w->table[fd].open) begin_wait(w, &w->table[fd]);
    }
    pthread_mutex_unlock(&w->lock);
    if (c != NULL) http_call_release(c);
}

void http_watch_cut(struct http_watch *w, int fd, const struct http_call *c) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].call == c) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}

// --- how far a call is

static void set_deadline(struct watched *entry, int64_t deadline_ns) {
    if (entry->open && !entry->left) entry->deadline_ns = deadline_ns;
}

void http_watch_received(struct http_watch *w, int fd, size_t bytes) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].waits) {
        struct watched *entry = &w->table[fd];
        entry->received += bytes;
        set_deadline(entry, entry->since_ns + w->config.patience_ns + credit_ns(entry->received));
    }
    pthread_mutex_unlock(&w->lock);
}

void http_watch_complete(struct http_watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table) {
        w->table[fd].waits = false;
        set_deadline(&w->table[fd], NEVER);
    }
    pthread_mutex_unlock(&w->lock);
}

void http_watch_answered(struct http_watch *w, int fd, const struct http_call *c, size_t bytes) {
    int64_t now = env_now_ns(w->config.env);
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_table && w->table[fd].call == c)
        set_deadline(&w->table[fd], now + w->config.patience_ns + credit_ns(bytes));
    pthread_mutex_unlock(&w->lock);
}

void http_watch_count(struct http_watch *w, uint64_t *n_late, uint64_t *n_evicted) {
    pthread_mutex_lock(&w->lock);
    *n_late = w->n_late;
    *n_evicted = w->n_evicted;
    pthread_mutex_unlock(&w->lock);
}
