// fuzz_reflection.c: the bytes of a ServerReflectionRequest. Whatever is answered is a response
// with one outcome, and no larger than what was asked and all that there is to say.
#include <stdint.h>

#include "common/base/check.h"
#include "common/net/reflection.h"
#include "reflection.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const services[] = {"moesaic.v1.Generate", "grpc.health.v1.Health"};

static void check_answer(const struct buf *answer, size_t size) {
    Grpc__Reflection__V1__ServerReflectionResponse *r =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, answer->bytes,
                                                                 (const uint8_t *)answer->data);
    check(r != NULL && r->original_request != NULL);
    check(r->message_response_case !=
          GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE__NOT_SET);
    check(answer->bytes <= 3 * size + inference_descriptors_bytes + 1024);
    grpc__reflection__v1__server_reflection_response__free_unpacked(r, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct descriptors *descriptors;
    struct buf answer;
    if (descriptors == NULL)
        check(descriptors_create(&descriptors, inference_descriptors, inference_descriptors_bytes,
                                 NULL) == 0);
    struct reflection reflection = {descriptors, services, 2};
    buf_init(&answer, 0);
    int rc = reflection_answer(&reflection, data, size, &answer);
    check(rc == 0 || rc == ERR_REQ_INVALID ||
          (rc == ERR_REQ_TOO_LARGE && size > REFLECTION_REQUEST_BYTES_MAX));
    if (rc == 0) check_answer(&answer, size);
    buf_finish(&answer);
    return 0;
}
