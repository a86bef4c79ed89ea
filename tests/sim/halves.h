// halves.h: a simulated cluster uses one core, so two processes share the cases of a long test.
#ifndef MOESAIC_TESTS_SIM_HALVES_H
#define MOESAIC_TESTS_SIM_HALVES_H

#include <stdint.h>

// Calls run(0) here and run(1) in a child, each for its half of the cases; run returns EXIT_SUCCESS
// or EXIT_FAILURE. EXIT_SUCCESS when both do.
int sim_run_halves(int (*run)(uint32_t first));

#endif
