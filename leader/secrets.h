// secrets.h: the leader's keys, token and certificates: from options to what the servers check
// with.
//
// main opens them before anything listens and closes them last.
#ifndef MOESAIC_LEADER_SECRETS_H
#define MOESAIC_LEADER_SECRETS_H

#include "common/conf/options.h"
#include "common/net/keys.h"
#include "common/net/tls_files.h"

struct secrets {
    struct keys *api_keys;         // NULL: none are asked for
    struct tls_files *api_tls;     // of HTTP and gRPC; NULL: plain text
    char *control_token;           // NULL: none is asked for
    struct tls_files *control_tls; // NULL: plain text
};

// ERR_FATAL_CONFIG names the flag and the file. The secrets inside the options are wiped.
int secrets_open(struct secrets *s, const struct leader_options *o, struct env *env,
                 struct err_text *e);
void secrets_close(struct secrets *s);

#endif
