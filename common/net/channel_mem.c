// channel_mem.c: the memory twin of channel_grpc: streams between channels of one process, with the
// delays of a simulated network.
//
// An event goes into the receiver's queue with the time at which it is due; a wake is due at the
// same time. A closed stream is dialled again by the hub itself: the new stream's opening is simply
// due after the backoff.
#include "common/net/channel_mem.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/channel_impl.h"

struct mem_end {
    struct channel_mem *channel; // NULL: gone
    uint64_t peer;               // what this end calls the other
    bool open;                   // its owner has taken CHANNEL_OPENED
    int64_t due_ns;              // of the last event to this end: keeps them in order
    uint32_t waiting;            // messages in this end's queue
};

enum { SERVER, CLIENT };

struct mem_stream {
    struct mem_stream *next; // in the hub
    uint64_t generation;
    struct mem_end ends[2];
};

// Guarded by the hub's lock.
struct channel_mem {
    struct channel base;
    struct channel_mem_hub *hub; // not owned
    struct channel_mem *next;    // in the hub
    int side;                    // SERVER or CLIENT
    bool dead;
    bool refused;               // a client that waits for the server to start anew
    struct channel_item *queue; // by due_ns
};

struct channel_mem_hub {
    pthread_mutex_t lock;
    struct channel_mem_options options;
    struct channel_mem *channels;
    struct mem_stream *streams;
    uint64_t last_generation;
};

struct channel_mem_hub *channel_mem_hub_create(const struct channel_mem_options *options) {
    struct channel_mem_hub *hub = mem_zalloc(sizeof *hub);
    if (hub == NULL) return NULL;
    if (options != NULL) hub->options = *options;
    pthread_mutex_init(&hub->lock, NULL);
    return hub;
}

void channel_mem_hub_destroy(struct channel_mem_hub *hub) {
    if (hub == NULL) return;
    check(hub->channels == NULL);
    pthread_mutex_destroy(&hub->lock);
    mem_free(hub);
}

// --- time

static int64_t draw(const struct channel_mem *c, int64_t max) {
    if (max <= 0 || c->hub->options.wake_at == NULL) return 0;
    uint64_t r;
    env_random(c->base.config.env, &r, sizeof r);
    return (int64_t)(r % ((uint64_t)max + 1));
}

static int64_t now_of(const struct channel_mem *c) {
    return env_now_ns(c->base.config.env);
}

static void wake_when_due(const struct channel_mem *c, int64_t due_ns) {
    if (c->hub->options.wake_at != NULL)
        c->hub->options.wake_at(c->base.config.waker, due_ns);
    else
        waker_wake(c->base.config.waker);
}

// --- queues

// Puts an event into end's queue, not before due_ns and not before what it was sent earlier.
static void enqueue(struct mem_stream *s, int side, struct channel_item *item, int64_t due_ns) {
    struct mem_end *end = &s->ends[side];
    struct channel_mem *c = end->channel;
    if (item == NULL || c == NULL || c->dead) {
        channel_item_free(item);
        return;
    }
    if (due_ns < end->due_ns) due_ns = end->due_ns;
    end->due_ns = due_ns;
    item->due_ns = due_ns;
    item->generation = s->generation;
    if (item->event.kind == CHANNEL_MESSAGE) end->waiting++;
    struct channel_item **at = &c->queue;
    while (*at != NULL && (*at)->due_ns <= due_ns)
        at = &(*at)->next;
    item->next = *at;
    *at = item;
    wake_when_due(c, due_ns);
}

// Takes a stream's events out of a queue: all, or only its messages.
static void purge(struct channel_mem *c, uint64_t generation, bool only_messages) {
    for (struct channel_item **at = &c->queue; *at != NULL;) {
        struct channel_item *item = *at;
        bool gone = item->generation == generation &&
                    (!only_messages || item->event.kind == CHANNEL_MESSAGE);
        if (!gone) {
            at = &item->next;
            continue;
        }
        *at = item->next;
        channel_item_free(item);
    }
}

static struct mem_stream *stream_of(const struct channel_mem *c, uint64_t peer) {
    struct mem_stream *s = c->hub->streams;
    while (s != NULL && (s->ends[c->side].channel != c || s->ends[c->side].peer != peer))
        s = s->next;
    return s;
}

static struct mem_stream *stream_by_generation(const struct channel_mem_hub *hub,
                                               uint64_t generation) {
    struct mem_stream *s = hub->streams;
    while (s != NULL && s->generation != generation)
        s = s->next;
    return s;
}

// --- opening

static struct channel_mem *listener_for(const struct channel_mem *client) {
    for (struct channel_mem *c = client->hub->channels; c != NULL; c = c->next) {
        if (c->side == SERVER && !c->dead &&
            strcmp(c->base.config.address, client->base.config.address) == 0)
            return c;
    }
    return NULL;
}

static bool same_token(const char *a, const char *b) {
    if (a == NULL) return true; // this server asks for none
    return b != NULL && strcmp(a, b) == 0;
}

// Dials for a client that has no stream; without a listener it stays as it is until one comes.
static void dial(struct channel_mem *client, int64_t backoff_ns) {
    struct channel_mem *server = listener_for(client);
    if (client->dead || client->refused || server == NULL) return;
    if (!same_token(server->base.config.token, client->base.config.token)) return;
    struct mem_stream *s = mem_zalloc(sizeof *s);
    if (s == NULL) return;
    struct channel_mem_hub *hub = client->hub;
    s->generation = ++hub->last_generation;
    s->ends[SERVER] = (struct mem_end){.channel = server, .peer = s->generation};
    s->ends[CLIENT] = (struct mem_end){.channel = client, .peer = 1};
    s->next = hub->streams;
    hub->streams = s;
    if (hub->options.wake_at == NULL) backoff_ns = 0;
    int64_t due = now_of(client) + backoff_ns + draw(client, hub->options.delay_ns_max);
    enqueue(s, SERVER, channel_item_make(CHANNEL_OPENED, s->generation, NULL), due);
    enqueue(s, CLIENT, channel_item_make(CHANNEL_OPENED, 1, NULL),
            due + draw(client, hub->options.delay_ns_max));
}

static void dial_waiting(struct channel_mem_hub *hub) {
    for (struct channel_mem *c = hub->channels; c != NULL; c = c->next) {
        if (c->side != CLIENT || c->dead || stream_of(c, 1) != NULL) continue;
        c->refused = false;
        dial(c, draw(c, CHANNEL_BACKOFF_MIN_NS));
    }
}

// --- closing

struct mem_close {
    int by;    // the side that ends it
    bool dies; // its process is gone: nothing is said, the other side notices later
    bool refused;
    const char *reason; // what a client is told
};

static void say_closed(struct mem_stream *s, int side, const struct mem_close *how) {
    struct mem_end *end = &s->ends[side];
    if (end->channel == NULL || end->channel->dead) return;
    bool own = side == how->by;
    if (!end->open) {
        purge(end->channel, s->generation, false); // it never heard of this stream
        return;
    }
    if (own) purge(end->channel, s->generation, true);
    if (own) end->due_ns = 0; // no delay to oneself
    const struct channel_config *config = &end->channel->base.config;
    if (side == CLIENT && config->lost != NULL) config->lost(config->peek_context);
    const char *text = how->dies               ? "connection reset: the other process is gone"
                       : side == CLIENT || own ? how->reason
                                               : "the worker closed the stream";
    const struct channel_mem_options *o = &end->channel->hub->options;
    int64_t delay = own ? 0 : draw(end->channel, how->dies ? o->detect_ns_max : o->delay_ns_max);
    enqueue(s, side, channel_item_make(CHANNEL_CLOSED, end->peer, text),
            now_of(end->channel) + delay);
}

static void close_stream(struct channel_mem_hub *hub, struct mem_stream *s,
                         const struct mem_close *how) {
    say_closed(s, SERVER, how);
    say_closed(s, CLIENT, how);
    struct mem_stream **at = &hub->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    struct channel_mem *client = s->ends[CLIENT].channel;
    mem_free(s);
    if (client == NULL) return;
    client->refused = how->refused && hub->options.wake_at == NULL;
    dial(client, how->refused ? CHANNEL_BACKOFF_MAX_NS : CHANNEL_BACKOFF_MIN_NS);
}

// Closes every stream of a channel. The channel must already be out of reach for new ones.
static void close_streams(struct channel_mem *c, bool dies) {
    const char *reason =
        c->side == SERVER ? "the leader closed the stream" : "the worker closed the stream";
    struct mem_close how = {.by = c->side, .dies = dies, .reason = reason};
    for (struct mem_stream *s = c->hub->streams, *next; s != NULL; s = next) {
        next = s->next;
        if (s->ends[c->side].channel != c) continue;
        if (!dies) s->ends[c->side].channel = NULL;
        close_stream(c->hub, s, &how);
        next = c->hub->streams; // closing may have dialled anew: look again from the start
    }
}

void channel_mem_kill(struct channel_mem_hub *hub, const struct env *env) {
    pthread_mutex_lock(&hub->lock);
    for (struct channel_mem *c = hub->channels; c != NULL; c = c->next) {
        if (c->base.config.env != env || c->dead) continue;
        c->dead = true;
        close_streams(c, true);
    }
    pthread_mutex_unlock(&hub->lock);
}

// --- the channel's calls

static void mem_poll(struct channel *base) {
    struct channel_mem *c = (struct channel_mem *)base;
    pthread_mutex_lock(&c->hub->lock);
    int64_t now = now_of(c);
    if (base->first == NULL && c->queue != NULL && c->queue->due_ns <= now && !c->dead) {
        struct channel_item *item = c->queue;
        c->queue = item->next;
        struct mem_stream *s = stream_by_generation(c->hub, item->generation);
        if (s != NULL && item->event.kind == CHANNEL_OPENED) s->ends[c->side].open = true;
        if (s != NULL && item->event.kind == CHANNEL_MESSAGE) s->ends[c->side].waiting--;
        item->next = NULL;
        base->first = base->last = item; // only the owner reads the inbox of this kind
    }
    pthread_mutex_unlock(&c->hub->lock);
}

static int deliver(struct channel_mem *c, struct mem_stream *s, const void *data, size_t bytes) {
    int other = c->side == SERVER ? CLIENT : SERVER;
    struct mem_end *end = &s->ends[other];
    if (end->waiting >= CHANNEL_WAITING_MAX) {
        close_stream(c->hub, s,
                     &(struct mem_close){.by = c->side, .reason = "too many messages are waiting"});
        return ERR_PEER_LOST;
    }
    struct channel_item *item = channel_item_make(CHANNEL_MESSAGE, end->peer, NULL);
    if (item == NULL || channel_item_set(item, data, bytes) != 0) {
        channel_item_free(item);
        return ERR_FATAL_NOMEM;
    }
    const struct channel_config *config = &end->channel->base.config;
    if (config->peek != NULL && !end->channel->dead)
        config->peek(config->peek_context, data, bytes);
    enqueue(s, other, item, now_of(c) + draw(c, c->hub->options.delay_ns_max));
    return 0;
}

static int mem_send(struct channel *base, uint64_t peer, const void *data, size_t bytes) {
    struct channel_mem *c = (struct channel_mem *)base;
    pthread_mutex_lock(&c->hub->lock);
    struct mem_stream *s = stream_of(c, peer);
    int rc = ERR_PEER_LOST;
    if (s != NULL && s->ends[c->side].open && !c->dead) rc = deliver(c, s, data, bytes);
    pthread_mutex_unlock(&c->hub->lock);
    return rc;
}

static void mem_drop(struct channel *base, uint64_t peer, bool refused, const char *reason) {
    struct channel_mem *c = (struct channel_mem *)base;
    pthread_mutex_lock(&c->hub->lock);
    struct mem_stream *s = stream_of(c, peer);
    struct mem_close how = {.by = c->side, .refused = refused, .reason = reason};
    if (s != NULL && !c->dead) close_stream(c->hub, s, &how);
    pthread_mutex_unlock(&c->hub->lock);
}

static void unlink_channel(struct channel_mem *c) {
    struct channel_mem **at = &c->hub->channels;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void mem_close(struct channel *base) {
    struct channel_mem *c = (struct channel_mem *)base;
    pthread_mutex_lock(&c->hub->lock);
    unlink_channel(c);
    if (!c->dead) close_streams(c, false);
    while (c->queue != NULL) {
        struct channel_item *item = c->queue;
        c->queue = item->next;
        channel_item_free(item);
    }
    pthread_mutex_unlock(&c->hub->lock);
    channel_finish(base);
    mem_free(c);
}

static const struct channel_ops mem_ops = {
    .poll = mem_poll, .send = mem_send, .drop = mem_drop, .close = mem_close};

static int make(struct channel_mem **out, int side, const struct channel_config *config,
                struct err_text *e) {
    check(config->hub != NULL);
    struct channel_mem *c = mem_zalloc(sizeof *c);
    if (c == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a channel");
    int rc = channel_init(&c->base, &mem_ops, config, e);
    if (rc != 0) {
        mem_free(c);
        return rc;
    }
    c->hub = config->hub;
    c->side = side;
    *out = c;
    return 0;
}

static void link_channel(struct channel_mem *c) {
    c->next = c->hub->channels;
    c->hub->channels = c;
}

int channel_listen_mem(struct channel **out, const struct channel_config *config,
                       struct err_text *e) {
    struct channel_mem *c;
    int rc = make(&c, SERVER, config, e);
    if (rc != 0) return rc;
    pthread_mutex_lock(&c->hub->lock);
    bool taken = listener_for(c) != NULL;
    link_channel(c);
    if (!taken) dial_waiting(c->hub);
    pthread_mutex_unlock(&c->hub->lock);
    *out = &c->base;
    if (!taken) return 0;
    channel_close(&c->base);
    *out = NULL;
    return err_set(e, ERR_FATAL_IO, "cannot listen on %s: address in use", config->address);
}

int channel_dial_mem(struct channel **out, const struct channel_config *config,
                     struct err_text *e) {
    struct channel_mem *c;
    int rc = make(&c, CLIENT, config, e);
    if (rc != 0) return rc;
    pthread_mutex_lock(&c->hub->lock);
    link_channel(c);
    dial(c, 0);
    pthread_mutex_unlock(&c->hub->lock);
    *out = &c->base;
    return 0;
}
