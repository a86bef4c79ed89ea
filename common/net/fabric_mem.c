// fabric_mem.c: the memory twin of the network: same promises as fabric_ucx.c, with the losses and
// delays that a test asks for.
//
// A begun epoch has a number in the hub, which is its address. A message is copied into the
// receiver's inbox with the time at which it is due; the receiver's own wait ends at that time, so
// no timer is needed. One that finds no room waits at its sender, whose wait ends when there is.
#include "common/net/fabric_mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/fabric_impl.h"

struct mem_message {
    struct mem_message *next;
    int64_t due_ns;
    struct fabric_header header;
    size_t bytes;
    uint8_t *data; // owned
    // While it waits at its sender.
    uint32_t peer;
    int64_t room_ns;         // when there is room
    bool fresh;              // nothing has moved since it was posted
    struct fabric_part part; // the caller's memory, which has to stay as it was
};

enum mem_sleep { AWAKE, SLEEPS_INNER, SLEEPS_OUTER };

// Everything below id is guarded by the hub's lock.
struct fabric_mem {
    struct fabric base;
    struct fabric_mem_hub *hub; // not owned
    struct env *env;
    struct waker *inner;     // owned
    struct fabric_mem *next; // in the hub, while begun
    uint64_t id;             // 0: not begun
    bool dead;
    enum mem_sleep sleep;
    struct mem_message *inbox; // by due_ns
    int64_t lost_ns;           // when a loss will be noticed; NO_DEADLINE: none
    uint32_t lost_peer;
    uint64_t *peer_ids;   // [n_peers], owned, while connected
    int64_t *peer_due_ns; // [n_peers]: of the last message to each, keeps them in order
    uint32_t n_peers;
    struct mem_message *waiting; // for room, as they were posted; the owner's alone
};

struct fabric_mem_hub {
    pthread_mutex_t lock;
    struct fabric_mem_options options;
    struct fabric_mem *begun;
    uint64_t last_id;
};

struct fabric_mem_hub *fabric_mem_hub_create(const struct fabric_mem_options *options) {
    struct fabric_mem_hub *hub = mem_zalloc(sizeof *hub);
    if (hub == NULL) return NULL;
    if (options != NULL) hub->options = *options;
    pthread_mutex_init(&hub->lock, NULL);
    return hub;
}

void fabric_mem_hub_destroy(struct fabric_mem_hub *hub) {
    if (hub == NULL) return;
    check(hub->begun == NULL);
    pthread_mutex_destroy(&hub->lock);
    mem_free(hub);
}

static int64_t draw(const struct fabric_mem *f, int64_t max) {
    if (max <= 0) return 0;
    uint64_t r;
    env_random(f->env, &r, sizeof r);
    return (int64_t)(r % ((uint64_t)max + 1));
}

static void rouse(struct fabric_mem *f) {
    if (f->sleep == SLEEPS_INNER) waker_wake(f->inner);
    if (f->sleep == SLEEPS_OUTER) waker_wake(f->base.config.waker);
}

static struct fabric_mem *find(const struct fabric_mem_hub *hub, uint64_t id) {
    struct fabric_mem *f = hub->begun;
    while (f != NULL && f->id != id)
        f = f->next;
    return f;
}

// --- losses

static void lose_peer(struct fabric_mem *f, uint32_t peer) {
    int64_t when = env_now_ns(f->env) + draw(f, f->hub->options.detect_ns_max);
    if (when >= f->lost_ns) return;
    f->lost_ns = when;
    f->lost_peer = peer;
    rouse(f);
}

// Tells everyone connected to id.
static void spread_loss(const struct fabric_mem_hub *hub, uint64_t id) {
    for (struct fabric_mem *f = hub->begun; f != NULL; f = f->next) {
        if (f->id == id) continue;
        for (uint32_t p = 0; p < f->n_peers; p++) {
            if (f->peer_ids[p] == id) lose_peer(f, p);
        }
    }
}

void fabric_mem_kill(struct fabric_mem_hub *hub, const struct env *env) {
    pthread_mutex_lock(&hub->lock);
    for (struct fabric_mem *f = hub->begun; f != NULL; f = f->next) {
        if (f->env != env || f->dead) continue;
        f->dead = true;
        spread_loss(hub, f->id);
        rouse(f);
    }
    pthread_mutex_unlock(&hub->lock);
}

// --- life

static int mem_begin(struct fabric *base, uint8_t *address, size_t *address_bytes,
                     struct err_text *e) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    (void)e;
    pthread_mutex_lock(&f->hub->lock);
    f->id = ++f->hub->last_id;
    f->dead = false;
    f->lost_ns = NO_DEADLINE;
    f->next = f->hub->begun;
    f->hub->begun = f;
    pthread_mutex_unlock(&f->hub->lock);
    memcpy(address, &f->id, sizeof f->id);
    *address_bytes = sizeof f->id;
    return 0;
}

static int copy_ids(struct fabric_mem *f, const struct fabric_group *group, struct err_text *e) {
    f->peer_ids = mem_array(group->n_peers, sizeof *f->peer_ids);
    f->peer_due_ns = mem_array(group->n_peers, sizeof *f->peer_due_ns);
    if (f->peer_ids == NULL || f->peer_due_ns == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %u peers", group->n_peers);
    for (uint32_t p = 0; p < group->n_peers; p++) {
        if (group->address_bytes[p] != sizeof(uint64_t))
            return err_set(e, ERR_PEER_PROTOCOL, "the address of peer %u is not one of this fabric",
                           p);
        memcpy(&f->peer_ids[p], group->addresses[p], sizeof(uint64_t));
    }
    return 0;
}

static int mem_connect(struct fabric *base, const struct fabric_group *group, struct err_text *e) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    pthread_mutex_lock(&f->hub->lock);
    int rc = copy_ids(f, group, e);
    if (rc == 0) f->n_peers = group->n_peers;
    for (uint32_t p = 0; p < f->n_peers; p++) {
        const struct fabric_mem *peer = p == group->self ? f : find(f->hub, f->peer_ids[p]);
        if (peer == NULL || peer->dead) lose_peer(f, p);
    }
    pthread_mutex_unlock(&f->hub->lock);
    return rc;
}

static void unlink_begun(struct fabric_mem *f) {
    struct fabric_mem **at = &f->hub->begun;
    while (*at != NULL && *at != f)
        at = &(*at)->next;
    if (*at == f) *at = f->next;
}

static void free_message(struct mem_message *m) {
    mem_pages_free(m->data, m->bytes);
    mem_free(m);
}

static void mem_end(struct fabric *base) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    pthread_mutex_lock(&f->hub->lock);
    unlink_begun(f);
    bool told = f->n_peers > 0 && !f->dead && draw(f, 99) < f->hub->options.end_lost_percent;
    if (told) spread_loss(f->hub, f->id);
    while (f->inbox != NULL) {
        struct mem_message *m = f->inbox;
        f->inbox = m->next;
        free_message(m);
    }
    while (f->waiting != NULL) {
        struct mem_message *m = f->waiting;
        f->waiting = m->next;
        free_message(m);
    }
    mem_free(f->peer_ids);
    mem_free(f->peer_due_ns);
    f->peer_ids = NULL;
    f->peer_due_ns = NULL;
    f->n_peers = 0;
    f->id = 0;
    pthread_mutex_unlock(&f->hub->lock);
}

static void mem_close(struct fabric *base) {
    waker_destroy(((struct fabric_mem *)base)->inner);
    mem_free(base);
}

static void mem_interrupt(struct fabric *base) {
    waker_wake(((struct fabric_mem *)base)->inner);
    waker_wake(base->config.waker);
}

// --- messages

static struct mem_message *make_message(const struct fabric_header *header,
                                        const struct fabric_part *part) {
    struct mem_message *m = mem_zalloc(sizeof *m);
    if (m == NULL) return NULL;
    m->header = *header;
    m->bytes = part->head_bytes + part->data_bytes;
    m->data = mem_pages(m->bytes, FABRIC_DATA_ALIGN);
    if (m->data == NULL) {
        mem_free(m);
        return NULL;
    }
    if (part->head_bytes > 0) memcpy(m->data, part->head, part->head_bytes);
    if (part->data_bytes > 0) memcpy(m->data + part->head_bytes, part->data, part->data_bytes);
    return m;
}

static void insert_by_due(struct fabric_mem *to, struct mem_message *m) {
    struct mem_message **at = &to->inbox;
    while (*at != NULL && (*at)->due_ns <= m->due_ns)
        at = &(*at)->next;
    m->next = *at;
    *at = m;
}

// With the hub's lock. As on a real network, a send to nobody succeeds.
static void leave(struct fabric_mem *f, uint32_t peer, struct mem_message *m) {
    m->due_ns = env_now_ns(f->env) + draw(f, f->hub->options.delay_ns_max);
    if (m->due_ns < f->peer_due_ns[peer]) m->due_ns = f->peer_due_ns[peer];
    f->peer_due_ns[peer] = m->due_ns;
    struct fabric_mem *to = f->dead ? NULL : find(f->hub, f->peer_ids[peer]);
    if (to == NULL || to->dead) {
        free_message(m);
        return;
    }
    insert_by_due(to, m);
    rouse(to);
}

// Behind all others to the same peer. False: it finds room at once.
static bool wait_for_room(struct fabric_mem *f, struct mem_message *m) {
    struct mem_message **at = &f->waiting;
    bool behind = false;
    int64_t room_ns = 0;
    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->peer != m->peer) continue;
        behind = behind || (*at)->fresh;
        room_ns = (*at)->room_ns;
    }
    const struct fabric_mem_options *options = &f->hub->options;
    if (options->full_percent == 0) return false;
    if (!behind && draw(f, 99) >= options->full_percent) return false;
    m->room_ns = env_now_ns(f->env) + draw(f, options->full_ns_max);
    if (m->room_ns < room_ns) m->room_ns = room_ns;
    m->fresh = true;
    *at = m;
    return true;
}

static bool is_unchanged(const struct mem_message *m) {
    const struct fabric_part *part = &m->part;
    return (part->head_bytes == 0 || memcmp(m->data, part->head, part->head_bytes) == 0) &&
           (part->data_bytes == 0 ||
            memcmp(m->data + part->head_bytes, part->data, part->data_bytes) == 0);
}

// With the hub's lock.
static void leave_waiting(struct fabric_mem *f, int64_t now_ns) {
    for (struct mem_message **at = &f->waiting, *m; (m = *at) != NULL;) {
        m->fresh = false;
        if (m->room_ns > now_ns) {
            at = &m->next;
            continue;
        }
        check(is_unchanged(m)); // else another transport would have sent something else
        *at = m->next;
        m->next = NULL;
        leave(f, m->peer, m);
    }
}

static int mem_send(struct fabric *base, uint32_t peer, const struct fabric_header *header,
                    const struct fabric_part *part) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    struct mem_message *m = make_message(header, part);
    if (m == NULL) return ERR_FATAL_NOMEM;
    m->peer = peer;
    m->part = *part;
    if (wait_for_room(f, m)) return 0;
    pthread_mutex_lock(&f->hub->lock);
    leave(f, peer, m);
    pthread_mutex_unlock(&f->hub->lock);
    return 0;
}

// Small, so that tests and simulations see messages in pieces.
static size_t mem_whole_bytes(const struct fabric *base, uint32_t peer) {
    (void)base, (void)peer;
    return 1024;
}

static bool mem_sent(struct fabric *base) {
    return ((const struct fabric_mem *)base)->waiting == NULL;
}

static void deliver(struct fabric_mem *f, struct mem_message *m) {
    struct fabric_arrival arrival = {.header = &m->header,
                                     .header_bytes = sizeof m->header,
                                     .data = m->data,
                                     .bytes = m->bytes,
                                     .handle = m};
    if (!fabric_arrived(&f->base, &arrival)) free_message(m);
}

static void mem_progress(struct fabric *base) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    int64_t now = env_now_ns(f->env);
    pthread_mutex_lock(&f->hub->lock);
    leave_waiting(f, now);
    while (f->inbox != NULL && f->inbox->due_ns <= now) {
        struct mem_message *m = f->inbox;
        f->inbox = m->next;
        deliver(f, m);
    }
    if (f->lost_ns <= now)
        fabric_lose(base, f->lost_peer, ERR_PEER_LOST, "its process or link is gone");
    pthread_mutex_unlock(&f->hub->lock);
}

// When the owner must look again by itself.
static int64_t next_ns(const struct fabric_mem *f, int64_t deadline_ns) {
    int64_t next = deadline_ns;
    if (f->inbox != NULL && f->inbox->due_ns < next) next = f->inbox->due_ns;
    for (const struct mem_message *m = f->waiting; m != NULL; m = m->next)
        next = m->room_ns < next ? m->room_ns : next;
    return f->lost_ns < next ? f->lost_ns : next;
}

static bool mem_wait(struct fabric *base, int64_t deadline_ns, bool wakes) {
    struct fabric_mem *f = (struct fabric_mem *)base;
    pthread_mutex_lock(&f->hub->lock);
    int64_t until = next_ns(f, deadline_ns);
    f->sleep = wakes ? SLEEPS_OUTER : SLEEPS_INNER;
    pthread_mutex_unlock(&f->hub->lock);
    bool woken = waker_wait(wakes ? base->config.waker : f->inner, until);
    pthread_mutex_lock(&f->hub->lock);
    f->sleep = AWAKE;
    pthread_mutex_unlock(&f->hub->lock);
    return woken && wakes;
}

static void mem_release(struct fabric *base, void *handle) {
    (void)base;
    free_message(handle);
}

static void mem_describe(const struct fabric *base, char *buf, size_t cap) {
    snprintf(buf, cap, "%u peers in memory", base->n_peers);
}

static const struct fabric_ops mem_ops = {
    .begin = mem_begin,
    .connect = mem_connect,
    .end = mem_end,
    .close = mem_close,
    .interrupt = mem_interrupt,
    .send = mem_send,
    .whole_bytes = mem_whole_bytes,
    .sent = mem_sent,
    .progress = mem_progress,
    .wait = mem_wait,
    .release = mem_release,
    .describe = mem_describe,
};

int fabric_open_mem(struct fabric **out, const struct fabric_config *config, struct err_text *e) {
    check(config->hub != NULL);
    struct fabric_mem *f = mem_zalloc(sizeof *f);
    if (f == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a fabric");
    *f = (struct fabric_mem){
        .base.ops = &mem_ops, .hub = config->hub, .env = config->env, .lost_ns = NO_DEADLINE};
    int rc = waker_create(config->env, &f->inner);
    if (rc != 0) {
        mem_free(f);
        return err_set(e, rc, "cannot create a waker for the fabric");
    }
    *out = &f->base;
    return 0;
}
