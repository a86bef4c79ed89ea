// text_tokenizer_kinds.c: each kind of tokenizer gives Hugging Face's ids, and its text back from
// ids, on ten thousand lines.
//
// tests/data/tokenizers has a small tokenizer of each kind, and digests of what Hugging Face makes
// of the lines of text_lines.h and of random ids. TOKENIZER_FOLDERS (separated by ":") adds real
// ones: folders with the model's files and the digests.bin that make_tokenizer_kinds.py writes.
//
//     unit_text_tokenizer_kinds --lines FOLDER      writes the lines of that folder's tokenizer
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "tests/harness/suite.h"
#include "tests/harness/text_lines.h"

#define RANDOM_LISTS 2000
// Sanitizers are slow, and the plain build looks at each line.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LINES_STEP 8
#else
#define LINES_STEP 1
#endif
#define IDS_MAX 100000
#define FOLDERS TEST_DATA "/tokenizers"

// --- a folder

struct kind {
    char folder[1024];
    // tokenizer.json, tokenizer_config.json and tokenizer.tok.json, for the names of added tokens
    json_t *roots[3];
    const char **added; // owned
    size_t n_added;
    struct tokenizer *tokenizer;
    uint32_t digests[TEXT_LINES_COUNT + RANDOM_LISTS];
};

static json_t *load_json(const char *folder, const char *name) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return json_load_file(path, 0, NULL);
}

static void add_name(struct kind *k, const json_t *token) {
    const char *content = json_string_value(json_object_get(token, "content"));
    if (content != NULL) k->added[k->n_added++] = strdup(content);
}

// A name that is a list of its bytes.
static void add_bytes(struct kind *k, const json_t *token) {
    const json_t *bytes = json_object_get(token, "bytes");
    char name[256] = "";
    for (size_t i = 0; i < json_array_size(bytes) && i < 255; i++)
        name[i] = (char)json_integer_value(json_array_get(bytes, i));
    k->added[k->n_added++] = strdup(name);
}

static void read_added(struct kind *k) {
    json_t *list = json_object_get(k->roots[0], "added_tokens"), *value;
    json_t *decoder = json_object_get(k->roots[1], "added_tokens_decoder");
    json_t *specials = json_object_get(k->roots[2], "special_tokens");
    size_t n = json_array_size(list) + json_object_size(decoder) + json_array_size(specials);
    k->added = calloc(n + 1, sizeof *k->added);
    size_t i;
    const char *id;
    json_array_foreach(list, i, value) add_name(k, value);
    json_array_foreach(specials, i, value) add_bytes(k, value);
    if (k->roots[0] != NULL) return;
    json_object_foreach(decoder, id, value) add_name(k, value);
}

static void kind_open(struct kind *k, const char *folder) {
    *k = (struct kind){0};
    snprintf(k->folder, sizeof k->folder, "%s", folder);
    k->roots[0] = load_json(folder, "tokenizer.json");
    k->roots[1] = load_json(folder, "tokenizer_config.json");
    k->roots[2] = load_json(folder, "tokenizer.tok.json");
    read_added(k);
}

static void kind_load(struct kind *k) {
    struct err_text e = {""};
    char path[1200];
    ck_assert_msg(tokenizer_load(&k->tokenizer, k->folder, &e) == 0, "%s: %s", k->folder, e.text);
    snprintf(path, sizeof path, "%s/digests.bin", k->folder);
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    ck_assert_uint_eq(fread(k->digests, sizeof k->digests, 1, f), 1);
    fclose(f);
}

static void kind_close(struct kind *k) {
    tokenizer_destroy(k->tokenizer);
    for (size_t i = 0; i < k->n_added; i++)
        free((char *)k->added[i]);
    free(k->added);
    for (int i = 0; i < 3; i++)
        json_decref(k->roots[i]);
}

// --- digests: FNV-1a over 32-bit numbers and bytes

#define DIGEST_START UINT64_C(0xcbf29ce484222325)

static void digest_add(uint64_t *digest, const void *data, size_t n) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        *digest = (*digest ^ bytes[i]) * UINT64_C(0x100000001b3);
}

static void digest_ids(uint64_t *digest, const struct id_list *ids) {
    const uint32_t end = UINT32_MAX;
    digest_add(digest, ids->ids, ids->n * sizeof *ids->ids);
    digest_add(digest, &end, sizeof end);
}

static void digest_text(uint64_t *digest, const struct kind *k, const struct id_list *ids,
                        bool skip) {
    struct detok d;
    size_t cap = detok_bytes_max(k->tokenizer);
    char *piece = malloc(cap);
    detok_init(&d, k->tokenizer, skip);
    for (size_t i = 0; i <= ids->n; i++) {
        size_t n =
            i < ids->n ? detok_push(&d, ids->ids[i], piece, cap) : detok_finish(&d, piece, cap);
        ck_assert_msg(utf8_valid(piece, n), "%s: a character is split", k->folder);
        digest_add(digest, piece, n);
    }
    digest_add(digest, "\xff", 1);
    free(piece);
}

static void digest_encoded(uint64_t *digest, const struct kind *k, struct encode_text text,
                           struct id_list *ids) {
    struct err_text e = {""};
    ids->n = 0;
    text.ids_max = IDS_MAX;
    ck_assert_msg(tokenizer_encode(k->tokenizer, &text, ids, &e) == 0, "%s: %s", k->folder, e.text);
    digest_ids(digest, ids);
}

static void print_line(const struct kind *k, uint32_t index, const char *line, size_t n,
                       const struct id_list *ids) {
    printf("%s: line %u:", k->folder, index);
    for (size_t i = 0; i < n; i++)
        printf(" %02x", (unsigned char)line[i]);
    printf("\nids with added tokens:");
    for (size_t i = 0; i < ids->n; i++)
        printf(" %u", ids->ids[i]);
    printf("\n");
    fflush(stdout); // a failed test leaves without
}

static void check_lines(const struct kind *k) {
    struct text_lines lines;
    static char line[TEXT_LINE_BYTES_MAX];
    struct id_list ids = {0};
    uint32_t wrong = 0;
    text_lines_init(&lines, k->added, k->n_added);
    for (uint32_t i = 0; i < TEXT_LINES_COUNT; i++) {
        size_t n = text_lines_next(&lines, line);
        if (i / 10 % LINES_STEP != 0) continue; // ten lines have one of each sort
        uint64_t digest = DIGEST_START;
        digest_encoded(&digest, k, (struct encode_text){.text = line, .bytes = n}, &ids);
        bool around = i % 50 == 0; // with the post-processor's tokens
        struct encode_text whole = {
            .text = line, .bytes = n, .parse_special = true, .add_special = around};
        digest_encoded(&digest, k, whole, &ids);
        digest_text(&digest, k, &ids, false);
        digest_text(&digest, k, &ids, true);
        if ((uint32_t)digest == k->digests[i]) continue;
        if (wrong++ < 5) print_line(k, i, line, n, &ids);
    }
    id_list_finish(&ids);
    ck_assert_msg(wrong == 0, "%s: %u lines differ", k->folder, wrong);
}

static void check_random_ids(const struct kind *k) {
    uint64_t state = 777;
    uint32_t room[12], wrong = 0;
    struct id_list ids = {.ids = room};
    for (uint32_t i = 0; i < RANDOM_LISTS / LINES_STEP; i++) {
        ids.n = 1 + text_lines_below(&state, 12);
        for (size_t k2 = 0; k2 < ids.n; k2++)
            room[k2] = text_lines_below(&state, tokenizer_vocab(k->tokenizer));
        uint64_t digest = DIGEST_START;
        digest_text(&digest, k, &ids, false);
        digest_text(&digest, k, &ids, true);
        if ((uint32_t)digest == k->digests[TEXT_LINES_COUNT + i]) continue;
        if (wrong++ < 5) print_line(k, i, NULL, 0, &ids);
    }
    ck_assert_msg(wrong == 0, "%s: %u lists of ids differ", k->folder, wrong);
}

static void check_folder(const char *folder) {
    static struct kind k;
    kind_open(&k, folder);
    kind_load(&k);
    check_lines(&k);
    check_random_ids(&k);
    printf("%s: %d lines, %d lists of ids equal\n", folder, TEXT_LINES_COUNT / LINES_STEP,
           RANDOM_LISTS / LINES_STEP);
    kind_close(&k);
}

// --- tests

static char folders[64][1024];
static int n_folders;

static void list_folders(void) {
    char *real = getenv("TOKENIZER_FOLDERS");
    for (char *at = real, *save = NULL; n_folders < 32; at = NULL) {
        char *one = real == NULL ? NULL : strtok_r(at, ":", &save);
        if (one == NULL) break;
        snprintf(folders[n_folders++], sizeof folders[0], "%s", one);
    }
    DIR *dir = opendir(FOLDERS);
    for (struct dirent *d = dir == NULL ? NULL : readdir(dir); d != NULL && n_folders < 64;
         d = readdir(dir)) {
        if (d->d_name[0] == '.' || strchr(d->d_name, '.') != NULL) continue;
        snprintf(folders[n_folders++], sizeof folders[0], FOLDERS "/%s", d->d_name);
    }
    if (dir != NULL) closedir(dir);
}

START_TEST(ids_and_texts_are_those_of_hugging_face) {
    check_folder(folders[_i]);
}
END_TEST

// A user's text never becomes a token that the template writes, whatever the kind.
START_TEST(no_text_of_a_user_becomes_an_added_token) {
    static struct kind k;
    struct err_text e = {""};
    kind_open(&k, folders[_i]);
    ck_assert_int_eq(tokenizer_load(&k.tokenizer, k.folder, &e), 0);
    for (size_t i = 0; i < k.n_added; i++) {
        char text[4096];
        struct id_list ids = {0};
        uint32_t mark = tokenizer_id(k.tokenizer, k.added[i]);
        // White space is harmless, and unknown characters are what "<unk>" says.
        if (strspn(k.added[i], " \t\r\n") == strlen(k.added[i])) continue;
        if (strcmp(k.added[i], "<unk>") == 0) continue;
        int n = snprintf(text, sizeof text, "%s a%s %s%s\n%s", k.added[i], k.added[i], k.added[i],
                         k.added[i], k.added[i]);
        struct encode_text of_user = {.text = text, .bytes = (size_t)n, .ids_max = IDS_MAX};
        ck_assert_int_eq(tokenizer_encode(k.tokenizer, &of_user, &ids, &e), 0);
        for (size_t m = 0; m < ids.n; m++)
            ck_assert_msg(ids.ids[m] != mark, "%s: %s", k.folder, k.added[i]);
        id_list_finish(&ids);
    }
    kind_close(&k);
}
END_TEST

static int write_lines(const char *folder) {
    static struct kind k;
    struct text_lines lines;
    static char line[TEXT_LINE_BYTES_MAX];
    kind_open(&k, folder);
    text_lines_init(&lines, k.added, k.n_added);
    for (uint32_t i = 0; i < TEXT_LINES_COUNT; i++) {
        uint32_t n = (uint32_t)text_lines_next(&lines, line);
        fwrite(&n, sizeof n, 1, stdout);
        fwrite(line, n, 1, stdout);
    }
    kind_close(&k);
    return fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--lines") == 0) return write_lines(argv[2]);
    list_folders();
    Suite *s = suite_create("kinds of tokenizers");
    TCase *t = tcase_create("kinds");
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, ids_and_texts_are_those_of_hugging_face, 0, n_folders);
    tcase_add_loop_test(t, no_text_of_a_user_becomes_an_added_token, 0, n_folders);
    suite_add_tcase(s, t);
    return suite_run(s);
}
