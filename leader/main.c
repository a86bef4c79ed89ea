// main.c: the moe-leader process: options, the model's text side, the two networks, the scheduler
// thread, the API, and the way out.
//
// Exit codes: 0 asked to stop, 1 it could not start or broke, 2 wrong options, 3 its accounts did
// not add up at the end.
#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/conf/foreign.h"
#include "common/conf/options.h"
#include "common/model/folder.h"
#include "leader/api.h"
#include "leader/arrange.h"
#include "leader/local.h"
#include "leader/model_path.h"
#include "leader/persona.h"
#include "leader/secrets.h"
#include "leader/waits.h"

// A turn takes milliseconds and is bounded by the seconds of a flush; this late, it hangs.
#define LOOP_PATIENCE_NS (30 * NS_PER_S)
#define STEP_PATIENCE_PARTS 4 // not ready after this part of --step-timeout
#define DESCRIPTORS_MIN 128   // a leader of one worker holds about 60, a quarter is for HTTP
#define DESCRIPTORS_SPARE 256 // of the process, beside HTTP connections
#define POLL_NS (50 * NS_PER_MS)
#define FLUSH_NS (2 * NS_PER_S) // for the last errors on their way to clients

extern char **environ;

struct process {
    struct leader_options options;
    struct option_notes notes;
    struct env *env;
    struct waker *waker; // the scheduler thread's
    struct model_spec spec;
    struct footprint_types types;
    struct layout layout;
    uint64_t model_digest;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct persona persona;
    struct channel *channel;
    struct fabric *fabric;
    struct leader *leader;
    struct local *local; // workers on this machine that are its children; NULL: none
    bool local_failed;   // one of them cannot be kept alive
    pthread_t scheduler;
    bool scheduling;      // the thread was started
    _Atomic bool alive;   // and has not ended
    int scheduler_result; // read after it was joined
    struct engine engine;
    struct serving serving;
    struct api *api;
    struct secrets secrets;
    uint64_t descriptors; // that this process may have
    char name[256], fingerprint[160], control_address[300], url[320];
};

// --- the engine's table over the leader

static int engine_submit(void *self, struct request *r) {
    struct process *p = self;
    return leader_submit(p->leader, r);
}

static void engine_abort(void *self, uint64_t id) {
    struct process *p = self;
    leader_abort(p->leader, id);
}

static bool engine_ready(void *self) {
    struct process *p = self;
    return leader_ready(p->leader);
}

static bool engine_takes_requests(void *self) {
    struct process *p = self;
    return leader_takes_requests(p->leader);
}

static bool engine_leaving(void *self) {
    struct process *p = self;
    return leader_leaving(p->leader);
}

static bool engine_alive(void *self) {
    struct process *p = self;
    return p->alive && leader_alive(p->leader, LOOP_PATIENCE_NS);
}

// The group is lost after the whole of --step-timeout; whoever chooses between servers should not
// wait that long.
static bool engine_in_time(void *self) {
    struct process *p = self;
    return leader_in_time(p->leader, p->options.step_timeout / STEP_PATIENCE_PARTS);
}

static int engine_view(void *self, struct leader_view *out) {
    struct process *p = self;
    return leader_view(p->leader, out);
}

// --- options

// That a name does not exist is said first: it is neither this machine's nor another's.
static int check_host(const struct process *p, struct err_text *e) {
    const char *host = p->options.host, *why = http_host_error(host);
    bool bracketed = host[0] == '[';
    if (why != NULL)
        return err_set(e, ERR_FATAL_CONFIG, "--host %s: %s%s", host, why,
                       bracketed ? "; an IPv6 address stands here without brackets" : "");
    if (p->secrets.api_keys != NULL || http_host_is_loopback(host)) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "--host %s is beyond loopback: --api-key-file is required",
                   host);
}

static int check_options(struct process *p, struct err_text *e) {
    struct leader_options *o = &p->options;
    if (o->model == NULL || o->model[0] == '\0')
        return err_set(e, ERR_FATAL_CONFIG, "--model is required");
    int rc = model_path_check(o->model, e);
    if (rc != 0) return rc;
    if (o->enable_auto_tool_choice && tool_format_find(o->tool_call_parser) == NULL)
        return err_set(e, ERR_FATAL_CONFIG,
                       "--enable-auto-tool-choice needs --tool-call-parser, for how this model "
                       "writes calls");
    if (o->served_model_name != NULL)
        snprintf(p->name, sizeof p->name, "%s", o->served_model_name);
    else
        model_path_name(p->name, sizeof p->name, o->model);
    rc = arrange_count(o, e);
    return rc == 0 ? local_resolve(o, e) : rc;
}

// --- the model's text side

static int check_model(struct process *p, struct err_text *e) {
    struct leader_options *o = &p->options;
    if (o->max_model_len == 0) o->max_model_len = p->spec.max_position;
    if (o->max_model_len > p->spec.max_position)
        return err_set(e, ERR_FATAL_CONFIG, "--max-model-len %u: the model's context is %u",
                       o->max_model_len, p->spec.max_position);
    if (tokenizer_vocab(p->tokenizer) > p->spec.vocab)
        return err_set(e, ERR_FATAL_MODEL,
                       "%s/tokenizer.json has ids up to %u, config.json's vocab_size is %u",
                       o->model, tokenizer_vocab(p->tokenizer) - 1, p->spec.vocab);
    return 0;
}

static int load_model(struct process *p, struct err_text *e) {
    const char *folder = p->options.model;
    bool use_generation = strcmp(p->options.generation_config, "auto") == 0;
    enum mla_form form = MLA_ABSORBED;
    check(mla_form_parse(p->options.mla_form, &form)); // the option table knows the choices
    int rc = spec_load(&p->spec, folder, e);
    if (rc == 0) rc = spec_take_mla_form(&p->spec, form, e);
    if (rc == 0) rc = model_folder_digest(&p->model_digest, folder, e);
    if (rc == 0) rc = tokenizer_load(&p->tokenizer, folder, e);
    if (rc == 0) rc = chat_template_load(&p->chat_template, folder, e);
    if (rc == 0) rc = persona_load(&p->persona, folder, use_generation, e);
    if (rc == 0) rc = check_model(p, e);
    if (rc != 0) return rc;
    p->persona.sampling.vocab = p->spec.vocab;
    p->persona.sampling.knows_developer =
        p->chat_template != NULL && chat_template_mentions(p->chat_template, "developer");
    if (p->options.enable_auto_tool_choice)
        p->persona.sampling.tool_format = tool_format_find(p->options.tool_call_parser);
    p->persona.sampling.priorities = strcmp(p->options.scheduling_policy, "priority") == 0;
    p->persona.sampling.hides_unused_tools = p->options.exclude_tools_when_tool_choice_none;
    snprintf(p->fingerprint, sizeof p->fingerprint, "moesaic-%s-%016llx", MOESAIC_BUILD_ID,
             (unsigned long long)p->model_digest);
    log_event(LOG_INFO, "model", "model loaded", log_text("folder", folder),
              log_text("name", p->name), log_uint("layers", p->spec.n_layers),
              log_uint("experts", p->spec.router.n_experts), log_uint("vocab", p->spec.vocab),
              log_uint("context", p->options.max_model_len));
    return 0;
}

static void log_listening(const char *event, const char *host, uint16_t port) {
    char address[300];
    channel_address_make(address, sizeof address, host, port);
    log_event(LOG_INFO, "main", event, log_text("address", address));
}

// --- networks

static int open_channel(struct process *p, struct err_text *e) {
    const struct leader_options *o = &p->options;
    uint16_t port = 0;
    channel_address_make(p->control_address, sizeof p->control_address, o->control_host,
                         o->control_port);
    struct channel_config config = {.env = p->env,
                                    .waker = p->waker,
                                    .address = p->control_address,
                                    .token = p->secrets.control_token,
                                    .token_in_clear = o->control.insecure,
                                    .tls = p->secrets.control_tls};
    int rc = channel_listen_grpc(&p->channel, &config, &port, e);
    if (rc == 0) {
        log_listening("control listening", o->control_host, port);
        struct local_config local = {p->env, o, p->secrets.control_token, port};
        return local_create(&p->local, &local, e);
    }
    struct err_text cause = *e;
    return err_set(e, rc, "--control-host, --control-port: %s", cause.text);
}

// A plan carries at most every row's id and every slot's block table; a result every slot's
// alternatives and the scores of prompts.
static size_t message_bytes_max(const struct leader_options *o) {
    size_t blocks = o->max_model_len / KV_BLOCK_TOKENS + 1;
    size_t plan = (size_t)o->max_num_batched_tokens * 8 + o->max_num_seqs * (192 + blocks * 8) +
                  STEERING_STEP_ITEMS_MAX * 5;
    size_t result = o->max_num_seqs * (size_t)(128 + TOP_LOGPROBS_MAX * 16) +
                    ((size_t)o->max_num_batched_tokens + SCORES_STEP_ITEMS_MAX) * 9;
    return 65536 + (plan > result ? plan : result);
}

static int open_fabric(struct process *p, struct err_text *e) {
    const struct leader_options *o = &p->options;
    struct fabric_config config = {.env = p->env,
                                   .waker = p->waker,
                                   .interface = o->interface,
                                   .transports = o->transports,
                                   .message_bytes_max = message_bytes_max(o)};
    return fabric_open(&p->fabric, FABRIC_UCX, &config, e);
}

// --- the scheduler

// Before any network is opened: who starts a group that cannot be should hear it at once.
static int arrange(struct process *p, struct err_text *e) {
    const struct leader_options *o = &p->options;
    struct footprint_model model;
    p->types = footprint_types_of(&p->spec, o->dtype, o->kv_cache_dtype);
    footprint_measure(&model, &p->spec, &p->types);
    return arrange_layout(&p->layout, o, &model, e);
}

static int create_leader(struct process *p, struct err_text *e) {
    const struct leader_options *o = &p->options;
    struct leader_config config = {
        .env = p->env,
        .waker = p->waker,
        .channel = p->channel,
        .fabric = p->fabric,
        .spec = &p->spec,
        .model = o->model,
        .model_digest = p->model_digest,
        .build_id = MOESAIC_BUILD_ID,
        .dtype = o->dtype,
        .kv_dtype = p->types.kv,
        .layout = p->layout,
        .n_local = o->local_workers,
        .max_num_seqs = o->max_num_seqs,
        .max_num_batched_tokens = o->max_num_batched_tokens,
        .max_model_len = o->max_model_len,
        .pipeline_depth = o->pipeline_depth,
        .kv_cache_bytes = o->kv_cache_memory.bytes,
        .kv_cache_percent = o->kv_cache_memory.percent,
        .snapshot_bytes = o->state_cache_memory.bytes,
        .snapshot_percent = o->state_cache_memory.percent,
        .step_timeout_ns = o->step_timeout,
        .recovery_timeout_ns = o->recovery_timeout,
        .digest = o->digest,
        .no_prefix_caching = !o->enable_prefix_caching,
    };
    int rc = leader_create(&p->leader, &config, e);
    if (rc == 0) leader_on_step(p->leader, meter_step, &p->serving.meter);
    return rc;
}

// Ends the process's wait for signals when it ends by itself.
static void *scheduler_thread(void *context) {
    struct process *p = context;
    p->scheduler_result = leader_run(p->leader);
    p->alive = false;
    kill(getpid(), SIGTERM);
    return NULL;
}

static int start_scheduler(struct process *p, struct err_text *e) {
    p->alive = true;
    if (pthread_create(&p->scheduler, NULL, scheduler_thread, p) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the scheduler thread");
    p->scheduling = true;
    return 0;
}

// --- the API

static void fill_serving(struct process *p) {
    const struct leader_options *o = &p->options;
    p->engine = (struct engine){.self = p,
                                .submit = engine_submit,
                                .abort = engine_abort,
                                .ready = engine_ready,
                                .takes_requests = engine_takes_requests,
                                .leaving = engine_leaving,
                                .alive = engine_alive,
                                .in_time = engine_in_time,
                                .view = engine_view};
    p->serving = (struct serving){
        .env = p->env,
        .engine = &p->engine,
        .tokenizer = p->tokenizer,
        .chat_template = p->chat_template,
        .spec = &p->spec,
        .defaults = p->persona.sampling,
        .bos_token = p->persona.bos_token,
        .eos_token = p->persona.eos_token,
        .model_name = p->name,
        .fingerprint = p->fingerprint,
        .version = MOESAIC_VERSION,
        .build_id = MOESAIC_BUILD_ID,
        .keys = p->secrets.api_keys,
        .max_model_len = o->max_model_len,
        .model_digest = p->model_digest,
        .dtype = dtype_name(p->types.weights),
        .kv_dtype = dtype_name(p->types.kv),
        .max_num_seqs = o->max_num_seqs,
        .max_num_batched_tokens = o->max_num_batched_tokens,
        .pipeline_depth = o->pipeline_depth,
        .digest = o->digest,
        .log = {.requests = o->enable_log_requests ? LOG_INFO : LOG_DEBUG,
                .prompts = o->log_prompts,
                .bytes_max = o->max_log_len},
        .started_ns = env_now_ns(p->env),
        .started_s = env_wall_ns(p->env) / NS_PER_S,
        .admit = {.max = o->max_num_queued_reqs},
    };
    meter_init(&p->serving.meter, p->env, o->max_model_len);
}

// As many as there are descriptors; above admission, so that a full server can still say so.
static uint32_t connections_max(const struct process *p) {
    uint64_t wanted = (uint64_t)p->options.max_num_queued_reqs + 1024;
    uint64_t allowed = p->descriptors > 2 * DESCRIPTORS_SPARE ? p->descriptors - DESCRIPTORS_SPARE
                                                              : DESCRIPTORS_SPARE;
    return (uint32_t)(wanted < allowed ? wanted : allowed);
}

static int start_api(struct process *p, struct err_text *e) {
    const struct leader_options *o = &p->options;
    uint16_t port = 0;
    struct api_config config = {.serving = &p->serving,
                                .host = o->host,
                                .port = o->port,
                                .connections_max = connections_max(p),
                                .timeout_s = o->http_timeout,
                                .grpc = true,
                                .grpc_port = o->grpc_port,
                                .grpc_connection_age_ns = o->grpc_max_connection_age,
                                .tls = p->secrets.api_tls};
    int rc = api_start(&p->api, &config, &port, e);
    if (rc != 0) return rc;
    log_listening("grpc listening", o->host, api_grpc_port(p->api));
    log_listening("http listening", o->host, port);
    char address[300];
    channel_address_make(address, sizeof address, o->host, port);
    snprintf(p->url, sizeof p->url, "%s://%s", config.tls != NULL ? "https" : "http", address);
    return 0;
}

static int start(struct process *p, struct err_text *e) {
    p->env = env_real_create();
    if (p->env == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the clock");
    int rc = waker_create(p->env, &p->waker);
    if (rc != 0) return err_set(e, rc, "cannot make the scheduler's waker");
    rc = descriptors_claim(DESCRIPTORS_MIN, &p->descriptors, e);
    if (rc == 0) rc = secrets_open(&p->secrets, &p->options, p->env, e);
    if (rc == 0) rc = check_host(p, e);
    if (rc == 0) rc = load_model(p, e);
    if (rc == 0) rc = arrange(p, e);
    if (rc != 0) return rc;
    fill_serving(p);
    rc = open_fabric(p, e);
    if (rc == 0) rc = open_channel(p, e);
    if (rc == 0) rc = create_leader(p, e);
    if (rc == 0) rc = start_scheduler(p, e);
    if (rc == 0) rc = start_api(p, e);
    return rc;
}

// --- signals and the way out

// Blocked before any library starts its threads, which inherit the mask; then only main sees them.
static void block_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    signal(SIGCHLD, SIG_DFL); // an ignored one would hide how a worker ended
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); // UCX would switch its debug log on
}

static int check_accounts(struct process *p) {
    int rc = leader_check(p->leader);
    if (rc == 0)
        log_info("main", "accounts ok");
    else
        log_error("main", "accounts broken: %s", err_name(rc));
    return rc;
}

// False once a worker of this machine cannot be kept alive.
static bool keep_workers(struct process *p, bool leaving) {
    enum local_group group = leaving                   ? LOCAL_LEAVES
                             : leader_ready(p->leader) ? LOCAL_SERVES
                                                       : LOCAL_WAITS;
    struct leader_view view;
    bool seen = p->local != NULL && p->leader != NULL && leader_view(p->leader, &view) == 0;
    p->local_failed = p->local_failed || local_tick(p->local, group, seen ? &view : NULL) != 0;
    if (seen) leader_view_finish(&view);
    return !p->local_failed;
}

// Serves until a signal asks to end; SIGUSR1 recounts what must add up.
static void serve(struct process *p, const sigset_t *set) {
    struct waits waits = {.url = p->url};
    while (keep_workers(p, false)) {
        int64_t look_ns = local_wait_ns(p->local);
        const struct timespec look = {.tv_sec = look_ns / NS_PER_S, .tv_nsec = look_ns % NS_PER_S};
        int number = sigtimedwait(set, NULL, &look);
        if (number == SIGTERM || number == SIGINT) {
            log_event(LOG_INFO, "main", "stopping after",
                      log_text("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"));
            return;
        }
        if (number == SIGUSR1) check_accounts(p);
        waits_log(&waits, &p->serving);
    }
}

// Every request that is still there ends, with an error that names this.
static void stop_scheduler(struct process *p) {
    if (!p->scheduling) return;
    leader_stop(p->leader);
    pthread_join(p->scheduler, NULL);
    p->scheduling = false;
}

// A signal of the set that asks to end cuts the wait short.
static void wait_until_idle(struct process *p, const sigset_t *set, int64_t wait_ns) {
    const struct timespec poll = {.tv_nsec = POLL_NS};
    int64_t until = env_now_ns(p->env) + wait_ns;
    while (!api_idle(p->api) && env_now_ns(p->env) < until) {
        int number = sigtimedwait(set, NULL, &poll);
        if (number == SIGTERM || number == SIGINT) break;
        if (number == SIGUSR1) check_accounts(p);
        if (p->scheduling) keep_workers(p, true);
    }
}

// Lets requests end, within a time; those that have not are told so.
static int drain(struct process *p, const sigset_t *set) {
    sigset_t none;
    int64_t begun_ns = env_now_ns(p->env);
    log_event(LOG_INFO, "main", "draining", log_uint("requests", p->serving.admit.in_flight),
              log_real("at_most_s", (double)p->options.shutdown_timeout / (double)NS_PER_S));
    leader_drain(p->leader);
    api_drain(p->api);
    bool can_end = p->alive && !p->local_failed;
    wait_until_idle(p, set, can_end ? p->options.shutdown_timeout : FLUSH_NS);
    int accounts = p->alive ? check_accounts(p) : 0;
    stop_scheduler(p);
    sigemptyset(&none); // the scheduler's end has sent one
    wait_until_idle(p, &none, FLUSH_NS);
    api_stop(p->api);
    local_stop(p->local);
    log_event(LOG_INFO, "main", "drained",
              log_uint("took_ms", (uint64_t)((env_now_ns(p->env) - begun_ns) / NS_PER_MS)));
    return accounts;
}

static void destroy(struct process *p) {
    local_destroy(p->local);
    api_destroy(p->api);
    leader_destroy(p->leader);
    channel_close(p->channel);
    fabric_close(p->fabric);
    persona_finish(&p->persona);
    chat_template_destroy(p->chat_template);
    tokenizer_destroy(p->tokenizer);
    waker_destroy(p->waker);
    env_real_destroy(p->env);
    secrets_close(&p->secrets);
}

static void log_start(const struct leader_options *o) {
    log_event(LOG_INFO, "main", "starting", log_text("build", MOESAIC_BUILD_ID),
              log_uint("pid", (uint64_t)getpid()), log_text("model", o->model),
              log_uint("workers", o->parallel.workers), log_text("dtype", o->dtype),
              log_text("kv_cache_dtype", o->kv_cache_dtype), log_text("mla_form", o->mla_form),
              log_uint("max_model_len", o->max_model_len),
              log_uint("max_num_seqs", o->max_num_seqs),
              log_uint("max_num_batched_tokens", o->max_num_batched_tokens),
              log_uint("pipeline_depth", o->pipeline_depth), log_text("transports", o->transports));
}

static void log_notes(const struct option_notes *notes) {
    for (const struct option_note *n = notes->first; n != NULL; n = n->next)
        log_write(n->warn ? LOG_WARN : LOG_INFO, "options", "%s", n->text);
}

// Runs the process from options to the end; the exit code.
static int run(struct process *p, const sigset_t *set) {
    struct err_text e;
    log_start(&p->options);
    log_notes(&p->notes);
    int rc = start(p, &e);
    int accounts = 0;
    if (rc != 0) {
        log_error("main", "%s", e.text);
    } else {
        serve(p, set);
        accounts = drain(p, set);
    }
    stop_scheduler(p);
    int ended = p->scheduler_result;
    if (ended != 0 && ended != ERR_FATAL_STOPPED)
        log_error("main", "the scheduler ended: %s", err_name(ended));
    bool broke = rc != 0 || p->local_failed || (ended != 0 && ended != ERR_FATAL_STOPPED);
    destroy(p);
    int code = rc == ERR_FATAL_CONFIG ? 2 : broke ? 1 : accounts != 0 ? 3 : 0;
    log_event(LOG_INFO, "main", "stopped", log_uint("code", (uint64_t)code));
    return code;
}

static int parse(struct process *p, struct arena *arena, char **argv, int *asked,
                 struct err_text *e) {
    struct option_input input = {.argv = (const char *const *)argv + 1,
                                 .environment = (const char *const *)environ,
                                 .arena = arena,
                                 .notes = &p->notes};
    int rc = options_parse(&leader_option_table, &p->options, &input, asked, e);
    secret_wipe_variable(environ, "MOESAIC_API_KEY");
    secret_wipe_variable(environ, "VLLM_API_KEY");
    secret_wipe_variable(environ, "MOESAIC_CONTROL_TOKEN");
    return rc == 0 && *asked == 0 ? check_options(p, e) : rc;
}

static void print_openapi(void) {
    struct buf text;
    buf_init(&text, 0);
    api_openapi(&text, MOESAIC_VERSION);
    if (!text.failed) fwrite(text.data, 1, text.bytes, stdout);
    buf_finish(&text);
}

static int print(int asked) {
    if (asked == 'h') options_print_help(&leader_option_table, stdout);
    if (asked == 'm') options_print_markdown(&leader_option_table, stdout);
    if (asked == 'f') foreign_print_markdown(stdout);
    if (asked == 'o') print_openapi();
    if (asked == 'v') printf("moe-leader %s\n", MOESAIC_BUILD_ID);
    return 0;
}

int main(int argc, char **argv) {
    struct process process = {0};
    struct arena arena;
    struct err_text e;
    sigset_t set;
    int asked = 0, code;
    enum log_level level = LOG_INFO;
    enum log_format format = LOG_FORMAT_TEXT;
    (void)argc;
    block_signals(&set);
    json_set_alloc_funcs(mem_alloc, mem_free);
    arena_init(&arena, 0);
    if (parse(&process, &arena, argv, &asked, &e) != 0) {
        fprintf(stderr, "moe-leader: %s\n", e.text);
        code = 2;
    } else if (asked != 0) {
        code = print(asked);
    } else {
        log_level_parse(process.options.log_level, &level);
        log_format_parse(process.options.log_format, &format);
        log_setup("leader", level);
        log_set_format(format);
        code = run(&process, &set);
    }
    arena_finish(&arena);
    return code;
}
