// ctl_verify.c: the report of moectl verify: a folder that is fine, and folders with several things
// wrong at once.
#include "ctl/verify.h"

#include <string.h>
#include <unistd.h>

#include "tests/harness/folder_copy.h"
#include "tests/harness/suite.h"

#define SEEDLING SOURCE_ROOT "/models/seedling"

static struct buf report;

static uint32_t verify(const char *folder, bool values) {
    const struct verify_order order = {folder, values, false, 0};
    buf_reset(&report);
    uint32_t n = verify_folder(&report, &order);
    ck_assert(!report.failed && report.bytes > 0);
    return n;
}

static void expect(const char *part) {
    ck_assert_msg(memmem(report.data, report.bytes, part, strlen(part)) != NULL,
                  "\"%s\" not in:\n%.*s", part, (int)report.bytes, report.data);
}

START_TEST(a_folder_that_is_fine_is_told_in_one_table) {
    ck_assert_uint_eq(verify(SEEDLING, true), 0);
    expect("  family                  qwen3_moe (Qwen3MoeForCausalLM)\n");
    expect("  parameters              7.49 M, of which a token uses 1.99 M\n");
    expect("  experts                 16 a layer, 2 a token, 128 wide\n");
    expect("  weights of a worker     of 1: 16.0 MB, 2: ");
    expect(
        "  checkpoint              fine: 230 tensors in 1 file, 15.0 MB; all values are finite\n");
    expect("  tokenizer               fine: 2048 ids\n");
    expect("  chat template           fine\n");
    expect("It can be served.\n");
}
END_TEST

START_TEST(a_report_for_programs_says_the_same) {
    const struct verify_order fine = {SEEDLING, false, true, 0};
    buf_reset(&report);
    ck_assert_uint_eq(verify_folder(&report, &fine), 0);
    expect("{\"object\":\"moesaic.verify\",\"folder\":\"" SEEDLING "\",\"served\":true,"
           "\"n_problems\":0,\"problems\":[],");
    expect("\"checkpoint\":{\"tensors\":230,\"files\":1,\"bytes\":");
    expect("{\"part\":\"tokenizer\",\"state\":\"fine\",\"n_problems\":0,\"note\":null}");
    const struct verify_order nowhere = {"/nowhere", false, true, 0};
    buf_reset(&report);
    ck_assert_uint_gt(verify_folder(&report, &nowhere), 0);
    expect("\"served\":false");
    expect("\"problems\":[{\"part\":\"config.json\",\"text\":\"");
    expect("\"model\":null");
}
END_TEST

START_TEST(what_stands_beside_attention_has_a_line_of_its_own) {
    verify(TEST_DATA "/models/qwen3-5-moe", false); // these have no tokenizers
    expect("  recurrent layers        3 of 4: 3 heads of keys, 3 of values, 17 and 40 wide, kernel "
           "5\n");
    expect("  state of a sequence     35.1 kB\n");
    verify(TEST_DATA "/models/deepseek-v32", false);
    expect("  sparse index            3 heads, 14 wide; the best 24 keys of a query\n");
    verify(TEST_DATA "/models/deepseek-v4", false);
    expect(
        "  compressed layers       4 of 5: 2 with the best 6 entries of 4 tokens, by 2 heads, 16 "
        "wide; 2 with all entries of 8 tokens\n");
    expect("  state of a sequence     10.2 kB\n");
    ck_assert_uint_eq(verify(SEEDLING, false), 0);
    ck_assert_ptr_null(memmem(report.data, report.bytes, "state of", 8));
    ck_assert_ptr_null(memmem(report.data, report.bytes, "recurrent", 9));
    ck_assert_ptr_null(memmem(report.data, report.bytes, "sparse index", 12));
}
END_TEST

// What a broken download leaves, and what a parser says of it.
START_TEST(a_file_that_is_no_json_is_told_by_file_place_and_reason) {
    static const struct {
        const char *name, *content, *says;
    } rows[] = {
        {"tokenizer.json", "", "tokenizer.json: it is empty\n"},
        {"tokenizer.json", "hello world",
         "tokenizer.json: it is no JSON: it begins with \"hello world\"\n"},
        {"tokenizer.json", "\x1f\x8b\x08", "tokenizer.json: it is no JSON: byte 0 is 0x1f\n"},
        {"tokenizer.json", "{\"a\":\n 1 2}",
         "tokenizer.json, line 2, column 4: '}' expected near '2'\n"},
        {"tokenizer.json", "{\"a\": \"\xff\"}",
         "tokenizer.json, line 1, column 7: unable to decode byte 0xff"},
        {"tokenizer.json", "{\"a\": 1",
         "tokenizer.json, line 1, column 7: '}' expected near end of file\n"},
        {"config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
         "config.json: a Git LFS pointer stands in its place; git lfs pull fetches the file\n"},
        {"model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
         "model.safetensors: a Git LFS pointer stands in its place; git lfs pull"},
        {"tokenizer_config.json", "<html>",
         "tokenizer_config.json: it is no JSON: it begins with \"<html>\"\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct folder_copy c;
        folder_copy_make(&c, TEST_DATA "/models/tiny-mixtral");
        folder_copy_write(&c, rows[i].name, rows[i].content);
        ck_assert_uint_ge(verify(c.folder, false), 1);
        expect(rows[i].says);
        folder_copy_remove(&c);
    }
}
END_TEST

START_TEST(every_part_is_looked_at_whatever_the_others_are_like) {
    struct folder_copy c;
    folder_copy_make(&c, SEEDLING);
    folder_copy_edit(&c, "config.json", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5");
    folder_copy_write(&c, "generation_config.json", "{\"temperature\": 7}");
    folder_copy_write(&c, "tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
    folder_copy_write(&c, "chat_template.jinja", "{% include 'other' %}");
    ck_assert_uint_ge(verify(c.folder, false), 3 + 20);
    expect("generation_config.json  1 problem\n");
    expect("generation_config.json: temperature must be a number between 0 and 2");
    expect("tensor model.layers.4.input_layernorm.weight is missing");
    expect(" more like these\n");
    expect("tokenizer.json: version is not");
    expect("include");
    expect("It would be refused:\n");
    // Without a spec the headers are all that can be told.
    folder_copy_edit(&c, "config.json", "Qwen3MoeForCausalLM", "Qwen9MoeForCausalLM");
    ck_assert_uint_eq(verify(c.folder, false), 4);
    expect("architecture \"Qwen9MoeForCausalLM\" is not supported");
    expect("checkpoint              not checked: 230 tensors");
    folder_copy_remove(&c);
}
END_TEST

// Where config.json leaves the type of weights to the embedding, that is no fault of config.json.
START_TEST(an_embedding_that_should_say_the_type_is_told_of_once_with_the_checkpoint) {
    struct folder_copy c;
    char path[FOLDER_PATH_MAX];
    folder_copy_make(&c, SEEDLING);
    folder_copy_edit(&c, "config.json", "torch_dtype", "torch_xtype");
    verify(c.folder, false);
    expect("checkpoint              fine");
    folder_copy_edit(&c, "model.safetensors", "embed_tokens", "embed_tokenx");
    verify(c.folder, true);
    expect("config.json             fine\n");
    expect("weights of a worker     unknown");
    expect("  checkpoint              2 problems: ");
    folder_copy_path(&c, "model.safetensors", path);
    ck_assert_int_eq(unlink(path), 0);
    verify(c.folder, false);
    expect("config.json             fine\n");
    expect("  checkpoint              1 problem\n");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(a_template_is_tried_with_a_message) {
    struct folder_copy c;
    folder_copy_make(&c, SEEDLING);
    folder_copy_write(&c, "chat_template.jinja", "{{ messages[0].content | nosuchfilter }}");
    ck_assert_uint_eq(verify(c.folder, false), 1);
    expect("chat template           1 problem\n");
    expect("nosuchfilter");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(a_template_that_refuses_a_message_in_its_own_words_can_be_served) {
    struct folder_copy c;
    folder_copy_make(&c, SEEDLING);
    folder_copy_write(&c, "chat_template.jinja",
                      "{% if messages[0].role != 'system' %}{{ raise_exception('System first!') }}"
                      "{% endif %}{{ messages[0].content }}");
    ck_assert_uint_eq(verify(c.folder, false), 0);
    expect("chat template           fine; it refuses one message of a user: System first!\n");
    expect("It can be served.\n");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(values_are_read_when_they_are_asked_for) {
    struct folder_copy c;
    folder_copy_make(&c, SEEDLING);
    folder_copy_poke(&c, "model.norm.weight", 1, 0x7fc0);
    ck_assert_uint_eq(verify(c.folder, false), 0);
    expect("weights not read (--values reads them)");
    ck_assert_uint_eq(verify(c.folder, true), 1);
    expect("tensor model.norm.weight: 1 of its numbers are infinite or none (NaN)");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(tables_of_experts_are_read_also_when_values_are_not) {
    struct folder_copy c;
    folder_copy_make(&c, TEST_DATA "/models/deepseek-v4");
    uint32_t n_problems = verify(c.folder, false);
    folder_copy_poke(&c, "model.layers.4.ffn.gate.tid2eid", 2 * 7 * 3, 8);
    ck_assert_uint_eq(verify(c.folder, false), n_problems + 1);
    expect("tid2eid gives token 7 the expert 8; there are ");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(what_is_left_out_is_counted) {
    verify(TEST_DATA "/models/kimi-k25", false);
    expect("49 tensors in 1 file, 68.6 kB, 2 of parts that are not served");
    expect("tokenizer.json: there is no such file");
    verify("/nowhere", false);
    expect("cannot open /nowhere/config.json");
}
END_TEST

int main(void) {
    TCase *c = tcase_create("verify");
    tcase_add_test(c, a_report_for_programs_says_the_same);
    tcase_add_test(c, a_folder_that_is_fine_is_told_in_one_table);
    tcase_add_test(c, what_stands_beside_attention_has_a_line_of_its_own);
    tcase_add_test(c, a_file_that_is_no_json_is_told_by_file_place_and_reason);
    tcase_add_test(c, every_part_is_looked_at_whatever_the_others_are_like);
    tcase_add_test(c, an_embedding_that_should_say_the_type_is_told_of_once_with_the_checkpoint);
    tcase_add_test(c, a_template_is_tried_with_a_message);
    tcase_add_test(c, a_template_that_refuses_a_message_in_its_own_words_can_be_served);
    tcase_add_test(c, values_are_read_when_they_are_asked_for);
    tcase_add_test(c, tables_of_experts_are_read_also_when_values_are_not);
    tcase_add_test(c, what_is_left_out_is_counted);
    Suite *s = suite_create("ctl_verify");
    suite_add_tcase(s, c);
    int failed = suite_run(s);
    buf_finish(&report);
    return failed;
}
