// http_tls.c: see http_tls.h.
#include "leader/http_tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/log_gate.h"
#include "common/base/mem.h"
#include "common/base/plural.h"

// One version of the files as GnuTLS wants it. Sessions only point to it.
struct identity {
    uint32_t refs;
    uint64_t version;
    gnutls_certificate_credentials_t credentials;
};

struct http_tls {
    struct tls_files *files;
    struct tls_pem *first;     // a reference
    struct identity *identity; // the newest; a reference
    struct env *env;
    struct log_gate refusals;
};

static gnutls_datum_t datum_of(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)(uintptr_t)text,
                            .size = (unsigned)strlen(text)};
}

// --- identities

static void identity_release(struct identity *i) {
    if (i == NULL || --i->refs != 0) return;
    gnutls_certificate_free_credentials(i->credentials);
    mem_free(i);
}

static bool fill(struct identity *i, const struct tls_pem *pem) {
    gnutls_datum_t cert = datum_of(pem->cert), key = datum_of(pem->key);
    if (gnutls_certificate_allocate_credentials(&i->credentials) != 0) return false;
    if (gnutls_certificate_set_x509_key_mem(i->credentials, &cert, &key, GNUTLS_X509_FMT_PEM) < 0)
        return false;
    if (pem->ca == NULL) return true;
    gnutls_datum_t ca = datum_of(pem->ca);
    return gnutls_certificate_set_x509_trust_mem(i->credentials, &ca, GNUTLS_X509_FMT_PEM) > 0;
}

static struct identity *identity_make(const struct tls_pem *pem) {
    struct identity *i = mem_zalloc(sizeof *i);
    if (i == NULL) return NULL;
    i->refs = 1;
    i->version = pem->version;
    if (fill(i, pem)) return i;
    if (i->credentials != NULL) gnutls_certificate_free_credentials(i->credentials);
    mem_free(i);
    return NULL;
}

// The files as they are now, or the last ones that could be used.
static struct identity *current(struct http_tls *t) {
    struct tls_pem *pem = tls_files_take(t->files);
    struct identity *made = pem->version != t->identity->version ? identity_make(pem) : NULL;
    if (made != NULL) {
        identity_release(t->identity);
        t->identity = made;
    }
    tls_pem_release(pem);
    return t->identity;
}

// --- clients' certificates

static void refuse(gnutls_session_t session, gnutls_alert_description_t alert, const char *reason) {
    struct http_tls *t = gnutls_db_get_ptr(session);
    uint32_t n_more;
    bool shown = log_gate_pass_late(&t->refusals, env_now_ns(t->env), &n_more);
    if (n_more > 0)
        log_warn("http", "refused %u more certificate%s of clients", n_more, plural(n_more));
    if (shown) log_warn("http", "refused a client's certificate: %.200s", reason);
    // libmicrohttpd closes without a word; the client should hear why.
    gnutls_alert_send(session, GNUTLS_AL_FATAL, alert);
}

// Called in the handshake, whenever a certificate was asked for. Others than 0 end it.
static int check_client(gnutls_session_t session) {
    struct http_tls *t = gnutls_db_get_ptr(session);
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned n = 0, status = 0;
    if (gnutls_certificate_get_peers(session, &n) == NULL || n == 0) {
        if (tls_files_peers(t->files) == TLS_PEERS_OPTIONAL) return 0;
        refuse(session, GNUTLS_A_CERTIFICATE_REQUIRED, "there is none");
        return GNUTLS_E_CERTIFICATE_REQUIRED;
    }
    int rc = gnutls_certificate_verify_peers(session, &purpose, 1, &status);
    if (rc == 0 && status == 0) return 0;
    gnutls_datum_t text = {0};
    if (rc == 0) gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
    refuse(session,
           status & GNUTLS_CERT_EXPIRED            ? GNUTLS_A_CERTIFICATE_EXPIRED
           : status & GNUTLS_CERT_SIGNER_NOT_FOUND ? GNUTLS_A_UNKNOWN_CA
                                                   : GNUTLS_A_BAD_CERTIFICATE,
           text.data != NULL ? (const char *)text.data : gnutls_strerror(rc));
    gnutls_free(text.data);
    return GNUTLS_E_CERTIFICATE_ERROR;
}

// --- connections

void http_tls_open(struct http_tls *t, struct MHD_Connection *connection, void **state) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    gnutls_session_t session = info->tls_session;
    struct identity *i = current(t);
    i->refs++;
    *state = i;
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, i->credentials);
    // The one pointer of a session that libmicrohttpd leaves to us.
    gnutls_db_set_ptr(session, t);
    if (tls_files_peers(t->files) == TLS_PEERS_ANY) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_IGNORE);
    } else {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
        gnutls_session_set_verify_function(session, check_client);
    }
}

void http_tls_close(struct http_tls *t, void **state) {
    (void)t;
    identity_release(*state);
    *state = NULL;
}

// --- life

const struct tls_pem *http_tls_pem(const struct http_tls *t) {
    return t->first;
}

int http_tls_create(struct http_tls **out, struct tls_files *files, struct err_text *e) {
    struct http_tls *t = mem_zalloc(sizeof *t);
    if (t == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for TLS");
    t->files = files;
    t->env = tls_files_env(files);
    t->first = tls_files_take(files);
    t->identity = identity_make(t->first);
    if (t->identity == NULL) {
        http_tls_destroy(t);
        return err_set(e, ERR_FATAL_CONFIG, "GnuTLS cannot use the certificate");
    }
    *out = t;
    return 0;
}

void http_tls_destroy(struct http_tls *t) {
    if (t == NULL) return;
    identity_release(t->identity);
    tls_pem_release(t->first);
    mem_free(t);
}
