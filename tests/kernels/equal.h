// equal.h: the whole grid for one table; equal_<table>.c names it.
#ifndef MOESAIC_TESTS_EQUAL_H
#define MOESAIC_TESTS_EQUAL_H

#include "tests/kernels/grid_dense.h"

#include "tests/kernels/grid_attention.h"
#include "tests/kernels/grid_entries.h"
#include "tests/kernels/grid_latent.h"
#include "tests/kernels/grid_rows.h"

#include "tests/kernels/grid_delta.h"

static int equal_main(const char *name) {
    table = kernel_ops_select(name);
    if (table == NULL) {
        printf("skipped: this CPU does not run %s\n", name);
        return 77;
    }
    kernel_thread_init();
    printf("table %s seed %llu\n", table->name, (unsigned long long)test_seed());
    const TTest *const tests[] = {
        matmul_equals_the_oracle_on_awkward_sizes,
        matmul_equals_the_oracle_on_a_vocabulary,
        matmul_equals_the_oracle_across_blocks_of_rows,
        matmul_carries_infinities_and_nan_as_the_oracle,
        attend_equals_the_oracle_on_awkward_lengths,
        attend_equals_the_oracle_on_unrelated_ranges,
        attend_equals_the_oracle_where_sequences_share_their_first_pages,
        attend_reads_no_key_outside_of_a_querys_range,
        attend_carries_infinities_and_nan_as_the_oracle,
        attend_latent_equals_the_oracle_on_awkward_sizes,
        attend_latent_equals_the_oracle_on_unrelated_lengths,
        attend_latent_reads_no_key_that_was_not_chosen,
        attend_latent_over_all_keys_chosen_is_attention_over_all,
        attend_latent_carries_infinities_and_nan_as_the_oracle,
        attend_latent_over_entries_and_tokens_equals_the_oracle,
        attend_latent_over_chosen_entries_equals_the_oracle,
        attend_latent_with_sinks_carries_infinities_and_nan_as_the_oracle,
        index_scores_equal_the_oracle,
        entry_scores_equal_the_oracle,
        window_sum_equals_the_oracle,
        rms_norm_equals_the_oracle,
        layer_norm_equals_the_oracle,
        clamped_glu_equals_the_oracle,
        limited_glu_equals_the_oracle,
        streams_are_mixed_as_by_the_oracle,
        gelu_mul_and_softcap_equal_the_oracle,
        delta_rule_equals_the_oracle_on_heads_of_all_sizes,
        delta_rule_has_one_answer_for_all_cuts_of_its_tokens,
        conv_silu_and_sigmoid_mul_equal_the_oracle,
        rope_equals_the_oracle,
        silu_mul_equals_the_oracle,
        add_scale_and_axpy_equal_the_oracle,
        clamp_equals_the_oracle,
        softmax_equals_the_oracle,
        sigmoid_and_exp_equal_the_oracle,
        log_sum_exp_equals_the_oracle,
        sums_of_similar_elements_equal_the_oracle,
        zero_of_either_sign_is_the_same_maximum,
        exp_equals_its_scalar_form_on_all_floats,
        pack_and_unpack_equal_the_oracle_on_any_bits,
        pack_int8_equals_the_oracle,
        unpack_reads_at_odd_addresses,
    };
    return test_run(name, tests, sizeof tests / sizeof *tests);
}

#endif
