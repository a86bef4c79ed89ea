// worker_link.c: tests of what the worker believes of the leader's messages.
#include <stdlib.h>
#include <string.h>

#include "common/base/host.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/net/layout_wire.h"
#include "tests/harness/suite.h"
#include "worker/link.h"

typedef Moesaic__Control__V1__JoinDown join_down;

static uint8_t bytes[1 << 16];

static size_t pack(const join_down *m) {
    ck_assert_uint_le(moesaic__control__v1__join_down__get_packed_size(m), sizeof bytes);
    return moesaic__control__v1__join_down__pack(m, bytes);
}

// Two ranks; a new one for each welcome.
static Moesaic__Control__V1__Layout layout;

static Moesaic__Control__V1__Welcome make_welcome(void) {
    layout_pack(&layout, &(struct layout){2, 1, 2, 1, 2, 1});
    Moesaic__Control__V1__Welcome w = MOESAIC__CONTROL__V1__WELCOME__INIT;
    w.rank = 1;
    w.layout = &layout;
    w.model = (char *)"/models/a";
    w.arithmetic_class = (char *)"base";
    w.dtype = (char *)"auto";
    w.kv_cache_dtype = (char *)"float32";
    w.mla_form = (char *)"absorbed";
    w.max_num_seqs = 8;
    w.max_num_batched_tokens = 64;
    w.max_model_len = 2048;
    w.kv_cache_percent = 10;
    return w;
}

static int decode_welcome(Moesaic__Control__V1__Welcome *w, struct err_text *e) {
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT, *out = NULL;
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_WELCOME;
    m.welcome = w;
    int rc = link_decode(&out, bytes, pack(&m), e);
    if (rc == 0) link_message_finish(out);
    return rc;
}

static int decode_form(uint64_t epoch, uint32_t kv_blocks, uint32_t host_index,
                       uint32_t n_on_host) {
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT, *out = NULL;
    Moesaic__Control__V1__Form form = MOESAIC__CONTROL__V1__FORM__INIT;
    form.epoch = epoch;
    form.kv_blocks = kv_blocks;
    form.host_index = host_index;
    form.n_on_host = n_on_host;
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_FORM;
    m.form = &form;
    struct err_text e;
    int rc = link_decode(&out, bytes, pack(&m), &e);
    if (rc == 0) link_message_finish(out);
    return rc;
}

START_TEST(link_takes_a_good_welcome) {
    struct err_text e = {0};
    Moesaic__Control__V1__Welcome w = make_welcome();
    ck_assert_int_eq(decode_welcome(&w, &e), 0);
}
END_TEST

#define REFUSES(change, code, name)                                                                \
    do {                                                                                           \
        struct err_text e = {0};                                                                   \
        Moesaic__Control__V1__Welcome w = make_welcome();                                          \
        w.change;                                                                                  \
        ck_assert_int_eq(decode_welcome(&w, &e), code);                                            \
        ck_assert_msg(strstr(e.text, name) != NULL, "%s", e.text);                                 \
    } while (0)

START_TEST(link_refuses_a_welcome_by_the_name_of_its_wrong_field) {
    REFUSES(rank = 2, ERR_PEER_PROTOCOL, "welcome.rank");
    REFUSES(layout = NULL, ERR_PEER_PROTOCOL, "welcome.layout is missing");
    REFUSES(layout->dp = 0, ERR_PEER_PROTOCOL, "welcome.layout: number of workers 0");
    REFUSES(layout->pp = RANKS_MAX, ERR_PEER_PROTOCOL, "welcome.layout: pipeline");
    REFUSES(layout->tp = UINT32_MAX, ERR_PEER_PROTOCOL, "welcome.layout: pipeline");
    REFUSES(layout->etp = 2, ERR_PEER_PROTOCOL,
            "welcome.layout: data 2 x tensor 1 parallel is not");
    REFUSES(max_num_seqs = 0, ERR_PEER_PROTOCOL, "max_num_seqs");
    REFUSES(max_num_seqs = SEQS_MAX + 1, ERR_PEER_PROTOCOL, "max_num_seqs");
    REFUSES(max_num_batched_tokens = UINT32_MAX, ERR_PEER_PROTOCOL, "max_num_batched_tokens");
    REFUSES(max_model_len = POSITIONS_MAX + 1, ERR_PEER_PROTOCOL, "max_model_len");
    REFUSES(kv_cache_percent = 101, ERR_PEER_PROTOCOL, "kv_cache_percent");
    REFUSES(snapshot_percent = 101, ERR_PEER_PROTOCOL, "snapshot_percent");
    REFUSES(model = (char *)"", ERR_PEER_PROTOCOL, "welcome.model");
    REFUSES(dtype = (char *)"int3", ERR_PEER_PROTOCOL, "welcome.dtype");
    REFUSES(kv_cache_dtype = (char *)"auto", ERR_PEER_PROTOCOL, "kv_cache_dtype");
    REFUSES(kv_cache_dtype = (char *)"float16", ERR_PEER_PROTOCOL, "kv_cache_dtype");
    REFUSES(kv_cache_dtype = (char *)"fp8", ERR_PEER_PROTOCOL, "kv_cache_dtype");
    REFUSES(kv_cache_dtype = (char *)"none", ERR_PEER_PROTOCOL, "kv_cache_dtype");
    REFUSES(mla_form = (char *)"folded", ERR_PEER_PROTOCOL, "mla_form");
    REFUSES(dtype = (char *)"int8", ERR_PEER_PROTOCOL, "welcome.dtype");
    REFUSES(arithmetic_class = (char *)"bf16dot", ERR_PEER_REFUSED, "arithmetic class bf16dot");
}
END_TEST

START_TEST(link_refuses_forms_that_share_a_machine_with_nobody) {
    ck_assert_int_eq(decode_form(1, 10, 0, 1), 0);
    ck_assert_int_eq(decode_form(0, 10, 0, 1), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(decode_form(1, 0, 0, 1), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(decode_form(1, 10, 1, 1), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(decode_form(1, 10, 0, 0), ERR_PEER_PROTOCOL);
}
END_TEST

START_TEST(link_refuses_empty_and_huge_addresses) {
    static uint8_t address[FABRIC_ADDRESS_MAX + 1];
    static const size_t sizes[] = {0, FABRIC_ADDRESS_MAX + 1, FABRIC_ADDRESS_MAX, 1};
    for (size_t i = 0; i < 4; i++) {
        join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT, *out = NULL;
        Moesaic__Control__V1__Connect connect = MOESAIC__CONTROL__V1__CONNECT__INIT;
        ProtobufCBinaryData list[2] = {{1, address}, {sizes[i], address}};
        struct err_text e = {0};
        connect.epoch = 3;
        connect.n_addresses = 2;
        connect.addresses = list;
        m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CONNECT;
        m.connect = &connect;
        int rc = link_decode(&out, bytes, pack(&m), &e);
        ck_assert_int_eq(rc, i < 2 ? ERR_PEER_PROTOCOL : 0);
        if (rc == 0) link_message_finish(out);
    }
}
END_TEST

START_TEST(link_refuses_malformed_and_empty_messages) {
    join_down *out = NULL;
    struct err_text e = {0};
    ck_assert_int_eq(link_decode(&out, (const uint8_t *)"\xff\xff\xff", 3, &e), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(link_decode(&out, bytes, 0, &e), ERR_PEER_PROTOCOL);
    Moesaic__Control__V1__Welcome w = make_welcome();
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_WELCOME;
    m.welcome = &w;
    size_t n = pack(&m);
    for (size_t cut = 1; cut < n; cut++)
        ck_assert_int_ne(link_decode(&out, bytes, cut, &e), 0);
}
END_TEST

START_TEST(link_peek_sees_only_a_close) {
    uint64_t epoch = 0;
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT;
    Moesaic__Control__V1__CloseEpoch close = MOESAIC__CONTROL__V1__CLOSE_EPOCH__INIT;
    close.epoch = 77;
    close.reason = (char *)"a worker was lost";
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_CLOSE_EPOCH;
    m.close_epoch = &close;
    ck_assert(link_peek_close(bytes, pack(&m), &epoch));
    ck_assert_uint_eq(epoch, 77);
    Moesaic__Control__V1__Leave leave = MOESAIC__CONTROL__V1__LEAVE__INIT;
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_LEAVE;
    m.leave = &leave;
    ck_assert(!link_peek_close(bytes, pack(&m), &epoch));
    memset(bytes, 0xff, sizeof bytes);
    ck_assert(!link_peek_close(bytes, sizeof bytes, &epoch));
    ck_assert(!link_peek_close(bytes, 100, &epoch));
}
END_TEST

START_TEST(link_decode_reports_memory_out_as_refusal_without_a_leak) {
    join_down m = MOESAIC__CONTROL__V1__JOIN_DOWN__INIT, *out = NULL;
    Moesaic__Control__V1__Welcome w = make_welcome();
    struct err_text e = {0};
    m.kind_case = MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_WELCOME;
    m.welcome = &w;
    size_t n = pack(&m);
    int rc = ERR_AGAIN;
    for (long nth = 1; rc != 0; nth++) {
        ck_assert_int_lt(nth, 100);
        mem_fail_after(nth);
        rc = link_decode(&out, bytes, n, &e);
        mem_fail_after(0);
    }
    link_message_finish(out);
}
END_TEST

START_TEST(link_host_is_a_name_and_the_boot) {
    char host[256];
    host_name(host, sizeof host);
    ck_assert_ptr_nonnull(strchr(host, ' '));
    ck_assert_ptr_null(strchr(host, '\n'));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_link");
    TCase *tcase = tcase_create("link");
    tcase_add_test(tcase, link_takes_a_good_welcome);
    tcase_add_test(tcase, link_refuses_a_welcome_by_the_name_of_its_wrong_field);
    tcase_add_test(tcase, link_refuses_forms_that_share_a_machine_with_nobody);
    tcase_add_test(tcase, link_refuses_empty_and_huge_addresses);
    tcase_add_test(tcase, link_refuses_malformed_and_empty_messages);
    tcase_add_test(tcase, link_peek_sees_only_a_close);
    tcase_add_test(tcase, link_decode_reports_memory_out_as_refusal_without_a_leak);
    tcase_add_test(tcase, link_host_is_a_name_and_the_boot);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
