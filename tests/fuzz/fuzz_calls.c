// fuzz_calls.c: answers of a model, read for tool calls. The first byte chooses the format, the
// second the size of the pieces; read at once, the same text must give the same.
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/tool_calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const formats[] = {"hermes",      "qwen3_coder", "glm45",        "mistral",
                                      "llama3_json", "deepseek_v3", "deepseek_v31", "kimi_k2"};

struct outcome {
    struct buf content;
    struct tool_reader reader;
};

static void read_all(struct outcome *o, const char *text, size_t bytes, size_t piece) {
    buf_init(&o->content, 0);
    for (size_t i = 0; i < bytes; i += piece)
        tool_reader_push(&o->reader, text + i, bytes - i < piece ? bytes - i : piece, &o->content);
    tool_reader_end(&o->reader, &o->content);
}

// What a client gets must be what it expects: a name, and the JSON text of an object.
static void check_calls(const json_t *calls) {
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call) {
        const json_t *arguments = json_object_get(call, "arguments");
        check(json_string_length(json_object_get(call, "name")) > 0);
        check(json_string_length(json_object_get(call, "id")) > 0);
        json_t *object =
            json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
        check(json_is_object(object));
        json_decref(object);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"i\":{"
                   "\"type\":\"integer\"}}}}}]",
                   0, NULL);
    const struct tool_format *format = tool_format_find(formats[data[0] % 8]);
    struct outcome o[2];
    for (size_t i = 0; i < 2; i++) {
        o[i].reader = (struct tool_reader){.format = format, .tools = tools};
        read_all(&o[i], (const char *)data + 2, size - 2, i == 0 ? size : data[1] % 16 + 1u);
        check_calls(o[i].reader.calls);
    }
    check(o[0].content.bytes == o[1].content.bytes);
    check(o[0].content.bytes == 0 ||
          memcmp(o[0].content.data, o[1].content.data, o[0].content.bytes) == 0);
    check(json_equal(o[0].reader.calls, o[1].reader.calls) || o[0].reader.calls == NULL);
    check((o[0].reader.calls == NULL) == (o[1].reader.calls == NULL));
    for (size_t i = 0; i < 2; i++) {
        tool_reader_finish(&o[i].reader);
        buf_finish(&o[i].content);
    }
    json_decref(tools);
    return 0;
}
