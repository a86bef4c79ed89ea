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

// One token's experts, at the same place in ids and bytes.
static int take_token(uint16_t *ids, const uint8_t *bytes, const struct router_spec *router,
                      const struct safetensors_tensor *t, struct err_text *e) {
    for (uint32_t j = 0; j < router->top_k; j++) {
        int64_t id = id_at(bytes, j, safetensors_id_bytes(t));
        if (id < 0 || id >= router->n_experts)
            return err_set(e, ERR_FATAL_MODEL,
                           "tensor %s gives a token the expert %" PRId64 "; there are %u", t->name,
                           id, router->n_experts);
        for (uint32_t i = 0; i < j; i++)
            if (ids[i] == id)
                return err_set(e, ERR_FATAL_MODEL,
                               "tensor %s gives a token the expert %" PRId64 " twice", t->name, id);
        ids[j] = (uint16_t)id;
    }
    return 0;
}

int expert_table_read(uint16_t *ids, uint64_t *digest, const struct model_spec *spec,
                      const struct expert_table_source *source, struct err_text *e) {
    const struct safetensors_tensor *t = source->tensor;
    size_t top_k = spec->router.top_k;
    uint8_t *bytes = mem_alloc(t->bytes);
    if (bytes == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to read tensor %s", t->name);
    int rc = safetensors_read(source->st, t, (struct safetensors_range){0, t->bytes}, bytes, e);
    for (size_t token = 0; rc == 0 && token < spec->vocab; token++)
        rc = take_token(ids + token * top_k, bytes + token * top_k * safetensors_id_bytes(t),
                        &spec->router, t, e);
    if (rc == 0 && digest != NULL)
        *digest = XXH3_64bits_withSeed(bytes, t->bytes, XXH3_64bits(t->name, strlen(t->name)));
    mem_free(bytes);
    return rc;
}
