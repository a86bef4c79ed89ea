// log_gate.h: how often a line that outsiders can provoke may be written: a handful at once, then
// only how many more there were.
#ifndef MOESAIC_COMMON_BASE_LOG_GATE_H
#define MOESAIC_COMMON_BASE_LOG_GATE_H

#include <stdbool.h>
#include <stdint.h>

// One kind of line. All zero is a gate that has let nothing through; its owner guards it.
struct log_gate {
    int64_t since_ns; // begin of the present span
    uint32_t n_shown, n_hidden;
};

#define LOG_GATE_SPAN_NS INT64_C(10000000000) // ten seconds
#define LOG_GATE_LINES 10                     // in a span

// Whether one more line may be written now; if not, it is counted.
bool log_gate_pass(struct log_gate *g, int64_t now_ns);
// How many lines the gate kept back in a span that is over; 0 while it lasts. The caller writes
// that number: it is forgotten here. Until somebody asks, a gate that kept lines back stays shut.
uint32_t log_gate_hidden(struct log_gate *g, int64_t now_ns);
// Both at once, for an owner who has no time of its own to ask: *n_hidden, of an earlier span, is
// to be written before the line.
bool log_gate_pass_late(struct log_gate *g, int64_t now_ns, uint32_t *n_hidden);

#endif
