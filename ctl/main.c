// main.c: moectl, the operator's command line.
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "ctl/client.h"

extern char **environ;

// The first key of a text of secrets as a header.
static int make_header(struct ctl *c, const char *text, struct err_text *e) {
    struct secret_lines lines = {.at = text, .where = "the API key"};
    struct secret_line line;
    char header[SECRET_KEY_BYTES_MAX + 32];
    int rc = secret_next(&lines, &line, e);
    if (rc == ERR_AGAIN) return err_set(e, ERR_FATAL_CONFIG, "the API key: holds no key");
    if (rc != 0) return rc;
    snprintf(header, sizeof header, "Authorization: Bearer %.*s", (int)line.key_bytes, line.key);
    c->authorization = mem_strdup(header);
    explicit_bzero(header, sizeof header);
    return c->authorization != NULL ? 0 : err_set(e, ERR_FATAL_NOMEM, "out of memory");
}

static int read_key(struct ctl *c, struct err_text *e) {
    const struct ctl_options *o = &c->options;
    const struct secret_source source = {"--api-key-file", o->api_key_file, "MOESAIC_API_KEY",
                                         o->api_key};
    char *text;
    int rc = secret_read(&text, &source, e);
    if (rc != 0 || text == NULL) return rc;
    rc = make_header(c, text, e);
    secret_free(text);
    return rc;
}

// One line: a page of help would hide what is wrong.
static int refuse(const char *command, const char *reason) {
    fprintf(stderr, "moectl: %s%s; moectl --help lists all commands\n", command, reason);
    return 2;
}

// With one of the two: about_word is said where a word is missing.
static const struct command {
    const char *name;
    int (*alone)(struct ctl *c);
    int (*with_word)(struct ctl *c, const char *word);
    const char *about_word;
    bool asks_leader; // else the word is a folder
    bool json;        // has a form for programs
} commands[] = {
    {"bench", .alone = bench_command, .asks_leader = true, .json = true},
    {"chat", .with_word = chat_command, .about_word = ": needs a PROMPT", .asks_leader = true},
    {"experts", .alone = experts_command, .asks_leader = true},
    {"plan", .with_word = plan_command, .about_word = ": needs a FOLDER, the model's",
     .json = true},
    {"ready", .alone = ready_command, .asks_leader = true},
    {"status", .alone = status_command, .asks_leader = true, .json = true},
    {"verify", .with_word = verify_command, .about_word = ": needs a FOLDER, the model's",
     .json = true},
};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

// json_flag: --json stands there. MOESAIC_JSON may be meant for others that the same shell runs.
static int run_command(struct ctl *c, const char *name, const char *word, bool json_flag) {
    const struct command *command = find_command(name);
    if (command == NULL) return refuse(name, ": unknown command");
    if (c->options.json && json_flag && !command->json)
        return refuse(name, ": has no --json; bench, plan, status and verify have");
    if (command->alone != NULL)
        return word == NULL ? command->alone(c) : refuse(name, ": takes no argument");
    if (word == NULL || (!command->asks_leader && word[0] == '\0'))
        return refuse(name, command->about_word);
    return command->with_word(c, word);
}

// Where the leader is, and as whom it is asked: nothing of this matters to who does not ask.
static int prepare(struct ctl *c, const char *name, struct err_text *e) {
    const struct command *command = find_command(name);
    if (command == NULL || !command->asks_leader) return 0;
    int rc = client_check_url(c->options.url, e);
    return rc == 0 ? read_key(c, e) : rc;
}

// A prompt may begin with a dash: "-5 + 3 is", but not with two, which no text does by chance.
static bool is_dashed_prompt(int argc, char **argv) {
    return argc > 2 && strcmp(argv[1], "chat") == 0 && argv[2][0] == '-' && argv[2][1] != '-';
}

static void print_warnings(const struct option_notes *notes) {
    for (const struct option_note *n = notes->first; n != NULL; n = n->next) {
        if (n->warn) fprintf(stderr, "moectl: %s\n", n->text);
    }
}

int main(int argc, char **argv) {
    json_set_alloc_funcs(mem_alloc, mem_free);
    log_setup("moectl", LOG_WARN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct ctl c = {.env = env_real_create()};
    struct arena arena;
    arena_init(&arena, 0);
    struct err_text e;
    int asked = 0, code = 2;
    const char *argument = NULL;
    struct option_notes notes = {0};
    struct option_flagged json = {.name = "json"};
    int first_flag = argc < 2 || argv[1][0] == '-' ? 1 : 2;
    if (is_dashed_prompt(argc, argv)) argument = argv[first_flag++];
    struct option_input input = {.argv = (const char *const *)argv + first_flag,
                                 .environment = (const char *const *)environ,
                                 .arena = &arena,
                                 .notes = &notes,
                                 .positional = first_flag > 1 ? &argument : NULL,
                                 .flagged = &json};
    int err = options_parse(&ctl_option_table, &c.options, &input, &asked, &e);
    secret_wipe_variable(environ, "MOESAIC_API_KEY");
    print_warnings(&notes);
    if (err == 0 && asked == 0 && first_flag > 1) err = prepare(&c, argv[1], &e);
    if (err != 0)
        fprintf(stderr, "moectl: %s\n", e.text);
    else if (asked == 'm')
        options_print_markdown(&ctl_option_table, stdout), code = 0;
    else if (asked == 'v')
        printf("moectl %s\n", MOESAIC_BUILD_ID), code = 0;
    else if (asked == 'h')
        options_print_help(&ctl_option_table, stdout), code = 0;
    else if (argc < 2 || first_flag == 1)
        code =
            refuse(argc < 2 ? "a command is needed" : "a command is needed before the flags", "");
    else
        code = run_command(&c, argv[1], argument, json.given);
    secret_free(c.authorization);
    arena_finish(&arena);
    env_real_destroy(c.env);
    curl_global_cleanup();
    return code;
}
