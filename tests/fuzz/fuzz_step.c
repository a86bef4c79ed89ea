// fuzz_step.c: plans as bytes from the fabric: unpacked, checked and run on two small models, one
// of which keeps states in its slots. Whatever arrives, a plan is refused or it runs; every result
// names a slot and a token that exist.
//
// An input is a list of plans, each with its size in two bytes before it, so that later plans meet
// the slots that earlier ones left.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/harness/serve.h"
#include "tests/harness/tiny.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_SLOTS 4
#define FOLDER SOURCE_ROOT "/tests/data/models/qwen3-next"

// Made once: they do not change.
static struct tiny *tiny;
static struct model_spec stateful_spec;
static struct weights *stateful;

static void run_plan(struct ranks *ranks, const uint8_t *data, size_t size) {
    uint32_t vocab = ranks_spec(ranks)->vocab;
    struct step_output out;
    struct err_text e;
    Moesaic__Step__V1__StepPlan *plan = moesaic__step__v1__step_plan__unpack(NULL, size, data);
    if (plan == NULL) return;
    int rc = model_step(ranks_model(ranks, 0), plan, &out, &e);
    check(rc == 0 || rc == ERR_PEER_PROTOCOL);
    for (uint32_t i = 0; rc == 0 && i < out.n_seqs; i++) {
        check(out.seqs[i].slot < N_SLOTS && out.seqs[i].token < vocab);
        check(out.seqs[i].n_top <= TOP_LOGPROBS_MAX);
    }
    moesaic__step__v1__step_plan__free_unpacked(plan, NULL);
}

static void run_plans(const struct weights *weights, const uint8_t *data, size_t size) {
    struct ranks *ranks = ranks_create(&(struct ranks_config){.weights = &weights,
                                                              .layout = tiny_layout(tiny),
                                                              .n_threads = 1,
                                                              .n_slots = N_SLOTS,
                                                              .rows_max = 40,
                                                              .max_model_len = 100,
                                                              .kv_blocks = 12,
                                                              .n_snapshots = 3,
                                                              .kv_dtype = DTYPE_BF16});
    while (size >= 2) {
        size_t bytes = data[0] | (size_t)data[1] << 8;
        if (bytes > size - 2) bytes = size - 2;
        run_plan(ranks, data + 2, bytes);
        data += 2 + bytes;
        size -= 2 + bytes;
    }
    ranks_destroy(ranks);
}

static void make_models(void) {
    static struct model_spec spec;
    struct err_text e;
    tiny_spec_odd(&spec);
    spec.n_layers = 2; // a dense one and one with experts
    tiny = tiny_create(&spec, 1, DTYPE_F32, 9);
    check(spec_load(&stateful_spec, FOLDER, &e) == 0);
    struct weights_config config = {.folder = FOLDER,
                                    .spec = &stateful_spec,
                                    .layout = tiny_layout(tiny),
                                    .dtype = stateful_spec.dtype,
                                    .n_threads = 1};
    check(weights_load(&stateful, &config, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (tiny == NULL) make_models();
    run_plans(tiny_weights(tiny, 0), data, size);
    run_plans(stateful, data, size);
    return 0;
}
