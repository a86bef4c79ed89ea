// channel_impl.h: what the channels share behind channel.h: the inbox, the function table, the
// strings of a config.
//
// Only common/net/channel*.c include this. The inbox is filled by the channel's own threads and
// drained by the owner.
#ifndef MOESAIC_COMMON_NET_CHANNEL_IMPL_H
#define MOESAIC_COMMON_NET_CHANNEL_IMPL_H

#include <pthread.h>

#include "common/base/limits.h"
#include "common/net/channel.h"

// A peer with more messages than this waiting, to it or from it, does not keep up and is dropped.
#define CHANNEL_WAITING_MAX 1000
#define CHANNEL_BACKOFF_MIN_NS (200 * NS_PER_MS)
#define CHANNEL_BACKOFF_MAX_NS (5 * NS_PER_S)
// A leader that was there may be back in a moment: for a while it is asked more often.
#define CHANNEL_LOST_NS (30 * NS_PER_S)
#define CHANNEL_LOST_BACKOFF_MIN_NS (100 * NS_PER_MS)
#define CHANNEL_LOST_BACKOFF_MAX_NS (400 * NS_PER_MS)
// A stream that ends sooner was no success, and the waits go on growing.
#define CHANNEL_LIVED_NS NS_PER_S
// Bytes of messages that may wait for the owner: of one peer, of all.
#define CHANNEL_PEER_BYTES_MAX ((size_t)4 << 20)
#define CHANNEL_INBOX_BYTES_MAX ((size_t)64 << 20)

struct channel_item {
    struct channel_item *next;
    int64_t due_ns;      // memory only
    uint64_t generation; // the stream it belongs to, where a peer can have several
    struct channel_event event;
};

struct channel_ops {
    void (*poll)(struct channel *c); // moves what is due into the inbox; may be NULL
    void (*taken)(struct channel *c,
                  const struct channel_item *item); // the owner takes an event; may be NULL
    int (*send)(struct channel *c, uint64_t peer, const void *data, size_t bytes);
    void (*drop)(struct channel *c, uint64_t peer, bool refused, const char *reason);
    void (*close)(struct channel *c); // ends its threads; frees all but the base's own
};

// The first member of every implementation's channel.
struct channel {
    const struct channel_ops *ops;
    struct channel_config config; // address and token are owned copies
    pthread_mutex_t lock;         // guards the inbox
    struct channel_item *first, *last;
};

// Copies the config's strings. On failure nothing is left to finish.
int channel_init(struct channel *c, const struct channel_ops *ops,
                 const struct channel_config *config, struct err_text *e);
void channel_finish(struct channel *c);

// An event with a copy of data; text may be NULL. NULL when memory is out.
struct channel_item *channel_item_make(enum channel_event_kind kind, uint64_t peer,
                                       const char *text);
int channel_item_set(struct channel_item *item, const void *data, size_t bytes);
void channel_item_free(struct channel_item *item);

// Appends an item (NULL is ignored) and wakes the owner.
void channel_push(struct channel *c, struct channel_item *item);
// Forgets the waiting messages of a peer; how many bytes they had.
size_t channel_forget(struct channel *c, uint64_t peer);

// How a client waits between two attempts. All zero before the first.
struct channel_backoff {
    int64_t last_ns;       // without the jitter
    int64_t lost_until_ns; // until then the leader counts as just lost
};
struct channel_attempt {
    int64_t now_ns, lived_ns; // lived: how long its stream was open
    bool opened, refused;
};
// The wait after this attempt.
int64_t channel_backoff_next(struct channel_backoff *b, const struct channel_attempt *a);

// Whether the host of "host:port" or a "unix:" path can only be reached from this machine.
bool channel_is_local(const char *address);
// Refuses a token that would leave this machine in clear, unless the config allows it.
int channel_check_token(const struct channel_config *config, struct err_text *e);

#endif
