// model_safetensors.c: headers and indexes as an attacker would write them, each refused by name;
// and the good ones.
#include "common/model/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"

static int parse(struct safetensors_header *h, const char *json, uint64_t data_bytes,
                 struct err_text *e) {
    const struct safetensors_source s = {json, strlen(json), 8 + strlen(json) + data_bytes, "file"};
    return safetensors_header_parse(h, &s, e);
}

START_TEST(header_gives_names_shapes_types_and_places) {
    struct safetensors_header h;
    struct err_text e = {""};
    const char *json = "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                       "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[16,16]}}   ";
    ck_assert_msg(parse(&h, json, 16, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(h.n_tensors, 3);
    const struct safetensors_tensor *a = &h.tensors[0], *b = &h.tensors[1], *none = &h.tensors[2];
    enum dtype dtype;
    ck_assert_str_eq(a->name, "a");
    ck_assert_uint_eq(a->n_dims, 0);
    ck_assert_uint_eq(a->offset, 8 + strlen(json));
    ck_assert_uint_eq(a->bytes, 4);
    ck_assert_str_eq(b->name, "b");
    ck_assert_uint_eq(b->shape[1], 3);
    ck_assert_uint_eq(b->offset, 8 + strlen(json) + 4);
    ck_assert(safetensors_dtype(b, &dtype) && dtype == DTYPE_BF16);
    ck_assert(!safetensors_dtype(none, &dtype));
    ck_assert_str_eq(safetensors_type_name(none), "I64");
    char text[64];
    safetensors_shape_text(text, sizeof text, b->shape, b->n_dims);
    ck_assert_str_eq(text, "[2, 3]");
    safetensors_shape_text(text, sizeof text, a->shape, a->n_dims);
    ck_assert_str_eq(text, "[]");
    safetensors_shape_text(text, 5, b->shape, b->n_dims);
    ck_assert_str_eq(text, "[2, ");
    safetensors_header_finish(&h);
}
END_TEST

START_TEST(header_may_be_empty) {
    struct safetensors_header h;
    struct err_text e;
    ck_assert_int_eq(parse(&h, "{}", 0, &e), 0);
    ck_assert_uint_eq(h.n_tensors, 0);
    safetensors_header_finish(&h);
}
END_TEST

// One tensor of 8 bytes, with an entry given.
#define ONE(entry) "{\"w\":{" entry "}}"

static const struct {
    const char *json;
    uint64_t data_bytes;
    const char *word;
} bad[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "file, line 1"},
    {"{} x", 0, "file, line 1"},
    {"{\"w\":1}", 0, "tensor w: the entry is not an object"},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "name is empty"},
    {"{\"a\\u0000b\":1}", 0, "file, line 1"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"w\":{}}", 8, "duplicate"},
    {ONE("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8,
     "duplicate"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
    // The entry.
    {ONE("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor w: the entry must have"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1"), 8,
     "tensor w: the entry must have"},
    {ONE("\"dtyp\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "dtype is missing"},
    {ONE("\"dtype\":3,\"shape\":[2],\"data_offsets\":[0,8]"), 8,
     "dtype is missing or not a string"},
    {ONE("\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "dtype \"F31\" is unknown"},
    {ONE("\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "dtype \"f32\" is unknown"},
    {ONE("\"dtype\":\"F32\",\"shap\":[2],\"data_offsets\":[0,8]"), 8, "shape is missing"},
    {ONE("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]"), 8,
     "shape is missing or not a list"},
    {ONE("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8,
     "more than 8"},
    {ONE("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]"), 8,
     "file, line 1"},
    {ONE("\"dtype\":\"F32\",\"shape\":[1e2],\"data_offsets\":[0,8]"), 8, "shape has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,8]"), 8, "file, line 1"},
    // 2^31 * 2^31 * 4 = 2^64 wraps to 0.
    {ONE("\"dtype\":\"F32\",\"shape\":[2147483648,2147483648],\"data_offsets\":[0,0]"), 0,
     "product overflows"},
    {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]"), 0,
     "product overflows"},
    {ONE("\"dtype\":\"U8\",\"shape\":[9223372036854775807,3],\"data_offsets\":[0,8]"), 8,
     "product overflows"},
    {ONE("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), 8,
     "do not fit dtype and shape"},
    {ONE("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]"), 8,
     "do not fit dtype and shape"},
    // Offsets.
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offset\":[0,8]"), 8, "data_offsets is missing"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), 8,
     "data_offsets is missing or not two numbers"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]"), 8, "not two numbers"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,-8]"), 8,
     "data_offsets has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]"), 8,
     "data_offsets has an entry"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8, "end before they begin"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 7, "past the end of the file"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775799,"
         "9223372036854775807]"),
     8, "past the end of the file"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 9,
     "1 bytes at the end belong to no tensor"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), 12,
     "tensor w: there is a gap"},
    {"{\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
     12, "tensor w: its bytes overlap"},
    {"{\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     8, "its bytes overlap"},
    {"{\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}",
     20, "tensor w: there is a gap"},
    {"{}", 1, "1 bytes at the end"},
};

START_TEST(header_refuses_by_name) {
    struct safetensors_header h = {.n_tensors = 77};
    struct err_text e = {""};
    int rc = parse(&h, bad[_i].json, bad[_i].data_bytes, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL, "%s: %d", bad[_i].json, rc);
    ck_assert_msg(strstr(e.text, bad[_i].word) != NULL, "%s: \"%s\" lacks \"%s\"", bad[_i].json,
                  e.text, bad[_i].word);
    ck_assert_msg(strstr(e.text, "file") != NULL, "%s", e.text);
    ck_assert_uint_eq(h.n_tensors, 77);
}
END_TEST

START_TEST(header_refuses_long_names_and_deep_nesting) {
    struct safetensors_header h;
    struct err_text e;
    char json[4096], name[TENSOR_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[TENSOR_NAME_MAX] = '\0';
    const char *rest = "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    snprintf(json, sizeof json, "{\"%s%s", name, rest);
    ck_assert_int_eq(parse(&h, json, 8, &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "too long"));
    snprintf(json, sizeof json, "{\"%s%s", name + 1, rest);
    ck_assert_int_eq(parse(&h, json, 8, &e), 0);
    safetensors_header_finish(&h);
    snprintf(json, sizeof json, "{\"w\":%0*d", 2000, 0);
    for (char *p = json + 5; *p != '\0'; p++)
        *p = '[';
    ck_assert_int_eq(parse(&h, json, 8, &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "nested deeper"));
}
END_TEST

START_TEST(header_length_is_checked_against_file_and_limit) {
    struct err_text e;
    uint64_t n = 5;
    const uint8_t ten[8] = {10}, max[8] = {255, 255, 255, 255, 255, 255, 255, 255},
                  large[8] = {1, 0, 64, 6};
    ck_assert_int_eq(safetensors_header_bytes(&n, ten, 18, "file", &e), 0);
    ck_assert_uint_eq(n, 10);
    ck_assert_int_eq(safetensors_header_bytes(&n, ten, 17, "file", &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(
        strstr(e.text, "file: the header claims 10 bytes, but the file has only 17"));
    ck_assert_int_eq(safetensors_header_bytes(&n, ten, 7, "file", &e), ERR_FATAL_MODEL);
    ck_assert_int_eq(safetensors_header_bytes(&n, max, UINT64_MAX, "file", &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "18446744073709551615"));
    ck_assert_int_eq(safetensors_header_bytes(&n, large, UINT64_MAX, "file", &e), ERR_FATAL_MODEL);
}
END_TEST

START_TEST(header_survives_every_failed_allocation) {
    struct safetensors_header h;
    struct err_text e;
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(
            parse(&h, ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, &e),
            ERR_FATAL_NOMEM);
        mem_fail_after(0);
    }
}
END_TEST

// --- folders

struct folder {
    char path[256];
};

static void folder_make(struct folder *f) {
    snprintf(f->path, sizeof f->path, "%s/safetensors-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(f->path));
}

static void write_file(const struct folder *f, const char *name, const void *data, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(data, 1, bytes, out), bytes);
    ck_assert_int_eq(fclose(out), 0);
}

// A shard with one float32 tensor of two elements, filled with a byte.
static void write_shard(const struct folder *f, const char *name, const char *tensor, char fill) {
    char bytes[512];
    int n = snprintf(bytes + 8, sizeof bytes - 8,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", tensor);
    const uint64_t header = (uint64_t)n;
    memcpy(bytes, &header, 8);
    memset(bytes + 8 + n, fill, 8);
    write_file(f, name, bytes, 16 + (size_t)n);
}

static void write_index(const struct folder *f, const char *text) {
    write_file(f, "model.safetensors.index.json", text, strlen(text));
}

static void folder_remove(const struct folder *f) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "b.safetensors"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(f->path), 0);
}

START_TEST(open_joins_the_shards_of_an_index) {
    struct folder f;
    struct safetensors *s;
    struct err_text e = {""};
    char data[8];
    folder_make(&f);
    write_shard(&f, "a.safetensors", "x", 1);
    write_shard(&f, "b.safetensors", "w", 2);
    write_index(
        &f, "{\"metadata\":{},\"weight_map\":{\"w\":\"b.safetensors\",\"x\":\"a.safetensors\"}}");
    ck_assert_msg(safetensors_open(&s, f.path, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(safetensors_count(s), 2);
    ck_assert_str_eq(safetensors_at(s, 0)->name, "w");
    ck_assert_ptr_null(safetensors_find(s, "y"));
    ck_assert_ptr_null(safetensors_find(s, ""));
    const struct safetensors_tensor *w = safetensors_find(s, "w"), *x = safetensors_find(s, "x");
    ck_assert_int_eq(safetensors_read(s, w, (struct safetensors_range){2, 6}, data, &e), 0);
    ck_assert_mem_eq(data, "\2\2\2\2\2\2", 6);
    ck_assert_int_eq(safetensors_read(s, x, (struct safetensors_range){0, 8}, data, &e), 0);
    ck_assert_mem_eq(data, "\1\1\1\1\1\1\1\1", 8);
    safetensors_close(s);
    folder_remove(&f);
}
END_TEST

static const struct {
    const char *index, *word;
} bad_indexes[] = {
    {"{}", "weight_map is missing"},
    {"[]", "not a JSON object"},
    {"{\"weight_map\":{}}", "weight_map is missing, empty"},
    {"{\"weight_map\":[\"a.safetensors\"]}", "not an object"},
    {"{\"weight_map\":{\"x\":1,\"w\":\"b.safetensors\"}}", "tensor x"},
    {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}",
     "\"../a.safetensors\", which is no file name"},
    {"{\"weight_map\":{\"x\":\"/tmp/a.safetensors\"}}", "\"/tmp/a.safetensors\""},
    {"{\"weight_map\":{\"x\":\"sub/a.safetensors\"}}", "\"sub/a.safetensors\""},
    {"{\"weight_map\":{\"x\":\"..\"}}", "\"..\""},
    {"{\"weight_map\":{\"x\":\"\"}}", "\"\""},
    {"{\"weight_map\":{\"x\":\".safetensors\"}}", "\".safetensors\""},
    {"{\"weight_map\":{\"x\":\".a.safetensors\"}}", "\".a.safetensors\""},
    {"{\"weight_map\":{\"x\":\"a..b.safetensors\"}}", "\"a..b.safetensors\""},
    {"{\"weight_map\":{\"x\":\"a\\\\b.safetensors\"}}", "no file name"},
    {"{\"weight_map\":{\"x\":\"a.bin\"}}", "\"a.bin\""},
    {"{\"weight_map\":{\"x\":\"c.safetensors\"}}", "c.safetensors"},
    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":\"b.safetensors\"}}", "duplicate"},
    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}",
     "tensor y is not in b.safetensors"},
    {"{\"weight_map\":{\"x\":\"b.safetensors\",\"w\":\"a.safetensors\"}}", "is not in"},
    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"v\":\"a.safetensors\"}}",
     "tensor v is not in a.safetensors"},
};

START_TEST(open_refuses_a_bad_index) {
    struct folder f;
    struct safetensors *s = NULL;
    struct err_text e = {""};
    folder_make(&f);
    write_shard(&f, "a.safetensors", "x", 1);
    write_shard(&f, "b.safetensors", "w", 2);
    write_index(&f, bad_indexes[_i].index);
    int rc = safetensors_open(&s, f.path, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL || rc == ERR_FATAL_IO, "%s: %d", bad_indexes[_i].index, rc);
    ck_assert_msg(strstr(e.text, bad_indexes[_i].word) != NULL, "%s: %s", bad_indexes[_i].index,
                  e.text);
    ck_assert_ptr_null(s);
    folder_remove(&f);
}
END_TEST

START_TEST(open_refuses_a_tensor_in_two_shards_or_unlisted) {
    struct folder f;
    struct safetensors *s;
    struct err_text e;
    folder_make(&f);
    write_shard(&f, "a.safetensors", "x", 1);
    write_shard(&f, "b.safetensors", "x", 2);
    write_index(&f, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    ck_assert_int_eq(safetensors_open(&s, f.path, &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "tensor x is in two shards"));
    folder_remove(&f);
}
END_TEST

static void expect_bad_file(const struct folder *f, const void *data, size_t bytes, int code,
                            const char *word) {
    struct safetensors *s;
    struct err_text e = {""};
    write_file(f, "model.safetensors", data, bytes);
    ck_assert_int_eq(safetensors_open(&s, f->path, &e), code);
    ck_assert_msg(strstr(e.text, word) != NULL, "\"%s\" lacks \"%s\"", e.text, word);
}

START_TEST(open_refuses_files_that_are_too_short) {
    struct folder f;
    folder_make(&f);
    expect_bad_file(&f, "", 0, ERR_FATAL_MODEL, "model.safetensors has 0 bytes");
    expect_bad_file(&f, "\2\0\0\0\0\0\0", 7, ERR_FATAL_MODEL, "model.safetensors has 7 bytes");
    expect_bad_file(&f, "\2\0\0\0\0\0\0\0{", 9, ERR_FATAL_MODEL,
                    "claims 2 bytes, but the file has only 9");
    expect_bad_file(&f, "\0\0\0\0\0\0\0\0", 8, ERR_FATAL_MODEL, "does not begin");
    folder_remove(&f);
}
END_TEST

// A pipe would block the reader, a folder would fail late.
START_TEST(open_refuses_what_is_no_regular_file) {
    struct folder f;
    struct safetensors *s;
    struct err_text e = {""};
    char path[512];
    folder_make(&f);
    ck_assert_int_eq(safetensors_open(&s, f.path, &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "has neither model.safetensors nor"));
    snprintf(path, sizeof path, "%s/model.safetensors", f.path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(safetensors_open(&s, f.path, &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "is not a regular file"));
    folder_remove(&f);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("safetensors");
    tcase_add_test(c, header_gives_names_shapes_types_and_places);
    tcase_add_test(c, header_may_be_empty);
    tcase_add_loop_test(c, header_refuses_by_name, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(c, header_refuses_long_names_and_deep_nesting);
    tcase_add_test(c, header_length_is_checked_against_file_and_limit);
    tcase_add_test(c, header_survives_every_failed_allocation);
    tcase_add_test(c, open_joins_the_shards_of_an_index);
    tcase_add_loop_test(c, open_refuses_a_bad_index, 0,
                        (int)(sizeof bad_indexes / sizeof *bad_indexes));
    tcase_add_test(c, open_refuses_a_tensor_in_two_shards_or_unlisted);
    tcase_add_test(c, open_refuses_files_that_are_too_short);
    tcase_add_test(c, open_refuses_what_is_no_regular_file);
    Suite *s = suite_create("model_safetensors");
    suite_add_tcase(s, c);
    return suite_run(s);
}
