// text_tokenizer_file.c: tokenizer.json is hostile: what it says wrongly, or what is not supported,
// is refused by name.
//
// Each case is the small valid file of tokenizer_text() with one place replaced.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/text/bpe.h"
#include "common/text/split.h"
#include "common/text/tokenizer.h"
#include "tests/harness/suite.h"

#define FILE_BYTES_MAX (1 << 16)

// 256 byte tokens as "vocab" entries: a byte is written as \u00xx, or as one of the 68 characters
// from U+0100 on.
static void add_alphabet(char *out) {
    uint32_t extra = 256;
    for (uint32_t b = 0; b < 256; b++) {
        bool kept = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        sprintf(out + strlen(out), "\"\\u%04x\":%u,", kept ? b : extra++, b);
    }
}

// A valid file; caller frees.
static char *tokenizer_text(void) {
    char *t = calloc(1, FILE_BYTES_MAX);
    strcpy(
        t,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
        "\"added_tokens\":[{\"id\":260,\"content\":\"<a>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,"
        "\"normalized\":false,\"special\":true},"
        "{\"id\":261,\"content\":\"<ab>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":true,\"special\":false}],"
        "\"normalizer\":{\"type\":\"NFC\"},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":"
        "\"\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":"
        "false}]},"
        "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"trim_offsets\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_"
        "prefix\":\"\","
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":"
        "false,\"vocab\":{");
    add_alphabet(t);
    strcat(t, "\"ab\":256,\"abc\":257,\"aa\":258,\"aaaa\":259},\"merges\":[[\"a\",\"b\"],[\"ab\","
              "\"c\"],[\"a\",\"a\"],[\"aa\",\"aa\"]]}}");
    return t;
}

// The file with its first old replaced by with.
static char *edited(const char *old, const char *with) {
    char *text = tokenizer_text(), *at = strstr(text, old),
         *out = calloc(1, FILE_BYTES_MAX + strlen(with));
    ck_assert_msg(at != NULL, "nothing like %s", old);
    snprintf(out, FILE_BYTES_MAX + strlen(with), "%.*s%s%s", (int)(at - text), text, with,
             at + strlen(old));
    free(text);
    return out;
}

static struct tokenizer *parse_edited(const char *old, const char *with) {
    char *text = edited(old, with);
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    int rc = tokenizer_parse(&t, text, strlen(text), &e);
    free(text);
    ck_assert_msg(rc == 0, "%s", e.text);
    return t;
}

static const struct {
    const char *old, *with, *message;
} wrong[] = {
    {"{\"version\"", "{\"extra\":1,\"version\"", "top level: \"extra\" is not supported"},
    {"\"1.0\"", "\"2.0\"", "version is not \"1.0\""},
    {"\"truncation\":null", "\"truncation\":{\"max_length\":5}", "truncation is not supported"},
    {"\"padding\":null", "\"padding\":{}", "padding is not supported"},
    {"\"type\":\"NFC\"", "\"type\":\"Lowercase\"",
     "normalizer type \"Lowercase\" is not supported"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Prepend\"}", "prepend of Prepend is not a string"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Strip\",\"strip_left\":1}",
     "strip_left of Strip is not a boolean"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"\"}",
     "normalizer: pattern of Replace: \"Regex\" is not supported"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
     "normalizer: Replace looks for nothing"},
    {"{\"type\":\"NFC\"}",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaaa\"}",
     "content of Replace is not a string of at most 15 bytes"},
    {"{\"type\":\"NFC\"}",
     "{\"type\":\"Sequence\",\"normalizers\":["
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"},"
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}]}",
     "normalizer: its replacements make text too long"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[1,2,3,4,5,6,7,8,9]}",
     "normalizer.normalizers has more than 8 components"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}",
     "\"Lowercase\" is not supported"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"NFC\",\"x\":1}", "normalizer: \"x\" is not supported"},
    {"\"post_processor\":null", "\"post_processor\":{\"type\":\"TemplateProcessing\"}",
     "TemplateProcessing: single is not a list"},
    {"\"post_processor\":null",
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
     "\"a\"}"
     "}]}",
     "TemplateProcessing: a special token lacks its ids"},
    {"\"post_processor\":null",
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}",
     "TemplateProcessing: single must have the text once"},
    {"\"post_processor\":null",
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}"
     ","
     "{\"SpecialToken\":{\"id\":\"a\"}}],\"special_tokens\":{\"a\":{\"ids\":[999]}}}",
     "TemplateProcessing: there is no id 999"},
    {"\"post_processor\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}",
     "post_processor type \"BertProcessing\" is not supported"},
    {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Metaspace\"",
     "decoder type \"Metaspace\" does not fit the pre_tokenizer"},
    {"\"type\":\"Sequence\",\"pre", "\"type\":\"Metaspace\",\"pre",
     "pre_tokenizer: \"pretokenizers\" is not supported"},
    {"{\"type\":\"Split\"", "{\"type\":\"ByteLevel\",\"x\":1},{\"type\":\"Split\"",
     "ByteLevel must be the last one"},
    {"{\"type\":\"Split\"", "{\"type\":\"Metaspace\"},{\"type\":\"Split\"",
     "Metaspace with others is not supported"},
    {"{\"type\":\"Split\"", "{\"type\":\"WhitespaceSplit\"",
     "pre_tokenizer type \"WhitespaceSplit\" is not supported"},
    {"\"Isolated\"", "\"Shuffled\"", "behavior \"Shuffled\" of Split is not supported"},
    {"\"invert\":false", "\"invert\":1", "invert of Split is not a boolean"},
    {"\"add_prefix_space\":false", "\"add_prefix_space\":true",
     "add_prefix_space of ByteLevel behind other pre_tokenizers is not supported"},
    {"\\\\p{L}+|", "a*|", "pattern: it can match the empty string"},
    {"\\\\p{L}+|", "(a|", "pattern: missing closing parenthesis"},
    {"\\\\p{L}+|", "^a|", "pattern: ^ at byte 0 is not supported"},
    {"\\\\p{L}+|", "a$|", "pattern: $ at byte 1 is not supported"},
    {"\\\\p{L}+|", ".|", "pattern: . at byte 0 is not supported"},
    {"\\\\p{L}+|", "\\\\w|", "pattern: this escape at byte 0 is not supported"},
    {"\\\\p{L}+|", "\\\\p{Greek}|", "pattern: this property at byte 0 is not supported"},
    {"\\\\p{L}+|", "[a[b]]|", "pattern: a class inside a class at byte 2 is not supported"},
    {"\\\\p{L}+|", "[a&&b]|", "pattern: && inside a class at byte 2 is not supported"},
    {"\\\\p{L}+|", "[\\\\S]|", "pattern: \\S inside a class at byte 1 is not supported"},
    {"\\\\p{L}+|", "(?P<x>a)|", "pattern: this kind of group at byte 0 is not supported"},
    {"\\\\p{L}+|", "(*COMMIT)|", "pattern: (* at byte 0 is not supported"},
    {"\\\\p{L}+|", "a{2,3}+|", "pattern: {}+ at byte 1 is not supported"},
    {"\\\\p{L}+|", "a{,3}|", "pattern: { without a number at byte 1 is not supported"},
    {"\\\\p{L}+|", "\\\\1|", "pattern: this escape at byte 0 is not supported"},
    {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model type \"Unigram\" is not supported"},
    {"\"dropout\":null", "\"dropout\":0.1", "model.dropout is not supported"},
    {"\"continuing_subword_prefix\":\"\"", "\"continuing_subword_prefix\":\"##\"",
     "continuing_subword_prefix is not supported"},
    {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
     "end_of_word_suffix is not supported"},
    {"\"byte_fallback\":false", "\"byte_fallback\":1", "byte_fallback of BPE is not a boolean"},
    {"\"ignore_merges\":false", "\"ignore_merges\":1", "ignore_merges of BPE is not a boolean"},
    {"\"ignore_merges\"", "\"cache_capacity\":1,\"ignore_merges\"",
     "model: \"cache_capacity\" is not supported"},
    {"\"ab\":256", "\"ab\":1000000000", "model.vocab: an id is not an integer below"},
    {"\"ab\":256", "\"ab\":-1", "model.vocab: an id is not an integer below"},
    {"\"ab\":256", "\"ab\":256.0", "model.vocab: an id is not an integer below"},
    {"\"ab\":256", "\"ab\":7", "id 7 is given twice"},
    {"\"ab\":256", "\"ab\":256,\"ab\":262", "duplicate object key"},
    {"\"ab\":256", "\"\":256", "the content of id 256 has 0 bytes"},
    {"\"\\u0061\":97,", "", "model.vocab has no token for byte 0x61"},
    {"[\"a\",\"b\"]", "[\"a\",\"zz\"]", "merge 0 names a token that is not in model.vocab"},
    {"[\"a\",\"b\"]", "[\"b\",\"b\"]", "what merge 0 makes is not in model.vocab"},
    {"[\"a\",\"b\"]", "[\"a\"]", "merge 0 is not a pair"},
    {"[\"a\",\"b\"]", "\"a b c\"", "merge 0 is not a pair"},
    {"[\"a\",\"b\"]", "\"ab\"", "merge 0 is not a pair"},
    {"[\"a\",\"b\"]", "5", "merge 0 is not a pair"},
    {"\"id\":260", "\"id\":1048576", "added_tokens: an id is not an integer below"},
    {"\"id\":260", "\"id\":97", "id 97 is given twice"},
    {"\"id\":260", "\"id\":261", "added_tokens: id 261 is given twice"},
    {"\"content\":\"<a>\"", "\"content\":\"\"", "a content is not a string of 1 to"},
    {"\"content\":\"<a>\"", "\"content\":\"ab\"", "added_tokens: id 260 is id 256 in model.vocab"},
    {"\"content\":\"<ab>\"", "\"content\":\"<a>\"", "ids 260 and 261 have the same content"},
    {"\"lstrip\":false", "\"lstrip\":1", "lstrip of \"<a>\" is not a boolean"},
    {"\"rstrip\":false", "\"rstrip\":1", "rstrip of \"<a>\" is not a boolean"},
    {"\"single_word\":false", "\"single_word\":1", "single_word of \"<a>\" is not a boolean"},
    {"\"special\":true", "\"special\":1", "\"<a>\" lacks normalized or special"},
    {"\"special\":true", "\"special\":true,\"x\":1", "added_tokens: \"x\" is not supported"},
    {"\"added_tokens\":[", "\"added_tokens\":[1,", "added_tokens: not an object"},
    {"\"model\":{", "\"model\":[{", ""},
    {"{\"version\"", "[{\"version\"", ""},
    {"null", "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]", "nested deeper than 16 levels"},
};

START_TEST(what_a_file_says_wrongly_is_refused_by_name) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = edited(wrong[i].old, wrong[i].with);
        struct tokenizer *t = NULL;
        struct err_text e = {""};
        int rc = tokenizer_parse(&t, text, strlen(text), &e);
        ck_assert_msg(rc == ERR_FATAL_MODEL && t == NULL, "%s: rc %d", wrong[i].with, rc);
        ck_assert_msg(strstr(e.text, wrong[i].message) != NULL, "%s: %s", wrong[i].with, e.text);
        free(text);
    }
}
END_TEST

// The same for a vocabulary of characters.
static const char mark_file[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"normalized\":false,"
    "\"special\":true}],\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
    "\"prepend_scheme\":\"first\",\"split\":false},\"decoder\":{\"type\":\"Sequence\",\"decoders\":"
    "["
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" "
    "\"},{\"type\":\"ByteFallback\"},"
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"byte_fallback\":true,\"fuse_unk\":true,"
    "\"vocab\":{\"<s>\":0,\"?\":1,\"_\":2,\"a\":3,\"_a\":4,\"<\":5,\"s\":6,\">\":7,\"<s\":8,"
    "\"<0x62>\":9},\"merges\":[[\"_\",\"a\"],[\"<\",\"s\"],[\"<s\",\">\"]]}}";

static int parse_mark_file(struct tokenizer **t, const char *old, const char *with,
                           struct err_text *e) {
    char text[4096];
    const char *at = strstr(mark_file, old);
    ck_assert_msg(at != NULL, "nothing like %s", old);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - mark_file), mark_file, with,
             at + strlen(old));
    return tokenizer_parse(t, text, strlen(text), e);
}

static const struct {
    const char *old, *with, *message;
} wrong_marks[] = {
    {"\"unk_token\":\"?\"", "\"unk_token\":null", "neither all bytes to fall back to nor an unk"},
    {"\"unk_token\":\"?\"", "\"unk_token\":\"x\"", "unk_token is not in model.vocab"},
    {"\"unk_token\":\"?\"", "\"unk_token\":1", "unk_token is not a string"},
    {"\"replacement\":\"_\"", "\"replacement\":\"\"", "replacement of Metaspace is empty"},
    {"\"first\"", "\"last\"", "prepend_scheme \"last\" of Metaspace is not supported"},
    {"\"first\"", "\"first\",\"add_prefix_space\":false",
     "add_prefix_space and prepend_scheme of Metaspace do not agree"},
    {"\"stop\":0", "\"stop\":1", "decoder: stop of Strip must be 0"},
    {"\"start\":1", "\"start\":-1", "decoder: start of Strip is not a count"},
    {"{\"type\":\"Fuse\"},", "", "decoder: Strip at this place is not supported"},
    {"{\"type\":\"ByteFallback\"}", "{\"type\":\"WordPiece\"}",
     "decoder type \"WordPiece\" is not supported"},
    {"{\"type\":\"Fuse\"}", "{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}",
     "decoder: ByteFallback at this place is not supported"},
    {"\"decoder\"", "\"decoder\":null,\"x\"", "\"x\" is not supported"},
};

START_TEST(what_a_file_of_characters_says_wrongly_is_refused_by_name) {
    for (size_t i = 0; i < sizeof wrong_marks / sizeof *wrong_marks; i++) {
        struct tokenizer *t = NULL;
        struct err_text e = {""};
        int rc = parse_mark_file(&t, wrong_marks[i].old, wrong_marks[i].with, &e);
        ck_assert_msg(rc == ERR_FATAL_MODEL && t == NULL, "%s: rc %d", wrong_marks[i].with, rc);
        ck_assert_msg(strstr(e.text, wrong_marks[i].message) != NULL, "%s: %s", wrong_marks[i].with,
                      e.text);
    }
}
END_TEST

START_TEST(a_truncated_file_is_refused) {
    char *text = tokenizer_text();
    for (size_t n = 0; n < strlen(text); n += n < 200 ? 1 : 97) {
        struct tokenizer *t = NULL;
        struct err_text e = {""};
        ck_assert_int_eq(tokenizer_parse(&t, text, n, &e), ERR_FATAL_MODEL);
    }
    free(text);
}
END_TEST

START_TEST(many_containers_are_refused_before_they_cost_memory) {
    size_t n = 3 << 20;
    char *text = malloc(n + 2);
    text[0] = '[';
    for (size_t i = 0; i < n / 3; i++)
        memcpy(text + 1 + 3 * i, "{},", 3);
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    ck_assert_int_eq(tokenizer_parse(&t, text, n, &e), ERR_FATAL_MODEL);
    free(text);
    n = 9u << 20;
    text = malloc(n);
    memset(text, '{', n);
    ck_assert_int_eq(tokenizer_parse(&t, text, n, &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "nested deeper"));
    free(text);
}
END_TEST

START_TEST(loading_survives_every_failing_allocation) {
    char *text = tokenizer_text();
    int failures = 0;
    for (long n = 1; n < 2000; n++) {
        struct tokenizer *t = NULL;
        struct err_text e = {""};
        mem_fail_after(n);
        int rc = tokenizer_parse(&t, text, strlen(text), &e);
        mem_fail_after(0);
        tokenizer_destroy(t);
        if (rc == 0) break;
        failures++;
    }
    ck_assert_int_gt(failures, 10);
    free(text);
}
END_TEST

// --- what is supported

static void assert_ids(struct tokenizer *t, const char *text, const uint32_t *wanted, size_t n) {
    struct id_list ids = {0};
    struct err_text e = {""};
    ck_assert_msg(
        tokenizer_encode(t, &(struct encode_text){text, strlen(text), true, 1000, false, NULL},
                         &ids, &e) == 0,
        "%s", e.text);
    ck_assert_uint_eq(ids.n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(ids.ids[i] == wanted[i], "%s: id %zu is %u", text, i, ids.ids[i]);
    id_list_finish(&ids);
    tokenizer_destroy(t);
}

#define ASSERT_IDS(t, text, ...)                                                                   \
    do {                                                                                           \
        const uint32_t wanted_[] = {__VA_ARGS__};                                                  \
        assert_ids(t, text, wanted_, sizeof wanted_ / sizeof *wanted_);                            \
    } while (0)

START_TEST(merges_go_by_rank_then_from_the_left) {
    ASSERT_IDS(parse_edited("null", "null"), "abc", 257);
    ASSERT_IDS(parse_edited("null", "null"), "aab", 97, 256); // "a b" ranks before "a a"
    ASSERT_IDS(parse_edited("null", "null"), "aaaaa", 259, 97);
    ASSERT_IDS(parse_edited("[\"a\",\"b\"]", "\"a b\""), "abc", 257);
}
END_TEST

START_TEST(ignore_merges_takes_a_whole_piece_that_is_a_token) {
    ASSERT_IDS(parse_edited("[\"ab\",\"c\"],", ""), "abc", 256, 99);
    char *text = edited("[\"ab\",\"c\"],", ""), *flag = strstr(text, "\"ignore_merges\":false");
    memcpy(flag, "\"ignore_merges\": true", strlen("\"ignore_merges\": true"));
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    ck_assert_int_eq(tokenizer_parse(&t, text, strlen(text), &e), 0);
    free(text);
    ASSERT_IDS(t, "abc", 257);
}
END_TEST

START_TEST(the_longest_added_token_of_a_place_wins_and_raw_ones_come_first) {
    ASSERT_IDS(parse_edited("null", "null"), "x<a>b<ab>", 120, 260, 98, 261);
    // Looked for in raw text, "<a>" is taken before the longer one is looked for in the normalised
    // rest.
    ASSERT_IDS(parse_edited("\"content\":\"<ab>\"", "\"content\":\"<a>b\""), "<a>b", 260, 98);
}
END_TEST

START_TEST(a_normalised_added_token_is_found_in_either_form) {
    ASSERT_IDS(parse_edited("\"content\":\"<ab>\"", "\"content\":\"<e\\u0301>\""), "<\xc3\xa9>",
               261);
    ASSERT_IDS(parse_edited("\"content\":\"<ab>\"", "\"content\":\"<e\\u0301>\""), "<e\xcc\x81>",
               261);
}
END_TEST

START_TEST(digits_and_strings_split_too) {
    ASSERT_IDS(parse_edited("{\"type\":\"Split\"",
                            "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"Split\""),
               "ab1", 256, 49);
    ASSERT_IDS(
        parse_edited("{\"Regex\":\"\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\s+\"}", "{\"String\":\"b\"}"),
        "abab", 97, 98, 97, 98);
}
END_TEST

static struct tokenizer *parse_marks(void) {
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    ck_assert_msg(parse_mark_file(&t, "first", "first", &e) == 0, "%s", e.text);
    return t;
}

START_TEST(characters_fall_back_to_bytes_then_to_one_unknown) {
    ASSERT_IDS(parse_marks(), "a a", 4, 4);
    ASSERT_IDS(parse_marks(), "abb", 4, 9, 9);
    ASSERT_IDS(parse_marks(), "axyza", 4, 1, 3);
    ASSERT_IDS(parse_marks(), "<s>a", 0, 3); // the prefix is only for the text's beginning
}
END_TEST

// The merges of this file would make "<s>" of its letters.
START_TEST(merges_do_not_make_an_added_token) {
    struct tokenizer *t = parse_marks();
    struct id_list ids = {0};
    struct err_text e;
    const struct encode_text of_user = {.text = "<s>", .bytes = 3, .ids_max = 9};
    ck_assert_int_eq(tokenizer_encode(t, &of_user, &ids, &e), 0);
    ck_assert_uint_eq(ids.n, 3);
    ck_assert_uint_eq(ids.ids[1], 8);
    ck_assert_uint_eq(ids.ids[2], 7);
    id_list_finish(&ids);
    tokenizer_destroy(t);
}
END_TEST

static void assert_text(const struct tokenizer *t, const uint32_t *ids, size_t n, bool goes_on,
                        const char *wanted) {
    struct detok d;
    char out[4096];
    size_t written = 0, cap = detok_bytes_max(t);
    detok_init(&d, t, true);
    if (goes_on) detok_continue(&d);
    for (size_t i = 0; i < n; i++)
        written += detok_push(&d, ids[i], out + written, cap);
    written += detok_finish(&d, out + written, cap);
    ck_assert_uint_eq(written, strlen(wanted));
    ck_assert_mem_eq(out, wanted, written);
}

START_TEST(the_first_space_goes_only_where_a_text_begins) {
    struct tokenizer *t = parse_marks();
    const uint32_t ids[] = {0, 4, 2, 2, 4, 9};
    assert_text(t, ids, 6, false, "a   ab");
    assert_text(t, ids, 6, true, " a   ab");
    tokenizer_destroy(t);
}
END_TEST

START_TEST(a_long_run_of_byte_tokens_comes_out_before_its_end) {
    struct tokenizer *t = parse_marks();
    struct detok d;
    char out[4096];
    size_t n = 0, pushed = 0;
    detok_init(&d, t, false);
    while (n == 0 && pushed++ <= DETOK_PENDING_MAX)
        n = detok_push(&d, 9, out, sizeof out);
    ck_assert_uint_eq(n, DETOK_PENDING_MAX);
    ck_assert_uint_eq(detok_finish(&d, out, sizeof out), 1);
    tokenizer_destroy(t);
}
END_TEST

// --- complexity, counted in steps

static uint64_t steps_of(char letter, size_t n) {
    struct vocab v = {.byte_level = true};
    struct bpe b;
    struct err_text e;
    char *piece = malloc(n);
    memset(piece, letter, n);
    ck_assert_int_eq(vocab_init(&v, 256 + 16, 16, &e), 0);
    for (uint32_t id = 0; id < 256; id++)
        v.byte_ids[id] = id;
    // a + a = 256, 256 + 256 = 257, ...: all levels merge.
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t part = i == 0 ? (unsigned char)'a' : 255 + i;
        ck_assert_int_eq(vocab_add_merge(&v, (struct merge){part, part, i, 256 + i}, &e), 0);
    }
    bpe_init(&b, &v);
    ck_assert_int_eq(bpe_run(&b, piece, n), 0);
    uint64_t steps = b.steps;
    bpe_finish(&b);
    vocab_finish(&v);
    free(piece);
    return steps;
}

START_TEST(merging_one_long_piece_takes_n_log_n_steps) {
    uint64_t before = steps_of('a', 1 << 12);
    for (size_t n = 1 << 13; n <= 1 << 18; n *= 2) {
        uint64_t steps = steps_of('a', n);
        ck_assert_msg(steps < before * 5 / 2, "%zu letters: %lu steps after %lu", n,
                      (unsigned long)steps, (unsigned long)before);
        ck_assert_uint_lt(steps, n * 64);
        before = steps;
    }
    ck_assert_uint_eq(steps_of('b', 1 << 18), 0);
}
END_TEST

// In a run of millions, each blank token that takes the white space around it would look through
// all of the run.
START_TEST(blank_tokens_that_take_white_space_are_found_in_linear_time) {
    enum { BYTES = 3 << 20 };
    struct tokenizer *t =
        parse_edited("\"content\":\"<a>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false",
                     "\"content\":\" \",\"single_word\":false,\"lstrip\":true,\"rstrip\":true");
    char *spaces = malloc(BYTES);
    memset(spaces, ' ', BYTES);
    struct encode_text text = {.text = spaces, .bytes = BYTES, .ids_max = BYTES};
    struct id_list ids = {0};
    struct err_text e;
    ck_assert_int_eq(tokenizer_encode(t, &text, &ids, &e), 0);
    ck_assert_uint_eq(ids.n, BYTES);
    ck_assert(ids.ids[0] == 260 && ids.ids[BYTES - 1] == 260);
    id_list_finish(&ids);
    free(spaces);
    tokenizer_destroy(t);
}
END_TEST

START_TEST(a_pattern_made_to_explode_ends_in_an_error) {
    struct tokenizer *t = parse_edited("\\\\p{L}+|", "(?:a+)+b|");
    char text[4000];
    memset(text, 'a', sizeof text);
    struct id_list ids = {0};
    struct err_text e = {""};
    ck_assert_int_eq(
        tokenizer_encode(t, &(struct encode_text){text, sizeof text, false, 5000, false, NULL},
                         &ids, &e),
        ERR_REQ_INVALID);
    ck_assert_uint_eq(ids.n, 0);
    id_list_finish(&ids);
    tokenizer_destroy(t);
}
END_TEST

START_TEST(long_runs_of_any_kind_encode_within_the_limits) {
    static const char *const units[] = {" ",  "\n", "a", "\xcc\x81", "\xcc\x96\xcc\x81",
                                        "<",  "<a", "1", "\xff",     "\xe4\xbd\xa0",
                                        " \n"};
    struct tokenizer *t = parse_edited("null", "null");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t unit = strlen(units[i]), n = 300000 / unit * unit;
        char *text = malloc(n);
        for (size_t k = 0; k < n; k += unit)
            memcpy(text + k, units[i], unit);
        struct id_list ids = {0};
        struct err_text e = {""};
        ck_assert_msg(tokenizer_encode(t, &(struct encode_text){text, n, true, 3 * n, false, NULL},
                                       &ids, &e) == 0,
                      "%s", e.text);
        id_list_finish(&ids);
        free(text);
    }
    tokenizer_destroy(t);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tokenizer file");
    TCase *t = tcase_create("files");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, what_a_file_says_wrongly_is_refused_by_name);
    tcase_add_test(t, what_a_file_of_characters_says_wrongly_is_refused_by_name);
    tcase_add_test(t, a_truncated_file_is_refused);
    tcase_add_test(t, many_containers_are_refused_before_they_cost_memory);
    tcase_add_test(t, loading_survives_every_failing_allocation);
    tcase_add_test(t, merges_go_by_rank_then_from_the_left);
    tcase_add_test(t, ignore_merges_takes_a_whole_piece_that_is_a_token);
    tcase_add_test(t, the_longest_added_token_of_a_place_wins_and_raw_ones_come_first);
    tcase_add_test(t, a_normalised_added_token_is_found_in_either_form);
    tcase_add_test(t, digits_and_strings_split_too);
    tcase_add_test(t, characters_fall_back_to_bytes_then_to_one_unknown);
    tcase_add_test(t, merges_do_not_make_an_added_token);
    tcase_add_test(t, the_first_space_goes_only_where_a_text_begins);
    tcase_add_test(t, a_long_run_of_byte_tokens_comes_out_before_its_end);
    tcase_add_test(t, merging_one_long_piece_takes_n_log_n_steps);
    tcase_add_test(t, blank_tokens_that_take_white_space_are_found_in_linear_time);
    tcase_add_test(t, a_pattern_made_to_explode_ends_in_an_error);
    tcase_add_test(t, long_runs_of_any_kind_encode_within_the_limits);
    suite_add_tcase(s, t);
    return suite_run(s);
}
