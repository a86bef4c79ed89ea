// suite.h: the end of a test program's main: run a Check suite, print it, tell the shell.
#ifndef MOESAIC_TESTS_HARNESS_SUITE_H
#define MOESAIC_TESTS_HARNESS_SUITE_H

#include <check.h>
#include <stdlib.h>

// Runs and frees the suite. EXIT_FAILURE when a test failed. CK_VERBOSITY and CK_FORK work as Check
// documents them.
static inline int suite_run(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
