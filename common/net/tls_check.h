// tls_check.h: whether PEM texts are what a flag says they are, before a TLS library is given them,
// which would only say that something is wrong.
#ifndef MOESAIC_COMMON_NET_TLS_CHECK_H
#define MOESAIC_COMMON_NET_TLS_CHECK_H

#include "common/net/tls_files.h"

// 0 or ERR_FATAL_CONFIG with flag and file. Warns of certificates that are expired, not yet valid
// or near their end.
int tls_check(const struct tls_config *config, const struct tls_pem *pem, struct err_text *e);

#endif
