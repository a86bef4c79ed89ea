// generation.c: see generation.h.
#include "leader/generation.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

// --- life

static void init_head(struct generation *g) {
    struct serving *s = g->serving;
    uint64_t drawn[2];
    env_random(s->env, drawn, sizeof drawn);
    g->head = (struct answer_head){
        .chat = g->request.chat,
        .chunk = g->request.stream,
        .created_s = env_wall_ns(s->env) / NS_PER_S,
        .model = s->model_name,
        .fingerprint = s->fingerprint,
        .seed = g->request.seed,
    };
    snprintf(g->head.id, sizeof g->head.id, "%s-%016llx%016llx",
             g->request.chat ? "chatcmpl" : "cmpl", (unsigned long long)drawn[0],
             (unsigned long long)drawn[1]);
}

static void init_choice(struct generation *g, uint32_t index, uint64_t first_id) {
    struct choice *c = &g->choices[index];
    c->generation = g;
    c->index = index;
    c->prompt_index = index / g->request.n;
    c->request_id = first_id + index;
    c->times.arrived_ns = g->client.ops->arrived_ns(g->client.self);
    detok_init(&c->detok, g->serving->tokenizer, g->request.skip_special_tokens);
    // A completion is read behind its prompt, a chat's answer is a text of its own.
    if (!g->request.chat || g->request.continue_final_message) detok_continue(&c->detok);
    stop_init(&c->stop, &g->request.stop);
    answer_logprobs_init(&c->logprobs, g->request.chat);
    c->calls = (struct tool_reader){.format = g->request.tool_format,
                                    .tools = g->request.tools,
                                    .only_one = !g->request.parallel_tool_calls,
                                    .id_seed = tool_id_seed(g->head.id, index)};
}

// 53 bits, so that a client that reads JSON numbers as doubles can send it back.
static void draw_seed(struct generation *g) {
    uint64_t drawn;
    if (g->request.has_seed) return;
    env_random(g->serving->env, &drawn, sizeof drawn);
    g->request.seed = (int64_t)(drawn >> 11);
}

struct generation *generation_create(struct serving *s, struct client client,
                                     struct openai_request *request) {
    struct generation *g = mem_zalloc(sizeof *g);
    uint32_t n = request->n_prompts * request->n;
    struct choice *choices = mem_array(n, sizeof *choices);
    if (g == NULL || choices == NULL) {
        mem_free(g);
        mem_free(choices);
        openai_request_finish(request);
        return NULL;
    }
    g->serving = s;
    g->client = client;
    g->request = *request;
    g->choices = choices;
    g->n_choices = g->n_open = n;
    *request = (struct openai_request){0};
    client.ops->hold(client.self);
    draw_seed(g);
    init_head(g);
    uint64_t first_id = atomic_fetch_add(&s->next_request_id, n) + 1;
    for (uint32_t i = 0; i < n; i++)
        init_choice(g, i, first_id);
    return g;
}

static void finish_choice(struct choice *c) {
    mem_free(c->inbox.events);
    mem_free(c->taken.events);
    stop_finish(&c->stop);
    answer_logprobs_finish(&c->logprobs);
    echo_destroy(c->echo);
    tool_reader_finish(&c->calls);
    buf_finish(&c->raw);
    buf_finish(&c->text);
    buf_finish(&c->ids);
}

void generation_destroy(struct generation *g) {
    if (g == NULL) return;
    g->client.ops->on_gone(g->client.self, NULL, NULL); // after this nobody else knows g
    for (uint32_t i = 0; i < g->n_choices; i++)
        finish_choice(&g->choices[i]);
    openai_request_finish(&g->request);
    g->client.ops->release(g->client.self);
    mem_free(g->choices);
    mem_free(g);
}

// Ids that ended already are unknown to the scheduler, which ignores them.
void generation_abort(struct generation *g) {
    const struct engine *engine = g->serving->engine;
    for (uint32_t i = 0; i < g->n_choices; i++)
        engine->abort(engine->self, g->choices[i].request_id);
}

// --- what the client hears

struct answer_usage generation_usage(const struct generation *g) {
    struct answer_usage u = {0};
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const struct choice *c = &g->choices[i];
        if (i % g->request.n == 0) { // choices share their prompt
            u.prompt_tokens += c->n_prompt;
            u.cached_tokens += c->n_cached;
        }
        u.completion_tokens += c->n_generated;
    }
    return u;
}

bool generation_finished(const struct generation *g) {
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (g->choices[i].finish == FINISH_NONE) return false;
    }
    return true;
}

void generation_show(struct generation *g, struct choice *c) {
    if (!g->over) g->client.ops->show(g, c);
}

void generation_fail(struct generation *g, const struct api_error *e) {
    if (g->over) return;
    g->client.ops->fail(g->client.self, g->begun, e);
    g->over = true;
    generation_abort(g);
}
