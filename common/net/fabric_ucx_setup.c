// fabric_ucx_setup.c: the UCX context and its settings, and what it chose.
//
// The settings are the set that survived every kill of a peer: the PEER error mode on shared memory
// and TCP alike, and no rendezvous and no zero copy, whose requests outlive an endpoint and end in
// assertions. A user's own UCX_* variables win.
#include <dlfcn.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/net/fabric_ucx.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// Of one buffer of shared memory: room for 32 KiB of rows behind their head. Above 60 KiB UCX 1.13
// overflows a 16-bit length.
#define SHM_SEGMENT_BYTES 36864
#define SHM_SEGMENT_TEXT "36864"
// Of what is written to a socket at once: UCX's default, 8 KiB, costs a system call each.
#define TCP_SEGMENT_BYTES 65536
#define TCP_SEGMENT_TEXT "65536"
#define OVERHEAD_BYTES 128 // of a message in either, generously: UCX's header and the fabric's

struct setting {
    const char *key, *value;
};

// Known to ucp_config_modify.
static const struct setting common_settings[] = {
    {"KEEPALIVE_INTERVAL", "1s"}, // a killed neighbour is noticed within one period
    {"RNDV_THRESH", "inf"},
    {"ZCOPY_THRESH", "inf"},
};
// Also known to it, but UCX warns when they are set without shared memory.
static const struct setting shm_settings[] = {
    {"MM_ERROR_HANDLING", "y"}, // lets shared memory run in the PEER error mode
    {"MM_SEG_SIZE", SHM_SEGMENT_TEXT},
    {"MM_RX_BUFS_GROW", "64"},
    {"MM_FIFO_SIZE", "16"},            // each buffer comes round while it is still in a cache
    {"MM_FIFO_RELEASE_FACTOR", "0.1"}, // of the queue: its sender soon sees what was read
};
#define TCP_SEGMENT_VARIABLE "UCX_TCP_TX_SEG_SIZE"
// Read only from the environment, and only for TCP.
static const struct setting tcp_variables[] = {
    {TCP_SEGMENT_VARIABLE, TCP_SEGMENT_TEXT},
    {"UCX_TCP_RX_SEG_SIZE", "131072"},
};

static bool set_by_user(const char *key) {
    char name[64];
    snprintf(name, sizeof name, "UCX_%s", key);
    return getenv(name) != NULL;
}

static int modify(ucp_config_t *config, const char *key, const char *value, struct err_text *e) {
    if (set_by_user(key)) return 0;
    ucs_status_t status = ucp_config_modify(config, key, value);
    if (status == UCS_OK) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "UCX does not take %s=%s: %s", key, value,
                   ucs_status_string(status));
}

static const char *transports_of(const struct fabric_config *config, bool tcp_only) {
    const char *name = config->transports != NULL ? config->transports : "auto";
    if (tcp_only || strcmp(name, "tcp") == 0) return "tcp";
    if (strcmp(name, "shm") == 0) return "sysv,self";
    return strcmp(name, "auto") == 0 ? "tcp,sysv,self" : NULL;
}

bool ucx_may_fall_back(const struct fabric_config *config) {
    return !set_by_user("TLS") &&
           (config->transports == NULL || strcmp(config->transports, "auto") == 0);
}

// What would fail late, or not at all, is refused here by name.
static int check_config(const struct fabric_config *config, struct err_text *e) {
    if (transports_of(config, false) == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "transports must be auto, tcp or shm, not %s",
                       config->transports);
    if (config->interface != NULL && if_nametoindex(config->interface) == 0)
        return err_set(e, ERR_FATAL_CONFIG, "no network interface is named %s", config->interface);
    const char *rndv = getenv("UCX_RNDV_THRESH");
    if (rndv != NULL && strcmp(rndv, "inf") != 0)
        return err_set(e, ERR_FATAL_CONFIG, "UCX_RNDV_THRESH=%s is not supported: only inf is",
                       rndv);
    return 0;
}

static int modify_all(ucp_config_t *config, const struct setting *settings, size_t n,
                      struct err_text *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = modify(config, settings[i].key, settings[i].value, e);
    return rc;
}

static int apply(ucp_config_t *ucp, const struct fabric_config *config, bool tcp_only,
                 struct err_text *e) {
    const char *transports = transports_of(config, tcp_only);
    bool shm = strstr(transports, "sysv") != NULL;
    int rc = modify(ucp, "TLS", transports, e);
    if (rc == 0 && config->interface != NULL) rc = modify(ucp, "NET_DEVICES", config->interface, e);
    if (rc == 0) rc = modify_all(ucp, common_settings, COUNT(common_settings), e);
    if (rc == 0 && shm) rc = modify_all(ucp, shm_settings, COUNT(shm_settings), e);
    return rc;
}

static void set_variables(const struct fabric_config *config) {
    if (strstr(transports_of(config, false), "tcp") == NULL) return;
    for (size_t i = 0; i < COUNT(tcp_variables); i++)
        setenv(tcp_variables[i].key, tcp_variables[i].value, 0);
}

int ucx_context_create(const struct fabric_config *config, bool tcp_only, ucp_context_h *out,
                       struct err_text *e) {
    int rc = check_config(config, e);
    if (rc != 0) return rc;
    set_variables(config);
    ucp_config_t *ucp;
    ucs_status_t status = ucp_config_read(NULL, NULL, &ucp);
    if (status != UCS_OK)
        return err_set(e, ERR_FATAL_CONFIG, "UCX cannot read its UCX_* variables: %s",
                       ucs_status_string(status));
    rc = apply(ucp, config, tcp_only, e);
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    if (rc == 0 && (status = ucp_init(&params, ucp, out)) != UCS_OK)
        rc = err_set(e, ERR_FATAL_IO, "UCX cannot start on interface %s: %s",
                     config->interface != NULL ? config->interface : "any",
                     ucs_status_string(status));
    ucp_config_release(ucp);
    return rc;
}

void ucx_restore_signals(void) {
    static const int signals[] = {SIGHUP, SIGILL, SIGBUS, SIGFPE, SIGSEGV};
    Dl_info ucs, info;
    // A pointer to a function only fits a pointer to data by way of its bytes.
    const char *(*known)(ucs_status_t) = ucs_status_string;
    void *address;
    memcpy(&address, &known, sizeof address);
    if (dladdr(address, &ucs) == 0) return;
    for (size_t i = 0; i < COUNT(signals); i++) {
        struct sigaction now;
        if (sigaction(signals[i], NULL, &now) != 0) continue;
        memcpy(&address, &now.sa_sigaction, sizeof address);
        if (dladdr(address, &info) == 0 || info.dli_fbase != ucs.dli_fbase) continue;
        signal(signals[i], SIG_DFL);
    }
}

// --- its log

// Its errors are what a lost peer looks like from inside, which the group survives. Its own level
// (UCX_LOG_LEVEL, warn) has let the message through already.
static ucs_log_func_rc_t on_log(const char *file, unsigned line, const char *function,
                                ucs_log_level_t level, const ucs_log_component_config_t *config,
                                const char *format, va_list args) {
    char text[1024];
    (void)file, (void)line, (void)function, (void)config;
    vsnprintf(text, sizeof text, format, args);
    log_event(level <= UCS_LOG_LEVEL_ERROR  ? LOG_WARN
              : level <= UCS_LOG_LEVEL_WARN ? LOG_INFO
                                            : LOG_DEBUG,
              "ucx", "ucx", log_text("says", text));
    return UCS_LOG_FUNC_RC_STOP;
}

// One handler is UCX's own. There is no place for a second of ours, nor need.
void ucx_log_redirect(void) {
    if (getenv("UCX_LOG_FILE") == NULL && ucs_log_num_handlers() <= 1) ucs_log_push_handler(on_log);
}

// --- addresses

// As the user has it, else as the fabric sets it, else "": UCX's own.
static const char *shm_value(const char *kind, const char *key) {
    char name[64];
    snprintf(name, sizeof name, "UCX_%s_%s", kind, key);
    const char *value = getenv(name);
    for (size_t i = 0; value == NULL && i < COUNT(shm_settings); i++) {
        if (strcmp(shm_settings[i].key, name + strlen("UCX_")) == 0) value = shm_settings[i].value;
    }
    return value != NULL ? value : "";
}

// A sender finds its place in the receiver's memory by its own sizes: with others it would write
// over what lies beside. So many bits that no two are taken for each other by chance.
static uint64_t shm_checksum(void) {
    static const char *const keys[] = {"FIFO_SIZE", "SEG_SIZE", "FIFO_ELEM_SIZE"};
    static const char *const kinds[] = {"MM", "SYSV", "POSIX"};
    uint64_t sum = UINT64_C(14695981039346656037); // FNV-1a, each value with its end
    for (size_t i = 0; i < COUNT(keys) * COUNT(kinds); i++) {
        const char *value = shm_value(kinds[i % COUNT(kinds)], keys[i / COUNT(kinds)]);
        for (size_t at = 0, n = strlen(value) + 1; at < n; at++)
            sum = (sum ^ (uint8_t)value[at]) * UINT64_C(1099511628211);
    }
    return sum;
}

#define FORM_BYTES 4    // "UCX" and which form of prefix this is
#define VERSION_BYTES 8 // with the library's version behind it, and a zero

void ucx_address_prefix(uint8_t out[UCX_ADDRESS_PREFIX]) {
    unsigned major, minor, release;
    uint64_t sum = shm_checksum();
    ucp_get_version(&major, &minor, &release);
    const uint8_t version[VERSION_BYTES] = {
        'U', 'C', 'X', 2, (uint8_t)major, (uint8_t)minor, (uint8_t)release};
    memcpy(out, version, sizeof version);
    for (uint32_t i = 0; i < sizeof sum; i++)
        out[VERSION_BYTES + i] = (uint8_t)(sum >> 8 * i);
}

int ucx_address_check(const uint8_t *address, size_t bytes, struct err_text *e) {
    uint8_t own[UCX_ADDRESS_PREFIX];
    ucx_address_prefix(own);
    if (bytes <= sizeof own || bytes > FABRIC_ADDRESS_MAX || memcmp(address, own, FORM_BYTES) != 0)
        return err_set(e, ERR_PEER_PROTOCOL, "the address is not one of UCX");
    if (memcmp(address, own, sizeof own) == 0) return 0;
    if (memcmp(address, own, VERSION_BYTES) == 0)
        return err_set(e, ERR_PEER_REFUSED,
                       "it runs with another UCX_MM_FIFO_SIZE, UCX_MM_SEG_SIZE or "
                       "UCX_MM_FIFO_ELEM_SIZE (or UCX_SYSV_*, UCX_POSIX_*) than this process");
    return err_set(e, ERR_PEER_REFUSED, "it runs UCX %u.%u.%u, this process %u.%u.%u", address[4],
                   address[5], address[6], own[4], own[5], own[6]);
}

// --- what was chosen

#define INFO_BYTES_MAX 16384

// What UCX prints of an endpoint, as text. False: it cannot be had.
static bool endpoint_info(ucp_ep_h endpoint, char info[INFO_BYTES_MAX]) {
    FILE *stream = fmemopen(info, INFO_BYTES_MAX, "w");
    if (stream == NULL) return false;
    ucp_ep_print_info(endpoint, stream);
    fclose(stream);
    info[INFO_BYTES_MAX - 1] = '\0';
    return true;
}

// Copies the transport out of a line like "#  lane[0]:  1:sysv/memory.0 md[1] -> md[1]/sysv ...".
// False: no such line.
static bool lane_name(const char *line, char *name, size_t cap) {
    const char *at = strstr(line, "lane[");
    if (at == NULL || (at = strstr(at, "]:")) == NULL || (at = strchr(at + 2, ':')) == NULL)
        return false;
    size_t n = strcspn(++at, " \n");
    if (n >= cap) n = cap - 1;
    memcpy(name, at, n);
    name[n] = '\0';
    return n > 0;
}

static void append_lanes(char *info, char *buf, size_t cap) {
    char name[64], last[64] = "";
    char *rest = NULL;
    for (char *line = strtok_r(info, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (!lane_name(line, name, sizeof name) || strcmp(name, last) == 0) continue;
        size_t used = strlen(buf);
        snprintf(buf + used, cap - used, "%s%s", last[0] != '\0' ? "+" : " ", name);
        memcpy(last, name, sizeof last);
    }
}

void ucx_describe(const struct fabric *base, char *buf, size_t cap) {
    const struct fabric_ucx *f = (const struct fabric_ucx *)base;
    char info[INFO_BYTES_MAX];
    for (uint32_t p = 0; p < f->n_peers; p++) {
        if (f->peers[p].endpoint == NULL) continue;
        if (!endpoint_info(f->peers[p].endpoint, info)) return;
        size_t used = strlen(buf);
        bool leader = p + 1 == f->n_peers;
        snprintf(buf + used, cap - used, "%s%s", used > 0 ? ", " : "", leader ? "leader" : "rank");
        used = strlen(buf);
        if (!leader) snprintf(buf + used, cap - used, " %u", p);
        append_lanes(info, buf, cap);
    }
}

// Unless the user has set the size, which may have any unit.
static size_t whole_in_shm(void) {
    return set_by_user("MM_SEG_SIZE") ? SIZE_MAX : SHM_SEGMENT_BYTES - OVERHEAD_BYTES;
}

static size_t whole_in_tcp(void) {
    const char *set = getenv(TCP_SEGMENT_VARIABLE);
    bool own = set != NULL && strcmp(set, TCP_SEGMENT_TEXT) == 0;
    return own ? TCP_SEGMENT_BYTES - OVERHEAD_BYTES : SIZE_MAX;
}

// Active messages take the first lane.
size_t ucx_whole_bytes(ucp_ep_h endpoint) {
    char info[INFO_BYTES_MAX], name[64] = "", *rest = NULL;
    if (!endpoint_info(endpoint, info)) return SIZE_MAX;
    for (char *line = strtok_r(info, "\n", &rest); line != NULL && name[0] == '\0';
         line = strtok_r(NULL, "\n", &rest))
        lane_name(line, name, sizeof name);
    if (strncmp(name, "sysv/", 5) == 0 || strncmp(name, "posix/", 6) == 0) return whole_in_shm();
    return strncmp(name, "tcp/", 4) == 0 ? whole_in_tcp() : SIZE_MAX;
}
