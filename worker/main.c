// main.c: the moe-worker process: options, signals, the doors, the control thread; then worker_run.
//
// Exit codes: 0 stopped by a signal or by the leader, 1 a fatal error while running, 2 the options
// are wrong.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/child.h"
#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/conf/options.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"
#include "common/net/tls_files.h"
#include "worker/cores.h"
#include "worker/worker.h"

#define EXIT_FATAL 1
#define EXIT_USAGE 2
#define HEARTBEAT_NS NS_PER_S
#define CONTROL_PORT "8500"
#define DESCRIPTORS_MIN 64
// A rank's largest message carries all its rows of a step to one peer. Buffers grow with what is
// sent, so the limit only stops nonsense; room.c refuses a model and batch that would need more.
#define FABRIC_MESSAGE_BYTES_MAX ((size_t)1 << 30)
#define SPIN_NS                                                                                    \
    (50 * INT64_C(1000)) // measured: hides the wake-up inside a step, and is short enough not to
                         // starve a neighbour

extern char **environ;

struct process {
    struct worker_options options;
    struct arena arena;
    char address[512];
    char *token;           // owned
    struct tls_files *tls; // owned
    struct env *env;
    struct waker *waker, *control_waker;
    struct fabric *fabric;
    struct channel *channel;
    struct worker *worker;
    pthread_t control_thread, signal_thread;
    bool control_runs, signals_run;
    sigset_t signals;
    _Atomic bool ended;
};

// --- threads

static void stop_now(struct process *p) {
    env_real_stop(p->env);
    fabric_interrupt(p->fabric);
    waker_wake(p->waker);
}

// The next signal, or 0 when the time is over.
static int next_signal(struct process *p, int64_t until_ns) {
    int64_t left_ns = until_ns - env_now_ns(p->env);
    if (left_ns < 0) left_ns = 0;
    struct timespec left = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
    int number = sigtimedwait(&p->signals, NULL, until_ns == NO_DEADLINE ? NULL : &left);
    return number > 0 ? number : errno == EAGAIN ? 0 : SIGHUP;
}

// A signal handler may do nothing; a thread that waits for signals may. The first signal drains, a
// second one or the time ends that, a third one is of somebody very impatient.
static void *signal_thread(void *context) {
    struct process *p = context;
    int64_t until_ns = NO_DEADLINE;
    int number, count = 0;
    while ((number = next_signal(p, until_ns)) != SIGUSR2) { // main is done
        if (number == SIGHUP) continue;
        if (++count > 2) _exit(EXIT_FATAL);
        until_ns = NO_DEADLINE;
        if (count == 1) {
            log_info("main", "draining after %s", number == SIGINT ? "SIGINT" : "SIGTERM");
            until_ns = env_now_ns(p->env) + p->options.shutdown_timeout;
            worker_drain(p->worker);
        } else {
            log_info("main", "stopping %s",
                     number == 0 ? "at the end of --shutdown-timeout" : "after a second signal");
            stop_now(p);
        }
    }
    return NULL;
}

static void *control_thread(void *context) {
    struct process *p = context;
    while (!atomic_load(&p->ended)) {
        worker_heartbeat(p->worker);
        waker_wait(p->control_waker, env_now_ns(p->env) + HEARTBEAT_NS);
    }
    return NULL;
}

// All threads inherit this mask, so that only the signal thread gets them.
static void block_signals(struct process *p) {
    sigemptyset(&p->signals);
    sigaddset(&p->signals, SIGINT);
    sigaddset(&p->signals, SIGTERM);
    sigaddset(&p->signals, SIGHUP);
    sigaddset(&p->signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &p->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

// --- set-up

static int read_token(struct process *p, struct err_text *e) {
    const struct control_options *o = &p->options.control;
    const struct secret_source source = {"--control-token-file", o->token_file,
                                         "MOESAIC_CONTROL_TOKEN", o->token};
    int rc = secret_read_one(&p->token, &source, e);
    secret_wipe((char *)(uintptr_t)o->token);
    return rc;
}

static int open_tls(struct process *p, struct err_text *e) {
    const struct control_options *o = &p->options.control;
    struct tls_config config = {.env = p->env,
                                .cert = o->tls_cert,
                                .key = o->tls_key,
                                .ca = o->tls_ca,
                                .cert_flag = "--control-tls-cert",
                                .key_flag = "--control-tls-key",
                                .ca_flag = "--control-tls-ca"};
    const char *other = o->tls_cert != NULL                   ? config.cert_flag
                        : o->tls_key != NULL                  ? config.key_flag
                        : p->options.control_tls_name != NULL ? "--control-tls-name"
                                                              : NULL;
    if (o->tls_ca != NULL) return tls_files_open(&p->tls, &config, e);
    if (other == NULL) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "%s needs --control-tls-ca: without it any leader would be believed", other);
}

// LeaderWorkerSet gives a host name only.
static int make_address(struct process *p, struct err_text *e) {
    const char *leader = p->options.leader;
    const char *bracket = strrchr(leader, ']');
    bool has_port = strchr(bracket != NULL ? bracket : leader, ':') != NULL;
    int n =
        snprintf(p->address, sizeof p->address, "%s%s", leader, has_port ? "" : ":" CONTROL_PORT);
    if (n < 0 || (size_t)n >= sizeof p->address)
        return err_set(e, ERR_FATAL_CONFIG, "--leader is longer than %zu bytes",
                       sizeof p->address - 1);
    int rc = channel_address_check(p->address, e);
    if (rc == 0) return 0;
    struct err_text cause = *e;
    return err_set(e, rc, "--leader: %s", cause.text);
}

static int open_fabric(struct process *p, struct err_text *e) {
    struct core_set cores;
    cores_read(&cores);
    struct fabric_config config = {.env = p->env,
                                   .waker = p->waker,
                                   .interface = p->options.interface,
                                   .transports = p->options.transports,
                                   .message_bytes_max = FABRIC_MESSAGE_BYTES_MAX,
                                   .spin_ns = cores.usable > 1 ? SPIN_NS : 0};
    return fabric_open(&p->fabric, FABRIC_UCX, &config, e);
}

static int create_worker(struct process *p, struct err_text *e) {
    const struct worker_options *o = &p->options;
    int32_t rank =
        o->rank >= 0 || o->lws_worker_index == 0 ? o->rank : (int32_t)o->lws_worker_index - 1;
    struct worker_config config = {
        .env = p->env,
        .waker = p->waker,
        .fabric = p->fabric,
        .model = o->model,
        .build_id = MOESAIC_BUILD_ID,
        .kernels = o->kernels,
        .name = o->name,
        .wanted_rank = rank,
        .n_threads = o->threads,
        .pin = true,
        .memory_bytes = o->memory,
        .heartbeat_ns = HEARTBEAT_NS,
    };
    return worker_create(&p->worker, &config, e);
}

static int dial(struct process *p, struct err_text *e) {
    struct channel_config config = {.env = p->env,
                                    .waker = p->waker,
                                    .address = p->address,
                                    .token = p->token,
                                    .token_in_clear = p->options.control.insecure,
                                    .tls = p->tls,
                                    .tls_name = p->options.control_tls_name,
                                    .peek = worker_peek,
                                    .lost = worker_lost,
                                    .peek_context = p->worker};
    int rc = channel_dial_grpc(&p->channel, &config, e);
    if (rc == 0) worker_attach(p->worker, p->channel);
    return rc;
}

static int start_threads(struct process *p, struct err_text *e) {
    if (pthread_create(&p->signal_thread, NULL, signal_thread, p) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the signal thread");
    p->signals_run = true;
    if (pthread_create(&p->control_thread, NULL, control_thread, p) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the control thread");
    p->control_runs = true;
    return 0;
}

static int set_up(struct process *p, struct err_text *e) {
    uint64_t descriptors;
    block_signals(p); // before gRPC and UCX start threads
    p->env = env_real_create();
    if (p->env == NULL || waker_create(p->env, &p->waker) != 0 ||
        waker_create(p->env, &p->control_waker) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "no memory or descriptors for the process's wakers");
    int rc = descriptors_claim(DESCRIPTORS_MIN, &descriptors, e);
    if (rc == 0 && p->options.parent_pid != 0) rc = child_follow((pid_t)p->options.parent_pid, e);
    if (rc == 0) rc = read_token(p, e);
    if (rc == 0) rc = open_tls(p, e);
    if (rc == 0) rc = make_address(p, e);
    if (rc == 0) rc = open_fabric(p, e);
    if (rc == 0) rc = create_worker(p, e);
    if (rc == 0) rc = dial(p, e);
    if (rc == 0) rc = start_threads(p, e);
    return rc;
}

static void tear_down(struct process *p) {
    atomic_store(&p->ended, true);
    if (p->control_runs) {
        waker_wake(p->control_waker);
        pthread_join(p->control_thread, NULL);
    }
    if (p->signals_run) {
        pthread_kill(p->signal_thread, SIGUSR2);
        pthread_join(p->signal_thread, NULL);
    }
    if (p->channel != NULL) channel_close(p->channel);
    worker_destroy(p->worker);
    if (p->fabric != NULL) fabric_close(p->fabric);
    secret_free(p->token);
    tls_files_close(p->tls);
    waker_destroy(p->control_waker);
    waker_destroy(p->waker);
    if (p->env != NULL) env_real_destroy(p->env);
    arena_finish(&p->arena);
}

// Exit code, or -1 to go on.
static int read_options(struct process *p, char **argv) {
    struct err_text e = {0};
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_FORMAT_TEXT;
    int asked = 0;
    struct option_input input = {.argv = (const char *const *)argv + 1,
                                 .arena = &p->arena,
                                 .environment = (const char *const *)environ};
    arena_init(&p->arena, 0);
    int rc = options_parse(&worker_option_table, &p->options, &input, &asked, &e);
    secret_wipe_variable(environ, "MOESAIC_CONTROL_TOKEN");
    if (asked == 'h') options_print_help(&worker_option_table, stdout);
    if (asked == 'm') options_print_markdown(&worker_option_table, stdout);
    if (asked == 'v') printf("moe-worker %s\n", MOESAIC_BUILD_ID);
    if (asked != 0) return 0;
    if (rc != 0) {
        fprintf(stderr, "moe-worker: %s\n", e.text);
        return EXIT_USAGE;
    }
    check(log_level_parse(p->options.log_level, &level)); // the table knows the choices
    check(log_format_parse(p->options.log_format, &format));
    log_setup(p->options.parent_pid != 0 && p->options.name != NULL ? p->options.name : "worker",
              level);
    log_set_format(format);
    return -1;
}

int main(int argc, char **argv) {
    static struct process process; // zeroed; large for a stack
    struct err_text e = {0};
    (void)argc;
    int code = read_options(&process, argv);
    if (code >= 0) {
        arena_finish(&process.arena);
        return code;
    }
    int rc = set_up(&process, &e);
    if (rc != 0) log_event(LOG_ERROR, "main", "cannot start", log_text("reason", e.text));
    if (rc == 0) rc = worker_run(process.worker);
    code = rc == 0 ? 0 : rc == ERR_FATAL_CONFIG ? EXIT_USAGE : EXIT_FATAL;
    tear_down(&process);
    return code;
}
