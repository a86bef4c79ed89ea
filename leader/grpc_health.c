// grpc_health.c: see grpc_health.h. Watches are looked after on the server's thread every 50 ms:
// the state has several sources, one of them time itself.
//
// A watch has one message with gRPC at a time and then hears the newest state, so a client that
// does not read costs no more than one that does.
#include "leader/grpc_health.h"

#include <grpc/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/pb_arena.h"
#include "health.pb-c.h"
#include "leader/readiness.h"

#define WATCHES_MAX 4096
#define CHECKS_MAX 512    // at once; each is over in a moment
#define LOOK_MS 50        // with watches
#define LOOK_IDLE_MS 1000 // without
#define FIRST_NS (10 * NS_PER_S)
// A service's name and little else; unpacked it is not much longer.
#define REQUEST_BYTES_LONGEST 4096
#define ARENA_BYTES_MAX (64u << 10)

typedef Grpc__Health__V1__HealthCheckRequest CheckRequest;
typedef Grpc__Health__V1__HealthCheckResponse CheckResponse;
typedef Grpc__Health__V1__HealthListResponse ListResponse;
typedef Grpc__Health__V1__HealthListResponse__StatusesEntry ListEntry;
#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

// One call of any method; those of Watch are in the list once they have asked.
struct asker {
    struct asker *next, *previous;
    struct grpc_server_call *call;
    bool asked;
    // Of a watch, under the lock.
    bool watching, known, sending;
    int told; // the status sent last
};

struct grpc_health {
    struct grpc_server_host *host;
    const struct serving *serving;
    pthread_mutex_t lock; // guards the list and what is in it
    struct asker *watches;
    uint32_t n_watches;
};

// --- the truth

static int status_now(const struct grpc_health *g) {
    return readiness(g->serving) == READY ? STATUS(SERVING) : STATUS(NOT_SERVING);
}

static bool is_served(const struct grpc_health *g, const char *service) {
    const char *services[GRPC_METHODS_MAX];
    size_t n = grpc_server_host_services(g->host, services);
    if (service[0] == '\0') return true;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(services[i], service) == 0) return true;
    }
    return false;
}

// --- messages

static int send_status(struct asker *a, int status) {
    CheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    uint8_t packed[16];
    m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    size_t bytes = grpc__health__v1__health_check_response__pack(&m, packed);
    return grpc_server_call_send(a->call, packed, bytes);
}

// What a request asks for: 1 when it is served here, 0 when not, or an error.
static int find_service(const struct grpc_health *g, const uint8_t *data, size_t bytes) {
    struct arena arena;
    if (bytes > REQUEST_BYTES_LONGEST) return ERR_REQ_TOO_LARGE;
    arena_init(&arena, ARENA_BYTES_MAX);
    ProtobufCAllocator allocator = pb_arena_allocator(&arena);
    const CheckRequest *m = grpc__health__v1__health_check_request__unpack(&allocator, bytes, data);
    int rc = m == NULL ? ERR_REQ_INVALID : is_served(g, m->service) ? 1 : 0;
    arena_finish(&arena);
    return rc;
}

static void end_wrong(struct asker *a, int rc) {
    grpc_server_call_end(a->call, GRPC_STATUS_INVALID_ARGUMENT,
                         rc == ERR_REQ_TOO_LARGE ? "the name of the service is too long"
                                                 : "the message is no HealthCheckRequest");
}

static void end_after(struct asker *a, int rc) {
    if (rc == 0)
        grpc_server_call_end(a->call, GRPC_STATUS_OK, "");
    else
        grpc_server_call_end(a->call, GRPC_STATUS_RESOURCE_EXHAUSTED, "memory is out");
}

// --- calls; one that could not be opened has no state

static void opened(void *context, struct grpc_server_call *call, void **state) {
    struct asker *a = mem_zalloc(sizeof *a);
    (void)context;
    *state = a;
    if (a == NULL)
        grpc_server_call_end(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "memory is out");
    else
        a->call = call;
}

static bool ask(struct asker *a) {
    if (a == NULL) return false;
    if (a->asked) grpc_server_call_cancel(a->call, GRPC_STATUS_INVALID_ARGUMENT, "one request");
    bool first = !a->asked;
    a->asked = true;
    return first;
}

static void half_closed(void *context, void *state) {
    struct asker *a = state;
    (void)context;
    if (a != NULL && !a->asked)
        grpc_server_call_end(a->call, GRPC_STATUS_INVALID_ARGUMENT,
                             "the call ended without a request");
}

static void check_message(void *context, void *state, const uint8_t *data, size_t bytes) {
    const struct grpc_health *g = context;
    struct asker *a = state;
    if (!ask(a)) return;
    int rc = find_service(g, data, bytes);
    if (rc < 0)
        end_wrong(a, rc);
    else if (rc == 0)
        grpc_server_call_end(a->call, GRPC_STATUS_NOT_FOUND, "no such service here");
    else
        end_after(a, send_status(a, status_now(g)));
}

static void list_message(void *context, void *state, const uint8_t *data, size_t bytes) {
    const struct grpc_health *g = context;
    struct asker *a = state;
    const char *services[GRPC_METHODS_MAX + 1] = {""};
    CheckResponse status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    ListEntry entries[GRPC_METHODS_MAX + 1], *list[GRPC_METHODS_MAX + 1];
    ListResponse m = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    (void)data;
    (void)bytes; // a HealthListRequest says nothing
    if (!ask(a)) return;
    status.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status_now(g);
    m.n_statuses = 1 + grpc_server_host_services(g->host, services + 1);
    m.statuses = list;
    for (size_t i = 0; i < m.n_statuses; i++) {
        grpc__health__v1__health_list_response__statuses_entry__init(&entries[i]);
        entries[i].key = (char *)(uintptr_t)services[i];
        entries[i].value = &status;
        list[i] = &entries[i];
    }
    size_t n = grpc__health__v1__health_list_response__get_packed_size(&m);
    uint8_t *packed = mem_alloc(n);
    if (packed != NULL) grpc__health__v1__health_list_response__pack(&m, packed);
    end_after(a, packed == NULL ? ERR_FATAL_NOMEM : grpc_server_call_send(a->call, packed, n));
    mem_free(packed);
}

static void closed(void *context, void *state, bool connection_lost) {
    (void)context;
    (void)connection_lost;
    mem_free(state);
}

// --- watches, under the lock

static void tell(struct asker *a, int status) {
    if (!a->known) status = STATUS(SERVICE_UNKNOWN);
    if (a->sending || a->told == status) return;
    a->sending = send_status(a, status) == 0;
    if (a->sending) a->told = status;
}

static void add_watch(struct grpc_health *g, struct asker *a) {
    g->n_watches++;
    a->watching = true;
    a->told = -1;
    a->next = g->watches;
    if (a->next != NULL) a->next->previous = a;
    g->watches = a;
    tell(a, status_now(g));
}

static void remove_watch(struct grpc_health *g, struct asker *a) {
    g->n_watches--;
    if (a->next != NULL) a->next->previous = a->previous;
    if (a->previous != NULL)
        a->previous->next = a->next;
    else
        g->watches = a->next;
}

// --- the callbacks of Watch

static void watch_message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct grpc_health *g = context;
    struct asker *a = state;
    if (!ask(a)) return;
    int rc = find_service(g, data, bytes);
    if (rc < 0) {
        end_wrong(a, rc);
        return;
    }
    a->known = rc == 1;
    pthread_mutex_lock(&g->lock);
    add_watch(g, a);
    pthread_mutex_unlock(&g->lock);
}

static void watch_sent(void *context, void *state) {
    struct grpc_health *g = context;
    struct asker *a = state;
    if (a == NULL) return;
    pthread_mutex_lock(&g->lock);
    a->sending = false;
    if (a->watching) tell(a, status_now(g));
    pthread_mutex_unlock(&g->lock);
}

static void watch_closed(void *context, void *state, bool connection_lost) {
    struct grpc_health *g = context;
    struct asker *a = state;
    (void)connection_lost;
    if (a == NULL) return;
    pthread_mutex_lock(&g->lock);
    if (a->watching) remove_watch(g, a);
    pthread_mutex_unlock(&g->lock);
    mem_free(a);
}

void grpc_health_refresh(struct grpc_health *g) {
    pthread_mutex_lock(&g->lock);
    int status = g->watches != NULL ? status_now(g) : 0;
    for (struct asker *a = g->watches; a != NULL; a = a->next)
        tell(a, status);
    pthread_mutex_unlock(&g->lock);
}

uint32_t grpc_health_watches(struct grpc_health *g) {
    pthread_mutex_lock(&g->lock);
    uint32_t n = g->n_watches;
    pthread_mutex_unlock(&g->lock);
    return n;
}

static int look(void *context) {
    struct grpc_health *g = context;
    grpc_health_refresh(g);
    return grpc_health_watches(g) > 0 ? LOOK_MS : LOOK_IDLE_MS;
}

// --- life

static const struct grpc_method methods[] = {
    {.path = "/grpc.health.v1.Health/Check",
     .calls_max = CHECKS_MAX,
     .opened = opened,
     .message = check_message,
     .half_closed = half_closed,
     .closed = closed},
    {.path = "/grpc.health.v1.Health/List",
     .calls_max = CHECKS_MAX,
     .opened = opened,
     .message = list_message,
     .half_closed = half_closed,
     .closed = closed},
    {.path = "/grpc.health.v1.Health/Watch",
     .calls_max = WATCHES_MAX,
     .opened = opened,
     .message = watch_message,
     .half_closed = half_closed,
     .sent = watch_sent,
     .closed = watch_closed},
};

int grpc_health_create(struct grpc_health **out, struct grpc_server_host *h,
                       const struct serving *serving, struct err_text *e) {
    struct grpc_health *g = mem_zalloc(sizeof *g);
    if (g == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the health service");
    g->host = h;
    g->serving = serving;
    pthread_mutex_init(&g->lock, NULL);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct grpc_method method = methods[i];
        method.without_token = method.while_draining = true;
        method.message_bytes_max = 2 * REQUEST_BYTES_LONGEST; // who is near it hears of the name
        method.first_ns = FIRST_NS;
        method.context = g;
        grpc_server_host_register(h, &method);
    }
    grpc_server_host_look(h, look, g);
    *out = g;
    return 0;
}

void grpc_health_destroy(struct grpc_health *g) {
    if (g == NULL) return;
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}
