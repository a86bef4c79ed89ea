// experts.c: moectl experts: how many tokens each expert of each layer computed, and on which
// worker, from /metrics.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/plural.h"
#include "ctl/client.h"

#define METRIC "moesaic_expert_tokens_total{"

// Tokens of all layers together, by expert.
struct table {
    double tokens[EXPERTS_MAX];
    int worker[EXPERTS_MAX]; // that computes it; experts sit on the same worker in every layer
    unsigned n_experts, n_layers;
};

// The number in `name="123"`, or -1.
static long label(const char *line, const char *name) {
    const char *at = strstr(line, name);
    return at != NULL ? strtol(at + strlen(name), NULL, 10) : -1;
}

static void take_line(struct table *t, const char *line) {
    long layer = label(line, "layer=\""), expert = label(line, "expert=\""),
         worker = label(line, "worker=\"");
    const char *value = strchr(line, '}');
    if (layer < 0 || layer >= LAYERS_MAX || expert < 0 || expert >= EXPERTS_MAX || value == NULL)
        return;
    t->tokens[expert] += strtod(value + 1, NULL);
    t->worker[expert] = (int)worker;
    if ((unsigned)expert >= t->n_experts) t->n_experts = (unsigned)expert + 1;
    if ((unsigned)layer >= t->n_layers) t->n_layers = (unsigned)layer + 1;
}

static void print_table(const struct table *t) {
    double total = 0, most = 1;
    for (unsigned i = 0; i < t->n_experts; i++) {
        total += t->tokens[i];
        if (t->tokens[i] > most) most = t->tokens[i];
    }
    printf("worker  expert  tokens (of %u layer%s)\n", t->n_layers, plural(t->n_layers));
    for (unsigned i = 0; i < t->n_experts; i++) {
        int bar = (int)(t->tokens[i] / most * 32 + 0.5);
        printf("%6d  %6u  %7.0f  %5.1f %%  %.*s\n", t->worker[i], i, t->tokens[i],
               total > 0 ? t->tokens[i] / total * 100 : 0, bar, "################################");
    }
}

int experts_command(struct ctl *c) {
    struct err_text e;
    char *body;
    if (client_get(c, "/metrics", &body, &e) != 0) {
        fprintf(stderr, "moectl: %s\n", e.text);
        return 1;
    }
    struct table *t = mem_zalloc(sizeof *t);
    for (const char *line = body; t != NULL && line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, METRIC, strlen(METRIC)) == 0) take_line(t, line);
    }
    if (t != NULL && t->n_experts > 0)
        print_table(t);
    else
        fprintf(stderr, "moectl: /metrics has no " METRIC "...}\n");
    int code = t != NULL && t->n_experts > 0 ? 0 : 1;
    mem_free(t);
    mem_free(body);
    return code;
}
