// tls_check.c: see tls_check.h.
#include "common/net/tls_check.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"

#define DAY_S (24 * 3600)
#define NEAR_END_S (7 * DAY_S)

// One flag and its file.
struct subject {
    const char *flag, *path, *pem;
};

struct chain {
    gnutls_x509_crt_t *list; // owned
    unsigned n;
};

static gnutls_datum_t datum_of(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)(uintptr_t)text,
                            .size = (unsigned)strlen(text)};
}

static int wrong(const struct subject *s, const char *what, const char *detail,
                 struct err_text *e) {
    return err_set(e, ERR_FATAL_CONFIG, "%s %.200s: %s%s%s", s->flag, s->path, what,
                   detail[0] != '\0' ? ": " : "", detail);
}

static int chain_read(struct chain *out, const struct subject *s, struct err_text *e) {
    gnutls_datum_t pem = datum_of(s->pem);
    int rc = gnutls_x509_crt_list_import2(&out->list, &out->n, &pem, GNUTLS_X509_FMT_PEM, 0);
    return rc >= 0 ? 0 : wrong(s, "not a certificate in PEM form", gnutls_strerror(rc), e);
}

static void chain_finish(struct chain *c) {
    for (unsigned i = 0; i < c->n; i++)
        gnutls_x509_crt_deinit(c->list[i]);
    gnutls_free(c->list);
}

static void day_of(time_t at, char out[32]) {
    struct tm t;
    if (gmtime_r(&at, &t) == NULL || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &t) == 0)
        snprintf(out, 32, "at an unknown time");
}

// A warning only: clocks may be wrong, and peers decide for themselves.
static void warn_of_time(const struct subject *s, gnutls_x509_crt_t crt, int64_t now_s) {
    time_t from = gnutls_x509_crt_get_activation_time(crt);
    time_t until = gnutls_x509_crt_get_expiration_time(crt);
    char day[32];
    day_of(from > now_s ? from : until, day);
    if (until < now_s)
        log_warn("tls", "%s %.200s: the certificate expired on %s", s->flag, s->path, day);
    else if (from > now_s)
        log_warn("tls", "%s %.200s: the certificate is not valid before %s", s->flag, s->path, day);
    else if (until - now_s < NEAR_END_S)
        log_warn("tls", "%s %.200s: the certificate expires on %s", s->flag, s->path, day);
}

static int key_read(gnutls_x509_privkey_t *out, const struct subject *s, struct err_text *e) {
    gnutls_datum_t pem = datum_of(s->pem);
    if (strstr(s->pem, "ENCRYPTED") != NULL)
        return wrong(s, "the key is encrypted; store it without a password", "", e);
    if (gnutls_x509_privkey_init(out) != 0)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for a key");
    int rc = gnutls_x509_privkey_import2(*out, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc == 0) return 0;
    gnutls_x509_privkey_deinit(*out);
    return wrong(s, "not a private key in PEM form", gnutls_strerror(rc), e);
}

static bool same_key(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key) {
    unsigned char a[64], b[64];
    size_t n_a = sizeof a, n_b = sizeof b;
    return gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA256, a, &n_a) == 0 &&
           gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, b, &n_b) == 0 &&
           n_a == n_b && memcmp(a, b, n_a) == 0;
}

static int check_pair(const struct subject *cert, const struct subject *key, int64_t now_s,
                      struct err_text *e) {
    struct chain chain = {0};
    gnutls_x509_privkey_t private;
    int rc = chain_read(&chain, cert, e);
    if (rc != 0) return rc;
    rc = key_read(&private, key, e);
    if (rc == 0) {
        if (!same_key(chain.list[0], private))
            rc = wrong(key, "the key does not belong to the certificate of", cert->path, e);
        gnutls_x509_privkey_deinit(private);
    }
    if (rc == 0) warn_of_time(cert, chain.list[0], now_s);
    chain_finish(&chain);
    return rc;
}

static int check_authority(const struct subject *s, int64_t now_s, struct err_text *e) {
    struct chain chain = {0};
    int rc = chain_read(&chain, s, e);
    if (rc != 0) return rc;
    for (unsigned i = 0; i < chain.n; i++)
        warn_of_time(s, chain.list[i], now_s);
    chain_finish(&chain);
    return 0;
}

int tls_check(const struct tls_config *c, const struct tls_pem *pem, struct err_text *e) {
    int64_t now_s = env_wall_ns(c->env) / NS_PER_S;
    struct subject cert = {c->cert_flag, c->cert, pem->cert}, key = {c->key_flag, c->key, pem->key},
                   ca = {c->ca_flag, c->ca, pem->ca};
    int rc = pem->cert != NULL ? check_pair(&cert, &key, now_s, e) : 0;
    return rc == 0 && pem->ca != NULL ? check_authority(&ca, now_s, e) : rc;
}
