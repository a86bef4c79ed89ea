// step.c: see step.h.
#include "worker/step.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/score.h"

// Memory that decoding takes beside the ids: protobuf-c's structs, its lists of scanned members and
// rounding, for one sequence and for the message. A sequence with all submessages needs about 700
// bytes.
#define PLAN_SEQ_BYTES 1024
#define PLAN_BASE_BYTES ((size_t)64 << 10)
// One SeqResult with all its alternatives takes at most 260 bytes encoded, without the scores of
// its prompt; the rest holds the error text and the phases.
#define RESULT_SEQ_BYTES 288
// A score of a prompt's row, or one alternative: a float, and a rank or an id.
#define RESULT_SCORE_BYTES 9
#define RESULT_BASE_BYTES 2048

struct step {
    struct step_config config;
    ProtobufCAllocator allocator; // over the block
    uint8_t *block;
    size_t block_bytes, block_used;
    uint8_t *buffer; // the encoded result; the fabric reads it until the next flush
    size_t buffer_bytes;
    Moesaic__Step__V1__SeqResult *seqs; // [n_slots]
    Moesaic__Step__V1__SeqResult **seq_pointers;
    uint64_t last_step, n_served;
};

static void *block_alloc(void *context, size_t bytes) {
    struct step *s = context;
    size_t rounded;
    if (!size_add(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    if (rounded > s->block_bytes - s->block_used) return NULL;
    void *p = s->block + s->block_used;
    s->block_used += rounded;
    return p;
}

static void block_free(void *context, void *p) {
    (void)context; // freed as a whole before the next plan
    (void)p;
}

int step_create(struct step **out, const struct step_config *config, struct err_text *e) {
    struct step *s = mem_zalloc(sizeof *s);
    if (s == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the step");
    s->config = *config;
    s->allocator = (ProtobufCAllocator){block_alloc, block_free, s};
    // A plan names each page of the rank, and some again that several sequences share.
    s->block_bytes =
        PLAN_BASE_BYTES + (size_t)config->n_slots * PLAN_SEQ_BYTES +
        ((size_t)config->rows_max + config->kv_blocks + PLAN_NAMES_MAX + STEERING_STEP_ITEMS_MAX) *
            sizeof(uint32_t);
    s->buffer_bytes =
        RESULT_BASE_BYTES + (size_t)config->n_slots * RESULT_SEQ_BYTES +
        ((size_t)config->rows_max + score_items_max(config->rows_max)) * RESULT_SCORE_BYTES;
    s->block = mem_pages(s->block_bytes, 64);
    s->buffer = mem_pages(s->buffer_bytes, 64);
    s->seqs = mem_array(config->n_slots, sizeof *s->seqs);
    s->seq_pointers = mem_array(config->n_slots, sizeof(Moesaic__Step__V1__SeqResult *));
    if (s->block == NULL || s->buffer == NULL || s->seqs == NULL || s->seq_pointers == NULL) {
        step_destroy(s);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for plans of %u sequences", config->n_slots);
    }
    for (uint32_t i = 0; i < config->n_slots; i++)
        s->seq_pointers[i] = &s->seqs[i];
    *out = s;
    return 0;
}

void step_destroy(struct step *s) {
    if (s == NULL) return;
    if (s->block != NULL) mem_pages_free(s->block, s->block_bytes);
    if (s->buffer != NULL) mem_pages_free(s->buffer, s->buffer_bytes);
    mem_free(s->seqs);
    mem_free(s->seq_pointers);
    mem_free(s);
}

uint64_t step_count(const struct step *s) {
    return s->n_served;
}

static int decode_plan(struct step *s, const struct fabric_msg *message,
                       const Moesaic__Step__V1__StepPlan **out, struct err_text *e) {
    s->block_used = 0;
    const Moesaic__Step__V1__StepPlan *plan =
        moesaic__step__v1__step_plan__unpack(&s->allocator, message->bytes, message->data);
    if (plan == NULL)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "plan of %zu bytes is malformed or larger than this rank's slots",
                       message->bytes);
    if (plan->epoch != s->config.epoch)
        return err_set(e, ERR_PEER_PROTOCOL, "plan's epoch %" PRIu64 " is not %" PRIu64,
                       plan->epoch, s->config.epoch);
    if (s->n_served > 0 && plan->step != s->last_step + 1)
        return err_set(e, ERR_PEER_PROTOCOL, "plan's step %" PRIu64 " does not follow %" PRIu64,
                       plan->step, s->last_step);
    *out = plan;
    return 0;
}

// Packing reads only, here and below.
static void fill_scores(Moesaic__Step__V1__SeqResult *out, const struct seq_scores *s) {
    out->n_scored_logprobs = out->n_scored_ranks = s->n_rows;
    out->scored_logprobs = (float *)s->logprobs;
    out->scored_ranks = (uint32_t *)s->ranks;
    out->n_scored_top_ids = out->n_scored_top_logprobs = (size_t)s->n_rows * s->n_top;
    out->scored_top_ids = (uint32_t *)s->top_ids;
    out->scored_top_logprobs = (float *)s->top_logprobs;
}

static void fill_seq(Moesaic__Step__V1__SeqResult *out, const struct seq_result *r) {
    moesaic__step__v1__seq_result__init(out);
    out->slot = r->slot;
    out->token = r->token;
    out->logprob = r->logprob;
    out->n_top_ids = out->n_top_logprobs = r->n_top;
    out->top_ids = (uint32_t *)r->top_ids;
    out->top_logprobs = (float *)r->top_logprobs;
    out->digest = r->digest;
    out->nonfinite = r->nonfinite;
    if (!r->nonfinite) fill_scores(out, &r->scores);
}

static int flush(const struct step *s) {
    return fabric_flush(s->config.fabric, env_now_ns(s->config.env) + s->config.send_timeout_ns);
}

// Of what the step before has sent: its result, and its rows where another stage follows, which
// takes them when it is done with those before. That wait is the stage's.
static int flush_step_before(const struct step *s, uint64_t *waited_ns) {
    *waited_ns = 0;
    if (fabric_flushed(s->config.fabric)) return flush(s);
    int64_t began_ns = env_now_ns(s->config.env);
    int rc = flush(s);
    *waited_ns = (uint64_t)(env_now_ns(s->config.env) - began_ns);
    return rc;
}

// The buffer is free: step_serve has waited for the result before.
static int send_result(struct step *s, const Moesaic__Step__V1__StepResult *result) {
    size_t bytes = moesaic__step__v1__step_result__get_packed_size(result);
    check(bytes <= s->buffer_bytes);
    moesaic__step__v1__step_result__pack(result, s->buffer);
    return fabric_send(s->config.fabric, s->config.n_ranks,
                       fabric_tag(FABRIC_RESULT, result->step, 0),
                       &(struct fabric_part){.data = s->buffer, .data_bytes = bytes});
}

static void result_begin(const struct step *s, Moesaic__Step__V1__StepResult *result,
                         uint64_t number) {
    moesaic__step__v1__step_result__init(result);
    result->epoch = s->config.epoch;
    result->step = number;
    result->rank = s->config.rank;
}

// Tells the leader what is wrong: with its plan, or with what a peer sent in an exchange of the
// step; the text says which. Waits until that has left, because the epoch's buffers go next.
static int refuse_plan(struct step *s, uint64_t number, struct err_text *e) {
    Moesaic__Step__V1__StepResult result;
    result_begin(s, &result, number);
    result.error = e->text;
    int rc = send_result(s, &result);
    if (rc == 0) rc = flush(s);
    return rc != 0 ? rc : ERR_PEER_PROTOCOL;
}

static int answer_plan(struct step *s, uint64_t number, const struct step_output *output) {
    Moesaic__Step__V1__StepResult result;
    uint64_t phase_ns[PHASE_COUNT];
    check(output->n_seqs <= s->config.n_slots);
    for (uint32_t i = 0; i < output->n_seqs; i++)
        fill_seq(&s->seqs[i], &output->seqs[i]);
    memcpy(phase_ns, output->phase_ns, sizeof phase_ns);
    result_begin(s, &result, number);
    result.n_seqs = output->n_seqs;
    result.seqs = s->seq_pointers;
    result.n_phase_ns = PHASE_COUNT;
    result.phase_ns = phase_ns;
    result.total_ns = output->total_ns;
    result.exchange_ns = phase_ns[PHASE_DISPATCH] + phase_ns[PHASE_COMBINE] +
                         phase_ns[PHASE_TENSOR] + phase_ns[PHASE_STAGE];
    result.compute_ns =
        output->total_ns > result.exchange_ns ? output->total_ns - result.exchange_ns : 0;
    return send_result(s, &result);
}

int step_serve(struct step *s, struct fabric_msg *message, struct err_text *e) {
    const Moesaic__Step__V1__StepPlan *plan = NULL;
    struct step_output output;
    // The tag's step is what the leader waits for when the plan itself cannot be read.
    uint64_t number = message->tag >> 16 & ((UINT64_C(1) << 40) - 1);
    uint64_t waited_ns;
    e->text[0] = '\0';
    int rc = flush_step_before(s, &waited_ns);
    if (rc != 0) { // then not even a refusal has room: the fabric may still read the buffer
        fabric_release(s->config.fabric, message);
        return err_set(e, rc, "what was sent before did not leave: %s", err_name(rc));
    }
    rc = decode_plan(s, message, &plan, e);
    fabric_release(s->config.fabric, message); // decoding copied everything
    if (rc == 0) {
        number = plan->step;
        rc = model_step(s->config.model, plan, &output, e);
    }
    if (rc == ERR_PEER_PROTOCOL) return refuse_plan(s, number, e);
    if (rc != 0) return rc;
    output.phase_ns[PHASE_STAGE] += waited_ns;
    output.total_ns += waited_ns;
    s->last_step = number;
    s->n_served++;
    return answer_plan(s, number, &output);
}
