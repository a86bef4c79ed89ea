// fuzz_safetensors.c: any bytes as a safetensors file; what is accepted must keep what the header
// promises.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "common/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_promises(const struct safetensors_header *h, uint64_t data_begin,
                           uint64_t file_bytes) {
    uint64_t total = 0;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct safetensors_tensor *t = &h->tensors[i];
        check(t->n_dims <= SAFETENSORS_DIMS_MAX);
        check(t->offset >= data_begin && t->offset <= file_bytes &&
              t->bytes <= file_bytes - t->offset);
        check(i == 0 || strcmp(h->tensors[i - 1].name, t->name) < 0);
        total += t->bytes;
    }
    check(total == file_bytes - data_begin);
}

static void run(const uint8_t *data, size_t size, uint64_t json_bytes) {
    struct safetensors_header h;
    struct err_text e;
    const struct safetensors_source source = {(const char *)data + 8, (size_t)json_bytes, size,
                                              "fuzz"};
    if (safetensors_header_parse(&h, &source, &e) != 0) return;
    check_promises(&h, 8 + json_bytes, size);
    safetensors_header_finish(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err_text e;
    uint64_t json_bytes;
    if (size < 8) return 0;
    if (safetensors_header_bytes(&json_bytes, data, size, "fuzz", &e) == 0)
        run(data, size, json_bytes);
    // A mutated length hides what is behind it, so the header is also taken up to its last brace.
    const uint8_t *brace = memrchr(data + 8, '}', size - 8);
    if (brace != NULL) run(data, size, (uint64_t)(brace - data) - 7);
    return 0;
}
