// conf_foreign.c: the flags of other engines: each name once, none that hides an option of ours,
// and what each kind does.
#include <stdlib.h>
#include <string.h>

#include "common/conf/foreign.h"
#include "common/conf/options.h"
#include "tests/harness/suite.h"

static struct arena arena;
static struct err_text err;
static struct leader_options leader;
static struct option_notes notes;

static void setup(void) {
    arena_init(&arena, 0);
    memset(&leader, 0, sizeof leader);
    memset(&notes, 0, sizeof notes);
    memset(&err, 0, sizeof err);
}

static void teardown(void) {
    arena_finish(&arena);
}

static int parse(const char *const *argv) {
    int asked;
    struct option_input input = {
        .argv = argv, .environment = (const char *const[]){NULL}, .arena = &arena, .notes = &notes};
    return options_parse(&leader_option_table, &leader, &input, &asked, &err);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refused(const char *const *argv, const char *says) {
    teardown();
    setup();
    ck_assert_int_eq(parse(argv), ERR_FATAL_CONFIG);
    ck_assert_msg(strstr(err.text, says) != NULL, "\"%s\" does not say \"%s\"", err.text, says);
}

static void accepted(const char *const *argv) {
    teardown();
    setup();
    int rc = parse(argv);
    ck_assert_msg(rc == 0, "%s", err.text);
}

static void noted(const char *text, bool warn) {
    for (const struct option_note *n = notes.first; n != NULL; n = n->next) {
        if (strstr(n->text, text) == NULL) continue;
        ck_assert_msg(n->warn == warn, "\"%s\" has another level", n->text);
        return;
    }
    ck_abort_msg("no note says \"%s\"", text);
}

static const char *bare(const struct foreign_flag *flag) {
    return flag->name[1] == '-' ? flag->name + 2 : flag->name;
}

static bool is_program_flag(const char *name) {
    static const char *const names[] = {"config", "help", "version", "-h"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

START_TEST(a_name_of_ours_is_in_the_table_only_as_the_same_option) {
    struct foreign_walk w = {0};
    struct foreign_flag flag;
    while (foreign_next(&w, &flag)) {
        bool ours =
            option_find(&leader_option_table, bare(&flag)) != NULL || is_program_flag(bare(&flag));
        ck_assert_msg(ours == (flag.row->kind == FOREIGN_SAME),
                      "%s: move it to or from the rows of FOREIGN_SAME", flag.name);
    }
}
END_TEST

START_TEST(every_name_is_found_once_and_means_its_row) {
    struct foreign_walk w = {0};
    struct foreign_flag flag, found;
    size_t n = 0;
    for (; foreign_next(&w, &flag); n++) {
        ck_assert(foreign_find(bare(&flag), &found));
        ck_assert_msg(found.row == flag.row && strcmp(found.name, flag.name) == 0,
                      "%s stands in the table twice", flag.name);
        ck_assert_str_eq(found.engines, flag.engines);
        ck_assert_uint_gt(strlen(flag.engines), 0);
        ck_assert_uint_eq(strspn(flag.engines, "vstlo"), strlen(flag.engines));
    }
    ck_assert_uint_gt(n, 1000);
}
END_TEST

START_TEST(rows_have_what_their_kind_needs) {
    struct foreign_walk w = {0};
    struct foreign_flag flag;
    while (foreign_next(&w, &flag)) {
        const struct foreign_row *row = flag.row;
        bool is_alias = row->kind == FOREIGN_ALIAS;
        ck_assert_int_eq(row->to != NULL, is_alias);
        if (is_alias) ck_assert_ptr_nonnull(option_find(&leader_option_table, row->to));
        if (!is_alias && row->kind != FOREIGN_SAME)
            ck_assert_msg(row->says != NULL, "%s has no reason", flag.name);
    }
}
END_TEST

// Every refused flag, given with a value that is not fine, ends the start; no value is shown, as it
// may be a secret.
START_TEST(every_refused_flag_is_refused_and_shows_no_value) {
    struct foreign_walk w = {0};
    struct foreign_flag flag;
    while (foreign_next(&w, &flag)) {
        if (flag.row->kind != FOREIGN_REFUSED) continue;
        char text[128];
        snprintf(text, sizeof text, "%s%s", flag.name, flag.takes != 0 ? "=sesame" : "");
        refused(LIST(text), flag.row->says);
        ck_assert_ptr_null(strstr(err.text, "sesame"));
    }
}
END_TEST

START_TEST(every_other_flag_leaves_a_note_and_its_value_is_its_own) {
    struct foreign_walk w = {0};
    struct foreign_flag flag;
    while (foreign_next(&w, &flag)) {
        if (flag.row->kind != FOREIGN_IMPLIED && flag.row->kind != FOREIGN_IDLE) continue;
        accepted(flag.takes != 0 ? LIST(flag.name, "4", "--port", "81")
                                 : LIST(flag.name, "--port", "81"));
        ck_assert_uint_eq(leader.port, 81);
        noted(flag.row->says, flag.row->kind == FOREIGN_IDLE);
    }
}
END_TEST

START_TEST(aliases_set_our_option) {
    accepted(LIST("-m", "/m", "-c", "4096", "-np", "4", "-b", "128", "-a", "x", "--timeout", "9"));
    ck_assert_str_eq(leader.model, "/m");
    ck_assert_str_eq(leader.served_model_name, "x");
    ck_assert_uint_eq(leader.max_model_len, 4096);
    ck_assert_uint_eq(leader.max_num_seqs, 4);
    ck_assert_uint_eq(leader.max_num_batched_tokens, 128);
    ck_assert_uint_eq(leader.http_timeout, 9);
    noted("-c is taken as --max-model-len", false);
    accepted(LIST("--model-path=/s", "--context_length=77", "--max-running-requests", "5",
                  "--chunked-prefill-size", "256", "--dp-size", "3", "--tp", "4", "--pp-size",
                  "5"));
    ck_assert_str_eq(leader.model, "/s");
    ck_assert_uint_eq(leader.max_model_len, 77);
    ck_assert_uint_eq(leader.parallel.data_size, 3);
    ck_assert_uint_eq(leader.parallel.tensor_size, 4);
    ck_assert_uint_eq(leader.parallel.pipeline_size, 5);
    accepted(LIST("--model-id", "/t", "--max-total-tokens=99", "--max-batch-prefill-tokens", "64",
                  "--max-concurrent-requests", "7", "--hostname", "127.0.0.2", "-p", "82",
                  "--json-output"));
    ck_assert_uint_eq(leader.max_model_len, 99);
    ck_assert_uint_eq(leader.max_num_queued_reqs, 7);
    ck_assert_str_eq(leader.host, "127.0.0.2");
    ck_assert_uint_eq(leader.port, 82);
    ck_assert_str_eq(leader.log_format, "json");
}
END_TEST

START_TEST(an_alias_beside_our_option_is_given_twice) {
    refused(LIST("--max-model-len", "5", "-c", "6"), "-c (here --max-model-len): given twice");
    refused(LIST("-c", "x"), "-c (here --max-model-len): \"x\" is not a whole number");
    refused(LIST("-c"), "-c: needs a value");
    refused(LIST("--chunked-prefill-size", "-1"), "not within 1 to");
}
END_TEST

START_TEST(values_in_other_words_are_understood) {
    accepted(LIST("--dtype", "half", "--max-model-len", "8k", "--generation-config", "vllm",
                  "--log-level", "warning", "--kv-cache-memory-bytes", "2G"));
    ck_assert_str_eq(leader.dtype, "float16");
    ck_assert_uint_eq(leader.max_model_len, 8000);
    ck_assert_str_eq(leader.generation_config, "none");
    ck_assert_str_eq(leader.log_level, "warn");
    ck_assert_uint_eq(leader.kv_cache_memory.bytes, 2147483648);
    accepted(LIST("--max-model-len", "auto", "--max-num-batched-tokens", "1.5K"));
    ck_assert_uint_eq(leader.max_model_len, 0);
    ck_assert_uint_eq(leader.max_num_batched_tokens, 1536);
    accepted(LIST("--disable-log-requests", "-v", "-np", "-1"));
    ck_assert(!leader.enable_log_requests);
    ck_assert_str_eq(leader.log_level, "debug");
    ck_assert_uint_eq(leader.max_num_seqs, 64);
    noted("-np asks for nothing", false);
    refused(LIST("--dtype", "fp8"), "not one of");
    refused(LIST("--max-model-len", "8q"), "whole number");
    refused(LIST("--max-model-len", "8\xe0"), "whole number"); // no unit behind the last one
    refused(LIST("--max-model-len", "9999999999999G"), "");
    refused(LIST("--max-model-len", "1..5k"), "whole number");
    refused(LIST("--kv-cache-memory-bytes", "-5"), "size");
}
END_TEST

START_TEST(what_is_always_so_says_so_and_its_denial_warns) {
    accepted(LIST("--enable-chunked-prefill", "--trust-remote-code", "--enable-expert-parallel",
                  "--enforce-eager", "--trust-remote-code"));
    noted("--enable-chunked-prefill is always so: ", false);
    size_t n = 0;
    for (const struct option_note *note = notes.first; note != NULL; note = note->next)
        n++;
    ck_assert_uint_eq(n, 4);
    accepted(LIST("--no-enable-chunked-prefill"));
    noted("--enable-chunked-prefill cannot be switched off", true);
    accepted(LIST("--enable-chunked-prefill=False"));
    noted("cannot be switched off", true);
    accepted(LIST("--enable-chunked-prefill", "True", "--enable_prefix_caching"));
    ck_assert(leader.enable_prefix_caching);
    accepted(LIST("--no-enable-prefix-caching", "--swap-space", "4", "--block-size=16"));
    ck_assert(!leader.enable_prefix_caching);
}
END_TEST

START_TEST(a_refused_flag_that_asks_for_nothing_is_let_through) {
    accepted(LIST("-dcp", "1", "--nnodes=1", "--quantization", "None", "--no-enable-lora",
                  "--enable-eplb=false", "--moe-gpu-prefetch", "0", "--device", "cpu"));
    noted("-dcp asks for nothing", false);
    refused(LIST("-dcp", "2"), "-dcp: a sequence's keys and values");
    refused(LIST("--nnodes=8"), "moe-worker --leader");
    refused(LIST("--nnodes", "01"), "moe-worker --leader");
    refused(LIST("--enable-dp-attention"), "divide that size by the data parallel one");
    refused(LIST("--gpu-memory-utilization", "0.9"), "--kv-cache-memory");
    refused(LIST("--quantization"), "--dtype");
    refused(LIST("--speculative-config.model", "x"), "speculative decoding");
    refused(LIST("--api-key", "sesame"), "--api-key-file FILE");
    refused(LIST("-t", "8"), "moe-worker --threads");
}
END_TEST

START_TEST(flags_with_several_values_take_them_all) {
    accepted(LIST("--cudagraph-capture-sizes", "1", "2", "4", "--port", "83", "-O3",
                  "--compilation-config", "{\"level\": 3}", "-fa", "-ngl", "99", "--flash-attn",
                  "on", "-ot", "exps=CPU"));
    ck_assert_uint_eq(leader.port, 83);
}
END_TEST

START_TEST(a_flag_does_not_take_the_next_one_for_its_value) {
    refused(LIST("--otlp-traces-endpoint", "--port", "83"),
            "--otlp-traces-endpoint: needs a value");
    refused(LIST("--otlp-traces-endpoint", "--port=83"), "--otlp-traces-endpoint: needs a value");
    refused(LIST("--log-requests-target", "--port=83"), "--log-requests-target: needs a value");
    refused(LIST("--middleware", "--port=83"), "--middleware: code of others");
    accepted(LIST("--otlp-traces-endpoint", "x", "--port=83"));
    ck_assert_uint_eq(leader.port, 83);
}
END_TEST

START_TEST(a_model_without_its_flag_is_answered_with_the_flag) {
    refused(LIST("Qwen/Qwen3-30B-A3B", "--port", "1"), "--model FOLDER");
    refused(LIST("serve", "Qwen/Qwen3-30B-A3B"), "--model FOLDER");
    refused(LIST("--enforce-eager", "Qwen/Qwen3-30B-A3B"), "--model FOLDER");
}
END_TEST

START_TEST(hostile_flags_are_refused) {
    char longest[400];
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '-';
    longest[sizeof longest - 1] = '\0';
    refused(LIST(longest), "not a flag");
    longest[1] = 'O';
    refused(LIST(longest), "not a flag");
    memset(longest + 2, '3', sizeof longest - 3);
    refused(LIST(longest), "");
    static const char *const bad[] = {"-",     "--",   "---m", "-=",    "--=x",
                                      "-.",    "--.x", "---",  "--no-", "",
                                      "m",     "--m",  "-tpx", "--tp.", "--no-no-trust-remote-code",
                                      "-\xff", "--v:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (strcmp(bad[i], "--tp.") != 0) refused(LIST(bad[i]), "");
    }
    refused(LIST("--dcp-size.x.y", "2"), "keys and values");
    refused(LIST("--%n%n%s", "2"), "unknown option");
    refused(LIST("--tensor-parallel", "2"), "did you mean --tensor-parallel-size?");
}
END_TEST

START_TEST(the_same_names_work_in_the_file) {
    static char path[] = "/tmp/moesaic-foreign-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    fputs("model: /y\ntensor_parallel_size: 2\nenable-chunked-prefill: true\ncontext-length: 64\n"
          "enable-prefix-caching: false\nthreads: 4\nquantization: null\n",
          f);
    fclose(f);
    accepted(LIST("--config", path));
    ck_assert_uint_eq(leader.max_model_len, 64);
    ck_assert_uint_eq(leader.parallel.tensor_size, 2);
    noted("--enable-chunked-prefill is always so", false);
    f = fopen(path, "w");
    fputs("model: /y\nnnodes: 4\n", f);
    fclose(f);
    refused(LIST("--config", path), ":2: nnodes: start moe-worker");
    remove(path);
}
END_TEST

START_TEST(other_programs_do_not_know_them) {
    struct worker_options worker = {0};
    int asked;
    struct option_input input = {
        .argv = LIST("--enforce-eager"), .environment = LIST(NULL), .arena = &arena};
    ck_assert_int_eq(options_parse(&worker_option_table, &worker, &input, &asked, &err),
                     ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "unknown option"));
}
END_TEST

static int parse_ctl(struct ctl_options *out, const char *const *argv, const char **word) {
    int asked;
    struct option_input input = {.argv = argv,
                                 .environment = LIST(NULL),
                                 .arena = &arena,
                                 .notes = &notes,
                                 .positional = word};
    return options_parse(&ctl_option_table, out, &input, &asked, &err);
}

START_TEST(a_plan_takes_the_names_of_sizes_and_types_and_no_others) {
    struct ctl_options ctl = {0};
    ck_assert_int_eq(parse_ctl(&ctl,
                               LIST("-tp", "2", "--dp", "3", "-pp=4", "--ep-size", "6", "-c", "64",
                                    "--dtype", "half", "-ep"),
                               NULL),
                     0);
    ck_assert_uint_eq(ctl.parallel.tensor_size, 2);
    ck_assert_uint_eq(ctl.parallel.data_size, 3);
    ck_assert_uint_eq(ctl.parallel.pipeline_size, 4);
    ck_assert_uint_eq(ctl.parallel.expert_size, 6);
    ck_assert_uint_eq(ctl.max_model_len, 64);
    ck_assert_str_eq(ctl.dtype, "float16");
    noted("-ep is always so", false);
    ck_assert_int_eq(parse_ctl(&ctl, LIST("--max-model-len", "8k"), NULL), 0);
    ck_assert_uint_eq(ctl.max_model_len, 8000);
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-m", "/x"), NULL), ERR_FATAL_CONFIG);
    ck_assert_int_eq(parse_ctl(&ctl, LIST("--enforce-eager"), NULL), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "--enforce-eager: unknown option"));
}
END_TEST

START_TEST(a_value_behind_a_flag_that_takes_none_is_the_flags_fault) {
    struct ctl_options ctl = {0};
    refused(LIST("--model", "/x", "-ep", "3"),
            "-ep: takes no value; did you mean --expert-parallel-size 3?");
    refused(LIST("--enforce-eager", "3"), "--enforce-eager: takes no value, but \"3\" follows it");
    refused(LIST("--digest", "yes"), "--digest: takes no value of its own; write --digest=yes");
    refused(LIST("--digest", "/x"), "\"/x\" is not a flag; to serve a model use");
    refused(LIST("--digest=true", "3"), "\"3\" is not a flag; to serve a model use");
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-ep", "3"), NULL), ERR_FATAL_CONFIG);
    ck_assert_str_eq(err.text, "-ep: takes no value; did you mean --expert-parallel-size 3?");
    const char *word = NULL; // nor is it the one word that may stand there, whatever follows
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-ep", "3", "/m"), &word), ERR_FATAL_CONFIG);
    ck_assert_str_eq(err.text, "-ep: takes no value; did you mean --expert-parallel-size 3?");
    ck_assert_ptr_null(word);
    ck_assert_int_eq(parse_ctl(&ctl, LIST("/m", "-ep", "3"), &word), ERR_FATAL_CONFIG);
    ck_assert_str_eq(err.text, "-ep: takes no value; did you mean --expert-parallel-size 3?");
    word = NULL;
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-ep", "/m", "-tp", "2"), &word), 0);
    ck_assert_str_eq(word, "/m");
    word = NULL;
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-ep", "3b-moe"), &word), 0);
    ck_assert_str_eq(word, "3b-moe");
}
END_TEST

START_TEST(one_word_may_stand_among_the_flags_where_a_program_takes_one) {
    struct ctl_options ctl = {0};
    const char *word = NULL;
    ck_assert_int_eq(parse_ctl(&ctl, LIST("--workers", "8", "/x", "-tp", "2"), &word), 0);
    ck_assert_str_eq(word, "/x");
    ck_assert_uint_eq(ctl.parallel.workers, 8);
    ck_assert_uint_eq(ctl.parallel.tensor_size, 2);
    ck_assert_int_eq(parse_ctl(&ctl, LIST("/y"), &word), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "\"/y\" stands where a flag should, as \"/x\" is"));
    word = NULL;
    ck_assert_int_eq(parse_ctl(&ctl, LIST("-x"), &word), ERR_FATAL_CONFIG);
    ck_assert_str_eq(err.text, "\"-x\" is not a flag; moectl --help lists all");
}
END_TEST

START_TEST(the_page_is_made_from_the_table) {
    char *text = NULL, page[131072];
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    foreign_print_markdown(to);
    fclose(to);
    FILE *file = fopen(SOURCE_ROOT "/docs/flags.md", "r");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(strstr(page, text) != NULL, "docs/flags.md is old: make docs");
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("foreign");
    TCase *tc = tcase_create("foreign");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_name_of_ours_is_in_the_table_only_as_the_same_option);
    tcase_add_test(tc, every_name_is_found_once_and_means_its_row);
    tcase_add_test(tc, rows_have_what_their_kind_needs);
    tcase_add_test(tc, every_refused_flag_is_refused_and_shows_no_value);
    tcase_add_test(tc, every_other_flag_leaves_a_note_and_its_value_is_its_own);
    tcase_add_test(tc, aliases_set_our_option);
    tcase_add_test(tc, an_alias_beside_our_option_is_given_twice);
    tcase_add_test(tc, values_in_other_words_are_understood);
    tcase_add_test(tc, what_is_always_so_says_so_and_its_denial_warns);
    tcase_add_test(tc, a_refused_flag_that_asks_for_nothing_is_let_through);
    tcase_add_test(tc, flags_with_several_values_take_them_all);
    tcase_add_test(tc, a_flag_does_not_take_the_next_one_for_its_value);
    tcase_add_test(tc, a_plan_takes_the_names_of_sizes_and_types_and_no_others);
    tcase_add_test(tc, a_value_behind_a_flag_that_takes_none_is_the_flags_fault);
    tcase_add_test(tc, one_word_may_stand_among_the_flags_where_a_program_takes_one);
    tcase_add_test(tc, a_model_without_its_flag_is_answered_with_the_flag);
    tcase_add_test(tc, hostile_flags_are_refused);
    tcase_add_test(tc, the_same_names_work_in_the_file);
    tcase_add_test(tc, other_programs_do_not_know_them);
    tcase_add_test(tc, the_page_is_made_from_the_table);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
