// ctl.h: the commands of moectl and what they share.
#ifndef MOESAIC_CTL_CTL_H
#define MOESAIC_CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"
#include "common/conf/options.h"

struct ctl {
    struct env *env;
    struct ctl_options options;
    char *authorization; // "Authorization: Bearer ...", or NULL; owned
    char model[256];     // the name to ask for
};

// Each returns the process's exit code.
int chat_command(struct ctl *c, const char *prompt);
int bench_command(struct ctl *c);
int experts_command(struct ctl *c);
int ready_command(struct ctl *c);
int status_command(struct ctl *c);
int plan_command(struct ctl *c, const char *folder);
int verify_command(struct ctl *c, const char *folder);

#endif
