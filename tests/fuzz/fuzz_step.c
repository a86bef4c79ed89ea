// fuzz_step.c: plans as bytes from the fabric: unpacked, checked and run on a small model. Whatever
// arrives, a plan is refused or it runs; every result names a slot and a token that exist.
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

static struct tiny *tiny; // made once: it does not change

static void run_plan(struct model *model, const uint8_t *data, size_t size) {
    struct step_output out;
    struct err_text e;
    Moesaic__Step__V1__StepPlan *plan = moesaic__step__v1__step_plan__unpack(NULL, size, data);
    if (plan == NULL) return;
    int rc = model_step(model, plan, &out, &e);
    check(rc == 0 || rc == ERR_PEER_PROTOCOL);
    for (uint32_t i = 0; rc == 0 && i < out.n_seqs; i++) {
        check(out.seqs[i].slot < N_SLOTS && out.seqs[i].token < tiny_weights(tiny, 0)->spec->vocab);
        check(out.seqs[i].n_top <= TOP_LOGPROBS_MAX);
    }
    moesaic__step__v1__step_plan__free_unpacked(plan, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_spec spec;
    tiny_spec_odd(&spec);
    spec.n_layers = 2; // a dense one and one with experts
    if (tiny == NULL) tiny = tiny_create(&spec, 1, DTYPE_F32, 9);
    const struct weights *weights = tiny_weights(tiny, 0);
    struct ranks *ranks = ranks_create(&(struct ranks_config){.weights = &weights,
                                                              .layout = tiny_layout(tiny),
                                                              .n_threads = 1,
                                                              .n_slots = N_SLOTS,
                                                              .rows_max = 40,
                                                              .max_model_len = 100,
                                                              .kv_blocks = 12,
                                                              .kv_dtype = DTYPE_BF16});
    while (size >= 2) {
        size_t bytes = data[0] | (size_t)data[1] << 8;
        if (bytes > size - 2) bytes = size - 2;
        run_plan(ranks_model(ranks, 0), data + 2, bytes);
        data += 2 + bytes;
        size -= 2 + bytes;
    }
    ranks_destroy(ranks);
    return 0;
}
