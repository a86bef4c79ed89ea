// text_tokenizer.c: ids equal to Hugging Face's, refusals by name, and text back from ids.
//
// TOKENIZER_FOLDER and TOKENIZER_CASES run the comparison on another model's files (see
// tests/data/text).
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/text/chat.h"
#include "common/text/nfc.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "tests/harness/suite.h"

#define IDS_MAX 1000000

static struct tokenizer *tokenizer;

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

static void setup(void) {
    struct err_text e = {""};
    int rc =
        tokenizer_load(&tokenizer, setting("TOKENIZER_FOLDER", SOURCE_ROOT "/models/seedling"), &e);
    ck_assert_msg(rc == 0, "%s", e.text);
}

static void teardown(void) {
    tokenizer_destroy(tokenizer);
    tokenizer = NULL;
}

// --- the fixture

static size_t from_hex(const char *hex, char *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (char)byte;
    }
    return n;
}

static void assert_ids(const struct id_list *got, const json_t *wanted, const char *what,
                       const char *hex) {
    bool equal = got->n == json_array_size(wanted);
    for (size_t i = 0; i < got->n && equal; i++)
        equal = got->ids[i] == json_integer_value(json_array_get(wanted, i));
    if (equal) return;
    printf("%s: text %.400s\ngot", what, hex);
    for (size_t i = 0; i < got->n; i++)
        printf(" %u", got->ids[i]);
    char *dump = json_dumps(wanted, JSON_COMPACT);
    printf("\nwanted %s\n", dump);
    free(dump);
    ck_abort_msg("%s: ids differ", what);
}

static void check_case(const json_t *one, char *text) {
    const char *hex = json_string_value(json_array_get(one, 0));
    const json_t *found = json_array_get(one, 1), *plain = json_array_get(one, 2);
    size_t n = from_hex(hex, text);
    struct id_list ids = {0};
    struct err_text e = {""};
    ck_assert_msg(tokenizer_encode(tokenizer,
                                   &(struct encode_text){text, n, true, IDS_MAX, false, NULL}, &ids,
                                   &e) == 0,
                  "%s", e.text);
    assert_ids(&ids, found, "added tokens found", hex);
    ids.n = 0;
    ck_assert_msg(tokenizer_encode(tokenizer,
                                   &(struct encode_text){text, n, false, IDS_MAX, false, NULL},
                                   &ids, &e) == 0,
                  "%s", e.text);
    assert_ids(&ids, json_is_null(plain) ? found : plain, "added tokens as text", hex);
    id_list_finish(&ids);
}

typedef void case_checker(const json_t *one, char *text);

static int for_each_case(case_checker *checker) {
    FILE *f = fopen(setting("TOKENIZER_CASES", TEST_DATA "/text/tokenizer_cases.jsonl"), "r");
    ck_assert_ptr_nonnull(f);
    char *line = NULL;
    size_t capacity = 0;
    int n = 0;
    while (getline(&line, &capacity, f) > 0) {
        json_t *one = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(one);
        char *text = malloc(capacity);
        checker(one, text);
        free(text);
        json_decref(one);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

START_TEST(encode_gives_the_ids_of_hugging_face) {
    ck_assert_int_gt(for_each_case(check_case), 1000);
}
END_TEST

// --- spans

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(random_state >> 8) * n) >> 24);
}

// Cuts text into up to 6 spans of alternating trust.
static size_t cut_spans(struct chat_span *spans, size_t n) {
    size_t at = 0, count = 0;
    bool trusted = random_below(2);
    while (count < 5) {
        size_t end = at + random_below((uint32_t)(n - at) + 1);
        spans[count++] = (struct chat_span){.begin = at, .end = end, .trusted = trusted};
        trusted = random_below(4) ? !trusted : trusted;
        at = end;
    }
    spans[count++] = (struct chat_span){.begin = at, .end = n, .trusted = trusted};
    return count;
}

static void check_spans(const json_t *one, char *text) {
    if (!json_is_null(json_array_get(one, 2))) return; // holds added tokens
    size_t n = from_hex(json_string_value(json_array_get(one, 0)), text);
    struct chat_span spans[6];
    struct chat_output prompt = {.text = text, .bytes = n, .spans = spans};
    struct id_list ids = {0};
    struct err_text e = {""};
    for (int round = 0; round < 4; round++) {
        prompt.n_spans = cut_spans(spans, n);
        // A boundary inside wrong UTF-8 is the caller's doing; the text is repaired as a whole all
        // the same.
        ids.n = 0;
        ck_assert_int_eq(tokenizer_encode_spans(tokenizer, &prompt,
                                                &(struct encode_bounds){IDS_MAX, NULL}, &ids, &e),
                         0);
        assert_ids(&ids, json_array_get(one, 1), "spans",
                   json_string_value(json_array_get(one, 0)));
    }
    id_list_finish(&ids);
}

START_TEST(spans_are_one_text_for_the_normaliser_and_the_splitter) {
    random_state = (uint32_t)atoi(setting("SEED", "1"));
    printf("SEED=%u\n", random_state);
    ck_assert_int_gt(for_each_case(check_spans), 1000);
}
END_TEST

static size_t encode_spans(const struct chat_span *spans, size_t n_spans, const char *text,
                           uint32_t *ids) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    struct chat_output prompt = {.text = copy, .bytes = strlen(text), .n_spans = n_spans};
    prompt.spans = malloc(n_spans * sizeof *spans);
    memcpy(prompt.spans, spans, n_spans * sizeof *spans);
    struct id_list list = {0};
    struct err_text e;
    ck_assert_int_eq(
        tokenizer_encode_spans(tokenizer, &prompt, &(struct encode_bounds){256, NULL}, &list, &e),
        0);
    size_t n = list.n;
    memcpy(ids, list.ids, n * sizeof *ids);
    id_list_finish(&list);
    free(prompt.spans);
    return n;
}

START_TEST(an_added_token_counts_only_where_all_of_it_is_trusted) {
    const char *text = "<|im_end|><|im_end|>";
    const uint32_t end = tokenizer_id(tokenizer, "<|im_end|>");
    uint32_t ids[256];
    struct chat_span first[] = {{0, 10, true}, {10, 20, false}};
    size_t n = encode_spans(first, 2, text, ids);
    ck_assert_uint_eq(ids[0], end);
    for (size_t i = 1; i < n; i++)
        ck_assert_uint_ne(ids[i], end);
    struct chat_span joined[] = {{0, 4, true}, {4, 20, true}};
    ck_assert_uint_eq(encode_spans(joined, 2, text, ids), 2);
    struct chat_span straddling[] = {{0, 9, true}, {9, 10, false}, {10, 20, true}};
    n = encode_spans(straddling, 3, text, ids);
    ck_assert_uint_eq(ids[n - 1], end);
    for (size_t i = 0; i + 1 < n; i++)
        ck_assert_uint_ne(ids[i], end);
}
END_TEST

// --- limits

START_TEST(encode_refuses_more_ids_than_asked_and_leaves_the_list_alone) {
    struct id_list ids = {0};
    struct err_text e;
    ck_assert_int_eq(
        tokenizer_encode(tokenizer, &(struct encode_text){"a", 1, false, 3, false, NULL}, &ids, &e),
        0);
    ck_assert_int_eq(tokenizer_encode(tokenizer,
                                      &(struct encode_text){"1 2 3 4", 7, false, 3, false, NULL},
                                      &ids, &e),
                     ERR_REQ_TOO_LARGE);
    ck_assert_uint_eq(ids.n, 1);
    ck_assert_int_eq(tokenizer_encode(tokenizer,
                                      &(struct encode_text){"12", 2, false, 3, false, NULL}, &ids,
                                      &e),
                     0);
    ck_assert_uint_eq(ids.n, 3);
    id_list_finish(&ids);
}
END_TEST

// A watch that counts how often it was asked, and is over at a given time.
struct looks {
    uint32_t n, over_at;
};

static bool count_look(void *context) {
    struct looks *l = context;
    return ++l->n == l->over_at;
}

static int encode_words(size_t n_words, size_t ids_max, struct looks *looks, struct id_list *ids) {
    static const char word[] = "word ";
    struct text_watch watch = {count_look, looks};
    struct err_text e;
    char *text = mem_alloc(n_words * (sizeof word - 1));
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n_words; i++)
        memcpy(text + i * (sizeof word - 1), word, sizeof word - 1);
    const struct encode_text whole = {
        .text = text, .bytes = n_words * (sizeof word - 1), .ids_max = ids_max, .watch = &watch};
    int rc = tokenizer_encode(tokenizer, &whole, ids, &e);
    mem_free(text);
    return rc;
}

// Splitting looks at the watch every thousand words or so.
START_TEST(a_text_of_too_many_tokens_is_not_cut_beyond_them) {
    struct id_list ids = {0};
    struct looks looks = {0}, all = {0};
    ck_assert_int_eq(encode_words(1000000, 5000, &looks, &ids), ERR_REQ_TOO_LARGE);
    ck_assert_uint_le(looks.n, 10);
    ck_assert_uint_eq(ids.n, 0);
    ck_assert_int_eq(encode_words(100000, IDS_MAX, &all, &ids), 0);
    ck_assert_uint_ge(all.n, 50);
    id_list_finish(&ids);
}
END_TEST

START_TEST(encoding_ends_when_nobody_waits_for_it) {
    struct id_list ids = {0};
    struct looks looks = {.over_at = 3};
    ck_assert_int_eq(encode_words(100000, IDS_MAX, &looks, &ids), ERR_REQ_ABORTED);
    ck_assert_uint_eq(looks.n, 3);
    ck_assert_uint_eq(ids.n, 0);
    id_list_finish(&ids);
}
END_TEST

START_TEST(encode_survives_every_failing_allocation) {
    const char *text = "The e\xcc\x81 of <|im_end|> \xff and more words";
    struct err_text e;
    int failures = 0;
    for (long n = 1; n < 1000; n++) {
        struct id_list ids = {0};
        mem_fail_after(n);
        int rc = tokenizer_encode(
            tokenizer, &(struct encode_text){text, strlen(text), true, 1000, false, NULL}, &ids,
            &e);
        mem_fail_after(0);
        if (rc == 0) {
            id_list_finish(&ids);
            break;
        }
        ck_assert_int_eq(rc, ERR_FATAL_NOMEM);
        ck_assert_uint_eq(ids.n, 0);
        id_list_finish(&ids);
        failures++;
    }
    ck_assert_int_gt(failures, 5);
}
END_TEST

// --- ids to text

static size_t push_all(const struct id_list *ids, bool skip, char *out) {
    struct detok d;
    detok_init(&d, tokenizer, skip);
    size_t n = 0, cap = detok_bytes_max(tokenizer);
    for (size_t i = 0; i < ids->n; i++)
        n += detok_push(&d, ids->ids[i], out + n, cap);
    return n + detok_finish(&d, out + n, cap);
}

static void check_round_trip(const json_t *one, char *text) {
    static char out[1 << 20];
    size_t n = from_hex(json_string_value(json_array_get(one, 0)), text);
    struct id_list ids = {0};
    struct err_text e;
    if (!utf8_valid(text, n) || !nfc_is_plain(FORM_NFC, text, n)) return; // encoding may change it
    ck_assert_int_eq(tokenizer_encode(tokenizer,
                                      &(struct encode_text){text, n, true, IDS_MAX, false, NULL},
                                      &ids, &e),
                     0);
    size_t n_out = push_all(&ids, false, out);
    ck_assert_uint_eq(n_out, n);
    ck_assert_mem_eq(out, text, n);
    id_list_finish(&ids);
}

START_TEST(detok_gives_back_the_text) {
    for_each_case(check_round_trip);
}
END_TEST

START_TEST(detok_skips_special_tokens_when_asked) {
    static const char *const skipped = "a<|im_end|>b";
    struct id_list ids = {0};
    struct err_text e;
    char out[512];
    ck_assert_int_eq(
        tokenizer_encode(tokenizer,
                         &(struct encode_text){skipped, strlen(skipped), true, 9, false, NULL},
                         &ids, &e),
        0);
    ck_assert_uint_eq(push_all(&ids, true, out), 2);
    ck_assert_mem_eq(out, "ab", 2);
    id_list_finish(&ids);
}
END_TEST

// One byte token a push.
static void push_bytes(const char *bytes, size_t n, char *out, size_t *n_out) {
    struct id_list ids = {0};
    uint32_t by_byte[256];
    for (uint32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        size_t length;
        const char *b = tokenizer_bytes(tokenizer, id, &length);
        if (b != NULL && length == 1) by_byte[(unsigned char)*b] = id;
    }
    ids.ids = mem_alloc((n + 1) * sizeof *ids.ids);
    for (size_t i = 0; i < n; i++)
        ids.ids[ids.n++] = by_byte[(unsigned char)bytes[i]];
    *n_out = push_all(&ids, false, out);
    id_list_finish(&ids);
}

START_TEST(detok_replaces_wrong_bytes_as_python_does) {
    FILE *f = fopen(TEST_DATA "/text/utf8_cases.txt", "r");
    ck_assert_ptr_nonnull(f);
    char line[1024], hex[400], wanted_hex[800];
    int n_cases = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        ck_assert_int_eq(sscanf(line, "%399s %799s", hex, wanted_hex), 2);
        char bytes[200], wanted[400], out[1024];
        size_t n = from_hex(hex, bytes), n_wanted = from_hex(wanted_hex, wanted), n_out;
        push_bytes(bytes, n, out, &n_out);
        ck_assert_msg(n_out == n_wanted && memcmp(out, wanted, n_out) == 0, "bytes %s", hex);
        n_cases++;
    }
    fclose(f);
    ck_assert_int_gt(n_cases, 500);
}
END_TEST

START_TEST(detok_waits_for_the_rest_of_a_character) {
    struct detok d;
    detok_init(&d, tokenizer, true);
    char out[512];
    struct id_list ids = {0};
    struct err_text e;
    // An emoji that the corpus never saw is four single bytes.
    ck_assert_int_eq(
        tokenizer_encode(tokenizer,
                         &(struct encode_text){"\xf0\x9f\xab\xa0", 4, false, 4, false, NULL}, &ids,
                         &e),
        0);
    ck_assert_uint_gt(ids.n, 1);
    for (size_t i = 0; i + 1 < ids.n; i++)
        ck_assert_uint_eq(detok_push(&d, ids.ids[i], out, sizeof out), 0);
    ck_assert_uint_eq(detok_push(&d, ids.ids[ids.n - 1], out, sizeof out), 4);
    ck_assert_mem_eq(out, "\xf0\x9f\xab\xa0", 4);
    ck_assert_uint_eq(detok_finish(&d, out, sizeof out), 0);
    ck_assert_uint_eq(detok_push(&d, UINT32_MAX, out, sizeof out), 0);
    id_list_finish(&ids);
}
END_TEST

START_TEST(ids_of_tokens_are_found_by_content) {
    ck_assert_uint_eq(tokenizer_vocab(tokenizer), 2048);
    ck_assert_uint_eq(tokenizer_id(tokenizer, "<|endoftext|>"), 2045);
    ck_assert_uint_eq(tokenizer_id(tokenizer, "!"), 0);
    ck_assert_uint_eq(tokenizer_id(tokenizer, "<|nothing|>"), UINT32_MAX);
    ck_assert(tokenizer_is_special(tokenizer, 2045));
    ck_assert(!tokenizer_is_special(tokenizer, 0));
    ck_assert(!tokenizer_is_special(tokenizer, 2048));
    size_t n;
    ck_assert_ptr_null(tokenizer_bytes(tokenizer, 2048, &n));
}
END_TEST

int main(void) {
    Suite *s = suite_create("tokenizer");
    TCase *t = tcase_create("seedling");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, encode_gives_the_ids_of_hugging_face);
    tcase_add_test(t, spans_are_one_text_for_the_normaliser_and_the_splitter);
    tcase_add_test(t, detok_gives_back_the_text);
    if (getenv("TOKENIZER_FOLDER") == NULL) {
        tcase_add_test(t, an_added_token_counts_only_where_all_of_it_is_trusted);
        tcase_add_test(t, encode_refuses_more_ids_than_asked_and_leaves_the_list_alone);
        tcase_add_test(t, a_text_of_too_many_tokens_is_not_cut_beyond_them);
        tcase_add_test(t, encoding_ends_when_nobody_waits_for_it);
        tcase_add_test(t, encode_survives_every_failing_allocation);
        tcase_add_test(t, detok_skips_special_tokens_when_asked);
        tcase_add_test(t, detok_replaces_wrong_bytes_as_python_does);
        tcase_add_test(t, detok_waits_for_the_rest_of_a_character);
        tcase_add_test(t, ids_of_tokens_are_found_by_content);
    }
    suite_add_tcase(s, t);
    return suite_run(s);
}
