// fuzz_abort.c: the bytes of an AbortRequest. Nothing is in flight, so nothing is found, and what
// is refused is refused as the client's mistake.
#include <stdint.h>

#include "common/base/check.h"
#include "leader/rpc_call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct rpc r;
    struct rpc_message message = {data, size, KEY_NONE};
    struct api_error e;
    struct buf out;
    buf_init(&out, 0);
    rpc_names_init(&r.names);
    if (rpc_abort(&r, &message, &out, &e) != 0) {
        check(e.status == 400 && e.message[0] != '\0');
        check(out.bytes == 0);
    } else {
        check(size > 2 && out.bytes == 0 && !out.failed); // a count of 0 takes no bytes
    }
    rpc_names_finish(&r.names);
    buf_finish(&out);
    return 0;
}
