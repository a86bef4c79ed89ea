// fabric_ucx.c: the real network: one UCX worker an epoch, one endpoint a peer, one active message
// a piece of a message.
//
// The sender's header slot and iov stay until UCX is done with them; the receiver keeps UCX's own
// buffer until it is released, so neither side copies. Ending an epoch follows a fixed order
// (below) that leaves nothing pending; every other order was seen to hang or abort somewhere. UCX's
// callbacks run inside ucp_worker_progress and only set flags.
#include "common/net/fabric_ucx.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/fabric_sysv.h"

#define AM_ID 1
#define TEARDOWN_NS_MAX (500 * NS_PER_MS)
#define PROGRESS_MAX 256 // rounds before the caller looks at what arrived
// A sleeping wait looks this often whether the process was told to stop.
#define STOP_CHECK_NS (200 * NS_PER_MS)
// And this often whether there is room for a send: the first nap and the longest.
#define NAP_NS (50 * (NS_PER_MS / 1000))
#define NAP_NS_MAX NS_PER_MS

static struct fabric_ucx *ucx(struct fabric *base) {
    return (struct fabric_ucx *)base;
}

// --- arrivals

// Only for data that UCX will not leave with us, or that it placed badly.
static bool keep_copy(struct fabric_ucx *f, struct fabric_arrival *arrival) {
    uint8_t *copy = mem_pages(arrival->bytes, FABRIC_DATA_ALIGN);
    if (copy == NULL) return false;
    if (arrival->bytes > 0) memcpy(copy, arrival->data, arrival->bytes);
    arrival->data = copy;
    arrival->handle = NULL;
    if (fabric_arrived(&f->base, arrival)) return true;
    mem_pages_free(copy, arrival->bytes);
    return false;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param) {
    struct fabric_ucx *f = arg;
    struct fabric_arrival arrival = {.header = header,
                                     .header_bytes = header_bytes,
                                     .data = data,
                                     .bytes = bytes,
                                     .handle = data};
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        return UCS_OK; // no member of a group sends these
    bool lent = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && bytes > 0;
    if (lent && ((uintptr_t)data & (FABRIC_DATA_ALIGN - 1)) == 0)
        return fabric_arrived(&f->base, &arrival) ? UCS_INPROGRESS : UCS_OK;
    keep_copy(f, &arrival);
    return UCS_OK;
}

static void ucx_release(struct fabric *base, void *handle) {
    ucp_am_data_release(ucx(base)->worker, handle);
}

static void lose(struct fabric_ucx *f, uint32_t peer, ucs_status_t status) {
    if (!f->closing) fabric_lose(&f->base, peer, ERR_PEER_LOST, ucs_status_string(status));
}

static void on_error(void *arg, ucp_ep_h endpoint, ucs_status_t status) {
    const struct ucx_peer *peer = arg;
    (void)endpoint;
    lose(peer->fabric, peer->index, status);
}

// --- beginning

static int worker_start(struct fabric_ucx *f, struct err_text *e) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE,
                                  .am_alignment = FABRIC_DATA_ALIGN};
    ucs_status_t status = ucp_worker_create(f->context, &params, &f->worker);
    if (status == UCS_OK) return 0;
    f->worker = NULL;
    return err_set(e, ERR_FATAL_IO, "UCX cannot create a worker: %s", ucs_status_string(status));
}

// A small dev/shm makes the worker fail as a whole, though TCP would do.
static int worker_start_somehow(struct fabric_ucx *f, struct err_text *e) {
    int rc = worker_start(f, e);
    if (rc == 0 || f->shm_refused || !ucx_may_fall_back(&f->base.config)) return rc;
    log_warn("fabric", "shared memory cannot be used, going on with tcp only");
    f->shm_refused = true;
    ucp_context_h tcp;
    rc = ucx_context_create(&f->base.config, true, &tcp, e);
    if (rc != 0) return rc;
    ucp_cleanup(f->context);
    f->context = tcp;
    return worker_start(f, e);
}

static int worker_listen(struct fabric_ucx *f, struct err_text *e) {
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
        .cb = on_message,
        .arg = f};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t status = ucp_worker_set_am_recv_handler(f->worker, &handler);
    if (status == UCS_OK) status = ucp_worker_get_efd(f->worker, &f->event_fd);
    if (status == UCS_OK) status = ucp_worker_query(f->worker, &attr);
    if (status == UCS_OK && attr.max_am_header < sizeof(struct fabric_header))
        status = UCS_ERR_UNSUPPORTED;
    if (status == UCS_OK) return 0;
    return err_set(e, ERR_FATAL_IO, "UCX cannot receive active messages: %s",
                   ucs_status_string(status));
}

static int worker_address(struct fabric_ucx *f, uint8_t *address, size_t *address_bytes,
                          struct err_text *e) {
    ucp_address_t *own;
    size_t bytes;
    ucs_status_t status = ucp_worker_get_address(f->worker, &own, &bytes);
    if (status != UCS_OK)
        return err_set(e, ERR_FATAL_IO, "UCX has no address: %s", ucs_status_string(status));
    bool fits = bytes <= FABRIC_ADDRESS_MAX - UCX_ADDRESS_PREFIX;
    if (fits) {
        ucx_address_prefix(address);
        memcpy(address + UCX_ADDRESS_PREFIX, own, bytes);
        *address_bytes = UCX_ADDRESS_PREFIX + bytes;
    }
    ucp_worker_release_address(f->worker, own);
    if (fits) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "the UCX address has %zu bytes, too many: name one interface", bytes);
}

// Only now: what others have left is known by what UCX has just made here.
static void sweep(struct fabric_ucx *f) {
    struct fabric_swept swept;
    f->swept = true;
    fabric_sysv_sweep(&swept);
    if (swept.n == 0) return;
    log_warn("fabric", "swept %u segments of shared memory that killed processes left, %llu bytes",
             swept.n, (unsigned long long)swept.bytes);
}

static int ucx_begin(struct fabric *base, uint8_t *address, size_t *address_bytes,
                     struct err_text *e) {
    struct fabric_ucx *f = ucx(base);
    f->closing = false;
    int rc = worker_start_somehow(f, e);
    if (rc == 0) rc = worker_listen(f, e);
    if (rc == 0) rc = worker_address(f, address, address_bytes, e);
    if (rc != 0) return rc;
    if (!f->swept) sweep(f);
    memcpy(f->own, address, *address_bytes);
    f->own_bytes = *address_bytes;
    return 0;
}

static int ucx_check(const struct fabric *base, const uint8_t *address, size_t bytes,
                     struct err_text *e) {
    const struct fabric_ucx *f = (const struct fabric_ucx *)base;
    int rc = ucx_address_check(address, bytes, e);
    if (rc != 0 || f->own_bytes == 0) return rc;
    if (ucx_address_has_shape(address + UCX_ADDRESS_PREFIX, bytes - UCX_ADDRESS_PREFIX,
                              f->own + UCX_ADDRESS_PREFIX, f->own_bytes - UCX_ADDRESS_PREFIX))
        return 0;
    return err_set(e, ERR_PEER_PROTOCOL, "the address of %zu bytes is garbled", bytes);
}

// --- connecting

static bool grow_sends(struct fabric_ucx *f) {
    struct ucx_chunk *chunk = mem_zalloc(sizeof *chunk);
    if (chunk == NULL) return false;
    chunk->next = f->chunks;
    f->chunks = chunk;
    for (size_t i = 0; i < UCX_SENDS_CHUNK; i++) {
        chunk->sends[i].fabric = f;
        chunk->sends[i].next = f->free_sends;
        f->free_sends = &chunk->sends[i];
    }
    return true;
}

static int connect_peer(struct fabric_ucx *f, const struct fabric_group *group, uint32_t p,
                        struct err_text *e) {
    const uint8_t *address = group->addresses[p];
    if (p == group->self) return 0;
    struct ucx_peer *peer = &f->peers[p];
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = (const ucp_address_t *)(address + UCX_ADDRESS_PREFIX),
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = peer}};
    ucs_status_t status = ucp_ep_create(f->worker, &params, &peer->endpoint);
    if (status == UCS_OK) {
        peer->whole_bytes = ucx_whole_bytes(peer->endpoint);
        return 0;
    }
    peer->endpoint = NULL;
    return err_set(e, ERR_PEER_LOST, "cannot reach peer %u: %s", p, ucs_status_string(status));
}

static int ucx_connect(struct fabric *base, const struct fabric_group *group, struct err_text *e) {
    struct fabric_ucx *f = ucx(base);
    f->peers = mem_array(group->n_peers, sizeof *f->peers);
    if (f->peers == NULL || !grow_sends(f))
        return err_set(e, ERR_FATAL_NOMEM, "no memory for %u peers", group->n_peers);
    f->n_peers = group->n_peers;
    for (uint32_t p = 0; p < group->n_peers; p++) {
        f->peers[p] = (struct ucx_peer){.fabric = f, .index = p};
        int rc = connect_peer(f, group, p, e);
        if (rc != 0) return rc;
    }
    return 0;
}

// --- ending

static void close_endpoints(struct fabric_ucx *f) {
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE};
    for (uint32_t p = 0; p < f->n_peers; p++) {
        struct ucx_peer *peer = &f->peers[p];
        if (peer->endpoint == NULL) continue;
        ucs_status_ptr_t request = ucp_ep_close_nbx(peer->endpoint, &param);
        peer->endpoint = NULL;
        peer->close = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
}

static bool all_done(const struct fabric_ucx *f) {
    if (f->n_outstanding > 0) return false;
    for (uint32_t p = 0; p < f->n_peers; p++) {
        if (f->peers[p].close != NULL &&
            ucp_request_check_status(f->peers[p].close) == UCS_INPROGRESS)
            return false;
    }
    return true;
}

static void progress_to_the_end(struct fabric_ucx *f) {
    int64_t limit = env_now_ns(f->base.config.env) + TEARDOWN_NS_MAX;
    while (!all_done(f)) {
        if (ucp_worker_progress(f->worker) != 0) continue;
        if (env_now_ns(f->base.config.env) >= limit) {
            log_warn("fabric", "%u sends did not end in time and are given up", f->n_outstanding);
            return;
        }
        poll(NULL, 0, 1); // neighbours need the core to end their side
    }
}

// A handle that is kept makes ucp_worker_destroy fail an assertion, so unfinished ones are let go
// as well.
static void free_requests(struct fabric_ucx *f) {
    for (uint32_t p = 0; p < f->n_peers; p++) {
        if (f->peers[p].close != NULL) ucp_request_free(f->peers[p].close);
    }
    for (struct ucx_chunk *chunk = f->chunks; chunk != NULL; chunk = chunk->next) {
        for (size_t i = 0; i < UCX_SENDS_CHUNK; i++) {
            if (chunk->sends[i].request != NULL) ucp_request_free(chunk->sends[i].request);
        }
    }
}

static void ucx_end(struct fabric *base) {
    struct fabric_ucx *f = ucx(base);
    f->closing = true;
    if (f->worker != NULL) {
        close_endpoints(f);
        progress_to_the_end(f);
        free_requests(f);
        ucp_worker_destroy(f->worker);
        f->worker = NULL;
    }
    while (f->chunks != NULL) {
        struct ucx_chunk *old = f->chunks;
        f->chunks = old->next;
        mem_free(old);
    }
    mem_free(f->peers);
    f->peers = NULL;
    f->n_peers = 0;
    f->free_sends = NULL;
    f->n_outstanding = 0;
}

static void ucx_close(struct fabric *base) {
    struct fabric_ucx *f = ucx(base);
    if (f->context != NULL) ucp_cleanup(f->context);
    if (f->interrupt_fd >= 0) close(f->interrupt_fd);
    mem_free(f);
}

// --- sending

static void send_done(struct fabric_ucx *f, struct ucx_send *s) {
    s->request = NULL;
    s->next = f->free_sends;
    f->free_sends = s;
}

static void on_sent(void *request, ucs_status_t status, void *arg) {
    struct ucx_send *s = arg;
    struct fabric_ucx *f = s->fabric;
    if (status != UCS_OK) lose(f, s->peer, status);
    ucp_request_free(request);
    f->n_outstanding--;
    send_done(f, s);
}

// The shortest description of head and data: one piece needs no iov.
static const void *describe_part(struct ucx_send *s, const struct fabric_part *part, size_t *count,
                                 ucp_datatype_t *type) {
    *type = ucp_dt_make_contig(1);
    *count = part->head_bytes + part->data_bytes;
    if (part->data_bytes == 0) return part->head;
    if (part->head_bytes == 0) return part->data;
    s->iov[0] = (ucp_dt_iov_t){(void *)(uintptr_t)part->head, part->head_bytes};
    s->iov[1] = (ucp_dt_iov_t){(void *)(uintptr_t)part->data, part->data_bytes};
    *type = ucp_dt_make_iov();
    *count = 2;
    return s->iov;
}

static int ucx_send_part(struct fabric *base, uint32_t peer, const struct fabric_header *header,
                         const struct fabric_part *part) {
    struct fabric_ucx *f = ucx(base);
    if (f->free_sends == NULL && !grow_sends(f)) return ERR_FATAL_NOMEM;
    struct ucx_send *s = f->free_sends;
    f->free_sends = s->next;
    s->header = *header;
    s->peer = peer;
    size_t count;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_DATATYPE,
                                 .cb.send = on_sent,
                                 .user_data = s};
    const void *buffer = describe_part(s, part, &count, &param.datatype);
    ucs_status_ptr_t request = ucp_am_send_nbx(f->peers[peer].endpoint, AM_ID, &s->header,
                                               sizeof s->header, buffer, count, &param);
    if (UCS_PTR_IS_PTR(request)) {
        s->request = request;
        f->n_outstanding++;
        return 0;
    }
    send_done(f, s);
    if (request == NULL) return 0;
    lose(f, peer, UCS_PTR_STATUS(request));
    return base->broken;
}

static size_t ucx_peer_whole_bytes(const struct fabric *base, uint32_t peer) {
    return ((const struct fabric_ucx *)base)->peers[peer].whole_bytes;
}

static bool ucx_sent(struct fabric *base) {
    return ucx(base)->n_outstanding == 0;
}

// --- waiting

// To the end, or until the caller may have what it waits for: over TCP each round is a system call.
static void ucx_progress(struct fabric *base) {
    struct fabric_ucx *f = ucx(base);
    if (f->worker == NULL) return;
    base->arrived = false;
    for (int i = 0; i < PROGRESS_MAX && ucp_worker_progress(f->worker) != 0 && !base->arrived; i++)
        f->nap_ns = 0;
}

// True: something moved, or the wait is over anyway.
static bool spin(struct fabric_ucx *f, int64_t deadline_ns) {
    struct env *env = f->base.config.env;
    int64_t until = env_now_ns(env) + f->base.config.spin_ns;
    if (until > deadline_ns) until = deadline_ns;
    if (f->base.config.spin_ns <= 0) return false;
    do {
        if (ucp_worker_progress(f->worker) != 0 || atomic_load(&f->base.interrupted)) return true;
        __builtin_ia32_pause();
    } while (env_now_ns(env) < until);
    return false;
}

static struct timespec sleep_span(const struct fabric_ucx *f, int64_t deadline_ns, int64_t left) {
    if (deadline_ns != NO_DEADLINE) {
        int64_t rest = deadline_ns - env_now_ns(f->base.config.env);
        if (rest < left) left = rest < 0 ? 0 : rest;
    }
    return (struct timespec){.tv_nsec = (long)left};
}

// Sleeps for so long at most, until an interrupt, a wake (true: consumed) or, if armed, an event.
static bool sleep_until(struct fabric_ucx *f, struct timespec span, bool armed, bool wakes) {
    struct waker *waker = f->base.config.waker;
    struct pollfd fds[] = {{.fd = armed ? f->event_fd : -1, .events = POLLIN},
                           {.fd = f->interrupt_fd, .events = POLLIN},
                           {.fd = wakes ? waker_fd(waker) : -1, .events = POLLIN}};
    if (ppoll(fds, sizeof fds / sizeof *fds, &span, NULL) <= 0) return false;
    uint64_t count;
    if (fds[1].revents != 0 && read(f->interrupt_fd, &count, sizeof count) < 0)
        check(errno == EAGAIN || errno == EINTR);
    return wakes && fds[2].revents != 0 && waker_wait(waker, 0);
}

// UCX has no event for it when a full queue of shared memory has room again, nor then one for what
// arrives: short naps, longer ones the longer nothing moves.
static bool nap(struct fabric_ucx *f, int64_t deadline_ns, bool wakes) {
    if (ucp_worker_progress(f->worker) != 0) {
        f->nap_ns = 0;
        return wakes && waker_wait(f->base.config.waker, 0);
    }
    f->nap_ns = f->nap_ns == 0 ? NAP_NS : 2 * f->nap_ns;
    if (f->nap_ns > NAP_NS_MAX) f->nap_ns = NAP_NS_MAX;
    return sleep_until(f, sleep_span(f, deadline_ns, f->nap_ns), false, wakes);
}

static bool ucx_wait(struct fabric *base, int64_t deadline_ns, bool wakes) {
    struct fabric_ucx *f = ucx(base);
    if (spin(f, deadline_ns)) return false;
    bool armed = ucp_worker_arm(f->worker) == UCS_OK; // if not there is more to progress
    if (armed) return sleep_until(f, sleep_span(f, deadline_ns, STOP_CHECK_NS), true, wakes);
    if (f->n_outstanding > 0) return nap(f, deadline_ns, wakes);
    return wakes && waker_wait(base->config.waker, 0);
}

static void ucx_interrupt(struct fabric *base) {
    uint64_t one = 1;
    ssize_t n = write(ucx(base)->interrupt_fd, &one, sizeof one);
    (void)n; // a full counter is a pending interrupt as well
}

static const struct fabric_ops ucx_ops = {
    .begin = ucx_begin,
    .check_address = ucx_check,
    .connect = ucx_connect,
    .end = ucx_end,
    .close = ucx_close,
    .interrupt = ucx_interrupt,
    .send = ucx_send_part,
    .whole_bytes = ucx_peer_whole_bytes,
    .sent = ucx_sent,
    .progress = ucx_progress,
    .wait = ucx_wait,
    .release = ucx_release,
    .describe = ucx_describe,
};

// UCX puts a large message together in memory from malloc. Were that given back to the kernel after
// each, the next would cost a page fault every 4 KiB, which takes longer than the copy. The price:
// up to 256 MiB of freed heap stay with the process, which worker/room.c does not count.
static void keep_freed_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that it takes
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int fabric_open_ucx(struct fabric **out, const struct fabric_config *config, struct err_text *e) {
    struct fabric_ucx *f = mem_zalloc(sizeof *f);
    if (f == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a fabric");
    f->base.ops = &ucx_ops;
    keep_freed_memory();
    ucx_restore_signals();
    ucx_log_redirect();
    f->interrupt_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc =
        f->interrupt_fd >= 0 ? 0 : err_set(e, ERR_FATAL_IO, "cannot create an event descriptor");
    if (rc == 0) rc = ucx_context_create(config, false, &f->context, e);
    if (rc != 0) {
        ucx_close(&f->base);
        return rc;
    }
    *out = &f->base;
    return 0;
}
