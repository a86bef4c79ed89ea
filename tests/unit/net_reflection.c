// net_reflection.c: what reflection says about the embedded descriptors: every kind of name finds
// its file, what is not there is an error inside the answer, and nonsense is refused.
#include "common/net/reflection.h"

#include <grpc/status.h>
#include <string.h>

#include "common/base/mem.h"
#include "descriptor.pb-c.h"
#include "generate.pb-c.h"
#include "reflection.pb-c.h"
#include "tests/harness/suite.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;
#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define SAYS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static const char *const services[] = {"moesaic.v1.Generate", "grpc.health.v1.Health"};
static struct reflection reflection = {.services = services, .n_services = 2};
static struct descriptors *descriptors;

static void setup(void) {
    ck_assert_int_eq(
        descriptors_create(&descriptors, inference_descriptors, inference_descriptors_bytes, NULL),
        0);
    reflection.descriptors = descriptors;
}

static void teardown(void) {
    descriptors_destroy(descriptors);
}

static int answer_bytes(const void *data, size_t bytes, struct buf *out) {
    buf_init(out, 0);
    return reflection_answer(&reflection, data, bytes, out);
}

// The answer to a request for one text; free it with free_answer.
static Response *answer(int asks, const char *text) {
    uint8_t packed[512];
    struct buf out;
    Request q = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    q.host = (char *)"here";
    q.message_request_case =
        (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)asks;
    q.file_by_filename = (char *)(uintptr_t)text; // the texts share one place
    size_t n = grpc__reflection__v1__server_reflection_request__pack(&q, packed);
    ck_assert_int_eq(answer_bytes(packed, n, &out), 0);
    Response *r = grpc__reflection__v1__server_reflection_response__unpack(
        NULL, out.bytes, (const uint8_t *)out.data);
    ck_assert_ptr_nonnull(r);
    buf_finish(&out);
    ck_assert_str_eq(r->valid_host, "here");
    ck_assert_str_eq(r->original_request->host, "here");
    ck_assert_int_eq(r->original_request->message_request_case, q.message_request_case);
    return r;
}

static void free_answer(Response *r) {
    grpc__reflection__v1__server_reflection_response__free_unpacked(r, NULL);
}

static void expect_file(int asks, const char *text, const char *file) {
    Response *r = answer(asks, text);
    ck_assert_msg(r->message_response_case == SAYS(FILE_DESCRIPTOR_RESPONSE), "%s", text);
    ck_assert_uint_ge(r->file_descriptor_response->n_file_descriptor_proto, 1);
    const ProtobufCBinaryData *first = &r->file_descriptor_response->file_descriptor_proto[0];
    Moesaic__Descriptor__File *f = moesaic__descriptor__file__unpack(NULL, first->len, first->data);
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(strcmp(f->name, file) == 0, "%s is in %s", text, f->name);
    moesaic__descriptor__file__free_unpacked(f, NULL);
    free_answer(r);
}

static void expect_error(int asks, const char *text, int code) {
    Response *r = answer(asks, text);
    ck_assert_msg(r->message_response_case == SAYS(ERROR_RESPONSE), "%s", text);
    ck_assert_int_eq(r->error_response->error_code, code);
    ck_assert_str_ne(r->error_response->error_message, "");
    free_answer(r);
}

START_TEST(every_kind_of_symbol_finds_its_file) {
    const struct {
        const char *symbol, *file;
    } rows[] = {
        {"moesaic.v1.Generate", "generate.proto"},          // service
        {"moesaic.v1.Generate.Generate", "generate.proto"}, // method
        {"moesaic.v1.GenerateRequest", "generate.proto"},
        {"moesaic.v1.GenerateRequest.token_ids", "generate.proto"},
        {"grpc.health.v1.Health.Watch", "health.proto"},
        {"grpc.health.v1.HealthCheckResponse.ServingStatus", "health.proto"},
        {"grpc.health.v1.HealthCheckResponse.NOT_SERVING", "health.proto"}, // beside its enum
        {"grpc.health.v1.HealthListResponse.StatusesEntry.value", "health.proto"},
        {"grpc.reflection.v1.ServerReflectionRequest.message_request", "reflection.proto"}, // oneof
        {"grpc.reflection.v1alpha.ServerReflection", "reflection_v1alpha.proto"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_file(ASKS(FILE_CONTAINING_SYMBOL), rows[i].symbol, rows[i].file);
}
END_TEST

START_TEST(files_are_found_by_name) {
    expect_file(ASKS(FILE_BY_FILENAME), "generate.proto", "generate.proto");
    expect_file(ASKS(FILE_BY_FILENAME), "health.proto", "health.proto");
}
END_TEST

// The names of the cluster's own plane are nobody's business at this port.
START_TEST(what_is_not_there_is_an_error_in_the_answer) {
    const char *const symbols[] = {"",
                                   ".",
                                   "moesaic.v1",
                                   "moesaic.v1.Nothing",
                                   ".moesaic.v1.Generate",
                                   "moesaic.v1.Generate/Generate",
                                   "moesaic.control.v1.Cluster",
                                   "moesaic.descriptor.File"};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        expect_error(ASKS(FILE_CONTAINING_SYMBOL), symbols[i], GRPC_STATUS_NOT_FOUND);
    expect_error(ASKS(FILE_BY_FILENAME), "control.proto", GRPC_STATUS_NOT_FOUND);
    expect_error(ASKS(FILE_BY_FILENAME), "../generate.proto", GRPC_STATUS_NOT_FOUND);
    expect_error(ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE), "moesaic.v1.Generate", GRPC_STATUS_NOT_FOUND);
}
END_TEST

START_TEST(a_message_has_no_extensions) {
    Response *r = answer(ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE), "moesaic.v1.GenerateRequest");
    ck_assert_int_eq(r->message_response_case, SAYS(ALL_EXTENSION_NUMBERS_RESPONSE));
    ck_assert_str_eq(r->all_extension_numbers_response->base_type_name,
                     "moesaic.v1.GenerateRequest");
    ck_assert_uint_eq(r->all_extension_numbers_response->n_extension_number, 0);
    free_answer(r);
}
END_TEST

static void expect_error_bytes(const void *data, size_t bytes, int code) {
    struct buf out;
    ck_assert_int_eq(answer_bytes(data, bytes, &out), 0);
    Response *r = grpc__reflection__v1__server_reflection_response__unpack(
        NULL, out.bytes, (const uint8_t *)out.data);
    ck_assert_int_eq(r->message_response_case, SAYS(ERROR_RESPONSE));
    ck_assert_int_eq(r->error_response->error_code, code);
    free_answer(r);
    buf_finish(&out);
}

START_TEST(an_extension_is_not_found_and_no_question_is_invalid) {
    expect_error_bytes("\x2a\x05\x0a\x01x\x10\x07", 7, GRPC_STATUS_NOT_FOUND);
    expect_error_bytes("", 0, GRPC_STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(services_are_those_that_are_served) {
    Response *r = answer(ASKS(LIST_SERVICES), "*");
    ck_assert_int_eq(r->message_response_case, SAYS(LIST_SERVICES_RESPONSE));
    ck_assert_uint_eq(r->list_services_response->n_service, 2);
    for (size_t i = 0; i < 2; i++)
        ck_assert_str_eq(r->list_services_response->service[i]->name, services[i]);
    free_answer(r);
}
END_TEST

START_TEST(bytes_that_are_no_request_are_refused) {
    static uint8_t large[REFLECTION_REQUEST_BYTES_MAX + 1];
    struct buf out;
    const struct {
        const char *data;
        size_t bytes;
    } rows[] = {{"\x22\xff\xff\xff\xff\x0f", 6}, {"\x22\x02\xff\xfe", 4}, {"\x0a\x01\x80", 3},
                {"\x2a\x03\x0a\x01\xff", 5},     {"\xff\xff", 2},         {"\x22", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(answer_bytes(rows[i].data, rows[i].bytes, &out), ERR_REQ_INVALID);
        buf_finish(&out);
    }
    ck_assert_int_eq(answer_bytes(large, sizeof large, &out), ERR_REQ_TOO_LARGE);
    buf_finish(&out);
}
END_TEST

START_TEST(each_allocation_may_fail) {
    struct buf out;
    int rc = ERR_FATAL_NOMEM;
    for (long n = 1; rc != 0; n++) {
        ck_assert_int_lt(n, 100);
        mem_fail_after(n);
        rc = answer_bytes("\x22\x13moesaic.v1.Generate", 21, &out);
        mem_fail_after(0);
        ck_assert(rc == 0 || rc == ERR_FATAL_NOMEM || rc == ERR_REQ_INVALID);
        buf_finish(&out);
    }
    struct descriptors *d = NULL;
    for (long n = 1; d == NULL; n++) {
        ck_assert_int_lt(n, 1000);
        mem_fail_after(n);
        rc = descriptors_create(&d, inference_descriptors, inference_descriptors_bytes, NULL);
        mem_fail_after(0);
        ck_assert_int_eq(rc == 0, d != NULL);
    }
    descriptors_destroy(d);
}
END_TEST

// --- descriptors of our own making: b.proto imports a.proto, c.proto stands alone

static size_t pack_set(uint8_t *out) {
    char *imports[] = {(char *)"a.proto"};
    Moesaic__Descriptor__File files[3];
    uint8_t packed[3][64];
    ProtobufCBinaryData data[3];
    const char *const names[] = {"a.proto", "c.proto", "b.proto"};
    Moesaic__Descriptor__FileSet set = MOESAIC__DESCRIPTOR__FILE_SET__INIT;
    for (size_t i = 0; i < 3; i++) {
        moesaic__descriptor__file__init(&files[i]);
        files[i].name = (char *)(uintptr_t)names[i];
        if (i == 2) files[i].n_dependency = 1;
        files[i].dependency = imports;
        data[i].len = moesaic__descriptor__file__pack(&files[i], packed[i]);
        data[i].data = packed[i];
    }
    set.n_file = 3;
    set.file = data;
    return moesaic__descriptor__file_set__pack(&set, out);
}

START_TEST(a_file_brings_its_imports) {
    uint8_t set[256];
    uint32_t files[DESCRIPTOR_FILES_MAX];
    struct descriptors *d;
    size_t n = pack_set(set);
    ck_assert_int_eq(descriptors_create(&d, set, n, NULL), 0);
    ck_assert_uint_eq(descriptors_closure(d, descriptors_by_name(d, "b.proto"), files), 2);
    ck_assert(files[0] == 2 && files[1] == 0);
    ck_assert_uint_eq(descriptors_closure(d, descriptors_by_name(d, "a.proto"), files), 1);
    ck_assert_uint_eq(descriptors_by_symbol(d, "a"), DESCRIPTOR_NO_FILE);
    descriptors_destroy(d);
}
END_TEST

int main(void) {
    Suite *s = suite_create("net_reflection");
    TCase *t = tcase_create("reflection");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_kind_of_symbol_finds_its_file);
    tcase_add_test(t, files_are_found_by_name);
    tcase_add_test(t, what_is_not_there_is_an_error_in_the_answer);
    tcase_add_test(t, a_message_has_no_extensions);
    tcase_add_test(t, an_extension_is_not_found_and_no_question_is_invalid);
    tcase_add_test(t, services_are_those_that_are_served);
    tcase_add_test(t, bytes_that_are_no_request_are_refused);
    tcase_add_test(t, each_allocation_may_fail);
    tcase_add_test(t, a_file_brings_its_imports);
    suite_add_tcase(s, t);
    return suite_run(s);
}
