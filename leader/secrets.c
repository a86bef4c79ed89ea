// secrets.c: see secrets.h.
#include "leader/secrets.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/secret.h"

static int read_keys(struct secrets *s, const struct leader_options *o, struct err_text *e) {
    const struct secret_source source = {"--api-key-file", o->api_key_file, "MOESAIC_API_KEY",
                                         o->api_key};
    char *text, where[400];
    int rc = secret_read(&text, &source, e);
    if (rc != 0 || text == NULL) return rc;
    if (o->api_key_file != NULL)
        snprintf(where, sizeof where, "%s %.300s", source.flag, o->api_key_file);
    else
        snprintf(where, sizeof where, "%s", source.variable);
    rc = keys_parse(&s->api_keys, text, where, e);
    secret_free(text);
    secret_wipe((char *)(uintptr_t)o->api_key);
    return rc;
}

static int read_token(struct secrets *s, const struct control_options *o, struct err_text *e) {
    const struct secret_source source = {"--control-token-file", o->token_file,
                                         "MOESAIC_CONTROL_TOKEN", o->token};
    int rc = secret_read_one(&s->control_token, &source, e);
    secret_wipe((char *)(uintptr_t)o->token);
    return rc;
}

// Words, or the numbers of vLLM and Python.
static enum tls_peers peers_of(const struct leader_options *o) {
    const char *reqs = o->ssl_cert_reqs;
    if (strcmp(reqs, "auto") == 0)
        return o->ssl_ca_certs != NULL ? TLS_PEERS_REQUIRED : TLS_PEERS_ANY;
    if (strcmp(reqs, "none") == 0 || strcmp(reqs, "0") == 0) return TLS_PEERS_ANY;
    return strcmp(reqs, "optional") == 0 || strcmp(reqs, "1") == 0 ? TLS_PEERS_OPTIONAL
                                                                   : TLS_PEERS_REQUIRED;
}

static int open_api_tls(struct secrets *s, const struct leader_options *o, struct env *env,
                        struct err_text *e) {
    struct tls_config config = {.env = env,
                                .cert = o->ssl_certfile,
                                .key = o->ssl_keyfile,
                                .ca = o->ssl_ca_certs,
                                .cert_flag = "--ssl-certfile",
                                .key_flag = "--ssl-keyfile",
                                .ca_flag = "--ssl-ca-certs",
                                .peers = peers_of(o)};
    bool asks = config.peers != TLS_PEERS_ANY;
    if (asks && config.ca == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "--ssl-cert-reqs %s needs --ssl-ca-certs",
                       o->ssl_cert_reqs);
    if (config.ca != NULL && config.cert == NULL && config.key == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "--ssl-ca-certs needs --ssl-certfile");
    if (config.cert == NULL && config.key == NULL) return 0;
    if (config.ca != NULL && !asks)
        log_warn("main", "--ssl-ca-certs: not used, because --ssl-cert-reqs is %s",
                 o->ssl_cert_reqs);
    return tls_files_open(&s->api_tls, &config, e);
}

static int open_control_tls(struct secrets *s, const struct control_options *o, struct env *env,
                            struct err_text *e) {
    struct tls_config config = {.env = env,
                                .cert = o->tls_cert,
                                .key = o->tls_key,
                                .ca = o->tls_ca,
                                .cert_flag = "--control-tls-cert",
                                .key_flag = "--control-tls-key",
                                .ca_flag = "--control-tls-ca",
                                .peers = o->tls_ca != NULL ? TLS_PEERS_REQUIRED : TLS_PEERS_ANY};
    if (config.ca != NULL && config.cert == NULL && config.key == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "--control-tls-ca needs --control-tls-cert");
    if (config.cert == NULL && config.key == NULL) return 0;
    return tls_files_open(&s->control_tls, &config, e);
}

int secrets_open(struct secrets *s, const struct leader_options *o, struct env *env,
                 struct err_text *e) {
    int rc = read_keys(s, o, e);
    if (rc == 0) rc = read_token(s, &o->control, e);
    if (rc == 0) rc = open_api_tls(s, o, env, e);
    return rc == 0 ? open_control_tls(s, &o->control, env, e) : rc;
}

void secrets_close(struct secrets *s) {
    keys_destroy(s->api_keys);
    tls_files_close(s->api_tls);
    tls_files_close(s->control_tls);
    secret_free(s->control_token);
    *s = (struct secrets){0};
}
