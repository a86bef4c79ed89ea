// options.h: one table row makes a flag, an environment variable, a YAML key, a default, a line of
// --help and one of docs.
//
// A value comes from the flag, else MOESAIC_<NAME>, else the YAML file given by --config, else
// LeaderWorkerSet's variable where a row names one, else the default. Unknown flags, variables and
// keys are refused with the nearest known name.
#ifndef MOESAIC_COMMON_CONF_OPTIONS_H
#define MOESAIC_COMMON_CONF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"
#include "common/base/mem.h"

enum option_type {
    OPTION_STRING,  // const char *, NULL when unset
    OPTION_SECRET,  // the same, but only from a variable: flags show in the process list
    OPTION_CHOICE,  // const char *, one of the row's choices
    OPTION_BOOL,    // bool; --name, --name=true|false, --no-name
    OPTION_UINT,    // uint32_t
    OPTION_INT,     // int32_t
    OPTION_PORT,    // uint16_t
    OPTION_BYTES,   // uint64_t; "512MiB", "2G", plain bytes
    OPTION_SHARE,   // struct memory_share; bytes as above, or "20%"
    OPTION_SECONDS, // int64_t nanoseconds; "2.5"
    OPTION_FLOAT,   // float
};

struct memory_share {
    uint64_t bytes;   // where percent is 0
    uint32_t percent; // up to 100
};

struct option {
    const char *name; // "max-model-len"
    enum option_type type;
    size_t offset;        // of the field in the program's struct
    const char *fallback; // default as text; NULL = unset, zero
    const char *argument; // what --help calls the value; NULL for a boolean
    const char *choices;  // "a|b|c" for OPTION_CHOICE
    double min, max;      // of numbers; both 0 = the type's own range. Of a share min bytes
    const char *lws; // another system's variable that gives the value when nothing else does, or
                     // NULL
    const char *help;
    const char *lone; // value of a flag that stands alone ("--watch"), or NULL: it needs one
};

// What a person should know of flags that were taken from another engine (foreign.h), to be logged
// once there is a log.
struct option_note {
    struct option_note *next;
    const char *text;
    bool warn;
};
struct option_notes {
    struct option_note *first, *last;
};

// Which flags of other engines a program answers (foreign.h).
enum option_foreign { OPTION_FOREIGN_NONE, OPTION_FOREIGN_PLAN, OPTION_FOREIGN_ALL };

struct option_table {
    const char *program; // "moe-leader"
    const char *command; // what stands before the flags, " COMMAND"; "": nothing
    const char *summary; // one paragraph
    const char *example; // lines that a newcomer can copy, each with its end
    const struct option *options;
    size_t n_options;
    const struct option_table
        *other; // the next program's, a ring: their names may stand in a shared environment or file
    enum option_foreign foreign;
};

// A variable is for every command of a shell, a flag for one.
struct option_flagged {
    const char *name;
    bool given; // filled: a flag has set it, not a variable or a file
};

struct option_input {
    const char *const *argv;        // without the program's name, NULL-terminated
    const char *const *environment; // environ
    struct arena *arena;            // where strings will live
    struct option_notes *notes;     // in the arena as well; NULL: nobody reads them
    const char **positional;        // NULL, or where to put the one word that is no flag
    struct option_flagged *flagged; // NULL, or an option whose source matters
};

// Fills the table's struct from all sources. *asked is set to 'h' (--help), 'v' (--version), 'm'
// (--help-markdown), 'f' (--help-flags-markdown) or 'o' (--help-openapi) when one was given
// (nothing else is checked then), else 0. Errors name flag, variable, or file and line.
int options_parse(const struct option_table *table, void *out, const struct option_input *input,
                  int *asked, struct err_text *e);

void options_print_help(const struct option_table *table, FILE *to); // 80 columns
void options_print_markdown(const struct option_table *table, FILE *to);

const struct option *option_find(const struct option_table *table,
                                 const char *name); // '_' equals '-'
// The known name with the smallest edit distance, or NULL when none is near.
const char *option_nearest(const struct option_table *table, const char *name);

// options_yaml.c: a flat mapping of names to scalars; set is called for each pair in order.
struct yaml_sink {
    int (*set)(void *context, const char *key, const char *value, unsigned line,
               struct err_text *e);
    void *context;
};
int options_read_yaml(const char *path, const struct yaml_sink *sink, struct err_text *e);
int options_parse_yaml(const char *text, size_t bytes, const char *name,
                       const struct yaml_sink *sink, struct err_text *e);

// A value of OPTION_BYTES: "512MiB". False: it is none.
bool options_bytes(const char *text, uint64_t *out);

// --- the programs' own structs and tables (options_tables.c)

// How leader and workers know each other.
struct control_options {
    const char *token_file, *token;          // token: from the variable
    const char *tls_cert, *tls_key, *tls_ca; // files
    bool insecure;                           // the token may travel in clear
};

// How the workers of a group are arranged. 0 = chosen.
struct parallel_options {
    uint32_t workers;     // 0 = from the others
    bool workers_derived; // not an option: workers follows from the others
    uint32_t pipeline_size, data_size, tensor_size, expert_size, expert_tensor_size;
    uint64_t worker_memory; // 0 = not known, or this machine's share
};

struct leader_options {
    const char *model, *served_model_name, *host, *api_key_file, *api_key;
    const char *ssl_certfile, *ssl_keyfile, *ssl_ca_certs, *ssl_cert_reqs;
    uint16_t port, grpc_port, control_port;
    const char *control_host;
    struct control_options control;
    const char *dtype, *kv_cache_dtype, *mla_form, *generation_config, *scheduling_policy,
        *log_level, *log_format, *interface, *transports;
    struct parallel_options parallel;
    uint32_t lws_group_size; // 0 = not in a group
    uint32_t local_workers;  // of the group, started by the leader itself
    uint32_t max_model_len;  // 0 = the model's
    uint32_t max_num_seqs, max_num_batched_tokens, pipeline_depth, max_num_queued_reqs;
    uint32_t http_timeout; // seconds
    struct memory_share kv_cache_memory, state_cache_memory;
    int64_t step_timeout, recovery_timeout, shutdown_timeout, grpc_max_connection_age; // ns
    bool digest, enable_prefix_caching;
    bool enable_auto_tool_choice, exclude_tools_when_tool_choice_none;
    const char *tool_call_parser;
    bool enable_log_requests, log_prompts;
    uint32_t max_log_len;
};

struct worker_options {
    const char *leader, *model, *name, *kernels, *log_level, *log_format, *interface, *transports;
    struct control_options control;
    const char *control_tls_name;
    int64_t shutdown_timeout;  // ns
    int32_t rank;              // -1 = lws_worker_index - 1 in a group, else any
    uint32_t lws_worker_index; // 0 = not in a group
    uint32_t threads;
    uint32_t parent_pid; // 0 = whoever started it may end before it
    uint64_t memory;
};

struct ctl_options {
    struct parallel_options parallel;
    const char *dtype, *kv_cache_dtype, *mla_form;
    uint32_t max_model_len; // 0 = the model's
    const char *url, *api_key_file, *api_key, *model, *concurrency;
    const char *ca_file, *cert_file, *key_file;
    float temperature;
    uint32_t max_tokens, requests, seed;
    uint32_t random_input_len, random_prefix_len, vocab_size;
    int64_t watch; // ns, 0 = once
    bool json, all, places;
    bool ignore_eos, values;
    const char *rate, *arrivals, *lengths;
    int64_t duration; // ns
};

extern const struct option_table leader_option_table, worker_option_table, ctl_option_table;

#endif
