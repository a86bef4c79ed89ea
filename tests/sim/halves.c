// halves.c: see halves.h.
#include "tests/sim/halves.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int sim_run_halves(int (*run)(uint32_t first)) {
    int status = 0;
    pid_t other = fork();
    if (other == 0) exit(run(1));
    int code = run(0);
    bool ended = other > 0 && waitpid(other, &status, 0) == other && WIFEXITED(status);
    return ended && WEXITSTATUS(status) == EXIT_SUCCESS ? code : EXIT_FAILURE;
}
