// generate_client.c: a client of proto/generate.proto in C, to be copied. It asks one question and
// writes the answer as it comes. docs/grpc.md has the line that builds it.
//
//     generate_client [-a HOST:PORT] [-k KEY_FILE] [-t SECONDS] [-m MAX_TOKENS] QUESTION
//
// It needs gRPC's C core and protobuf-c, nothing of Moesaic but the two files that protoc-c makes.
// A call is a few operations on a completion queue; every pointer handed to gRPC lives until the
// operation's event has come. Ctrl-C needs no care: the server sees the connection go.
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/status.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.pb-c.h"

#define METHOD "/moesaic.v1.Generate/Generate"

struct options {
    const char *address, *key_file, *question;
    double seconds; // what the whole call may take
    uint32_t max_tokens;
};

struct call {
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_metadata_array header, trailer;
    grpc_status_code code;
    grpc_slice text;
};

// --- operations

static void start(struct call *c, const grpc_op *ops, size_t n, void *tag) {
    grpc_call_error rc = grpc_call_start_batch(c->call, ops, n, tag, NULL);
    if (rc == GRPC_CALL_OK) return;
    fprintf(stderr, "gRPC refused an operation: %s\n", grpc_call_error_to_string(rc));
    exit(2);
}

// The call's deadline ends every wait.
static void wait_for(struct call *c, void *tag) {
    grpc_completion_queue_pluck(c->queue, tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

// --- the request

static grpc_byte_buffer *pack_request(const struct options *o) {
    Moesaic__V1__ChatMessage message = MOESAIC__V1__CHAT_MESSAGE__INIT;
    Moesaic__V1__ChatMessage *messages[] = {&message};
    Moesaic__V1__GenerateRequest request = MOESAIC__V1__GENERATE_REQUEST__INIT;
    message.role = (char *)"user";
    message.content = (char *)o->question;
    request.n_messages = 1;
    request.messages = messages;
    request.max_tokens = o->max_tokens;
    request.optional_temperature_case =
        MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_TEMPERATURE_TEMPERATURE;
    request.temperature = 0;
    grpc_slice slice = grpc_slice_malloc(moesaic__v1__generate_request__get_packed_size(&request));
    moesaic__v1__generate_request__pack(&request, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

// The key comes from a file: arguments can be read by every user of the machine.
static size_t read_key(const struct options *o, grpc_metadata *out) {
    char line[4096], value[sizeof line + 8];
    if (o->key_file == NULL) return 0;
    FILE *f = fopen(o->key_file, "r");
    if (f == NULL || fgets(line, sizeof line, f) == NULL) {
        perror(o->key_file);
        exit(2);
    }
    fclose(f);
    line[strcspn(line, "\r\n")] = '\0';
    snprintf(value, sizeof value, "Bearer %s", line);
    memset(out, 0, sizeof *out);
    out->key = grpc_slice_from_static_string("authorization");
    out->value = grpc_slice_from_copied_string(value);
    return 1;
}

static void send_request(struct call *c, const struct options *o) {
    grpc_metadata key;
    grpc_byte_buffer *request = pack_request(o);
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.send_initial_metadata.count = read_key(o, &key);
    ops[0].data.send_initial_metadata.metadata = &key;
    ops[1].data.send_message.send_message = request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &c->header;
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &c->trailer;
    status.data.recv_status_on_client.status = &c->code;
    status.data.recv_status_on_client.status_details = &c->text;
    start(c, &status, 1, &c->code);
    start(c, ops, 4, &c->header);
    wait_for(c, &c->header);
    grpc_byte_buffer_destroy(request);
    if (ops[0].data.send_initial_metadata.count != 0) grpc_slice_unref(key.value);
}

// --- the answer

static void show(grpc_byte_buffer *message) {
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, message)) return;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    Moesaic__V1__GenerateResponse *part = moesaic__v1__generate_response__unpack(
        NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    if (part == NULL) return;
    fputs(part->text, stdout);
    fflush(stdout);
    if (part->finish_reason[0] != '\0')
        fprintf(stderr, "\n%s after %u tokens, request %s\n", part->finish_reason,
                part->completion_tokens, part->request_id);
    moesaic__v1__generate_response__free_unpacked(part, NULL);
}

static void read_answer(struct call *c) {
    grpc_byte_buffer *message;
    do {
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
        op.data.recv_message.recv_message = &message;
        message = NULL;
        start(c, &op, 1, &message);
        wait_for(c, &message);
        if (message != NULL) show(message);
        grpc_byte_buffer_destroy(message);
    } while (message != NULL);
    wait_for(c, &c->code);
}

static int run(const struct options *o) {
    struct call c = {.text = grpc_empty_slice()};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(o->address, plain, NULL);
    gpr_timespec span = gpr_time_from_millis((int64_t)(o->seconds * 1000), GPR_TIMESPAN);
    c.queue = grpc_completion_queue_create_for_pluck(NULL);
    c.call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, c.queue,
                                      grpc_slice_from_static_string(METHOD), NULL,
                                      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span), NULL);
    send_request(&c, o);
    read_answer(&c);
    if (c.code != GRPC_STATUS_OK)
        fprintf(stderr, "status %d: %.*s\n", (int)c.code, (int)GRPC_SLICE_LENGTH(c.text),
                (const char *)GRPC_SLICE_START_PTR(c.text));
    grpc_slice_unref(c.text);
    grpc_metadata_array_destroy(&c.header);
    grpc_metadata_array_destroy(&c.trailer);
    grpc_call_unref(c.call);
    grpc_completion_queue_shutdown(c.queue);
    grpc_completion_queue_destroy(c.queue);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(plain);
    return c.code == GRPC_STATUS_OK ? 0 : 1;
}

int main(int argc, char **argv) {
    struct options o = {.address = "127.0.0.1:8001", .seconds = 60};
    int flag;
    while ((flag = getopt(argc, argv, "a:k:t:m:")) != -1) {
        switch (flag) {
        case 'a': o.address = optarg; break;
        case 'k': o.key_file = optarg; break;
        case 't': o.seconds = strtod(optarg, NULL); break;
        case 'm': o.max_tokens = (uint32_t)strtoul(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "one question, please\n");
        return 2;
    }
    o.question = argv[optind];
    grpc_init();
    int rc = run(&o);
    grpc_shutdown();
    return rc;
}
