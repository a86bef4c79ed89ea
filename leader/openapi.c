// openapi.c: see openapi.h. The document's head, its paths from the routes, the refusals that HTTP
// itself makes, the limits.
#include "leader/openapi.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "leader/http.h"

json_t *openapi_ref(const char *name) {
    char ref[128];
    snprintf(ref, sizeof ref, "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", ref);
}

// --- answers of one operation

static json_t *request_id_header(void) {
    return json_pack("{s:{s:s, s:b, s:{s:s}}}", "X-Request-Id", "description",
                     "The request's id: the client's, or one that was drawn.", "required", 1,
                     "schema", "type", "string");
}

static json_t *of_type(const char *type, json_t *schema) {
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *answer(const char *about, json_t *content) {
    return json_pack("{s:s, s:o, s:o}", "description", about, "headers", request_id_header(),
                     "content", content);
}

static json_t *text_schema(void) {
    return json_pack("{s:s}", "type", "string");
}

// One event; the text behind the last one is no JSON.
static json_t *event_schema(const char *name) {
    json_t *body = json_pack("{s:[o, o]}", "anyOf", openapi_ref(name), openapi_ref("Error"));
    return json_pack("{s:s, s:[s], s:{s:{s:s, s:[{s:s}, {s:s, s:o}]}}, s:s}", "type", "object",
                     "required", "data", "properties", "data", "type", "string", "anyOf", "const",
                     "[DONE]", "contentMediaType", "application/json", "contentSchema", body,
                     "description", "An event; the last one's data is [DONE].");
}

static json_t *good_content(const struct http_route_text *t) {
    if (t->gives == NULL) return of_type(t->type, text_schema());
    json_t *content = of_type("application/json", openapi_ref(t->gives));
    if (t->streams != NULL)
        json_object_update_new(content, of_type("text/event-stream", event_schema(t->streams)));
    return content;
}

// --- refusals

enum { ALL = 1, GUARDED = 2, POSTED = 4, NAMED = 8 };

static const struct refusal {
    int status, when;
    const char *about;
    const char *header, *header_about; // that comes with it
} refusals[] = {
    {400, ALL, "A field, the body or the head is wrong; param names the field.", NULL, NULL},
    {401, GUARDED, "The key is missing or wrong.", "WWW-Authenticate", "Bearer."},
    {404, NAMED, "The model is not served here.", NULL, NULL},
    {405, ALL, "The path has another method.", "Allow", "The methods that it has."},
    {411, POSTED, "A POST needs a Content-Length, or chunks.", NULL, NULL},
    {413, POSTED, "The body is above the limit.", NULL, NULL},
    {414, ALL, "The target is too long.", NULL, NULL},
    {417, ALL, "The only expectation is 100-continue.", NULL, NULL},
    {429, POSTED, "Too many requests wait or run.", "Retry-After", "Seconds."},
    {431, ALL, "The head has too many fields or bytes.", NULL, NULL},
    {500, POSTED, "The request failed.", NULL, NULL},
    {503, POSTED,
     "Nothing is taken: no group of workers has formed yet, or a lost one was not back in "
     "time, or a worker drains, or the server is shutting down.",
     "Retry-After", "Seconds."},
};

#define N_REFUSALS (sizeof refusals / sizeof *refusals)

// What libmicrohttpd refuses before there is a request has no JSON.
static bool may_be_html(int status) {
    return status == 400 || status == 414 || status == 431;
}

static json_t *refusal(const struct refusal *r) {
    json_t *content = of_type("application/json", openapi_ref("Error"));
    if (may_be_html(r->status))
        json_object_update_new(content, of_type("text/html", text_schema()));
    json_t *out = answer(r->about, content);
    if (may_be_html(r->status)) json_object_del(out, "headers");
    if (r->header != NULL)
        json_object_set_new(json_object_get(out, "headers"), r->header,
                            json_pack("{s:s, s:b, s:{s:s}}", "description", r->header_about,
                                      "required", 1, "schema", "type", "string"));
    return out;
}

static bool is_prefix(const struct http_route *r) {
    return r->path[strlen(r->path) - 1] == '/';
}

static int when(const struct http_route *r) {
    return ALL | (r->guarded ? GUARDED : 0) | (r->method == HTTP_POST ? POSTED | NAMED : 0) |
           (is_prefix(r) ? NAMED : 0);
}

static void refusal_name(const struct refusal *r, char name[16]) {
    snprintf(name, 16, "Refusal%d", r->status);
}

static json_t *refusals_by_name(void) {
    json_t *out = json_object();
    char name[16];
    for (size_t i = 0; i < N_REFUSALS; i++) {
        refusal_name(&refusals[i], name);
        json_object_set_new(out, name, refusal(&refusals[i]));
    }
    return out;
}

static void add_refusal(json_t *out, const struct refusal *r) {
    char status[16], name[16], ref[64];
    refusal_name(r, name);
    snprintf(status, sizeof status, "%d", r->status);
    snprintf(ref, sizeof ref, "#/components/responses/%s", name);
    json_object_set_new(out, status, json_pack("{s:s}", "$ref", ref));
}

static json_t *responses(const struct http_route *r, const struct openapi_facts *facts) {
    json_t *out = json_object();
    json_object_set_new(out, "200", answer(r->text.about, good_content(&r->text)));
    for (size_t i = 0; i < N_REFUSALS; i++) {
        bool keyless = refusals[i].status == 401 && facts->keys == OPENAPI_KEYS_NONE;
        if ((refusals[i].when & when(r)) != 0 && !keyless) add_refusal(out, &refusals[i]);
    }
    if (r->text.is_probe)
        json_object_set_new(out, "503", answer("Not now.", good_content(&r->text)));
    return out;
}

// --- operations

static json_t *parameters(const struct http_route *r, const struct openapi_facts *facts) {
    json_t *list = json_pack("[{s:s, s:s, s:s, s:{s:s}}]", "name", "X-Request-Id", "in", "header",
                             "description",
                             "The caller's name for the request: up to 128 printable characters "
                             "without spaces; others are ignored.",
                             "schema", "type", "string");
    if (!is_prefix(r)) return list;
    json_t *schema = json_pack("{s:s, s:i}", "type", "string", "minLength", 1);
    if (facts->model != NULL) json_object_set_new(schema, "example", json_string(facts->model));
    json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o}", "name", "id", "in", "path",
                                          "required", 1, "schema", schema));
    return list;
}

// A server may have keys; a document of the program alone says both.
static json_t *security(const struct http_route *r, const struct openapi_facts *facts) {
    if (!r->guarded || facts->keys == OPENAPI_KEYS_NONE) return json_array();
    if (facts->keys == OPENAPI_KEYS_NEEDED) return json_pack("[{s:[]}]", "bearer");
    return json_pack("[{s:[]}, {}]", "bearer");
}

static json_t *operation(const struct http_route *r, const struct openapi_facts *facts) {
    json_t *out =
        json_pack("{s:s, s:s, s:o, s:o}", "operationId", r->text.id, "summary", r->text.about,
                  "security", security(r, facts), "parameters", parameters(r, facts));
    if (r->text.takes != NULL)
        json_object_set_new(out, "requestBody",
                            json_pack("{s:b, s:o}", "required", 1, "content",
                                      of_type("application/json", openapi_ref(r->text.takes))));
    json_object_set_new(out, "responses", responses(r, facts));
    return out;
}

static json_t *paths(const struct openapi_facts *facts, const struct http_route *routes,
                     uint32_t n_routes) {
    json_t *out = json_object();
    char path[256];
    for (uint32_t i = 0; i < n_routes; i++) {
        const struct http_route *r = &routes[i];
        snprintf(path, sizeof path, "%s%s", r->path, is_prefix(r) ? "{id}" : "");
        json_object_set_new(
            out, path,
            json_pack("{s:o}", r->method == HTTP_POST ? "post" : "get", operation(r, facts)));
    }
    return out;
}

// --- the document

static json_t *limits(const struct openapi_facts *facts) {
    json_t *out = json_pack(
        "{s:I, s:I, s:i, s:i, s:i, s:i}", "body_bytes", (json_int_t)REQUEST_BYTES_MAX,
        "bodies_bytes", (json_int_t)BODIES_BYTES_MAX, "head_bytes", HEAD_BYTES_MAX, "head_fields",
        HEADERS_MAX, "json_depth", JSON_DEPTH_MAX, "json_values", JSON_VALUES_MAX);
    if (facts->max_model_len != 0)
        json_object_set_new(out, "max_model_len", json_integer(facts->max_model_len));
    if (facts->vocab != 0) json_object_set_new(out, "vocab", json_integer(facts->vocab));
    if (facts->choices_max != 0)
        json_object_set_new(out, "choices_waiting_or_running", json_integer(facts->choices_max));
    return out;
}

static json_t *info(const struct openapi_facts *facts) {
    return json_pack(
        "{s:s, s:s, s:s, s:{s:s, s:s}, s:o}", "title", "Moesaic", "version", facts->version,
        "description",
        "OpenAI's API of one Moesaic leader. null means not given. Names that no API documents are "
        "accepted and have no effect; a schema with x-moesaic-refused is of a field whose other "
        "values are refused with 400 by name, one with x-moesaic-idle of a field that is accepted "
        "and changes nothing. Integers have 64 bits; a name that is given twice, NUL and what is "
        "no "
        "UTF-8 are no JSON here.",
        "license", "name", "Apache-2.0", "identifier", "Apache-2.0", "x-moesaic-limits",
        limits(facts));
}

static json_t *components(const struct openapi_facts *facts) {
    json_t *schemas = openapi_requests(facts), *answers = openapi_answers();
    if (schemas == NULL || answers == NULL || json_object_update(schemas, answers) != 0) {
        json_decref(schemas);
        schemas = NULL;
    }
    json_decref(answers);
    return json_pack("{s:{s:{s:s, s:s, s:s}}, s:o, s:o}", "securitySchemes", "bearer", "type",
                     "http", "scheme", "bearer", "description",
                     "A key of --api-key-file, where the server has one.", "responses",
                     refusals_by_name(), "schemas", schemas);
}

void openapi_write(struct buf *out, const struct openapi_facts *facts,
                   const struct http_route *routes, uint32_t n_routes) {
    json_t *document = json_pack("{s:s, s:o, s:[{s:s}], s:o, s:o}", "openapi", "3.1.0", "info",
                                 info(facts), "servers", "url", "/", "paths",
                                 paths(facts, routes, n_routes), "components", components(facts));
    char *text = document == NULL ? NULL : json_dumps(document, JSON_INDENT(1));
    json_decref(document);
    out->failed |= text == NULL;
    if (text == NULL) return;
    buf_text(out, text);
    buf_text(out, "\n");
    mem_free(text);
}
