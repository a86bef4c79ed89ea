// fabric.c: what all fabrics share: the life of an epoch, judging and matching of arrived messages,
// the all-to-all.
//
// Comes after worker/dispatch and leader/drive in a request's walk, before the transport that moves
// bytes (fabric_self, fabric_mem, fabric_ucx). It never looks into a message and never believes one
// whose epoch, nonce and source do not fit.
#include "common/net/fabric.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/fabric_impl.h"

struct fabric_chunk {
    struct fabric_chunk *next;
    struct fabric_kept kept[FABRIC_KEPT_CHUNK];
};

// --- the queue of arrived messages

static void list_append(struct fabric_list *list, struct fabric_kept *k) {
    k->next = NULL;
    k->previous = list->last;
    if (list->last != NULL)
        list->last->next = k;
    else
        list->first = k;
    list->last = k;
}

static void list_remove(struct fabric_list *list, struct fabric_kept *k) {
    if (k->previous != NULL)
        k->previous->next = k->next;
    else
        list->first = k->next;
    if (k->next != NULL)
        k->next->previous = k->previous;
    else
        list->last = k->previous;
}

static bool grow_spare(struct fabric *f) {
    if (f->n_kept + FABRIC_KEPT_CHUNK > FABRIC_KEPT_MAX) return false;
    struct fabric_chunk *chunk = mem_zalloc(sizeof *chunk);
    if (chunk == NULL) return false;
    chunk->next = f->chunks;
    f->chunks = chunk;
    f->n_kept += FABRIC_KEPT_CHUNK;
    for (size_t i = 0; i < FABRIC_KEPT_CHUNK; i++) {
        chunk->kept[i].next = f->spare;
        f->spare = &chunk->kept[i];
    }
    return true;
}

static struct fabric_kept *take_spare(struct fabric *f) {
    if (f->spare == NULL && !grow_spare(f)) return NULL;
    struct fabric_kept *k = f->spare;
    f->spare = k->next;
    return k;
}

static void free_piece(struct fabric *f, struct fabric_kept *k) {
    if (k->handle != NULL)
        f->ops->release(f, k->handle);
    else
        mem_pages_free((void *)(uintptr_t)k->piece.data, k->piece.bytes);
    *k = (struct fabric_kept){.next = f->spare};
    f->spare = k;
}

static void give_back(struct fabric *f, struct fabric_list *list, struct fabric_kept *k) {
    list_remove(list, k);
    for (struct fabric_kept *piece = k->rest, *next; piece != NULL; piece = next) {
        next = piece->next;
        free_piece(f, piece);
    }
    free_piece(f, k);
}

static void count(atomic_uint_fast64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

// --- judging

// Only messages that consist of rows travel in pieces.
static bool may_be_split(enum fabric_message kind) {
    return kind == FABRIC_DISPATCH || kind == FABRIC_COMBINE || kind == FABRIC_GATHER ||
           kind == FABRIC_REDUCE || kind == FABRIC_STAGE || kind == FABRIC_TEST;
}

static bool is_ours(const struct fabric *f, const struct fabric_header *h) {
    enum fabric_message kind = fabric_tag_kind(h->tag);
    return h->epoch == f->epoch && h->nonce == f->nonce && h->source < f->n_peers &&
           kind >= FABRIC_PLAN && kind < FABRIC_KINDS;
}

static bool fits_early(const struct fabric *f, size_t bytes) {
    return bytes <= f->config.message_bytes_max && f->early_pieces < FABRIC_EARLY_MAX &&
           f->early_bytes + bytes <= FABRIC_EARLY_BYTES_MAX;
}

// Whether to keep an arrival. A peer that has proved itself and then breaks a limit ends the epoch:
// dropping its message silently would only turn into a time-out.
static bool judge(struct fabric *f, const struct fabric_header *h, size_t bytes) {
    if (h->magic != FABRIC_MAGIC || f->state == FABRIC_IDLE) return false;
    if (h->n_pieces > FABRIC_PIECES_MAX || h->piece >= h->n_pieces) return false;
    if (h->n_pieces > 1 && !may_be_split(fabric_tag_kind(h->tag))) return false;
    if (f->state == FABRIC_BEGUN) return fits_early(f, bytes);
    if (!is_ours(f, h)) return false;
    if (bytes <= f->config.message_bytes_max) return true;
    fabric_lose(f, h->source, ERR_PEER_PROTOCOL, "it sent a message above the limit");
    return false;
}

// Before the group is known a bad piece may be anybody's.
static bool refuse(struct fabric *f, const struct fabric_header *h, const char *reason) {
    if (f->state == FABRIC_CONNECTED) fabric_lose(f, h->source, ERR_PEER_PROTOCOL, reason);
    return false;
}

// The message that the last piece of the same header belongs to, while pieces of it are missing.
static struct fabric_kept *find_begun(const struct fabric *f, const struct fabric_header *h) {
    struct fabric_kept *k = f->kept.last;
    while (k != NULL &&
           (k->n_arrived == k->header.n_pieces || k->header.source != h->source ||
            k->header.tag != h->tag || k->header.epoch != h->epoch || k->header.nonce != h->nonce))
        k = k->previous;
    return k;
}

static void add_piece(struct fabric_kept *message, struct fabric_kept *k) {
    struct fabric_kept *last = message->n_arrived == 1 ? message : message->last;
    last->piece.next = &k->piece;
    if (last == message)
        message->rest = k;
    else
        last->next = k;
    message->last = k;
    message->n_arrived++;
    message->bytes += k->piece.bytes;
}

static bool fits_message(const struct fabric *f, const struct fabric_kept *message,
                         const struct fabric_header *h, size_t bytes) {
    return message != NULL && h->piece == message->n_arrived &&
           h->n_pieces == message->header.n_pieces &&
           bytes <= f->config.message_bytes_max - message->bytes;
}

static bool keep(struct fabric *f, const struct fabric_header *h,
                 const struct fabric_arrival *arrival) {
    struct fabric_kept *message = h->piece == 0 ? NULL : find_begun(f, h);
    if (h->piece != 0 && !fits_message(f, message, h, arrival->bytes))
        return refuse(f, h, "it sent a piece that does not belong to a message");
    struct fabric_kept *k = take_spare(f);
    if (k == NULL) return refuse(f, h, "too many pieces are waiting");
    *k = (struct fabric_kept){.header = *h,
                              .piece = {.data = arrival->data, .bytes = arrival->bytes},
                              .handle = arrival->handle,
                              .n_arrived = 1,
                              .bytes = arrival->bytes};
    if (message != NULL)
        add_piece(message, k);
    else
        list_append(&f->kept, k);
    return true;
}

bool fabric_arrived(struct fabric *f, const struct fabric_arrival *arrival) {
    struct fabric_header h = {0};
    bool ok = arrival->header_bytes == sizeof h;
    f->arrived = true;
    if (ok) memcpy(&h, arrival->header, sizeof h);
    if (!ok || !judge(f, &h, arrival->bytes) || !keep(f, &h, arrival)) {
        count(&f->messages_dropped, 1);
        return false;
    }
    if (f->state == FABRIC_BEGUN) {
        f->early_pieces++;
        f->early_bytes += arrival->bytes;
    }
    if (h.piece == 0) count(&f->messages_received, 1);
    count(&f->bytes_received, arrival->bytes);
    return true;
}

void fabric_lose(struct fabric *f, uint32_t peer, int code, const char *reason) {
    if (f->broken != 0) return;
    f->broken = code;
    log_warn("fabric", "epoch %llu is over: peer %u of %u: %s", (unsigned long long)f->epoch, peer,
             f->n_peers, reason);
}

// Why a call cannot go on, or 0.
static int alive(const struct fabric *f) {
    if (env_stopped(f->config.env)) return ERR_FATAL_STOPPED;
    if (atomic_load(&f->interrupted)) return ERR_PEER_EPOCH;
    if (f->broken != 0) return f->broken;
    return f->state == FABRIC_CONNECTED ? 0 : ERR_PEER_EPOCH;
}

// --- life

static bool copy_string(const char **field, char **owned, const char *s) {
    if (s == NULL) return true;
    *owned = mem_strdup(s);
    *field = *owned;
    return *owned != NULL;
}

int fabric_open(struct fabric **out, enum fabric_kind kind, const struct fabric_config *config,
                struct err_text *e) {
    static int (*const openers[])(struct fabric **, const struct fabric_config *,
                                  struct err_text *) = {[FABRIC_SELF] = fabric_open_self,
                                                        [FABRIC_MEM] = fabric_open_mem,
                                                        [FABRIC_UCX] = fabric_open_ucx};
    check(config->env != NULL && config->waker != NULL && config->message_bytes_max > 0);
    struct fabric *f = NULL;
    int rc = openers[kind](&f, config, e);
    if (rc != 0) return rc;
    f->config = *config;
    if (!copy_string(&f->config.interface, &f->interface, config->interface) ||
        !copy_string(&f->config.transports, &f->transports, config->transports)) {
        fabric_close(f);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for a fabric");
    }
    *out = f;
    return 0;
}

size_t fabric_message_bytes_max(const struct fabric *f) {
    return f->config.message_bytes_max;
}

void fabric_close(struct fabric *f) {
    if (f == NULL) return;
    fabric_end(f);
    while (f->chunks != NULL) {
        struct fabric_chunk *old = f->chunks;
        f->chunks = old->next;
        mem_free(old);
    }
    mem_free(f->interface);
    mem_free(f->transports);
    f->ops->close(f);
}

int fabric_begin(struct fabric *f, uint8_t *address, size_t *address_bytes, struct err_text *e) {
    check(f->state == FABRIC_IDLE);
    atomic_store(&f->interrupted, false);
    f->broken = 0;
    if (env_stopped(f->config.env))
        return err_set(e, ERR_FATAL_STOPPED, "the process was told to stop");
    if (f->spare == NULL && !grow_spare(f))
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the fabric");
    f->state = FABRIC_BEGUN; // messages may arrive from here on
    int rc = f->ops->begin(f, address, address_bytes, e);
    if (rc == 0) return 0;
    fabric_end(f);
    return rc;
}

int fabric_address_check(const struct fabric *f, const uint8_t *address, size_t bytes,
                         struct err_text *e) {
    if (bytes == 0 || bytes > FABRIC_ADDRESS_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "an address of %zu bytes", bytes);
    return f->ops->check_address == NULL ? 0 : f->ops->check_address(f, address, bytes, e);
}

static int check_addresses(const struct fabric *f, const struct fabric_group *group,
                           struct err_text *e) {
    for (uint32_t p = 0; p < group->n_peers; p++) {
        struct err_text cause;
        int rc = fabric_address_check(f, group->addresses[p], group->address_bytes[p], &cause);
        if (rc != 0) return err_set(e, rc, "peer %u: %s", p, cause.text);
    }
    return 0;
}

static void drop_strangers(struct fabric *f) {
    for (struct fabric_kept *k = f->kept.first, *next; k != NULL; k = next) {
        next = k->next;
        if (is_ours(f, &k->header)) continue;
        give_back(f, &f->kept, k);
        count(&f->messages_dropped, 1);
    }
}

int fabric_connect(struct fabric *f, const struct fabric_group *group, struct err_text *e) {
    check(f->state == FABRIC_BEGUN && group->self < group->n_peers);
    if (group->n_peers > RANKS_MAX + 1)
        return err_set(e, ERR_PEER_PROTOCOL, "a group of %u peers is above the limit",
                       group->n_peers);
    f->epoch = group->epoch;
    f->nonce = group->nonce;
    f->self = group->self;
    f->n_peers = group->n_peers;
    memset(f->sent, 0, sizeof f->sent);
    int rc = check_addresses(f, group, e);
    if (rc == 0) rc = f->ops->connect(f, group, e);
    if (rc != 0) return rc; // the caller ends the epoch
    f->state = FABRIC_CONNECTED;
    drop_strangers(f);
    rc = alive(f);
    return rc == 0 ? 0 : err_set(e, rc, "the epoch was over before it was connected");
}

void fabric_end(struct fabric *f) {
    if (f->state == FABRIC_IDLE) return;
    f->state = FABRIC_IDLE; // what arrives while closing is dropped
    while (f->kept.first != NULL)
        give_back(f, &f->kept, f->kept.first);
    while (f->given.first != NULL)
        give_back(f, &f->given, f->given.first);
    f->ops->end(f);
    f->early_pieces = 0;
    f->early_bytes = 0;
    f->broken = 0;
    f->epoch = f->nonce = 0;
    f->n_peers = 0;
    atomic_store(&f->interrupted, false);
}

void fabric_interrupt(struct fabric *f) {
    atomic_store(&f->interrupted, true);
    f->ops->interrupt(f);
}

// --- messages

// A message to oneself never meets the transport: one copy into the own queue.
static int send_to_self(struct fabric *f, const struct fabric_header *h,
                        const struct fabric_part *part) {
    size_t bytes = part->head_bytes + part->data_bytes;
    uint8_t *copy = mem_pages(bytes, FABRIC_DATA_ALIGN);
    if (copy == NULL) return ERR_FATAL_NOMEM;
    if (part->head_bytes > 0) memcpy(copy, part->head, part->head_bytes);
    if (part->data_bytes > 0) memcpy(copy + part->head_bytes, part->data, part->data_bytes);
    struct fabric_arrival arrival = {
        .header = h, .header_bytes = sizeof *h, .data = copy, .bytes = bytes};
    if (fabric_arrived(f, &arrival)) return 0;
    mem_pages_free(copy, bytes);
    return f->broken;
}

// Within a TP group a message is nothing but rows, wherever its two parts lie.
static bool is_bare(enum fabric_message kind) {
    return kind >= FABRIC_GATHER && kind <= FABRIC_TOKENS;
}

static void count_traffic(struct fabric *f, enum fabric_message kind, size_t head_bytes,
                          size_t data_bytes) {
    struct fabric_traffic *sent = &f->sent[kind];
    sent->messages++;
    sent->bytes += head_bytes + data_bytes;
    if (is_bare(kind)) data_bytes += head_bytes;
    sent->data_messages += data_bytes != 0;
    sent->data_bytes += data_bytes;
}

// How a message is cut: its head goes with the first units.
struct cut {
    size_t first_bytes, next_bytes; // of data in a piece; 0: one piece holds all
    size_t n_pieces;
};

static struct cut cut_message(const struct fabric *f, uint32_t peer,
                              const struct fabric_part *part) {
    struct cut whole = {.n_pieces = 1};
    if (part->unit_bytes == 0 || f->ops->whole_bytes == NULL) return whole;
    size_t room = f->ops->whole_bytes(f, peer), unit = part->unit_bytes;
    if (part->head_bytes + part->data_bytes <= room || unit > room || part->head_bytes > room)
        return whole;
    struct cut cut = {(room - part->head_bytes) / unit * unit, room / unit * unit, 1};
    cut.n_pieces += (part->data_bytes - cut.first_bytes + cut.next_bytes - 1) / cut.next_bytes;
    return cut.n_pieces <= FABRIC_PIECES_MAX ? cut : whole;
}

static int send_pieces(struct fabric *f, uint32_t peer, struct fabric_header *h,
                       const struct fabric_part *part) {
    struct cut cut = cut_message(f, peer, part);
    h->n_pieces = (uint8_t)cut.n_pieces;
    if (cut.n_pieces == 1) return f->ops->send(f, peer, h, part);
    struct fabric_part piece = {.head = part->head, .head_bytes = part->head_bytes};
    size_t at = 0, bytes = cut.first_bytes;
    int rc = 0;
    for (; rc == 0 && h->piece < h->n_pieces; h->piece++) {
        piece.data = (const uint8_t *)part->data + at;
        piece.data_bytes = bytes < part->data_bytes - at ? bytes : part->data_bytes - at;
        rc = f->ops->send(f, peer, h, &piece);
        at += piece.data_bytes;
        bytes = cut.next_bytes;
        piece.head = NULL;
        piece.head_bytes = 0;
    }
    return rc;
}

int fabric_send(struct fabric *f, uint32_t peer, uint64_t tag, const struct fabric_part *part) {
    int rc = alive(f);
    if (rc != 0) return rc;
    size_t bytes;
    check(peer < f->n_peers && fabric_tag_kind(tag) < FABRIC_KINDS);
    if (!size_add(part->head_bytes, part->data_bytes, &bytes) ||
        bytes > f->config.message_bytes_max)
        return ERR_REQ_TOO_LARGE;
    struct fabric_header h = {.epoch = f->epoch,
                              .nonce = f->nonce,
                              .tag = tag,
                              .source = (uint16_t)f->self,
                              .n_pieces = 1,
                              .magic = FABRIC_MAGIC};
    rc = peer == f->self ? send_to_self(f, &h, part) : send_pieces(f, peer, &h, part);
    if (rc != 0) return rc;
    count(&f->messages_sent, 1);
    count(&f->bytes_sent, bytes);
    if (peer != f->self) count_traffic(f, fabric_tag_kind(tag), part->head_bytes, part->data_bytes);
    return 0;
}

static bool past(const struct fabric *f, int64_t deadline_ns) {
    return deadline_ns <= 0 ||
           (deadline_ns != NO_DEADLINE && env_now_ns(f->config.env) >= deadline_ns);
}

int fabric_flush(struct fabric *f, int64_t deadline_ns) {
    for (;;) {
        f->ops->progress(f);
        int rc = alive(f);
        if (rc != 0) return rc;
        if (f->ops->sent(f)) return 0;
        if (past(f, deadline_ns)) return deadline_ns <= 0 ? ERR_AGAIN : ERR_PEER_TIMEOUT;
        f->ops->wait(f, deadline_ns, false);
    }
}

bool fabric_flushed(struct fabric *f) {
    return f->ops->sent(f);
}

static bool matches(const struct fabric_want *want, const struct fabric_kept *k) {
    if (want->peer != FABRIC_ANY_PEER && want->peer != k->header.source) return false;
    if (k->n_arrived < k->header.n_pieces) return false;
    if (want->step == FABRIC_ANY_STEP) return fabric_tag_kind(k->header.tag) == want->kind;
    return k->header.tag == fabric_tag(want->kind, want->step, want->layer);
}

static bool take(struct fabric *f, const struct fabric_want *want, struct fabric_msg *out) {
    struct fabric_kept *k = f->kept.first;
    while (k != NULL && !matches(want, k))
        k = k->next;
    if (k == NULL) return false;
    list_remove(&f->kept, k);
    list_append(&f->given, k);
    k->given = true;
    *out = (struct fabric_msg){.data = k->piece.data,
                               .bytes = k->piece.bytes,
                               .rest = k->piece.next,
                               .tag = k->header.tag,
                               .peer = k->header.source,
                               .impl = k};
    return true;
}

int fabric_recv(struct fabric *f, const struct fabric_want *want, int64_t deadline_ns,
                struct fabric_msg *out) {
    bool woken = false;
    int rc = alive(f);
    if (rc == 0 && take(f, want, out)) return 0; // it came while another was waited for
    for (;;) {
        f->ops->progress(f);
        rc = alive(f);
        if (rc != 0) return rc;
        if (take(f, want, out)) {
            // The wake may have been for another source, so it is handed on.
            if (woken) waker_wake(f->config.waker);
            return 0;
        }
        if (woken) return ERR_AGAIN;
        if (past(f, deadline_ns)) return deadline_ns <= 0 ? ERR_AGAIN : ERR_PEER_TIMEOUT;
        woken = f->ops->wait(f, deadline_ns, want->wait_wakes);
    }
}

void fabric_release(struct fabric *f, struct fabric_msg *msg) {
    struct fabric_kept *k = msg->impl;
    if (k == NULL) return;
    check(k->given);
    give_back(f, &f->given, k);
    *msg = (struct fabric_msg){0};
}

// --- all-to-all

static int post_parts(struct fabric *f, const struct fabric_exchange *x) {
    uint32_t own = f->self - x->first;
    // Everybody starts with its right neighbour, so that no rank is sent to by all others at once.
    for (uint32_t i = 1; i < x->n; i++) {
        uint32_t to = (own + i) % x->n;
        int rc = fabric_send(f, x->first + to, x->tag, &x->parts[to]);
        if (rc != 0) return rc;
    }
    return 0;
}

static int take_parts(struct fabric *f, const struct fabric_exchange *x, int64_t deadline_ns) {
    struct fabric_want want = {.peer = FABRIC_ANY_PEER,
                               .kind = fabric_tag_kind(x->tag),
                               .step = x->tag >> 16 & ((UINT64_C(1) << 40) - 1),
                               .layer = (uint32_t)(x->tag & 0xffffu)};
    for (uint32_t i = 1; i < x->n; i++) {
        struct fabric_msg msg;
        int rc = fabric_recv(f, &want, deadline_ns, &msg);
        if (rc != 0) return rc;
        uint32_t from = msg.peer - x->first; // far above n where the peer is below first
        if (from >= x->n || msg.peer == f->self || x->in[from].impl != NULL) {
            fabric_lose(f, msg.peer, ERR_PEER_PROTOCOL,
                        "it sent an exchange message that was not its turn");
            fabric_release(f, &msg);
            return f->broken;
        }
        x->in[from] = msg;
    }
    return 0;
}

int fabric_exchange_send(struct fabric *f, const struct fabric_exchange *x) {
    int rc = alive(f);
    if (rc != 0) return rc;
    check(x->n > 0 && x->n < f->n_peers && x->first < f->n_peers - x->n);
    check(f->self >= x->first && f->self - x->first < x->n);
    return post_parts(f, x);
}

int fabric_exchange_receive(struct fabric *f, const struct fabric_exchange *x,
                            int64_t deadline_ns) {
    check(deadline_ns > 0);
    memset(x->in, 0, x->n * sizeof *x->in);
    int rc = take_parts(f, x, deadline_ns);
    // Who has everybody's part waits for nobody here: the parts' own memory becomes free.
    if (rc == 0 && !fabric_flushed(f)) rc = fabric_flush(f, deadline_ns);
    if (rc == 0) return 0;
    for (uint32_t i = 0; i < x->n; i++)
        fabric_release(f, &x->in[i]);
    return rc;
}

int fabric_exchange(struct fabric *f, const struct fabric_exchange *x, int64_t deadline_ns) {
    int rc = fabric_exchange_send(f, x);
    return rc == 0 ? fabric_exchange_receive(f, x, deadline_ns) : rc;
}

// --- looking

void fabric_describe(const struct fabric *f, char *buf, size_t cap) {
    if (cap == 0) return;
    buf[0] = '\0';
    f->ops->describe(f, buf, cap);
}

void fabric_count(const struct fabric *f, struct fabric_counters *out) {
    out->messages_sent = atomic_load_explicit(&f->messages_sent, memory_order_relaxed);
    out->bytes_sent = atomic_load_explicit(&f->bytes_sent, memory_order_relaxed);
    out->messages_received = atomic_load_explicit(&f->messages_received, memory_order_relaxed);
    out->bytes_received = atomic_load_explicit(&f->bytes_received, memory_order_relaxed);
    out->messages_dropped = atomic_load_explicit(&f->messages_dropped, memory_order_relaxed);
}

struct fabric_traffic fabric_sent(const struct fabric *f, enum fabric_message kind) {
    return f->sent[kind];
}
