// tls_files.c: see tls_files.h.
//
// Kubernetes swaps a whole folder at once, other tools write one file after the other. A set that
// does not fit together is tried again with later connections, so the second kind heals by itself.
#include "common/net/tls_files.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/net/tls_check.h"

#define PEM_BYTES_MAX ((size_t)1 << 20)
#define RETRY_NS NS_PER_S // between two reads of files that are wrong

enum { CERT, KEY, CA, N_FILES };

// What tells one content of a path from the next.
struct stamp {
    dev_t device;
    ino_t number;
    off_t bytes;
    struct timespec changed;
};

struct tls_files {
    struct tls_config config; // strings are owned copies
    pthread_mutex_t lock;
    struct tls_pem *pem; // a reference
    struct stamp stamps[N_FILES];
    char failure[ERR_TEXT_MAX]; // of the last reload, logged once; "": it went well
    int64_t failed_ns;
};

static const char *path_of(const struct tls_config *c, int which) {
    return which == CERT ? c->cert : which == KEY ? c->key : c->ca;
}

static const char *flag_of(const struct tls_config *c, int which) {
    return which == CERT ? c->cert_flag : which == KEY ? c->key_flag : c->ca_flag;
}

// --- contents

void tls_pem_release(struct tls_pem *p) {
    if (p == NULL || atomic_fetch_sub(&p->refs, 1) != 1) return;
    secret_free(p->key);
    mem_free(p->cert);
    mem_free(p->ca);
    mem_free(p);
}

static int read_text(char **out, const char *path, struct err_text *e) {
    struct file_bytes file;
    int rc = file_read_path(&file, path, PEM_BYTES_MAX, e);
    if (rc != 0) return rc;
    *out = file.data;
    if (strlen(file.data) == file.bytes) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "not a PEM file: it has a byte of value 0");
}

static int read_pem(const struct tls_config *c, struct tls_pem *pem, struct err_text *e) {
    char **texts[N_FILES] = {&pem->cert, &pem->key, &pem->ca};
    for (int i = 0; i < N_FILES; i++) {
        struct err_text cause;
        if (path_of(c, i) == NULL) continue;
        int rc = read_text(texts[i], path_of(c, i), &cause);
        if (rc != 0)
            return err_set(e, rc == ERR_FATAL_NOMEM ? rc : ERR_FATAL_CONFIG, "%s %.200s: %.250s",
                           flag_of(c, i), path_of(c, i), cause.text);
    }
    return 0;
}

static int load(const struct tls_config *c, struct tls_pem **out, struct err_text *e) {
    struct tls_pem *pem = mem_zalloc(sizeof *pem);
    if (pem == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for certificates");
    atomic_init(&pem->refs, 1);
    pem->version = 1;
    int rc = read_pem(c, pem, e);
    if (rc == 0) rc = tls_check(c, pem, e);
    if (rc == 0)
        *out = pem;
    else
        tls_pem_release(pem);
    return rc;
}

// --- changes

static void look(const struct tls_config *c, struct stamp out[N_FILES]) {
    memset(out, 0, N_FILES * sizeof *out);
    for (int i = 0; i < N_FILES; i++) {
        struct stat st;
        if (path_of(c, i) == NULL || stat(path_of(c, i), &st) != 0) continue;
        out[i].device = st.st_dev;
        out[i].number = st.st_ino;
        out[i].bytes = st.st_size;
        out[i].changed = st.st_mtim;
    }
}

// Under the lock.
static void reload(struct tls_files *f, const struct stamp now[N_FILES]) {
    struct tls_pem *pem;
    struct err_text e;
    int64_t now_ns = env_now_ns(f->config.env);
    if (f->failure[0] != '\0' && now_ns - f->failed_ns < RETRY_NS) return;
    if (load(&f->config, &pem, &e) != 0) {
        if (strcmp(f->failure, e.text) != 0)
            log_warn("tls", "the changed files are not used, the old ones stay: %s", e.text);
        snprintf(f->failure, sizeof f->failure, "%s", e.text);
        f->failed_ns = now_ns;
        return;
    }
    pem->version = f->pem->version + 1;
    tls_pem_release(f->pem);
    f->pem = pem;
    memcpy(f->stamps, now, sizeof f->stamps);
    f->failure[0] = '\0';
    log_info("tls", "reloaded %s", f->config.cert != NULL ? f->config.cert : f->config.ca);
}

struct tls_pem *tls_files_take(struct tls_files *f) {
    struct stamp now[N_FILES];
    look(&f->config, now);
    pthread_mutex_lock(&f->lock);
    if (memcmp(now, f->stamps, sizeof now) != 0) reload(f, now);
    struct tls_pem *pem = f->pem;
    atomic_fetch_add(&pem->refs, 1);
    pthread_mutex_unlock(&f->lock);
    return pem;
}

enum tls_peers tls_files_peers(const struct tls_files *f) {
    return f->config.peers;
}

struct env *tls_files_env(const struct tls_files *f) {
    return f->config.env;
}

// --- life

static int check_config(const struct tls_config *c, struct err_text *e) {
    if (c->cert != NULL && c->key == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%s needs %s", c->cert_flag, c->key_flag);
    if (c->key != NULL && c->cert == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%s needs %s", c->key_flag, c->cert_flag);
    check(c->peers == TLS_PEERS_ANY || c->ca != NULL);
    return 0;
}

static bool copy_paths(struct tls_config *c) {
    const char **paths[N_FILES] = {&c->cert, &c->key, &c->ca};
    bool ok = true;
    for (int i = 0; i < N_FILES; i++) {
        if (*paths[i] == NULL) continue;
        *paths[i] = mem_strdup(*paths[i]);
        ok &= *paths[i] != NULL;
    }
    return ok;
}

int tls_files_open(struct tls_files **out, const struct tls_config *config, struct err_text *e) {
    int rc = check_config(config, e);
    if (rc != 0) return rc;
    struct tls_files *f = mem_zalloc(sizeof *f);
    if (f == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for certificates");
    f->config = *config;
    pthread_mutex_init(&f->lock, NULL);
    look(config, f->stamps); // before reading: what changes in between is seen again
    rc = copy_paths(&f->config) ? load(&f->config, &f->pem, e)
                                : err_set(e, ERR_FATAL_NOMEM, "no memory for certificates");
    if (rc != 0) {
        tls_files_close(f);
        return rc;
    }
    if (config->key != NULL) secret_warn_of_readers(config->key_flag, config->key);
    *out = f;
    return 0;
}

void tls_files_close(struct tls_files *f) {
    if (f == NULL) return;
    tls_pem_release(f->pem);
    for (int i = 0; i < N_FILES; i++)
        mem_free((void *)(uintptr_t)path_of(&f->config, i));
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}
