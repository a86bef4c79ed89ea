// drive.c: the two turns over the network: a plan to every rank, a result from every rank. plan.c
// is before and after it in the walk; worker/step.c is at the other end.
#include "leader/drive.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/plural.h"
#include "leader/wire.h"

struct flight {
    struct step_plan plan;
    struct wire_buffer *buffers; // [dp], owned; the fabric may read them until it is flushed
    bool *answered;              // [layout.n_ranks], owned
    uint32_t n_answered;
    int64_t begun_ns; // when it was sent, or the step before it ended, whichever is later
};

struct drive {
    struct drive_config config;
    struct wire *wire;
    struct flight *flights; // [depth], owned, a ring
    uint32_t first, n_flights;
    struct rank_plan nothing; // what is asked of a rank that has no answers
    bool open;
    bool held; // earlier plans have not left
    uint64_t epoch;
    struct drive_counts counts;
    uint64_t reported_tokens;
    void (*report)(void *context, const struct step_report *r);
    void *report_context;
};

static int flight_init(struct flight *f, const struct drive_config *config) {
    f->buffers = mem_array(config->layout.dp, sizeof *f->buffers);
    f->answered = mem_array(config->layout.n_ranks, sizeof *f->answered);
    if (f->buffers == NULL || f->answered == NULL) return ERR_FATAL_NOMEM;
    return step_plan_init(&f->plan, &config->shape);
}

static void flight_finish(struct flight *f, uint32_t dp) {
    for (uint32_t i = 0; f->buffers != NULL && i < dp; i++)
        mem_free(f->buffers[i].data);
    mem_free(f->buffers);
    mem_free(f->answered);
    step_plan_finish(&f->plan);
}

int drive_create(struct drive **out, const struct drive_config *config, struct err_text *e) {
    check(config->depth >= 1 && config->shape.n_ranks == config->layout.dp);
    struct drive *d = mem_zalloc(sizeof *d);
    if (d == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the drive");
    d->config = *config;
    d->flights = mem_array(config->depth, sizeof *d->flights);
    int err = d->flights == NULL ? ERR_FATAL_NOMEM : wire_create(&d->wire, &config->shape);
    for (uint32_t i = 0; i < config->depth && err == 0; i++)
        err = flight_init(&d->flights[i], config);
    if (err != 0) {
        drive_destroy(d);
        return err_set(e, err, "no memory for the step plans of %u ranks", config->layout.n_ranks);
    }
    *out = d;
    return 0;
}

void drive_destroy(struct drive *d) {
    if (d == NULL) return;
    for (uint32_t i = 0; d->flights != NULL && i < d->config.depth; i++)
        flight_finish(&d->flights[i], d->config.layout.dp);
    mem_free(d->flights);
    wire_destroy(d->wire);
    mem_free(d);
}

void drive_on_step(struct drive *d, void (*report)(void *context, const struct step_report *r),
                   void *context) {
    d->report = report;
    d->report_context = context;
}

void drive_begin(struct drive *d, uint64_t epoch) {
    check(!d->open && d->n_flights == 0);
    d->open = true;
    d->epoch = epoch;
}

void drive_end(struct drive *d) {
    d->open = d->held = false;
    d->n_flights = 0;
}

// --- plans out

static int encode_plans(struct drive *d, struct flight *f, struct err_text *e) {
    uint64_t number = f->plan.number;
    for (uint32_t dp = 0; dp < d->config.layout.dp; dp++) {
        if (wire_encode(d->wire, d->epoch, number, &f->plan.ranks[dp], &f->buffers[dp]) != 0)
            return err_set(e, ERR_PEER_LOST, "no memory for the plan of step %" PRIu64, number);
    }
    return 0;
}

static int send_plans(struct drive *d, struct flight *f, struct err_text *e) {
    uint64_t number = f->plan.number;
    for (uint32_t rank = 0; rank < d->config.layout.n_ranks; rank++) {
        const struct wire_buffer *b = &f->buffers[layout_place(&d->config.layout, rank).dp];
        int err = fabric_send(d->config.fabric, rank, fabric_tag(FABRIC_PLAN, number, 0),
                              &(struct fabric_part){.data = b->data, .data_bytes = b->bytes});
        if (err != 0)
            return err_set(e, err, "plan of step %" PRIu64 " to rank %u: %s", number, rank,
                           err_name(err));
    }
    return 0;
}

// Whether earlier plans have left, in d->held: a rank that is busy with a step takes none while its
// queue is full of another's rows. The scheduler's thread never waits for that, for it serves
// clients as well; the step's own deadline does.
static int look_back(struct drive *d, struct err_text *e) {
    int err = fabric_flushed(d->config.fabric) ? 0 : fabric_flush(d->config.fabric, 0);
    d->held = err == ERR_AGAIN;
    if (err == 0 || d->held) return 0;
    return err_set(e, err, "earlier plans did not leave: %s", err_name(err));
}

int drive_pump(struct drive *d, struct err_text *e) {
    d->held = false;
    while (d->open && d->n_flights < d->config.depth) {
        int err = look_back(d, e);
        if (err != 0 || d->held) return err;
        struct flight *f = &d->flights[(d->first + d->n_flights) % d->config.depth];
        if (!sched_plan(d->config.sched, &f->plan)) return 0;
        f->begun_ns = env_now_ns(d->config.env);
        f->n_answered = 0;
        memset(f->answered, 0, d->config.layout.n_ranks * sizeof *f->answered);
        d->n_flights++;
        err = encode_plans(d, f, e);
        if (err == 0) err = send_plans(d, f, e);
        if (err != 0) return err;
        log_trace("drive", "step %" PRIu64 " prompt_tokens %u decode_tokens %u ranks_busy %u",
                  f->plan.number, f->plan.n_prompt_tokens, f->plan.n_decode_tokens,
                  f->plan.n_ranks_busy);
    }
    return 0;
}

// --- results in

static void step_over(struct drive *d) {
    struct flight *f = &d->flights[d->first];
    int64_t now_ns = env_now_ns(d->config.env);
    struct sched_counts sched;
    sched_count(d->config.sched, &sched);
    struct step_report report = {.n_prompt_tokens = f->plan.n_prompt_tokens,
                                 .n_decode_tokens = f->plan.n_decode_tokens,
                                 .n_ranks_busy = f->plan.n_ranks_busy,
                                 .n_sampled_tokens = sched.generation_tokens - d->reported_tokens,
                                 .step_ns = now_ns - f->begun_ns};
    d->reported_tokens = sched.generation_tokens;
    d->first = (d->first + 1) % d->config.depth;
    d->n_flights--;
    if (d->n_flights > 0) d->flights[d->first].begun_ns = now_ns;
    d->counts.steps++;
    d->counts.step_ns += (uint64_t)report.step_ns;
    if (d->report != NULL) d->report(d->report_context, &report);
}

// The oldest step that this rank still owes: ranks answer in order.
static struct flight *owed_by(struct drive *d, uint32_t rank) {
    for (uint32_t i = 0; i < d->n_flights; i++) {
        struct flight *f = &d->flights[(d->first + i) % d->config.depth];
        if (!f->answered[rank]) return f;
    }
    return NULL;
}

int drive_result(struct drive *d, const struct fabric_msg *message, struct err_text *e) {
    uint32_t rank = message->peer;
    if (rank >= d->config.layout.n_ranks)
        return err_set(e, ERR_PEER_PROTOCOL, "a result came from peer %u, which is no rank", rank);
    struct flight *f = owed_by(d, rank);
    if (f == NULL)
        return err_set(e, ERR_PEER_PROTOCOL, "rank %u sent a result that nobody asked for", rank);
    bool answers = layout_answers(&d->config.layout, rank);
    uint32_t dp = layout_place(&d->config.layout, rank).dp;
    struct wire_answer answer = {.data = message->data,
                                 .bytes = message->bytes,
                                 .epoch = d->epoch,
                                 .step = f->plan.number,
                                 .rank = rank,
                                 .plan = answers ? &f->plan.ranks[dp] : &d->nothing};
    struct wire_result result;
    int err = wire_decode(d->wire, &answer, &result, e);
    if (err != 0) return err;
    for (int i = 0; i < 16; i++)
        d->counts.phase_ns[i] += result.phase_ns[i];
    f->answered[rank] = true;
    if (answers) (void)sched_apply(d->config.sched, &f->plan, dp, result.results);
    // Every rank returns its steps in order, so the step that all have returned is the oldest.
    if (++f->n_answered == d->config.layout.n_ranks) step_over(d);
    return 0;
}

bool drive_held(const struct drive *d) {
    return d->held;
}

int64_t drive_begun_ns(const struct drive *d) {
    return d->n_flights == 0 ? NO_DEADLINE : d->flights[d->first].begun_ns;
}

int64_t drive_deadline(const struct drive *d) {
    return d->n_flights == 0 ? NO_DEADLINE
                             : d->flights[d->first].begun_ns + d->config.step_timeout_ns;
}

int drive_late(const struct drive *d, int64_t now_ns, struct err_text *e) {
    if (now_ns < drive_deadline(d)) return 0;
    const struct flight *f = &d->flights[d->first];
    uint32_t n_missing = 0, missing = 0;
    for (uint32_t rank = d->config.layout.n_ranks; rank-- > 0;) {
        if (f->answered[rank]) continue;
        missing = rank;
        n_missing++;
    }
    return err_set(e, ERR_PEER_TIMEOUT,
                   "step %" PRIu64 " did not return within %" PRId64
                   " ms from %u rank%s, first rank %u",
                   f->plan.number, d->config.step_timeout_ns / NS_PER_MS, n_missing,
                   plural(n_missing), missing);
}

bool drive_in_flight(const struct drive *d) {
    return d->n_flights > 0;
}

void drive_count(const struct drive *d, struct drive_counts *out) {
    *out = d->counts;
}
