// toy_house.c: see toy_house.h.
#include "tests/harness/toy_house.h"

#include <check.h>
#include <string.h>

#include "common/base/mem.h"

static void load_texts(struct toy_house *h, const char *model, const char *text) {
    struct err_text e = {""};
    ck_assert_msg(spec_load(&h->spec, model, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&h->tokenizer, model, &e) == 0, "%s", e.text);
    ck_assert_msg(chat_template_load(&h->chat_template, model, &e) == 0, "%s", e.text);
    struct encode_text answer = {text, strlen(text), false, 1000, false, NULL};
    ck_assert_msg(tokenizer_encode(h->tokenizer, &answer, &h->answer, &e) == 0, "%s", e.text);
}

static void start_engine(struct toy_house *h, struct toy_script script) {
    if (script.ids == NULL) {
        script.ids = h->answer.ids;
        script.n_ids = (uint32_t)h->answer.n;
    }
    script.stop_id = h->spec.stop_ids[0];
    if (script.slots == 0) script.slots = 16;
    if (script.tick_ns == 0) script.tick_ns = NS_PER_MS;
    h->toy = toy_engine_create(h->env, &script);
}

void toy_house_start(struct toy_house *h, const struct toy_house_config *config) {
    memset(h, 0, sizeof *h);
    h->env = env_real_create();
    const struct toy_script *script = &config->script;
    load_texts(h, config->model, script->answer != NULL ? script->answer : TOY_ANSWER);
    start_engine(h, config->script);
    h->serving = mem_zalloc(sizeof *h->serving);
    ck_assert_ptr_nonnull(h->serving);
    *h->serving = (struct serving){.env = h->env,
                                   .engine = toy_engine_table(h->toy),
                                   .tokenizer = h->tokenizer,
                                   .chat_template = h->chat_template,
                                   .spec = &h->spec,
                                   .defaults = {.temperature = 1, .top_p = 1, .vocab = 2048},
                                   .bos_token = "",
                                   .eos_token = "<|im_end|>",
                                   .model_name = "seedling",
                                   .fingerprint = "fp",
                                   .version = "1",
                                   .build_id = "b",
                                   .kv_dtype = "float32",
                                   .max_model_len = config->max_model_len,
                                   .digest = true,
                                   .log = {.requests = LOG_DEBUG, .bytes_max = 200},
                                   .admit = {.max = config->queue_max}};
    if (script->tool_call_parser != NULL)
        h->serving->defaults.tool_format = tool_format_find(script->tool_call_parser);
    meter_init(&h->serving->meter, h->env, config->max_model_len);
}

void toy_house_stop(struct toy_house *h) {
    toy_engine_destroy(h->toy);
    ck_assert_uint_eq(h->serving->admit.in_flight, 0);
    mem_free(h->serving);
    id_list_finish(&h->answer);
    chat_template_destroy(h->chat_template);
    tokenizer_destroy(h->tokenizer);
    env_real_destroy(h->env);
}
