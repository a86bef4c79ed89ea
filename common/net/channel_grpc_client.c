// channel_grpc_client.c: the worker's end of Cluster.Join: dials for ever, one attempt after the
// other, on a thread of its own.
//
// An attempt is a fresh gRPC channel (so the name is resolved anew) and one call. It counts as open
// when the server's accept metadata has come, and is over when the call's last event has come; then
// the thread waits out the backoff and tries again.
#include <stdio.h>
#include <string.h>

#include <grpc/support/alloc.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/channel_impl.h"
#include "common/net/grpc_runtime.h"
#include "common/net/grpc_server.h"
#include "common/net/grpc_stream.h"
#include "common/net/grpc_tls.h"

#define REMINDER_NS (60 * NS_PER_S)
#define JOIN_PATH "/moesaic.control.v1.Cluster/Join"
#define TICK_MS 250
#define CONNECT_NS_MAX (5 * NS_PER_S) // for resolving, connecting and being accepted
#define ENDING_NS_MAX (NS_PER_S / 2)  // for what was sent before an end

// Of one attempt; written by gRPC until the call is over.
struct attempt {
    grpc_metadata_array accept, trailing;
    grpc_status_code status;
    grpc_slice details;
    const char *error; // owned by gpr
    char token[512];
    bool opened, refused;
    int64_t started_ns, opened_ns;
    char text[ERR_TEXT_MAX];
};

struct channel_grpc_client {
    struct channel base;
    pthread_t thread;
    grpc_completion_queue *queue;
    struct waker *backoff;  // ends the wait between two attempts
    struct attempt attempt; // the thread's
    uint64_t last_generation;
    char last_failure[ERR_TEXT_MAX]; // what was logged last, and when
    int64_t last_failure_ns;
    // Guarded by stream_lock.
    pthread_mutex_t stream_lock;
    bool closing;
    struct grpc_stream *stream; // a reference, while an attempt runs
    uint64_t generation,
        taken; // of the open stream (0: none); of the one whose opening the owner has taken
    bool dropped, drop_refused;
    char reason[ERR_TEXT_MAX]; // of the owner's drop
    uint32_t waiting;          // messages in the inbox
};

// --- one attempt

static void send_request(struct channel_grpc_client *c, struct grpc_stream *s) {
    struct attempt *a = &c->attempt;
    grpc_metadata token = {.key = grpc_slice_from_static_string("authorization"),
                           .value = grpc_slice_from_copied_string(a->token)};
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &a->trailing;
    status.data.recv_status_on_client.status = &a->status;
    status.data.recv_status_on_client.status_details = &a->details;
    status.data.recv_status_on_client.error_string = &a->error;
    grpc_op open[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                       {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    open[0].data.send_initial_metadata.count = a->token[0] != '\0' ? 1 : 0;
    open[0].data.send_initial_metadata.metadata = &token;
    open[1].data.recv_initial_metadata.recv_initial_metadata = &a->accept;
    grpc_stream_start(s, OP_CLOSE, &status, 1);
    grpc_stream_start(s, OP_OPEN, open, 2);
    grpc_slice_unref(token.value);
}

static bool accepted(const struct attempt *a) {
    for (size_t i = 0; i < a->accept.count; i++) {
        if (grpc_slice_str_cmp(a->accept.metadata[i].key, GRPC_ACCEPT_KEY) == 0) return true;
    }
    return false;
}

static void on_open(struct channel_grpc_client *c, struct grpc_stream *s, bool ok) {
    if (!ok || !accepted(&c->attempt)) return; // the status says why
    struct channel_item *item = channel_item_make(CHANNEL_OPENED, 1, NULL);
    if (item == NULL) {
        grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "no memory");
        return;
    }
    item->generation = ++c->last_generation;
    pthread_mutex_lock(&c->stream_lock);
    c->generation = item->generation;
    c->waiting = 0;
    pthread_mutex_unlock(&c->stream_lock);
    c->attempt.opened = true;
    c->attempt.opened_ns = env_now_ns(c->base.config.env);
    c->last_failure[0] = '\0';
    channel_push(&c->base, item);
    grpc_stream_set_writable(s);
    grpc_stream_receive(s);
}

// Whether one more message may wait in the inbox.
static bool admit(struct channel_grpc_client *c) {
    pthread_mutex_lock(&c->stream_lock);
    bool ok = !c->dropped && !c->closing && c->waiting < CHANNEL_WAITING_MAX;
    if (ok) c->waiting++;
    pthread_mutex_unlock(&c->stream_lock);
    return ok;
}

static void on_message(struct channel_grpc_client *c, struct grpc_stream *s, bool ok) {
    uint8_t *data;
    size_t bytes;
    int rc = grpc_stream_take(s, ok, CONTROL_MESSAGE_BYTES_MAX, &data, &bytes);
    if (rc == ERR_AGAIN) return;
    struct channel_item *item = rc == 0 ? channel_item_make(CHANNEL_MESSAGE, 1, NULL) : NULL;
    if (item == NULL) {
        if (rc == 0) mem_free(data);
        grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "no memory for a message");
        return;
    }
    item->event.data = data;
    item->event.bytes = bytes;
    item->generation = c->last_generation;
    if (admit(c)) {
        const struct channel_config *config = &c->base.config;
        if (config->peek != NULL) config->peek(config->peek_context, data, bytes);
        channel_push(&c->base, item);
    } else {
        channel_item_free(item);
        grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "too many messages are waiting");
    }
    grpc_stream_receive(s);
}

static void on_event(struct channel_grpc_client *c, struct grpc_stream *s, enum stream_op op,
                     bool ok) {
    grpc_stream_completed(s, op, ok);
    if (op == OP_OPEN) on_open(c, s, ok);
    if (op == OP_RECEIVE) on_message(c, s, ok);
}

static void tick(struct channel_grpc_client *c, struct grpc_stream *s) {
    int64_t now = env_now_ns(c->base.config.env);
    bool slow = !c->attempt.opened && now - c->attempt.started_ns > CONNECT_NS_MAX;
    pthread_mutex_lock(&c->stream_lock);
    bool hurry = c->closing && !c->attempt.opened;
    pthread_mutex_unlock(&c->stream_lock);
    if (slow) grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "no answer within 5 s");
    if (hurry || grpc_stream_late(s, now, ENDING_NS_MAX))
        grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "the worker closed the stream");
}

static void run_call(struct channel_grpc_client *c, struct grpc_stream *s) {
    send_request(c, s);
    while (!grpc_stream_finished(s)) {
        gpr_timespec deadline =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(TICK_MS, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(c->queue, deadline, NULL);
        const struct grpc_tag *tag = event.tag;
        if (event.type == GRPC_OP_COMPLETE) on_event(c, s, tag->op, event.success != 0);
        tick(c, s);
    }
}

static grpc_call *make_call(struct channel_grpc_client *c, grpc_channel **channel) {
    struct grpc_runtime_args args;
    grpc_runtime_client_args(&args, CONTROL_MESSAGE_BYTES_MAX);
    if (c->base.config.tls_name != NULL) grpc_runtime_server_name(&args, c->base.config.tls_name);
    grpc_channel_credentials *credentials = grpc_tls_client(c->base.config.tls);
    *channel = grpc_channel_create(c->base.config.address, credentials, &args.list);
    grpc_channel_credentials_release(credentials);
    return grpc_channel_create_call(*channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue,
                                    grpc_slice_from_static_string(JOIN_PATH), NULL,
                                    gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static bool is_refusal(grpc_status_code code) {
    return code == GRPC_STATUS_FAILED_PRECONDITION || code == GRPC_STATUS_UNAUTHENTICATED ||
           code == GRPC_STATUS_PERMISSION_DENIED || code == GRPC_STATUS_UNIMPLEMENTED;
}

static void attempt_start(struct channel_grpc_client *c) {
    struct attempt *a = &c->attempt;
    memset(a, 0, sizeof *a);
    grpc_metadata_array_init(&a->accept);
    grpc_metadata_array_init(&a->trailing);
    a->details = grpc_empty_slice();
    a->started_ns = env_now_ns(c->base.config.env);
    if (c->base.config.token != NULL)
        snprintf(a->token, sizeof a->token, "Bearer %s", c->base.config.token);
}

// Which of a name's look-ups (IPv4's or IPv6's) gRPC tells of is chance: with it, the same failure
// would be news, and a line, at nearly every attempt.
static void forget_lookup(char *text) {
    char *at = strstr(text, " qtype=");
    if (at == NULL) return;
    const char *rest = at + 1 + strcspn(at + 1, " ");
    memmove(at, rest, strlen(rest) + 1);
}

static void attempt_finish(struct attempt *a) {
    snprintf(a->text, sizeof a->text, "%.*s", (int)GRPC_SLICE_LENGTH(a->details),
             (const char *)GRPC_SLICE_START_PTR(a->details));
    forget_lookup(a->text);
    if (a->text[0] == '\0')
        snprintf(a->text, sizeof a->text, "the call ended with gRPC status %d", (int)a->status);
    a->refused = is_refusal(a->status);
    grpc_slice_unref(a->details);
    gpr_free((void *)(uintptr_t)a->error);
    grpc_metadata_array_destroy(&a->accept);
    grpc_metadata_array_destroy(&a->trailing);
}

// Puts the stream where the owner finds it; false when the channel is closing.
static bool publish(struct channel_grpc_client *c, struct grpc_stream *s) {
    pthread_mutex_lock(&c->stream_lock);
    c->stream = s;
    c->dropped = false;
    c->reason[0] = '\0';
    bool closing = c->closing;
    pthread_mutex_unlock(&c->stream_lock);
    return !closing;
}

static void withdraw(struct channel_grpc_client *c) {
    pthread_mutex_lock(&c->stream_lock);
    c->stream = NULL;
    c->generation = 0;
    if (c->dropped) {
        snprintf(c->attempt.text, sizeof c->attempt.text, "%s", c->reason);
        c->attempt.refused = c->drop_refused;
    }
    pthread_mutex_unlock(&c->stream_lock);
}

// gRPC tells of the address, which is said already, and of who resolved it, before what was wrong.
static const char *plain_reason(const char *text) {
    static const char *const before[] = {"Failed to connect to remote host: ", "is_balancer=0: "};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        const char *at = strstr(text, before[i]);
        if (at != NULL && at[strlen(before[i])] != '\0') return at + strlen(before[i]);
    }
    return text;
}

static void report(struct channel_grpc_client *c) {
    const struct attempt *a = &c->attempt;
    if (a->opened) {
        const struct channel_config *config = &c->base.config;
        if (config->lost != NULL) config->lost(config->peek_context);
        channel_push(&c->base, channel_item_make(CHANNEL_CLOSED, 1, a->text));
        return;
    }
    // A long wait stays visible without a line for every try.
    int64_t now_ns = env_now_ns(c->base.config.env);
    if (strcmp(a->text, c->last_failure) != 0 || now_ns - c->last_failure_ns > REMINDER_NS) {
        snprintf(c->last_failure, sizeof c->last_failure, "%s", a->text);
        c->last_failure_ns = now_ns;
        const char *hint = grpc_tls_hint(c->base.config.tls, a->text);
        log_warn("channel", "cannot join %s yet: %s%s%s%s; trying again", c->base.config.address,
                 plain_reason(a->text), hint != NULL ? " (" : "", hint != NULL ? hint : "",
                 hint != NULL ? ")" : "");
    }
}

static void try_once(struct channel_grpc_client *c) {
    grpc_channel *channel;
    attempt_start(c);
    grpc_call *call = make_call(c, &channel);
    struct grpc_stream *s = grpc_stream_create(call, false, c);
    if (s != NULL) {
        if (!publish(c, s)) grpc_stream_cancel(s, GRPC_STATUS_CANCELLED, "closing");
        run_call(c, s);
    }
    attempt_finish(&c->attempt);
    withdraw(c);
    grpc_stream_unref(s);
    grpc_channel_destroy(channel);
    report(c);
}

// --- the thread

static bool is_closing(struct channel_grpc_client *c) {
    pthread_mutex_lock(&c->stream_lock);
    bool closing = c->closing;
    pthread_mutex_unlock(&c->stream_lock);
    return closing;
}

static int64_t next_backoff(struct channel_grpc_client *c, struct channel_backoff *b) {
    int64_t now_ns = env_now_ns(c->base.config.env);
    struct channel_attempt a = {.now_ns = now_ns,
                                .lived_ns = now_ns - c->attempt.opened_ns,
                                .opened = c->attempt.opened,
                                .refused = c->attempt.refused};
    return channel_backoff_next(b, &a);
}

// Up to a quarter more, so that workers do not come in step.
static int64_t jitter(struct channel_grpc_client *c, int64_t backoff_ns) {
    uint32_t r;
    env_random(c->base.config.env, &r, sizeof r);
    return backoff_ns + backoff_ns / 4 * (r % 1000) / 1000;
}

static void *dial_loop(void *arg) {
    struct channel_grpc_client *c = arg;
    struct env *env = c->base.config.env;
    struct channel_backoff backoff = {0};
    pthread_setname_np(pthread_self(), "grpc-client");
    while (!is_closing(c)) {
        try_once(c);
        int64_t until = env_now_ns(env) + jitter(c, next_backoff(c, &backoff));
        while (!is_closing(c) && env_now_ns(env) < until)
            waker_wait(c->backoff, until);
    }
    return NULL;
}

// --- the channel's calls

static void client_taken(struct channel *base, const struct channel_item *item) {
    struct channel_grpc_client *c = (struct channel_grpc_client *)base;
    pthread_mutex_lock(&c->stream_lock);
    if (item->event.kind == CHANNEL_OPENED) c->taken = item->generation;
    if (item->event.kind == CHANNEL_CLOSED) c->taken = 0;
    if (item->event.kind == CHANNEL_MESSAGE && item->generation == c->generation && c->waiting > 0)
        c->waiting--;
    pthread_mutex_unlock(&c->stream_lock);
}

// Only into the stream that the owner knows of: not into one that was opened since and expects a
// new beginning.
static bool is_current(const struct channel_grpc_client *c) {
    return c->stream != NULL && c->generation != 0 && c->generation == c->taken && !c->dropped;
}

static int client_send(struct channel *base, uint64_t peer, const void *data, size_t bytes) {
    struct channel_grpc_client *c = (struct channel_grpc_client *)base;
    check(peer == 1);
    pthread_mutex_lock(&c->stream_lock);
    int rc = is_current(c) ? grpc_stream_send(c->stream, data, bytes) : ERR_PEER_LOST;
    pthread_mutex_unlock(&c->stream_lock);
    return rc;
}

static void client_drop(struct channel *base, uint64_t peer, bool refused, const char *reason) {
    struct channel_grpc_client *c = (struct channel_grpc_client *)base;
    (void)peer;
    pthread_mutex_lock(&c->stream_lock);
    bool current = is_current(c);
    if (current) {
        c->dropped = true;
        c->drop_refused = refused;
        snprintf(c->reason, sizeof c->reason, "%s", reason);
        grpc_stream_end(c->stream, GRPC_STATUS_OK, reason, env_now_ns(base->config.env));
    }
    pthread_mutex_unlock(&c->stream_lock);
    if (current) channel_forget(base, peer);
}

static void client_finish(struct channel_grpc_client *c) {
    if (c->queue != NULL) {
        grpc_completion_queue_shutdown(c->queue);
        while (
            grpc_completion_queue_next(c->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
            GRPC_QUEUE_SHUTDOWN) {
        }
        grpc_completion_queue_destroy(c->queue);
        grpc_runtime_stop();
    }
    waker_destroy(c->backoff);
    pthread_mutex_destroy(&c->stream_lock);
    channel_finish(&c->base);
    mem_free(c);
}

static void client_close(struct channel *base) {
    struct channel_grpc_client *c = (struct channel_grpc_client *)base;
    pthread_mutex_lock(&c->stream_lock);
    c->closing = true;
    if (c->stream != NULL && c->generation == 0)
        grpc_stream_cancel(c->stream, GRPC_STATUS_CANCELLED, "closing");
    if (c->stream != NULL && c->generation != 0)
        grpc_stream_end(c->stream, GRPC_STATUS_OK, "the worker closed the stream",
                        env_now_ns(base->config.env));
    pthread_mutex_unlock(&c->stream_lock);
    waker_wake(c->backoff);
    pthread_join(c->thread, NULL);
    client_finish(c);
}

static const struct channel_ops client_ops = {
    .taken = client_taken, .send = client_send, .drop = client_drop, .close = client_close};

static int check_dial(const struct channel_config *config, struct err_text *e) {
    int rc = channel_check_token(config, e);
    if (rc != 0) return rc;
    if (config->token != NULL && strlen(config->token) > 400)
        return err_set(e, ERR_FATAL_CONFIG, "the token has more than 400 characters");
    for (const char *p = config->token; p != NULL && *p != '\0'; p++) {
        if (*p < 0x21 || *p > 0x7e)
            return err_set(e, ERR_FATAL_CONFIG, "the token has a character that is not printable");
    }
    return 0;
}

int channel_dial_grpc(struct channel **out, const struct channel_config *config,
                      struct err_text *e) {
    int rc = check_dial(config, e);
    if (rc != 0) return rc;
    struct channel_grpc_client *c = mem_zalloc(sizeof *c);
    if (c == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a channel");
    rc = channel_init(&c->base, &client_ops, config, e);
    if (rc != 0) {
        mem_free(c);
        return rc;
    }
    pthread_mutex_init(&c->stream_lock, NULL);
    rc = waker_create(config->env, &c->backoff);
    if (rc == 0) {
        grpc_runtime_start();
        c->queue = grpc_completion_queue_create_for_next(NULL);
        rc = grpc_runtime_thread(&c->thread, dial_loop, c);
    }
    if (rc != 0) {
        client_finish(c);
        return err_set(e, rc, "cannot start the channel to %s", config->address);
    }
    *out = &c->base;
    return 0;
}
