// toy_crowd.h: what tests of a whole leader share: a group of toy workers that is started at once,
// a crowd of requests whose answers are known, and a gate that holds the scheduler's thread.
#ifndef MOESAIC_TESTS_HARNESS_TOY_CROWD_H
#define MOESAIC_TESTS_HARNESS_TOY_CROWD_H

#include "tests/harness/toy_cluster.h"

// Starts leader and workers and waits until they serve; every step's report passes the gate.
void toy_start(struct toy_cluster *c, uint32_t n_ranks, uint32_t depth);
void toy_start_layout(struct toy_cluster *c, struct layout layout, uint32_t depth);

// A closed gate keeps the scheduler's thread inside the report of a step. One for the process.
void toy_gate_set(bool closed);
void toy_gate_await_held(void);

// Waits until no request is there, nor a slot or block that one had.
void toy_expect_all_back(struct toy_cluster *c);
// The first n_workers misbehave at their fourth step with work, so what runs then cannot end
// before.
void toy_set_fault(struct toy_cluster *c, uint32_t n_workers, enum toy_fault fault);

#define TOY_CROWD 60

struct toy_crowd {
    struct toy_client clients[TOY_CROWD];
    struct toy_answer answers[TOY_CROWD];
};

void toy_crowd_start(struct toy_cluster *c, struct toy_crowd *crowd, uint64_t first_id);
void toy_crowd_check(struct toy_crowd *crowd); // waits for each, compares all of its answer

#endif
