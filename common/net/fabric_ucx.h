// fabric_ucx.h: what the two halves of the UCX fabric share: fabric_ucx_setup.c (context, settings,
// names) and fabric_ucx.c (epochs, messages, waits). Only they include this.
#ifndef MOESAIC_COMMON_NET_FABRIC_UCX_H
#define MOESAIC_COMMON_NET_FABRIC_UCX_H

#include <ucp/api/ucp.h>

#include "common/net/fabric_impl.h"

struct fabric_ucx;

struct ucx_peer {
    struct fabric_ucx *fabric;
    uint32_t index;
    ucp_ep_h endpoint;      // NULL: oneself, or not created
    ucs_status_ptr_t close; // the closing request
    size_t whole_bytes;     // fabric_ops.whole_bytes
};

// A posted send. UCX reads header and iov until the request is done.
struct ucx_send {
    struct ucx_send *next; // in the free list
    struct fabric_ucx *fabric;
    struct fabric_header header;
    ucp_dt_iov_t iov[2];
    void *request; // NULL: free
    uint32_t peer;
};

#define UCX_SENDS_CHUNK 256

struct ucx_chunk {
    struct ucx_chunk *next;
    struct ucx_send sends[UCX_SENDS_CHUNK];
};

struct fabric_ucx {
    struct fabric base;
    ucp_context_h context; // lives as long as the fabric
    bool shm_refused;      // shared memory could not be had once: TCP only from then on
    bool swept;            // looked for what killed processes left
    int interrupt_fd;      // owned
    // Of the epoch.
    uint8_t own[FABRIC_ADDRESS_MAX]; // its address, with the prefix
    size_t own_bytes;
    ucp_worker_h worker;
    int event_fd; // the worker's, not owned
    struct ucx_peer *peers;
    uint32_t n_peers;
    struct ucx_chunk *chunks; // owned
    struct ucx_send *free_sends;
    uint32_t n_outstanding;
    int64_t nap_ns; // the last nap since something moved
    bool closing;
};

// Makes the context with the settings that survive lost peers; tcp_only leaves shared memory out.
int ucx_context_create(const struct fabric_config *config, bool tcp_only, ucp_context_h *out,
                       struct err_text *e);
// Whether a context without shared memory would differ from one with it.
bool ucx_may_fall_back(const struct fabric_config *config);
// Loading UCX took over SIGHUP, SIGSEGV and others; gives back those that are still UCX's.
void ucx_restore_signals(void);
// What UCX has to say goes to the log, unless the user gave it a file (UCX_LOG_FILE). It would go
// to standard output else.
void ucx_log_redirect(void);

// The prefix of an address tells UCX versions, and sizes of shared memory, apart, which must be
// equal in a group.
#define UCX_ADDRESS_PREFIX 16
void ucx_address_prefix(uint8_t out[UCX_ADDRESS_PREFIX]);
int ucx_address_check(const uint8_t *address, size_t bytes, struct err_text *e);

// Whether UCX could read these bytes: own is an address of this process, both without the prefix.
bool ucx_address_has_shape(const uint8_t *address, size_t bytes, const uint8_t *own,
                           size_t own_bytes);

void ucx_describe(const struct fabric *base, char *buf, size_t cap);

// What one buffer of shared memory holds of a message, where the endpoint's messages take that way:
// the receiver reads it in place. Over TCP what is written at once: UCX copies it into memory that
// it uses again and again, and more into memory that no cache has. SIZE_MAX: no such limit.
size_t ucx_whole_bytes(ucp_ep_h endpoint);

#endif
