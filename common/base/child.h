// child.h: another program as a child process: found, started, asked whether it lives, signalled.
//
// A child has no descriptor of its parent but standard output and error, reads nothing, has the
// signals' default actions, and leads a process group of its own, so that a terminal's Ctrl-C is
// its parent's alone. The kernel sends a death signal (child_follow) when the *thread* that
// started the child ends: start children from a thread that lives as long as the process.
#ifndef MOESAIC_COMMON_BASE_CHILD_H
#define MOESAIC_COMMON_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/err.h"

// Path of a program of this name: beside this process's own binary, else in the folders of PATH.
// ERR_FATAL_IO: neither has it.
int child_find(char *out, size_t cap, const char *program, struct err_text *e);

// Starts path with argv and environment, both NULL-terminated. ERR_FATAL_IO: the text says why not.
int child_start(pid_t *out, const char *path, const char *const *argv,
                const char *const *environment, struct err_text *e);

struct child_end {
    bool by_signal;
    int number; // of the signal, or the exit code
};

// True once when the child has ended; never waits.
bool child_ended(pid_t pid, struct child_end *out);
// True while it stands still, by a signal such as SIGSTOP.
bool child_stopped(pid_t pid);
// To the child and whatever it has started.
void child_signal(pid_t pid, int number);

// In the child: it is killed when its parent ends, however that ends. ERR_FATAL_IO when the parent
// is not (or no longer) this process.
int child_follow(pid_t parent, struct err_text *e);

#endif
