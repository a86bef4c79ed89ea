// text_tok_json.c: tokenizer.tok.json: what is refused, by what is wrong with it, and special
// tokens among the others. text_tokenizer_kinds.c compares the ids with tiktoken's.
#include "common/text/tok_json_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/tokenizer.h"
#include "tests/harness/suite.h"

static json_t *token(const char *bytes, size_t n, json_int_t id) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o, s:I}", "bytes", list, "token", id);
}

// Two special tokens in front, then all bytes, "he" and "hell".
static json_t *file_make(void) {
    json_t *regular = json_array(), *special = json_array();
    json_array_append_new(special, token("<|pad|>", 7, 0));
    json_array_append_new(special, token("<|eos|>", 7, 1));
    for (int b = 0; b < 256; b++)
        json_array_append_new(regular, token(&(char){(char)b}, 1, b + 2));
    json_array_append_new(regular, token("he", 2, 258));
    json_array_append_new(regular, token("ll", 2, 259));
    json_array_append_new(regular, token("hell", 4, 260));
    return json_pack("{s:o, s:o, s:s}", "regular_tokens", regular, "special_tokens", special,
                     "word_split", "V1");
}

static int parse(struct tokenizer **out, json_t *file, struct err_text *e) {
    char *text = json_dumps(file, JSON_COMPACT);
    int rc = tok_json_parse(out, text, strlen(text), e);
    free(text);
    json_decref(file);
    return rc;
}

static void refuse(json_t *file, const char *word) {
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    int rc = parse(&t, file, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL && t == NULL, "%s: %d", word, rc);
    ck_assert_msg(strstr(e.text, word) != NULL, "\"%s\" lacks \"%s\"", e.text, word);
}

static json_t *with(const char *key, json_t *value) {
    json_t *file = file_make();
    json_object_set_new(file, key, value);
    return file;
}

static json_t *with_token(const char *list, json_t *entry) {
    json_t *file = file_make();
    json_array_append_new(json_object_get(file, list), entry);
    return file;
}

START_TEST(a_file_that_is_wrong_is_refused_by_what_is_wrong) {
    refuse(with("word_split", json_string("V2")), "word_split \"V2\" is not supported");
    refuse(with("pat_str", json_integer(3)), "pat_str must be a string");
    refuse(with("pat_str", json_string("(")), "");
    refuse(with("special_tokens", json_object()), "special_tokens must be a list");
    refuse(with("regular_tokens", json_array()), "");
    refuse(with_token("regular_tokens", token("", 0, 300)), "entry 259 has 0 bytes");
    refuse(with_token("regular_tokens", json_string("x")), "entry 259 has 0 bytes");
    refuse(with_token("regular_tokens", json_pack("{s:[i], s:i}", "bytes", 256, "token", 300)),
           "a byte that is none");
    refuse(with_token("regular_tokens", token("xy", 2, -1)), "no token id below");
    refuse(with_token("special_tokens", token("xy", 2, 1LL << 40)), "no token id below");
    refuse(with_token("regular_tokens", token("xy", 2, 5)), "5");
    refuse(with_token("special_tokens", token("<|z|>", 5, 5)), "5");
}
END_TEST

static void expect_ids(const struct tokenizer *t, const char *text, bool trusted,
                       const uint32_t *want, size_t n) {
    struct id_list ids = {0};
    struct err_text e;
    struct encode_text whole = {
        .text = text, .bytes = strlen(text), .parse_special = trusted, .ids_max = 100};
    ck_assert_int_eq(tokenizer_encode(t, &whole, &ids, &e), 0);
    ck_assert_uint_eq(ids.n, n);
    ck_assert_mem_eq(ids.ids, want, n * sizeof *want);
    id_list_finish(&ids);
}

START_TEST(ids_are_ranks_and_special_tokens_count_where_they_are_trusted) {
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    ck_assert_msg(parse(&t, file_make(), &e) == 0, "%s", e.text);
    ck_assert_uint_eq(tokenizer_vocab(t), 261);
    ck_assert(tokenizer_is_special(t, 1) && !tokenizer_is_special(t, 258));
    expect_ids(t, "hell<|eos|>", true, (const uint32_t[]){260, 1}, 2);
    expect_ids(t, "heh", false, (const uint32_t[]){258, 'h' + 2}, 2);
    expect_ids(t, "12", false, (const uint32_t[]){'1' + 2, '2' + 2}, 2);
    struct id_list ids = {0};
    struct encode_text user = {.text = "<|eos|>", .bytes = 7, .ids_max = 100};
    ck_assert_int_eq(tokenizer_encode(t, &user, &ids, &e), 0);
    ck_assert_uint_eq(ids.n, 7);
    id_list_finish(&ids);
    tokenizer_destroy(t);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("tok_json");
    tcase_add_test(c, a_file_that_is_wrong_is_refused_by_what_is_wrong);
    tcase_add_test(c, ids_are_ranks_and_special_tokens_count_where_they_are_trusted);
    Suite *s = suite_create("text_tok_json");
    suite_add_tcase(s, c);
    return suite_run(s);
}
