// openapi.h: the API's own description, an OpenAPI 3.1 document, made from the tables that serve
// it: routes (api.c), fields (openai_fields.c, openai_refused.c), answers (openapi_answers.c),
// limits. docs/openapi.json is the one that knows no model; GET /openapi.json the one of a server.
//
// Beside a request's walk. Pure: no state, any thread.
#ifndef MOESAIC_LEADER_OPENAPI_H
#define MOESAIC_LEADER_OPENAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

struct json_t;
struct http_route;
struct openai_defaults;

// What a server knows and a document of the program alone does not: 0 or NULL there.
struct openapi_facts {
    const char *version;
    const char *model; // the served name
    const struct openai_defaults *defaults;
    uint32_t max_model_len, vocab, choices_max; // choices_max: of the queue limit
    enum { OPENAPI_KEYS_MAYBE, OPENAPI_KEYS_NONE, OPENAPI_KEYS_NEEDED } keys;
};

// Appends the document as JSON text with an end of line; out fails when memory is out.
void openapi_write(struct buf *out, const struct openapi_facts *facts,
                   const struct http_route *routes, uint32_t n_routes);

// --- inside of openapi: each gives NULL when memory is out

// The bodies that requests have, by name (openapi_requests.c).
struct json_t *openapi_requests(const struct openapi_facts *facts);
// The bodies that answers have, by name (openapi_answers.c).
struct json_t *openapi_answers(void);
// {"$ref": "#/components/schemas/NAME"}
struct json_t *openapi_ref(const char *name);
// A token id of the model.
struct json_t *openapi_token_id(const struct openapi_facts *facts);

#endif
