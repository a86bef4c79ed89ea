// link.h: the worker's words of the control protocol (proto/control.proto): what it says, and what
// it believes of what it hears.
//
// Stateless: when something may be said is decided in worker.c. Sending is fine from any thread. A
// message that does not arrive because the stream is gone is no error here: the channel reports the
// end of the stream by itself.
#ifndef MOESAIC_WORKER_LINK_H
#define MOESAIC_WORKER_LINK_H

#include <stdbool.h>

#include "common/base/dtype.h"
#include "common/base/err.h"
#include "common/net/channel.h"
#include "control.pb-c.h"

#define LINK_LEADER 1 // the channel's name for the leader

void link_send_hello(struct channel *c, Moesaic__Control__V1__Hello *hello);
void link_send_progress(struct channel *c, uint64_t bytes_done, uint64_t bytes_total);
void link_send_loaded(struct channel *c, Moesaic__Control__V1__Loaded *loaded);
void link_send_formed(struct channel *c, uint64_t epoch, const uint8_t *address,
                      size_t address_bytes);
void link_send_ready(struct channel *c, uint64_t epoch, const char *lanes);
void link_send_heartbeat(struct channel *c, Moesaic__Control__V1__Heartbeat *heartbeat);
void link_send_epoch_closed(struct channel *c, uint64_t epoch, const char *reason);
void link_send_failed(struct channel *c, const char *reason);
void link_send_leaving(struct channel *c, const char *reason, bool when_idle);

// Decodes and checks all that can be checked without knowing the worker's state. ERR_PEER_PROTOCOL
// names the field.
int link_decode(Moesaic__Control__V1__JoinDown **out, const uint8_t *data, size_t bytes,
                struct err_text *e);
void link_message_finish(Moesaic__Control__V1__JoinDown *m);

// The dtype that a Welcome asks for; automatic when it is "auto".
struct link_dtype {
    bool automatic;
    enum dtype dtype;
};
bool link_dtype_parse(const char *name, struct link_dtype *out);

// True when the bytes are a CloseEpoch. Allocates nothing: called on the channel's thread for every
// message.
bool link_peek_close(const uint8_t *data, size_t bytes, uint64_t *epoch);

#endif
