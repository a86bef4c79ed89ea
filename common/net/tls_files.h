// tls_files.h: a certificate, its key and the authority that peers are checked against, as PEM
// files that may be rewritten while the process runs.
//
// What is wrong with the files is said when they are opened, by flag and file. Later the files are
// looked at before each handshake: good new ones count from the next connection on; bad ones are
// logged and the old ones stay. Any thread.
#ifndef MOESAIC_COMMON_NET_TLS_FILES_H
#define MOESAIC_COMMON_NET_TLS_FILES_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"

struct tls_files;

// What a server asks of its clients.
enum tls_peers { TLS_PEERS_ANY, TLS_PEERS_OPTIONAL, TLS_PEERS_REQUIRED };

struct tls_config {
    struct env *env;
    const char *cert, *key, *ca;                // paths; NULL: none. cert and key come together
    const char *cert_flag, *key_flag, *ca_flag; // for messages: "--ssl-certfile"
    enum tls_peers peers;                       // other than ANY needs a ca
};

// The files' contents at one time; those that are not configured are NULL.
struct tls_pem {
    _Atomic uint32_t refs;
    uint64_t version; // grows with each change; never 0
    char *cert, *key, *ca;
};

int tls_files_open(struct tls_files **out, const struct tls_config *config, struct err_text *e);
void tls_files_close(struct tls_files *f); // NULL is fine
enum tls_peers tls_files_peers(const struct tls_files *f);
struct env *tls_files_env(const struct tls_files *f);

// What counts now; the caller releases it.
struct tls_pem *tls_files_take(struct tls_files *f);
void tls_pem_release(struct tls_pem *p);

#endif
