// grpc_runtime.c: see grpc_runtime.h.
#include "common/net/grpc_runtime.h"

#include <grpc/compression.h>
#include <grpc/support/log.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/log_gate.h"
#include "common/base/plural.h"

// gRPC tells of a failed handshake nowhere but in its log, whose function has no context: so this
// is the one state of the process here.
static struct {
    pthread_mutex_t lock;
    bool on;
    struct log_gate gate;
} handshakes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void log_handshake(const char *message) {
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    const char *reason = strrchr(message, ':'); // behind OpenSSL's "error:0A000086:SSL routines::"
    int64_t now_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    uint32_t n_more = 0;
    pthread_mutex_lock(&handshakes.lock);
    bool shown = handshakes.on && log_gate_pass_late(&handshakes.gate, now_ns, &n_more);
    pthread_mutex_unlock(&handshakes.lock);
    if (n_more > 0) log_warn("grpc", "%u more TLS handshake%s failed", n_more, plural(n_more));
    if (shown)
        log_warn("grpc", "a TLS handshake failed: %.200s", reason != NULL ? reason + 1 : message);
}

// What else gRPC core has to say is about its inside; what a person needs is logged by the channels
// themselves.
static void log_line(gpr_log_func_args *args) {
    static const char failed[] = "Handshake failed";
    bool error = args->severity == GPR_LOG_SEVERITY_ERROR;
    log_event(error ? LOG_DEBUG : LOG_TRACE, "grpc", "grpc core", log_text("says", args->message));
    if (strncmp(args->message, failed, sizeof failed - 1) == 0) log_handshake(args->message);
}

void grpc_runtime_log_handshakes(void) {
    pthread_mutex_lock(&handshakes.lock);
    handshakes.on = true;
    pthread_mutex_unlock(&handshakes.lock);
}

void grpc_runtime_block_signals(sigset_t *old) {
    sigset_t all;
    sigfillset(&all);
    check(pthread_sigmask(SIG_SETMASK, &all, old) == 0);
}

void grpc_runtime_restore_signals(const sigset_t *old) {
    check(pthread_sigmask(SIG_SETMASK, old, NULL) == 0);
}

void grpc_runtime_start(void) {
    sigset_t old;
    gpr_set_log_function(log_line);
    if (log_enabled(LOG_TRACE)) gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
    grpc_runtime_block_signals(&old);
    grpc_init();
    grpc_runtime_restore_signals(&old);
}

void grpc_runtime_stop(void) {
    grpc_shutdown_blocking();
}

int grpc_runtime_thread(pthread_t *out, void *(*main_fn)(void *arg), void *arg) {
    sigset_t old;
    grpc_runtime_block_signals(&old);
    int rc = pthread_create(out, NULL, main_fn, arg);
    grpc_runtime_restore_signals(&old);
    return rc == 0 ? 0 : ERR_FATAL_IO;
}

#define PING_STRIKES 2 // early pings that are forgiven

struct setting {
    const char *key;
    int value;
};

static const struct setting common_settings[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, 1000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 1000},
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}, // 0: as many as keepalive asks for
};
static const struct setting server_settings[] = {
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
     200}, // below the clients' period, or they are sent away
    {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
    // Compressed messages come as they are, and are unpacked within bounds (grpc_unpack.h).
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
    {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300000},     // without a call
    {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000}, // a connection that never says what it is
    {GRPC_ARG_ALLOW_REUSEPORT, 0}, // a second leader on the port must fail, not share it
};
static const struct setting client_settings[] = {
    {GRPC_ARG_ENABLE_HTTP_PROXY, 0},         // a proxy would be asked even for 127.0.0.1
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1}, // each attempt resolves and connects anew
    {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1},
    {GRPC_ARG_DNS_ENABLE_SRV_QUERIES, 0},
};

static void add(struct grpc_runtime_args *out, const struct setting *settings, size_t n) {
    check(out->list.num_args + n <= GRPC_RUNTIME_ARGS_MAX);
    for (size_t i = 0; i < n; i++) {
        grpc_arg *arg = &out->args[out->list.num_args++];
        *arg = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)settings[i].key};
        arg->value.integer = settings[i].value;
    }
}

static void start_args(struct grpc_runtime_args *out, int message_bytes_max) {
    memset(out, 0, sizeof *out);
    out->list.args = out->args;
    const struct setting limit = {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, message_bytes_max};
    add(out, &limit, 1);
    add(out, common_settings, sizeof common_settings / sizeof *common_settings);
}

void grpc_runtime_server_args(struct grpc_runtime_args *out, int message_bytes_max) {
    start_args(out, message_bytes_max);
    add(out, server_settings, sizeof server_settings / sizeof *server_settings);
}

void grpc_runtime_client_args(struct grpc_runtime_args *out, int message_bytes_max) {
    start_args(out, message_bytes_max);
    add(out, client_settings, sizeof client_settings / sizeof *client_settings);
}

void grpc_runtime_keepalive(struct grpc_runtime_args *args, int ms) {
    for (size_t i = 0; i < args->list.num_args; i++) {
        grpc_arg *arg = &args->args[i];
        if (strcmp(arg->key, GRPC_ARG_KEEPALIVE_TIME_MS) == 0 ||
            strcmp(arg->key, GRPC_ARG_KEEPALIVE_TIMEOUT_MS) == 0)
            arg->value.integer = ms;
    }
}

static void set(struct grpc_runtime_args *args, const char *key, int value) {
    const struct setting setting = {key, value};
    for (size_t i = 0; i < args->list.num_args; i++) {
        if (strcmp(args->args[i].key, key) != 0) continue;
        args->args[i].value.integer = value;
        return;
    }
    add(args, &setting, 1);
}

// gRPC takes in a whole message before it compares its size with the limit, so four bytes of a
// header can ask for 4 GiB. Only a quota bounds that: when it is used up, calls are cut.
static void set_quota(struct grpc_runtime_args *args, uint64_t bytes) {
    check(args->list.num_args < GRPC_RUNTIME_ARGS_MAX && args->quota == NULL);
    args->quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(args->quota, (size_t)bytes);
    grpc_arg *arg = &args->args[args->list.num_args++];
    *arg = (grpc_arg){.type = GRPC_ARG_POINTER, .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA};
    arg->value.pointer.p = args->quota;
    arg->value.pointer.vtable = grpc_resource_quota_arg_vtable();
}

void grpc_runtime_limit(struct grpc_runtime_args *args, const struct grpc_runtime_limits *limits) {
    if (limits->memory_bytes != 0) set_quota(args, limits->memory_bytes);
    if (limits->ping_interval_ms != 0) {
        set(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits->ping_interval_ms);
        set(args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, PING_STRIKES);
    }
    if (limits->metadata_bytes != 0) set(args, GRPC_ARG_MAX_METADATA_SIZE, limits->metadata_bytes);
    if (limits->connection_age_ms != 0)
        set(args, GRPC_ARG_MAX_CONNECTION_AGE_MS, limits->connection_age_ms);
}

void grpc_runtime_args_finish(struct grpc_runtime_args *args) {
    if (args->quota != NULL) grpc_resource_quota_unref(args->quota);
    args->quota = NULL;
}

void grpc_runtime_streams_max(struct grpc_runtime_args *args, int n) {
    const struct setting limit = {GRPC_ARG_MAX_CONCURRENT_STREAMS, n};
    add(args, &limit, 1);
}

void grpc_runtime_server_name(struct grpc_runtime_args *args, const char *name) {
    check(args->list.num_args < GRPC_RUNTIME_ARGS_MAX);
    grpc_arg *arg = &args->args[args->list.num_args++];
    *arg = (grpc_arg){.type = GRPC_ARG_STRING,
                      .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG};
    arg->value.string = (char *)(uintptr_t)name;
}
