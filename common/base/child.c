// child.c: see child.h. posix_spawn and not fork, because threads and the libraries' own handlers
// of a fork are there already.
#include "common/base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STDERR_NEXT 3 // the first descriptor that a child does not get

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool join_path(char *out, size_t cap, const char *folder, size_t folder_bytes,
                      const char *program) {
    int n = snprintf(out, cap, "%.*s/%s", (int)folder_bytes, folder, program);
    return n > 0 && (size_t)n < cap && is_program(out);
}

// The folder of this process's binary, without the last slash.
static bool own_folder(char *out, size_t cap) {
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0) return false;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

static bool find_in_path(char *out, size_t cap, const char *program) {
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ":");
        if (n > 0 && n < PATH_MAX && join_path(out, cap, at, n, program)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

int child_find(char *out, size_t cap, const char *program, struct err_text *e) {
    char folder[PATH_MAX], path[PATH_MAX];
    bool known = own_folder(folder, sizeof folder);
    bool found = (known && join_path(path, sizeof path, folder, strlen(folder), program)) ||
                 find_in_path(path, sizeof path, program);
    if (!found)
        return err_set(e, ERR_FATAL_IO, "%s is neither in %.200s nor in a folder of PATH", program,
                       known ? folder : "this program's folder");
    int n = snprintf(out, cap, "%s", path);
    if (n < 0 || (size_t)n >= cap)
        return err_set(e, ERR_FATAL_IO, "the path of %s is longer than %zu bytes", program,
                       cap - 1);
    return 0;
}

// Signals as a shell's children have them: what this process ignores or blocks is its own affair.
static int set_signals(posix_spawnattr_t *attributes) {
    sigset_t none, ignored;
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGHUP);
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
    int rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0) rc = posix_spawnattr_setsigdefault(attributes, &ignored);
    if (rc == 0) rc = posix_spawnattr_setpgroup(attributes, 0);
    return rc == 0 ? posix_spawnattr_setflags(attributes, flags) : rc;
}

static int set_files(posix_spawn_file_actions_t *actions) {
    int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    return rc == 0 ? posix_spawn_file_actions_addclosefrom_np(actions, STDERR_NEXT) : rc;
}

int child_start(pid_t *out, const char *path, const char *const *argv,
                const char *const *environment, struct err_text *e) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "no memory to start %.200s", path);
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return err_set(e, ERR_FATAL_NOMEM, "no memory to start %.200s", path);
    }
    int rc = set_signals(&attributes);
    if (rc == 0) rc = set_files(&actions);
    if (rc == 0) // which reads the strings only, whatever its type says
        rc = posix_spawn(out, path, &actions, &attributes, (char *const *)(uintptr_t)argv,
                         (char *const *)(uintptr_t)environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 ? 0 : err_set(e, ERR_FATAL_IO, "cannot start %.200s: %s", path, strerror(rc));
}

bool child_ended(pid_t pid, struct child_end *out) {
    int status;
    if (waitpid(pid, &status, WNOHANG) != pid) return false;
    out->by_signal = WIFSIGNALED(status);
    out->number = out->by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    return true;
}

bool child_stopped(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// The group exists from the child's first moment on, but the child itself is what must hear it.
void child_signal(pid_t pid, int number) {
    if (kill(-pid, number) != 0) kill(pid, number);
}

int child_follow(pid_t parent, struct err_text *e) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return err_set(e, ERR_FATAL_IO, "cannot follow process %d: %s", (int)parent,
                       strerror(errno));
    // It may have ended before the kernel was told; then another process has adopted this one.
    if (getppid() == parent) return 0;
    return err_set(e, ERR_FATAL_IO, "process %d is not this process's parent (any more)",
                   (int)parent);
}
