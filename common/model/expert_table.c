// expert_table.c: see expert_table.h.
#include "common/model/expert_table.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/limits.h"
#include "common/base/mem.h"

static_assert(EXPERTS_MAX <= UINT16_MAX, "ids of experts");

// Little-endian, as the file has it.
static int64_t id_at(const uint8_t *bytes, size_t index, size_t id_bytes) {
    int32_t narrow;
    int64_t wide;
    if (id_bytes == sizeof wide) {
        memcpy(&wide, bytes + index * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, bytes + index * sizeof narrow, sizeof narrow);
    return narrow;
}

struct table_reading {
    const struct model_spec *spec;
    const struct safetensors_tensor *tensor;
    const uint8_t *bytes; // the tensor's
    uint16_t *ids;
};

// One token's experts. They may repeat: each place in the row counts by itself.
static int take_token(const struct table_reading *r, size_t token, struct err_text *e) {
    const struct router_spec *router = &r->spec->router;
    size_t first = token * router->top_k;
    for (size_t at = first; at < first + router->top_k; at++) {
        int64_t id = id_at(r->bytes, at, safetensors_id_bytes(r->tensor));
        if (id < 0 || id >= router->n_experts)
            return err_set(e, ERR_FATAL_MODEL,
                           "tensor %s gives token %zu the expert %" PRId64 "; there are %u",
                           r->tensor->name, token, id, router->n_experts);
        r->ids[at] = (uint16_t)id;
    }
    return 0;
}

int expert_table_read(uint16_t *ids, uint64_t *digest, const struct model_spec *spec,
                      const struct expert_table_source *source, struct err_text *e) {
    const struct safetensors_tensor *t = source->tensor;
    uint8_t *bytes = mem_alloc(t->bytes);
    if (bytes == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to read tensor %s", t->name);
    int rc = safetensors_read(source->st, t, (struct safetensors_range){0, t->bytes}, bytes, e);
    const struct table_reading reading = {spec, t, bytes, ids};
    for (size_t token = 0; rc == 0 && token < spec->vocab; token++)
        rc = take_token(&reading, token, e);
    if (rc == 0 && digest != NULL)
        *digest = XXH3_64bits_withSeed(bytes, t->bytes, XXH3_64bits(t->name, strlen(t->name)));
    mem_free(bytes);
    return rc;
}
