// grpc_tls.c: see grpc_tls.h.
#include "common/net/grpc_tls.h"

#include <grpc/grpc.h>
#include <string.h>

// gRPC asks before each handshake, on any thread. When two ask at once after a change, the second
// may still use the old files.
static grpc_ssl_certificate_config_reload_status fetch(void *context,
                                                       grpc_ssl_server_certificate_config **out) {
    struct grpc_tls *t = context;
    struct tls_pem *pem = tls_files_take(t->files);
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    if (atomic_exchange(&t->version, pem->version) != pem->version) {
        grpc_ssl_pem_key_cert_pair pair = {.private_key = pem->key, .cert_chain = pem->cert};
        // Without an authority gRPC 1.51 aborts, although nothing asks for clients' certificates
        // then, and so nothing is checked against it.
        const char *ca = pem->ca != NULL ? pem->ca : pem->cert;
        *out = grpc_ssl_server_certificate_config_create(ca, &pair, 1);
        status = *out != NULL ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                              : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    }
    tls_pem_release(pem);
    return status;
}

grpc_server_credentials *grpc_tls_server(struct grpc_tls *t) {
    static const grpc_ssl_client_certificate_request_type asks[] = {
        [TLS_PEERS_ANY] = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
        [TLS_PEERS_OPTIONAL] = GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY,
        [TLS_PEERS_REQUIRED] = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
    };
    if (t->files == NULL) return grpc_insecure_server_credentials_create();
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            asks[tls_files_peers(t->files)], fetch, t));
}

grpc_channel_credentials *grpc_tls_client(struct tls_files *files) {
    if (files == NULL) return grpc_insecure_credentials_create();
    struct tls_pem *pem = tls_files_take(files);
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pem->key, .cert_chain = pem->cert};
    grpc_channel_credentials *made =
        grpc_ssl_credentials_create(pem->ca, pem->cert != NULL ? &pair : NULL, NULL, NULL);
    tls_pem_release(pem);
    return made;
}

// A server that does not like a client closes without a word, or with TLS 1.3 after the client
// believes all is well.
static const char *closed_hint(struct tls_files *files) {
    if (files == NULL) return "does the leader speak TLS? then --control-tls-ca is needed";
    struct tls_pem *pem = tls_files_take(files);
    const char *hint = pem->cert != NULL
                           ? "does the leader trust the authority of --control-tls-cert?"
                           : "does the leader ask for a certificate? then --control-tls-cert is "
                             "needed";
    tls_pem_release(pem);
    return hint;
}

const char *grpc_tls_hint(struct tls_files *files, const char *text) {
    static const char *const hints[][2] = {
        {"certificate verify failed",
         "the leader's certificate does not come from --control-tls-ca, or its time is over"},
        {"CERTIFICATE_VERIFY_FAILED",
         "the leader's certificate does not come from --control-tls-ca, or its time is over"},
        {"not in peer certificate",
         "the leader's certificate has another name; --control-tls-name says which to expect"},
        {"wrong version number", "the leader does not speak TLS"},
        {"WRONG_VERSION_NUMBER", "the leader does not speak TLS"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        if (strstr(text, hints[i][0]) != NULL) return hints[i][1];
    }
    bool closed = strstr(text, "Socket closed") != NULL || strstr(text, "reset by peer") != NULL ||
                  strstr(text, "Broken pipe") != NULL;
    return closed ? closed_hint(files) : NULL;
}
