// conf_options.c: the table of options: sources, their order, and refusals that name what was
// wrong.
#include <stdlib.h>
#include <string.h>

#include "common/conf/options.h"
#include "tests/harness/suite.h"

static struct arena arena;
static struct err_text err;
static struct leader_options leader;
static struct worker_options worker;
static int asked;

static void setup(void) {
    arena_init(&arena, 0);
    memset(&leader, 0, sizeof leader);
    memset(&worker, 0, sizeof worker);
    memset(&err, 0, sizeof err);
}

static void teardown(void) {
    arena_finish(&arena);
}

static int parse_leader(const char *const *argv, const char *const *environment) {
    struct option_input input = {.argv = argv, .environment = environment, .arena = &arena};
    return options_parse(&leader_option_table, &leader, &input, &asked, &err);
}

static int parse_worker(const char *const *argv, const char *const *environment) {
    struct option_input input = {.argv = argv, .environment = environment, .arena = &arena};
    return options_parse(&worker_option_table, &worker, &input, &asked, &err);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NONE LIST(NULL)

static void refused(const char *const *argv, const char *const *environment, const char *says) {
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(parse_leader(argv, environment), ERR_FATAL_CONFIG);
    ck_assert_msg(strstr(err.text, says) != NULL, "\"%s\" does not say \"%s\"", err.text, says);
}

START_TEST(defaults_are_those_of_the_table) {
    ck_assert_int_eq(parse_leader(NONE, NONE), 0);
    ck_assert_str_eq(leader.host, "127.0.0.1");
    ck_assert_uint_eq(leader.port, 8000);
    ck_assert_uint_eq(leader.max_num_batched_tokens, 512);
    ck_assert_uint_eq(leader.kv_cache_memory.percent, 10);
    ck_assert_int_eq(leader.step_timeout, 60000000000);
    ck_assert_ptr_null(leader.model);
    ck_assert_int_eq(asked, 0);
}
END_TEST

START_TEST(flags_take_a_value_behind_an_equals_sign_or_a_space) {
    ck_assert_int_eq(
        parse_leader(LIST("--model=/m", "--port", "81", "--max_num_seqs=7", "--digest"), NONE), 0);
    ck_assert_str_eq(leader.model, "/m");
    ck_assert_uint_eq(leader.port, 81);
    ck_assert_uint_eq(leader.max_num_seqs, 7);
    ck_assert(leader.digest);
}
END_TEST

START_TEST(a_boolean_is_denied_by_no) {
    ck_assert_int_eq(parse_leader(LIST("--no-digest"), LIST("MOESAIC_DIGEST=true")), 0);
    ck_assert(!leader.digest);
    refused(LIST("--no-port"), NONE, "--no-port");
}
END_TEST

START_TEST(a_flag_that_may_stand_alone_has_a_value_of_its_own_then) {
    struct ctl_options ctl;
    static const struct {
        const char *const argv[4];
        int64_t watch;
    } rows[] = {{{NULL}, 0},
                {{"--watch", NULL}, 2 * INT64_C(1000000000)},
                {{"--watch", "--json", NULL}, 2 * INT64_C(1000000000)},
                {{"--watch", "5", NULL}, 5 * INT64_C(1000000000)},
                {{"--watch=0.5", "--all", NULL}, INT64_C(500000000)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct option_input input = {.argv = rows[i].argv, .environment = NONE, .arena = &arena};
        memset(&ctl, 0, sizeof ctl);
        ck_assert_int_eq(options_parse(&ctl_option_table, &ctl, &input, &asked, &err), 0);
        ck_assert_int_eq(ctl.watch, rows[i].watch);
    }
    struct option_input never = {
        .argv = LIST("--watch", "0"), .environment = NONE, .arena = &arena};
    ck_assert_int_eq(options_parse(&ctl_option_table, &ctl, &never, &asked, &err),
                     ERR_FATAL_CONFIG);
}
END_TEST

START_TEST(a_flag_is_told_from_a_variable) {
    struct ctl_options ctl;
    const struct {
        const char *const *argv, *const *environment;
        bool json, given;
    } rows[] = {{NONE, NONE, false, false},
                {NONE, LIST("MOESAIC_JSON=true"), true, false},
                {LIST("--json"), NONE, true, true},
                {LIST("--json"), LIST("MOESAIC_JSON=true"), true, true},
                {LIST("--no-json"), LIST("MOESAIC_JSON=true"), false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct option_flagged json = {"json", !rows[i].given};
        struct option_input input = {.argv = rows[i].argv,
                                     .environment = rows[i].environment,
                                     .arena = &arena,
                                     .flagged = &json};
        ck_assert_int_eq(options_parse(&ctl_option_table, &ctl, &input, &asked, &err), 0);
        ck_assert(ctl.json == rows[i].json && json.given == rows[i].given);
    }
}
END_TEST

static const char *write_yaml(const char *text) {
    static char path[] = "/tmp/moesaic-options-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    FILE *f = fdopen(mkstemp(path), "w");
    fputs(text, f);
    fclose(f);
    return path;
}

START_TEST(a_flag_wins_over_a_variable_over_the_file_over_lws) {
    const char *path =
        write_yaml("port: 1\nmax-num-seqs: 2\nhost: 127.0.0.3\nlws-group-size: 9\nrank: 3\n");
    const char *const *environment =
        LIST("MOESAIC_PORT=4", "MOESAIC_MAX_NUM_SEQS=5", "LWS_GROUP_SIZE=6", "PATH=/bin");
    ck_assert_int_eq(parse_leader(LIST("--config", path, "--port", "3"), environment), 0);
    ck_assert_uint_eq(leader.port, 3);
    ck_assert_uint_eq(leader.max_num_seqs, 5);
    ck_assert_str_eq(leader.host, "127.0.0.3");
    ck_assert_uint_eq(leader.lws_group_size, 9);
    remove(path);
}
END_TEST

START_TEST(lws_variables_fill_what_nothing_else_gives) {
    const char *const *environment = LIST("LWS_LEADER_ADDRESS=a-0.a.ns", "LWS_WORKER_INDEX=2");
    ck_assert_int_eq(parse_worker(NONE, environment), 0);
    ck_assert_str_eq(worker.leader, "a-0.a.ns");
    ck_assert_uint_eq(worker.lws_worker_index, 2);
    ck_assert_int_eq(worker.rank, -1);
    ck_assert_int_eq(parse_worker(NONE, LIST("LWS_LEADER_ADDRESS=")), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "LWS_LEADER_ADDRESS"));
}
END_TEST

START_TEST(unknown_names_are_refused_with_the_nearest_known_one) {
    refused(LIST("--max-model-length", "5"), NONE, "did you mean --max-model-len?");
    refused(LIST("--zzzzzzzzzzzzzzzzzz"), NONE, "--help");
    refused(NONE, LIST("MOESAIC_PROT=1"),
            "MOESAIC_PROT: unknown option; did you mean MOESAIC_PORT?");
    refused(LIST("positional"), NONE, "positional");
    const char *path = write_yaml("model: /m\nmax-num-seq: 3\n");
    refused(LIST("--config", path), NONE,
            ":2: max-num-seq: unknown option; did you mean max-num-seqs?");
    remove(path);
    char longest[300];
    memset(longest, '-', 2);
    memset(longest + 2, 'a', sizeof longest - 3);
    longest[sizeof longest - 1] = '\0';
    refused(LIST(longest), NONE, "unknown option");
}
END_TEST

START_TEST(names_of_the_other_program_may_stand_in_a_shared_environment) {
    ck_assert_int_eq(parse_leader(NONE, LIST("MOESAIC_THREADS=4", "MOESAIC_LEADER=x:1")), 0);
}
END_TEST

START_TEST(bad_values_are_refused_by_name) {
    static const char *const bad[][3] = {
        {"--port", "65536", "--port"},
        {"--port", "-1", "--port"},
        {"--port", "1e3", "whole number"},
        {"--port", "", "whole number"},
        {"--port", " 1", "whole number"},
        {"--port", "99999999999999999999", "not within"},
        {"--max-num-seqs", "0", "1 to"},
        {"--dtype", "int3", "auto|float32|float16|bfloat16"},
        {"--dtype", "", "not one of"},
        {"--kv-cache-memory", "0%", "1%"},
        {"--kv-cache-memory", "0", "a size"},
        {"--state-cache-memory", "0%", "1%"},
        {"--kv-cache-memory", "101%", "1%"},
        {"--kv-cache-memory", "1Q", "a size"},
        {"--kv-cache-memory", "-5", "size"},
        {"--kv-cache-memory", "nan", "size"},
        {"--kv-cache-memory", "0x10", "size"},
        {"--kv-cache-memory", "99999999999T", "size"},
        {"--step-timeout", "inf", "seconds"},
        {"--step-timeout", "0.5", "1 to 3600"},
        {"--digest=perhaps", NULL, "true or false"},
        {"--model", NULL, "needs a value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refused(LIST(bad[i][0], bad[i][1]), NONE, bad[i][2]);
    refused(LIST("--port", "1", "--port", "2"), NONE, "given twice");
    refused(LIST("--port", "1"), LIST("MOESAIC_PORT=x"), "MOESAIC_PORT");
    refused(NONE, LIST("MOESAIC_PORT=tcp://10.96.0.1:8000"), "enableServiceLinks");
}
END_TEST

START_TEST(sizes_take_binary_and_decimal_units) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"1", 1},          {"2K", 2048}, {"2KB", 2000}, {"1.5MiB", 1572864}, {"3Gi", 3ull << 30},
        {"1t", 1ull << 40}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ck_assert_int_eq(parse_leader(LIST("--kv-cache-memory", sizes[i].text), NONE), 0);
        ck_assert_uint_eq(leader.kv_cache_memory.bytes, sizes[i].bytes);
    }
    ck_assert_int_eq(parse_leader(LIST("--state-cache-memory", "0"), NONE), 0); // none at all
    ck_assert_uint_eq(leader.state_cache_memory.bytes + leader.state_cache_memory.percent, 0);
}
END_TEST

START_TEST(bad_yaml_is_refused_by_file_and_line) {
    static const char *const bad[][2] = {
        {"port: [1]\n", ":1:"},          {"- port\n", ":1:"},
        {"port: 1\nport: 2\n", "twice"}, {"port: {a: b}", ":1:"},
        {"a: &x\n  b: *x\n", ":"},       {"port: 1\n---\nport: 2\n", "one document"},
        {"host: \"a\\0b\"\n", "NUL"},    {"\t\tport: 1", ":1:"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *path = write_yaml(bad[i][0]);
        refused(LIST("--config", path), NONE, bad[i][1]);
        remove(path);
    }
    refused(LIST("--config", "/nonexistent.yaml"), NONE, "/nonexistent.yaml");
    const char *empty = write_yaml("");
    ck_assert_int_eq(parse_leader(LIST("--config", empty), NONE), 0);
    remove(empty);
}
END_TEST

START_TEST(help_names_every_option) {
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    options_print_help(&leader_option_table, to);
    options_print_markdown(&worker_option_table, to);
    fclose(to);
    for (size_t i = 0; i < leader_option_table.n_options; i++)
        ck_assert_ptr_nonnull(strstr(text, leader_option_table.options[i].name));
    ck_assert_ptr_nonnull(strstr(text, "MOESAIC_LWS_WORKER_INDEX"));
    free(text);
    ck_assert_int_eq(parse_leader(LIST("--help"), NONE), 0);
    ck_assert_int_eq(asked, 'h');
}
END_TEST

// But for lists of choices, which cannot be broken.
START_TEST(help_keeps_to_eighty_columns_and_loses_no_word) {
    static const struct option_table *const tables[] = {&leader_option_table, &worker_option_table,
                                                        &ctl_option_table};
    for (int i = 0; i < 3; i++) {
        char *text = NULL, words[4096];
        size_t bytes, n = 0;
        FILE *to = open_memstream(&text, &bytes);
        options_print_help(tables[i], to);
        fclose(to);
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            ck_assert_msg(strlen(line) <= 80 || strchr(line, '|') != NULL, "%s", line);
            if (strncmp(line, "      ", 6) == 0 && n + strlen(line) < sizeof words - 1)
                n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", n > 0 ? " " : "",
                                      line + 6);
        }
        const char *first = tables[i]->options[0].help;
        ck_assert_msg(strncmp(words, first, strlen(first)) == 0, "%.200s", words);
        free(text);
    }
}
END_TEST

START_TEST(a_secret_comes_from_a_variable_only_and_no_message_shows_it) {
    ck_assert_int_eq(parse_leader(NONE, LIST("MOESAIC_API_KEY=sesame", "VLLM_API_KEY=other")), 0);
    ck_assert_str_eq(leader.api_key, "sesame");
    teardown();
    setup();
    ck_assert_int_eq(parse_leader(NONE, LIST("VLLM_API_KEY=sesame")), 0);
    ck_assert_str_eq(leader.api_key, "sesame");
    ck_assert_int_eq(parse_worker(NONE, LIST("MOESAIC_CONTROL_TOKEN=t", "MOESAIC_API_KEY=k")), 0);
    ck_assert_str_eq(worker.control.token, "t");
    refused(LIST("--api-key", "sesame"), NONE, "--api-key-file FILE");
    ck_assert_ptr_null(strstr(err.text, "sesame"));
    refused(LIST("--api_key=sesame"), NONE, "MOESAIC_API_KEY");
    ck_assert_ptr_null(strstr(err.text, "sesame"));
    refused(LIST("--control-token=sesame"), NONE, "--control-token-file FILE");
}
END_TEST

START_TEST(the_documents_are_made_from_the_tables) {
    char *text = NULL, page[65536];
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    options_print_markdown(&leader_option_table, to);
    options_print_markdown(&worker_option_table, to);
    options_print_markdown(&ctl_option_table, to);
    fclose(to);
    FILE *file = fopen(SOURCE_ROOT "/docs/options.md", "r");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(strstr(page, text) != NULL, "docs/options.md is old: make docs");
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("options");
    TCase *tc = tcase_create("options");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, defaults_are_those_of_the_table);
    tcase_add_test(tc, flags_take_a_value_behind_an_equals_sign_or_a_space);
    tcase_add_test(tc, a_boolean_is_denied_by_no);
    tcase_add_test(tc, a_flag_that_may_stand_alone_has_a_value_of_its_own_then);
    tcase_add_test(tc, a_flag_is_told_from_a_variable);
    tcase_add_test(tc, a_flag_wins_over_a_variable_over_the_file_over_lws);
    tcase_add_test(tc, lws_variables_fill_what_nothing_else_gives);
    tcase_add_test(tc, unknown_names_are_refused_with_the_nearest_known_one);
    tcase_add_test(tc, names_of_the_other_program_may_stand_in_a_shared_environment);
    tcase_add_test(tc, bad_values_are_refused_by_name);
    tcase_add_test(tc, sizes_take_binary_and_decimal_units);
    tcase_add_test(tc, bad_yaml_is_refused_by_file_and_line);
    tcase_add_test(tc, help_names_every_option);
    tcase_add_test(tc, help_keeps_to_eighty_columns_and_loses_no_word);
    tcase_add_test(tc, a_secret_comes_from_a_variable_only_and_no_message_shows_it);
    tcase_add_test(tc, the_documents_are_made_from_the_tables);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
