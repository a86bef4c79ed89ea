// log_gate.c: see log_gate.h.
#include "common/base/log_gate.h"

static bool span_is_over(const struct log_gate *g, int64_t now_ns) {
    return now_ns - g->since_ns >= LOG_GATE_SPAN_NS;
}

bool log_gate_pass(struct log_gate *g, int64_t now_ns) {
    if (g->n_shown == 0 || (g->n_hidden == 0 && span_is_over(g, now_ns)))
        *g = (struct log_gate){.since_ns = now_ns};
    if (g->n_shown < LOG_GATE_LINES) {
        g->n_shown++;
        return true;
    }
    if (g->n_hidden < UINT32_MAX) g->n_hidden++;
    return false;
}

uint32_t log_gate_hidden(struct log_gate *g, int64_t now_ns) {
    if (g->n_hidden == 0 || !span_is_over(g, now_ns)) return 0;
    uint32_t n = g->n_hidden;
    *g = (struct log_gate){0};
    return n;
}

bool log_gate_pass_late(struct log_gate *g, int64_t now_ns, uint32_t *n_hidden) {
    *n_hidden = log_gate_hidden(g, now_ns);
    return log_gate_pass(g, now_ns);
}
