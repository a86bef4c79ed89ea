// worker_weights_runs.c: runs of a tensor's bytes arrive whole and in order, whether they are read
// one by one, together through the bounce buffer in one or several turns, or as one range.
#include "worker/weights_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"

#define DATA_BYTES (5u << 20)
#define KIB ((size_t)1024)

static char folder[] = "/tmp/runs-XXXXXX";
static char path[64];
static struct safetensors *st;
static uint8_t *data, *out, *bounce;

// One tensor of bytes that tell their place.
static void setup(void) {
    struct err_text e = {""};
    char header[128];
    int n = snprintf(header, sizeof header,
                     "{\"w\":{\"dtype\":\"U8\",\"shape\":[%u],\"data_offsets\":[0,%u]}}",
                     DATA_BYTES, DATA_BYTES);
    const uint64_t n_header = (uint64_t)n;
    data = mem_alloc(DATA_BYTES);
    out = mem_alloc(DATA_BYTES);
    bounce = mem_alloc(RUNS_BOUNCE_BYTES + 1);
    ck_assert(data != NULL && out != NULL && bounce != NULL);
    for (uint32_t i = 0; i < DATA_BYTES; i++)
        data[i] = (uint8_t)(i * 0x9e3779b9u >> 24);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(&n_header, sizeof n_header, 1, f);
    fwrite(header, 1, n_header, f);
    fwrite(data, 1, DATA_BYTES, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(safetensors_open(&st, folder, &e) == 0, "%s", e.text);
}

static void teardown(void) {
    safetensors_close(st);
    mem_free(data);
    mem_free(out);
    mem_free(bounce);
    unlink(path);
    rmdir(folder);
}

static const struct runs cases[] = {
    {.at = 3, .stride = 64, .bytes = 64, .n = 40000},                     // no gaps
    {.at = 7, .stride = 96, .bytes = 32, .n = 50000},                     // more than one turn
    {.at = 0, .stride = 32 * KIB, .bytes = 16 * KIB, .n = 160},           // turns of 64
    {.at = 1, .stride = 33 * KIB, .bytes = KIB, .n = 150},                // as large a gap as any
    {.at = 1, .stride = 33 * KIB + 1, .bytes = KIB, .n = 150},            // one by one
    {.at = 0, .stride = 2048 * KIB + 8, .bytes = 2048 * KIB, .n = 2},     // each fills the buffer
    {.at = 9, .stride = 2048 * KIB + 8, .bytes = 2048 * KIB + 2, .n = 2}, // or more
    {.at = 5, .stride = 10, .bytes = 100, .n = 7},                        // in each other
    {.at = DATA_BYTES - 300, .stride = 200, .bytes = 100, .n = 2},        // up to the end
    {.at = DATA_BYTES - 1, .stride = 1, .bytes = 1, .n = 1},
};

static size_t first_wrong(const struct runs *r) {
    size_t n = r->n * r->bytes, i = 0;
    while (i < n && out[i] == data[r->at + i / r->bytes * r->stride + i % r->bytes])
        i++;
    return i;
}

START_TEST(runs_are_read_whole_and_in_order) {
    const struct runs *r = &cases[_i];
    struct err_text e = {""};
    const struct runs_buffers to = {out, bounce};
    memset(out, 0, DATA_BYTES);
    bounce[RUNS_BOUNCE_BYTES] = 77;
    ck_assert_msg(runs_read(st, safetensors_at(st, 0), r, &to, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(bounce[RUNS_BOUNCE_BYTES], 77);
    ck_assert_uint_eq(first_wrong(r), r->n * r->bytes);
}
END_TEST

START_TEST(a_file_that_ends_early_is_an_error) {
    struct err_text e = {""};
    const struct runs_buffers to = {out, bounce};
    ck_assert_int_eq(truncate(path, DATA_BYTES / 2), 0);
    ck_assert_int_ne(runs_read(st, safetensors_at(st, 0), &cases[2], &to, &e), 0);
    ck_assert(strstr(e.text, "model.safetensors") != NULL);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("runs");
    tcase_set_timeout(c, 120);
    tcase_add_unchecked_fixture(c, setup, teardown); // one file for all: the last one cuts it
    tcase_add_loop_test(c, runs_are_read_whole_and_in_order, 0,
                        (int)(sizeof cases / sizeof *cases));
    tcase_add_test(c, a_file_that_ends_early_is_an_error);
    Suite *s = suite_create("worker_weights_runs");
    suite_add_tcase(s, c);
    return suite_run(s);
}
