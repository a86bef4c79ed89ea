// net_grpc_unpack.c: compressed messages: what they were, or an error, and never more memory than
// their bounds.
#include "common/net/grpc_unpack.h"

#include <stdbool.h>
#include <string.h>
#include <zlib.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"

#define ROOM (1u << 20)
#define MIB ((size_t)1 << 20)

static uint8_t packed[ROOM];

static size_t pack(const void *text, size_t n, bool gzip) {
    z_stream z = {0};
    ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (unsigned)n;
    z.next_out = packed;
    z.avail_out = sizeof packed;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t bytes = sizeof packed - z.avail_out;
    deflateEnd(&z);
    return bytes;
}

static int unpack(size_t n, bool gzip, size_t max, uint8_t **out, size_t *bytes) {
    struct grpc_packed p = {gzip ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_DEFLATE, packed, n};
    return grpc_unpack(&p, max, out, bytes);
}

START_TEST(what_was_packed_comes_back) {
    static const char text[] = "a few words, a few words";
    uint8_t *out;
    size_t bytes;
    for (size_t n = 0; n <= sizeof text; n += sizeof text) {
        ck_assert_int_eq(unpack(pack(text, n, _i), _i, MIB, &out, &bytes), 0);
        ck_assert_uint_eq(bytes, n);
        ck_assert_mem_eq(out, text, n);
        mem_free(out);
    }
}
END_TEST

START_TEST(what_unpacks_too_far_is_refused) {
    uint8_t *zeros = mem_zalloc(64 * MIB), *out;
    size_t bytes, n = pack(zeros, 64 * MIB, true);
    ck_assert_uint_lt(n, 100000);
    ck_assert_int_eq(unpack(n, true, 64 * MIB, &out, &bytes), ERR_REQ_TOO_LARGE);
    n = pack(zeros, GRPC_UNPACK_BYTES_MORE, true);
    ck_assert_int_eq(unpack(n, true, GRPC_UNPACK_BYTES_MORE - 1, &out, &bytes), ERR_REQ_TOO_LARGE);
    ck_assert_int_eq(unpack(n, true, GRPC_UNPACK_BYTES_MORE, &out, &bytes), 0);
    mem_free(out);
    mem_free(zeros);
}
END_TEST

START_TEST(what_is_broken_is_refused) {
    static const char text[] = "a few words, a few words";
    uint8_t *out;
    size_t bytes, n = pack(text, sizeof text, true);
    for (size_t cut = 0; cut < n; cut++)
        ck_assert_int_eq(unpack(cut, true, MIB, &out, &bytes), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(unpack(n + 1, true, MIB, &out, &bytes), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(unpack(n, false, MIB, &out, &bytes), ERR_PEER_PROTOCOL);
    packed[n - 5] ^= 1; // its checksum
    ck_assert_int_eq(unpack(n, true, MIB, &out, &bytes), ERR_PEER_PROTOCOL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("net_grpc_unpack");
    TCase *t = tcase_create("unpack");
    tcase_add_loop_test(t, what_was_packed_comes_back, 0, 2);
    tcase_add_test(t, what_unpacks_too_far_is_refused);
    tcase_add_test(t, what_is_broken_is_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
