// rpc_house.h: the gRPC service before a toy scheduler, and what a client asks it and hears of it.
#ifndef MOESAIC_TESTS_HARNESS_RPC_HOUSE_H
#define MOESAIC_TESTS_HARNESS_RPC_HOUSE_H

#include "common/base/buf.h"
#include "generate.pb-c.h"
#include "leader/render.h"
#include "leader/rpc.h"
#include "tests/harness/rpc_client.h"
#include "tests/harness/toy_house.h"

#define RPC_HOUSE_GENERATE "/moesaic.v1.Generate/Generate"
#define RPC_HOUSE_CONTEXT 100000

struct rpc_house {
    struct toy_house toy;
    struct stream *stream;
    struct render *render;
    struct rpc *rpc;
    uint16_t port;
};

struct rpc_house_config {
    const char *model; // folder
    struct toy_script script;
    uint32_t queue_max, calls_max;
    uint64_t bodies_bytes_max;            // 0: a MiB
    int64_t idle_ns;                      // 0: as ever
    void (*prepare)(struct rpc_house *h); // before anybody serves; may be NULL
};

// All of it fails the running Check test when something does not start or answer.
void rpc_house_start(struct rpc_house *h, const struct rpc_house_config *config);
void rpc_house_stop(struct rpc_house *h);

// A call of Generate with the request on its way; "hello" as text and an id of its own where the
// request has none. small_window as in rpc_client.h.
struct rpc_client *rpc_house_ask(struct rpc_house *h, const Moesaic__V1__GenerateRequest *request,
                                 bool small_window);

#define RPC_HEARD_CHOICES_MAX 4

// Everything that a stream said, by choice; what every stream promises was checked.
struct rpc_heard {
    uint32_t n_messages;
    struct rpc_heard_choice {
        struct buf text; // with its end
        uint32_t n_ids, n_logprobs, n_top, n_finishes, last_id;
        float last_logprob;
        char finish[16], stop_reason[32];
    } choices[RPC_HEARD_CHOICES_MAX];
    int code;
    char status[ERR_TEXT_MAX];
    char pushback[256]; // "" without
};

void rpc_house_hear(struct rpc_heard *h, struct rpc_client *c); // and closes it
// The same in two parts: one message (false: there is none left), and what follows.
bool rpc_house_hear_next(struct rpc_heard *h, struct rpc_client *c);
void rpc_house_hear_rest(struct rpc_heard *h, struct rpc_client *c);
void rpc_heard_finish(struct rpc_heard *h);
// The call must end with this.
void rpc_house_expect(struct rpc_client *c, int code, const char *text);

// One call of a method that answers at once; the packed answer replaces out. The status' code, its
// text in text.
int rpc_house_call(struct rpc_house *h, const char *path, const ProtobufCMessage *request,
                   struct buf *out, char text[ERR_TEXT_MAX]);

#endif
