// options_tables.c: every option of moe-leader, moe-worker and moectl. Names are vLLM's where the
// meaning is the same.
#include "common/base/limits.h"
#include "common/conf/options.h"

#define LEADER(field) .offset = offsetof(struct leader_options, field)
#define CTL(field) .offset = offsetof(struct ctl_options, field)
#define WORKER(field) .offset = offsetof(struct worker_options, field)

// Options that both programs have.
#define PARALLEL_OPTIONS(AT, MEMORY)                                                               \
    {"workers",                                                                                    \
     OPTION_UINT,                                                                                  \
     AT(parallel.workers),                                                                         \
     .fallback = "0",                                                                              \
     .argument = "N",                                                                              \
     .max = RANKS_MAX,                                                                             \
     .help = "Workers that make a group. 0: one less than lws-group-size, else what the parallel " \
             "sizes need or local-workers, whichever is more."},                                   \
        {"pipeline-parallel-size",                                                                 \
         OPTION_UINT,                                                                              \
         AT(parallel.pipeline_size),                                                               \
         .fallback = "0",                                                                          \
         .argument = "N",                                                                          \
         .max = RANKS_MAX,                                                                         \
         .help = "Stages that the layers are spread over. 0, here and below: chosen "              \
                 "(docs/operations.md, Layouts)."},                                                \
        {"data-parallel-size",                                                                     \
         OPTION_UINT,                                                                              \
         AT(parallel.data_size),                                                                   \
         .fallback = "0",                                                                          \
         .argument = "N",                                                                          \
         .max = RANKS_MAX,                                                                         \
         .help = "Groups of workers with a KV cache and requests of their own."},                  \
        {"tensor-parallel-size",                                                                   \
         OPTION_UINT,                                                                              \
         AT(parallel.tensor_size),                                                                 \
         .fallback = "0",                                                                          \
         .argument = "N",                                                                          \
         .max = RANKS_MAX,                                                                         \
         .help = "Workers that share each request: attention, dense layers and vocabulary are "    \
                 "split."},                                                                        \
        {"expert-parallel-size",                                                                   \
         OPTION_UINT,                                                                              \
         AT(parallel.expert_size),                                                                 \
         .fallback = "0",                                                                          \
         .argument = "N",                                                                          \
         .max = RANKS_MAX,                                                                         \
         .help = "Places that each layer's experts are spread over."},                             \
        {"expert-tensor-parallel-size",                                                            \
         OPTION_UINT,                                                                              \
         AT(parallel.expert_tensor_size),                                                          \
         .fallback = "0",                                                                          \
         .argument = "N",                                                                          \
         .max = RANKS_MAX,                                                                         \
         .help = "Workers of such a place, each with a part of its experts: data x tensor "        \
                 "parallel is "                                                                    \
                 "expert x expert tensor parallel."},                                              \
    {                                                                                              \
        "worker-memory", OPTION_BYTES, AT(parallel.worker_memory),                                 \
            .fallback = "0", .argument = "SIZE",                                                   \
            .help =                                                                                \
                "Memory of each worker, for the choice of sizes that are not given. 0: " MEMORY    \
    }

#define TYPE_OPTIONS(AT)                                                                           \
    {"mla-form",                                                                                   \
     OPTION_CHOICE,                                                                                \
     AT(mla_form),                                                                                 \
     .fallback = "absorbed",                                                                       \
     .argument = "FORM",                                                                           \
     .choices = "absorbed|expanded",                                                               \
     .help = "How latent attention (DeepSeek, Kimi) is computed; without effect on other models. " \
             "absorbed: pages hold each token's latent; expanded: every head's key and value "     \
             "(docs/kv-types.md: what they cost)."},                                               \
        {"dtype",                                                                                  \
         OPTION_CHOICE,                                                                            \
         AT(dtype),                                                                                \
         .fallback = "auto",                                                                       \
         .argument = "TYPE",                                                                       \
         .choices = "auto|float32|float16|bfloat16",                                               \
         .help = "Format to hold weights in; auto: the checkpoint's."},                            \
    {                                                                                              \
        "kv-cache-dtype", OPTION_CHOICE, AT(kv_cache_dtype),                                       \
            .fallback = "auto", .argument = "TYPE",                                                \
            .choices = "auto|float32|bfloat16|fp8|fp8_e4m3|int8|int8_per_token_head",              \
            .help =                                                                                \
                "Format of KV pages; auto: float32 for float32 weights, else bfloat16. fp8 is "    \
                "fp8_e4m3, int8 is int8_per_token_head (docs/kv-types.md: what they cost)."        \
    }

#define COMMON_OPTIONS(AT)                                                                         \
    {"control-token-file", OPTION_STRING, AT(control.token_file), .argument = "FILE",              \
     .help = "File with the token that workers present and the leader checks."},                   \
        {"control-token", OPTION_SECRET, AT(control.token), .help = "The token itself."},          \
        {"control-tls-cert", OPTION_STRING, AT(control.tls_cert), .argument = "FILE",              \
         .help = "Certificate (PEM) that this program shows on the control plane."},               \
        {"control-tls-key", OPTION_STRING, AT(control.tls_key), .argument = "FILE",                \
         .help = "Key (PEM) of --control-tls-cert."},                                              \
        {"control-tls-ca", OPTION_STRING, AT(control.tls_ca), .argument = "FILE",                  \
         .help = "Authorities (PEM) that the other side's certificate must come from; the leader " \
                 "then asks each worker for one."},                                                \
        {"control-insecure", OPTION_BOOL, AT(control.insecure), .fallback = "false",               \
         .help = "Let the control token travel in clear beyond loopback, on a private network."},  \
        {"interface", OPTION_STRING, AT(interface), .argument = "DEVICE",                          \
         .help = "Network device of the data plane (eth0); default: UCX's choice."},               \
        {"transports",                                                                             \
         OPTION_CHOICE,                                                                            \
         AT(transports),                                                                           \
         .fallback = "auto",                                                                       \
         .argument = "KIND",                                                                       \
         .choices = "auto|tcp|shm",                                                                \
         .help = "Data plane: auto uses shared memory on one host and TCP between hosts."},        \
        {"log-format",                                                                             \
         OPTION_CHOICE,                                                                            \
         AT(log_format),                                                                           \
         .fallback = "text",                                                                       \
         .argument = "FORMAT",                                                                     \
         .choices = "text|json",                                                                   \
         .help = "Form of log lines: for a person, or one JSON object a line."},                   \
        {"shutdown-timeout",                                                                       \
         OPTION_SECONDS,                                                                           \
         AT(shutdown_timeout),                                                                     \
         .fallback = "25",                                                                         \
         .argument = "SECONDS",                                                                    \
         .max = 3600,                                                                              \
         .help = "How long requests may go on after SIGTERM; the default stays below the 30 s "    \
                 "after which Kubernetes kills."},                                                 \
    {                                                                                              \
        "log-level", OPTION_CHOICE, AT(log_level),                                                 \
            .fallback = "info", .argument = "LEVEL", .choices = "error|warn|info|debug|trace",     \
            .help = "Least important log lines that are written."                                  \
    }

static const struct option leader_options[] = {
    {"model", OPTION_STRING, LEADER(model), .argument = "FOLDER",
     .help =
         "Model in Hugging Face layout (config.json, tokenizer.json, *.safetensors). Required."},
    {"served-model-name", OPTION_STRING, LEADER(served_model_name), .argument = "NAME",
     .help = "The model's name in the API; default: the folder's last part."},
    {"host", OPTION_STRING, LEADER(host), .fallback = "127.0.0.1", .argument = "ADDRESS",
     .help = "Address to serve HTTP on. Beyond loopback an API key is required."},
    {"port", OPTION_PORT, LEADER(port), .fallback = "8000", .argument = "PORT",
     .help = "Port to serve HTTP on; 0 picks a free one."},
    {"api-key-file", OPTION_STRING, LEADER(api_key_file), .argument = "FILE",
     .help = "File of the keys that HTTP's /v1 and gRPC ask for: one a line, KEY or NAME KEY; # "
             "begins a comment."},
    {"api-key", OPTION_SECRET, LEADER(api_key), .lws = "VLLM_API_KEY",
     .help = "Such a key itself, or several lines of them."},
    {"ssl-certfile", OPTION_STRING, LEADER(ssl_certfile), .argument = "FILE",
     .help = "Certificate (PEM, with its chain): HTTP and gRPC are then served over TLS."},
    {"ssl-keyfile", OPTION_STRING, LEADER(ssl_keyfile), .argument = "FILE",
     .help = "Key (PEM) of --ssl-certfile."},
    {"ssl-ca-certs", OPTION_STRING, LEADER(ssl_ca_certs), .argument = "FILE",
     .help = "Authorities (PEM) that clients' certificates must come from."},
    {"ssl-cert-reqs", OPTION_CHOICE, LEADER(ssl_cert_reqs), .fallback = "auto", .argument = "WHICH",
     .choices = "auto|none|optional|required|0|1|2",
     .help = "Whether clients need a certificate; auto: required with --ssl-ca-certs, else none."},
    {"control-host", OPTION_STRING, LEADER(control_host), .fallback = "127.0.0.1",
     .argument = "ADDRESS",
     .help = "Address on which workers join (gRPC). Beyond loopback a control token or "
             "--control-tls-ca is required."},
    {"control-port", OPTION_PORT, LEADER(control_port), .fallback = "8500", .argument = "PORT",
     .help = "Port on which workers join; 0 picks a free one."},
    {"grpc-port", OPTION_PORT, LEADER(grpc_port), .fallback = "8001", .argument = "PORT",
     .help = "Port of the gRPC inference service, on --host; 0 picks a free one."},
    {"grpc-max-connection-age", OPTION_SECONDS, LEADER(grpc_max_connection_age), .fallback = "0",
     .argument = "SECONDS", .min = 0, .max = 604800,
     .help =
         "A gRPC connection older than this (give or take a tenth) takes no more calls, so that "
         "clients spread over new servers; those it has go on. 0: never."},
    PARALLEL_OPTIONS(
        LEADER, "local workers' share of this machine's, when there are no others; else it is not "
                "known, and everything fits."),
    {"local-workers", OPTION_UINT, LEADER(local_workers), .fallback = "0", .argument = "N",
     .max = RANKS_MAX,
     .help = "Workers of the group that the leader starts on this machine, keeps running and stops "
             "(docs/operations.md). 0: all are started elsewhere."},
    {"lws-group-size", OPTION_UINT, LEADER(lws_group_size), .fallback = "0", .argument = "N",
     .max = RANKS_MAX + 1, .lws = "LWS_GROUP_SIZE",
     .help = "Pods of this LeaderWorkerSet group, the leader included; 0: not in one."},
    {"max-model-len", OPTION_UINT, LEADER(max_model_len), .fallback = "0", .argument = "TOKENS",
     .max = POSITIONS_MAX,
     .help = "Longest prompt plus output. 0: the model's own context length."},
    {"max-num-seqs", OPTION_UINT, LEADER(max_num_seqs), .fallback = "64", .argument = "N", .min = 1,
     .max = SEQS_MAX, .help = "Sequences that run at once in each data parallel group."},
    {"max-num-batched-tokens", OPTION_UINT, LEADER(max_num_batched_tokens), .fallback = "512",
     .argument = "TOKENS", .min = 1, .max = BATCHED_TOKENS_MAX,
     .help = "Token budget of one step of each data parallel group; longer prompts run in chunks."},
    {"max-num-queued-reqs", OPTION_UINT, LEADER(max_num_queued_reqs), .fallback = "1024",
     .argument = "N", .min = 1, .max = 1000000,
     .help = "Choices waiting or running before new requests get 429."},
    // Longer than the keep-alive of common proxies (60 s), so that they are the first to close.
    {"http-timeout", OPTION_UINT, LEADER(http_timeout), .fallback = "75", .argument = "SECONDS",
     .min = 1, .max = 86400,
     .help = "How long an HTTP connection may idle, a request may take to arrive and an answer may "
             "wait for its reader; large ones get a second more for each 64 KiB."},
    {"pipeline-depth", OPTION_UINT, LEADER(pipeline_depth), .fallback = "2", .argument = "N",
     .min = 1, .max = PIPELINE_DEPTH_MAX,
     .help = "Steps in flight: 2 plans the next step while one runs. Each stage after the first "
             "has one more."},
    TYPE_OPTIONS(LEADER),
    {"kv-cache-memory", OPTION_SHARE, LEADER(kv_cache_memory), .fallback = "10%",
     .argument = "SIZE", .min = 1,
     .help = "KV pages of each worker: bytes (512MiB), or per cent of the worker's memory, divided "
             "among the workers of one host."},
    {"state-cache-memory", OPTION_SHARE, LEADER(state_cache_memory), .fallback = "5%",
     .argument = "SIZE",
     .help =
         "Of models with recurrent or compressed layers: memory of each worker for copies of "
         "sequences' states, which the prefix cache begins from; as --kv-cache-memory. 0: none, so "
         "that nothing is found."},
    {"generation-config", OPTION_CHOICE, LEADER(generation_config), .fallback = "auto",
     .argument = "SOURCE", .choices = "auto|none",
     .help = "Sampling defaults: auto: the model's generation_config.json; none: the API's own."},
    {"enable-auto-tool-choice", OPTION_BOOL, LEADER(enable_auto_tool_choice), .fallback = "false",
     .help =
         "Answer requests with tools whose tool_choice is \"auto\", or not given: calls are read "
         "out of the answer by --tool-call-parser."},
    {"tool-call-parser", OPTION_CHOICE, LEADER(tool_call_parser), .fallback = "none",
     .argument = "FORMAT",
     .choices =
         "none|hermes|qwen3_coder|glm45|mistral|llama3_json|deepseek_v3|deepseek_v31|kimi_k2",
     .help = "How the model writes tool calls."},
    {"exclude-tools-when-tool-choice-none", OPTION_BOOL,
     LEADER(exclude_tools_when_tool_choice_none), .fallback = "false",
     .help = "Keep tools from the chat template when tool_choice of the request is \"none\"."},
    {"step-timeout", OPTION_SECONDS, LEADER(step_timeout), .fallback = "60", .argument = "SECONDS",
     .min = 1, .max = 3600, .help = "A step that takes longer loses its group."},
    {"recovery-timeout", OPTION_SECONDS, LEADER(recovery_timeout), .fallback = "120",
     .argument = "SECONDS", .min = 1, .max = 86400,
     .help = "How long requests wait, their streams open, for a lost group to form again."},
    {"scheduling-policy", OPTION_CHOICE, LEADER(scheduling_policy), .fallback = "fcfs",
     .argument = "NAME", .choices = "fcfs|priority",
     .help = "Which request is served first: fcfs: who came first; priority: who has the lowest "
             "priority field, then who came first."},
    {"enable-prefix-caching", OPTION_BOOL, LEADER(enable_prefix_caching), .fallback = "true",
     .help = "Keep the KV blocks of prompts and answers for requests that begin alike."},
    {"digest", OPTION_BOOL, LEADER(digest), .fallback = "false",
     .help = "Return a digest of the logits with each choice, to compare runs bit for bit."},
    {"enable-log-requests", OPTION_BOOL, LEADER(enable_log_requests), .fallback = "false",
     .help = "Log each request's ids, counts and times at level info instead of debug."},
    {"log-prompts", OPTION_BOOL, LEADER(log_prompts), .fallback = "false",
     .help = "Show prompts in these lines. Without it no text of a request is ever logged."},
    {"max-log-len", OPTION_UINT, LEADER(max_log_len), .fallback = "200", .argument = "BYTES",
     .min = 1, .max = 2000, .help = "Bytes of a prompt that log-prompts shows."},
    COMMON_OPTIONS(LEADER),
};

static const struct option worker_options[] = {
    {"leader", OPTION_STRING, WORKER(leader), .fallback = "127.0.0.1:8500",
     .argument = "HOST[:PORT]", .lws = "LWS_LEADER_ADDRESS",
     .help =
         "The leader's control address (port 8500). It may come up before or after the worker."},
    {"model", OPTION_STRING, WORKER(model), .argument = "FOLDER",
     .help = "The model's folder on this host; default: the leader's path."},
    {"rank", OPTION_INT, WORKER(rank), .fallback = "-1", .argument = "N", .min = -1,
     .max = RANKS_MAX - 1,
     .help = "Rank to ask for; -1: one less than lws-worker-index, else any."},
    {"lws-worker-index", OPTION_UINT, WORKER(lws_worker_index), .fallback = "0", .argument = "N",
     .max = RANKS_MAX, .lws = "LWS_WORKER_INDEX",
     .help = "Index of this pod in its LeaderWorkerSet group; 0: not in one."},
    {"name", OPTION_STRING, WORKER(name), .argument = "NAME",
     .help = "Name in logs and status; default: host:pid."},
    {"control-tls-name", OPTION_STRING, WORKER(control_tls_name), .argument = "NAME",
     .help = "Name that the leader's certificate must have; default: the host of --leader."},
    {"threads", OPTION_UINT, WORKER(threads), .fallback = "0", .argument = "N", .max = 1024,
     .help = "Compute threads; 0: this worker's share of the cores it may use."},
    {"parent-pid", OPTION_UINT, WORKER(parent_pid), .fallback = "0", .argument = "PID",
     .max = 4194304, // what Linux numbers at most
     .help =
         "End with the process that started this one, which has this number; --name is then the "
         "process's name in log lines. 0: outlive it."},
    {"memory", OPTION_BYTES, WORKER(memory), .fallback = "0", .argument = "SIZE",
     .help = "Memory to count on; 0: the machine's or the control group's."},
    {"kernels", OPTION_CHOICE, WORKER(kernels), .fallback = "auto", .argument = "NAME",
     .choices = "auto|avx512|avx2|ref",
     .help = "Compute back end; all of an arithmetic class give the same bits."},
    COMMON_OPTIONS(WORKER),
};

static const struct option ctl_options[] = {
    {"url", OPTION_STRING, CTL(url), .fallback = "http://127.0.0.1:8000", .argument = "URL",
     .help = "Where the leader serves its API."},
    {"api-key-file", OPTION_STRING, CTL(api_key_file), .argument = "FILE",
     .help = "File with the API key to send; of several, the first."},
    {"api-key", OPTION_SECRET, CTL(api_key), .help = "The API key itself."},
    {"ca-file", OPTION_STRING, CTL(ca_file), .argument = "FILE",
     .help = "Authorities (PEM) that the leader's certificate must come from; default: the "
             "system's."},
    {"cert-file", OPTION_STRING, CTL(cert_file), .argument = "FILE",
     .help = "Certificate (PEM) to show to a leader that asks for one."},
    {"key-file", OPTION_STRING, CTL(key_file), .argument = "FILE",
     .help = "Key (PEM) of --cert-file."},
    {"model", OPTION_STRING, CTL(model), .argument = "NAME",
     .help = "Served model name; default: the first that the leader lists."},
    {"temperature", OPTION_FLOAT, CTL(temperature), .fallback = "0", .argument = "T", .max = 2,
     .help = "Sampling temperature; 0 is greedy."},
    {"seed", OPTION_UINT, CTL(seed), .fallback = "0", .argument = "N",
     .help = "Seed of sampling; bench: of the first request, each next one has one more."},
    {"max-tokens", OPTION_UINT, CTL(max_tokens), .fallback = "128", .argument = "N", .min = 1,
     .max = POSITIONS_MAX, .help = "Longest answer."},
    {"concurrency", OPTION_STRING, CTL(concurrency), .argument = "N[,N...]",
     .help = "bench: how many requests run at once, one row each; 1,8,64 without --rate."},
    {"requests", OPTION_UINT, CTL(requests), .fallback = "0", .argument = "N", .max = 1000000,
     .help = "bench: requests of each row; 0: 64, or eight times the concurrency."},
    {"random-input-len", OPTION_UINT, CTL(random_input_len), .fallback = "0", .argument = "TOKENS",
     .max = POSITIONS_MAX,
     .help = "bench: prompts of so many ids drawn from the vocabulary (by --seed), each its own, "
             "over /v1/completions; 0: a few short chats."},
    {"random-prefix-len", OPTION_UINT, CTL(random_prefix_len), .fallback = "0",
     .argument = "TOKENS", .max = POSITIONS_MAX,
     .help = "bench: so many drawn ids that all prompts begin with, before their own."},
    {"vocab-size", OPTION_UINT, CTL(vocab_size), .fallback = "0", .argument = "N", .max = VOCAB_MAX,
     .help = "bench: ids to draw from; 0: as many as the server says."},
    PARALLEL_OPTIONS(CTL, "it is not known, and everything fits."),
    TYPE_OPTIONS(CTL),
    {"max-model-len", OPTION_UINT, CTL(max_model_len), .fallback = "0", .argument = "TOKENS",
     .max = POSITIONS_MAX,
     .help = "plan: longest prompt plus output. 0: the model's own context length."},
    {"watch", OPTION_SECONDS, CTL(watch), .argument = "[SECONDS]", .min = 0.2, .max = 3600,
     .lone = "2", .help = "status: show it again every so many seconds; alone: every 2."},
    {"json", OPTION_BOOL, CTL(json), .fallback = "false",
     .help = "status, bench, plan, verify: one JSON object a line (docs/operations.md, "
             "docs/load.md, docs/models.md)."},
    {"places", OPTION_BOOL, CTL(places), .fallback = "false",
     .help = "status: what each worker holds (layers, experts, weights) in place of how it does."},
    {"all", OPTION_BOOL, CTL(all), .fallback = "false",
     .help =
         "status, plan: a row for every worker, however many there are; plan: all layouts, too."},
    {"rate", OPTION_STRING, CTL(rate), .argument = "R[,R...]",
     .help =
         "bench: requests that come each second, whatever becomes of those before, one row each; "
         "instead of --concurrency."},
    {"duration", OPTION_SECONDS, CTL(duration), .fallback = "10", .argument = "SECONDS", .min = 0.1,
     .max = 86400, .help = "bench: how long each row of --rate sends requests."},
    {"arrivals", OPTION_CHOICE, CTL(arrivals), .fallback = "poisson", .argument = "KIND",
     .choices = "poisson|even",
     .help = "bench: how requests of --rate are spread: at random (by --seed), or evenly."},
    {"lengths", OPTION_CHOICE, CTL(lengths), .fallback = "equal", .argument = "KIND",
     .choices = "equal|drawn",
     .help = "bench: answers of --max-tokens each, or of 1 to nearly twice that (by --seed), so "
             "that they do not end together."},
    {"values", OPTION_BOOL, CTL(values), .fallback = "false",
     .help = "verify: also reads all weights and says where one is infinite or no number."},
    {"ignore-eos", OPTION_BOOL, CTL(ignore_eos), .fallback = "false",
     .help = "Every answer has max-tokens tokens."},
};

const struct option_table leader_option_table = {
    "moe-leader",
    "",
    "Serves a mixture-of-experts model: the API, the schedule and the plan of a group of workers.",
    "  moe-leader --model /models/Qwen3-30B-A3B --local-workers 2    # all here\n"
    "  moe-leader --model /models/Qwen3-30B-A3B --workers 2          # two join\n",
    leader_options,
    sizeof leader_options / sizeof leader_options[0],
    &worker_option_table,
    OPTION_FOREIGN_ALL};

const struct option_table worker_option_table = {
    "moe-worker",
    "",
    "Computes a slice of a mixture-of-experts model for a leader.",
    "  moe-worker --leader HOST    # as often as the leader's --workers says\n",
    worker_options,
    sizeof worker_options / sizeof worker_options[0],
    &ctl_option_table,
    OPTION_FOREIGN_NONE};

const struct option_table ctl_option_table = {
    "moectl",
    " COMMAND",
    "Talks to a leader: moectl chat PROMPT | status | bench | experts | ready; and moectl plan | "
    "verify FOLDER looks at a model's.",
    "  chat PROMPT    ask one question and print the answer as it comes\n"
    "  status         show the group, its queue, rates and workers\n"
    "  bench          measure tokens per second at several concurrencies (CSV)\n"
    "  experts        show how many tokens each expert computed\n"
    "  ready          exit 0 when the leader can answer\n"
    "  plan FOLDER    show how --workers N would be arranged for a model\n"
    "  verify FOLDER  look at a model's folder: exit 0 when it can be served\n",
    ctl_options,
    sizeof ctl_options / sizeof ctl_options[0],
    &leader_option_table,
    OPTION_FOREIGN_PLAN};
