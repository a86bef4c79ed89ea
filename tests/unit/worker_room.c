// worker_room.c: a rank promises only pages and snapshots that fit beside its weights and its step,
// and refuses what cannot run, with the numbers.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"
#include "worker/combine.h"
#include "worker/dispatch.h"
#include "worker/kv.h"
#include "worker/room.h"
#include "worker/stage.h"

#define MIB (UINT64_C(1) << 20)

static struct model_spec spec;
static struct weights weights;
static struct layout layout;
static struct model_config model;
static struct room room;

static void set_up(uint32_t n_ranks) {
    struct err_text e;
    tiny_spec(&spec);
    ck_assert_int_eq(layout_make(&layout, n_ranks, &e), 0);
    weights = (struct weights){
        .spec = &spec, .n_local_experts = layout_expert_count(&layout, 6, 0), .bytes = 3 * MIB};
    model = (struct model_config){.weights = &weights,
                                  .layout = &layout,
                                  .n_slots = 4,
                                  .rows_max = 64,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    room = (struct room){.model = &model,
                         .n_threads = 2,
                         .memory_bytes = 100 * MIB,
                         .kv_percent = 100,
                         .message_bytes_max = 16 * MIB};
}

static uint32_t blocks(void) {
    struct err_text e = {0};
    uint32_t n = 0;
    ck_assert_msg(room_kv_blocks(&room, &n, &e) == 0, "%s", e.text);
    return n;
}

static void expect_refused(const char *words) {
    struct err_text e = {0};
    uint32_t n = 77;
    ck_assert_int_eq(room_kv_blocks(&room, &n, &e),
                     room.measured ? ERR_FATAL_NOMEM : ERR_FATAL_CONFIG);
    ck_assert_uint_eq(n, 77);
    ck_assert_msg(strstr(e.text, words) != NULL, "\"%s\" is not in \"%s\"", words, e.text);
}

START_TEST(pages_weights_and_step_fit_into_the_memory_together) {
    set_up(1 + (uint32_t)_i);
    uint64_t step = model_step_bytes(&model, room.n_threads);
    ck_assert_uint_gt(step, (uint64_t)model.rows_max * spec.hidden * sizeof(float));
    uint32_t all = blocks();
    ck_assert_uint_eq(all, model_kv_blocks_fit(&model, room.memory_bytes - weights.bytes - step));
    room.kv_percent = 10;
    ck_assert_uint_eq(blocks(), model_kv_blocks_fit(&model, room.memory_bytes / 100 * 10));
    room.kv_bytes = 5 * MIB;
    ck_assert_uint_eq(blocks(), model_kv_blocks_fit(&model, 5 * MIB));
    room.kv_bytes = 500 * MIB; // more than there is
    ck_assert_uint_eq(blocks(), all);
}
END_TEST

START_TEST(narrow_pages_hold_nearly_twice_the_tokens) {
    set_up(1);
    spec.head_dim = 128;
    uint64_t bytes = 64 * MIB;
    model.kv_dtype = DTYPE_BF16;
    uint32_t bf16 = model_kv_blocks_fit(&model, bytes);
    ck_assert_uint_ge(bf16, 500);
    const enum dtype narrow[] = {DTYPE_E4M3, DTYPE_I8};
    for (int i = 0; i < 2; i++) {
        model.kv_dtype = narrow[i];
        uint32_t n = model_kv_blocks_fit(&model, bytes);
        ck_assert_msg(10 * (uint64_t)n >= 19 * (uint64_t)bf16, "%s: %u pages, bfloat16: %u",
                      dtype_name(narrow[i]), n, bf16);
        struct kv_sizes sizes = {
            .spec = &spec, .dtype = narrow[i], .n_layers = spec.n_layers, .n_heads = 2};
        ck_assert_uint_le(kv_block_bytes(&sizes) * n, bytes);
        ck_assert_uint_eq(kv_block_bytes(&sizes),
                          KV_BLOCK_TOKENS * spec_kv_token_bytes(&spec, narrow[i]));
    }
}
END_TEST

START_TEST(step_memory_grows_with_what_a_step_may_hold) {
    set_up(1);
    uint64_t alone = model_step_bytes(&model, 2);
    ck_assert_uint_gt(model_step_bytes(&model, 3), alone);
    model.rows_max = 128;
    ck_assert_uint_gt(model_step_bytes(&model, 2), alone);
    set_up(1);
    model.n_slots = 5;
    ck_assert_uint_gt(model_step_bytes(&model, 2), alone);
    set_up(1);
    model.kv_blocks = 1000; // pages are counted elsewhere
    ck_assert_uint_eq(model_step_bytes(&model, 2), alone);
    set_up(2); // messages
    ck_assert_uint_gt(model_step_bytes(&model, 2),
                      alone + model_message_bytes_max(&spec, &layout, 64));
}
END_TEST

// Layer 0 keeps a state; snapshots take what pages leave, of a stage without such layers any
// number.
START_TEST(snapshots_fit_beside_the_pages) {
    set_up(1);
    room.snapshot_percent = 5;
    room.kv_percent = 10;
    ck_assert_uint_eq(room_snapshots(&room, blocks()), 0); // no layer keeps one
    spec.layer_flags[0] |= LAYER_RECURRENT;
    spec.delta =
        (struct delta_spec){.kernel = 4, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 64, .v_dim = 64};
    uint64_t state = spec_state_bytes(&spec);
    room.snapshot_percent = 0; // nor bytes: none are wanted
    ck_assert_uint_eq(room_snapshots(&room, blocks()), 0);
    room.snapshot_percent = 5;
    ck_assert_uint_eq(model_state_bytes(&model), state);
    uint32_t n = room_snapshots(&room, blocks());
    ck_assert_uint_eq(n, model_snapshots_fit(&model, room.memory_bytes / 100 * 5));
    ck_assert_uint_ge(n, 5 * MIB / state - 2);
    room.snapshot_bytes = 10 * state;
    ck_assert_uint_eq(room_snapshots(&room, blocks()), 9); // each has a note
    room.snapshot_bytes = 500 * MIB;
    n = room_snapshots(&room, blocks());
    ck_assert_uint_gt(n, 50 * MIB / state);
    ck_assert_uint_lt(n, 90 * MIB / state);
    room.kv_percent = 100;
    ck_assert_uint_eq(room_snapshots(&room, blocks()), 0); // pages have all
    layout = (struct layout){.n_ranks = 2, .pp = 2, .dp = 1, .tp = 1, .ep = 1, .etp = 1};
    model.rank = 1;
    ck_assert_uint_eq(model_state_bytes(&model), 0);
    ck_assert_uint_eq(room_snapshots(&room, blocks()), SNAPSHOTS_MAX);
}
END_TEST

// Two ranks that split the heads: a page costs half as much on each.
START_TEST(a_rank_of_a_tp_group_counts_its_own_heads_and_messages) {
    set_up(1);
    uint32_t whole = model_kv_blocks_fit(&model, 64 * MIB);
    layout = (struct layout){.n_ranks = 2, .pp = 1, .dp = 1, .tp = 2, .ep = 2, .etp = 1};
    ck_assert_uint_ge(model_kv_blocks_fit(&model, 64 * MIB), 2 * whole - whole / 20);
    // Without experts there are still gathers of half the rows.
    spec.ffn[0] = spec.ffn[2] = FFN_DENSE;
    room.message_bytes_max = model_message_bytes_max(&spec, &layout, 64);
    ck_assert_uint_ge(room.message_bytes_max, 64 / 2 * spec.hidden * sizeof(float));
    ck_assert_uint_gt(blocks(), 0);
    room.message_bytes_max--;
    expect_refused("max-num-batched-tokens 64 of this model needs messages of");
}
END_TEST

// Three stages of a layer each: a page costs a third. Only the last one has logits, only those
// behind the first hold rows that came ahead.
START_TEST(a_stage_counts_its_own_layers_and_messages) {
    set_up(1);
    uint32_t whole = model_kv_blocks_fit(&model, 64 * MIB);
    uint64_t alone = model_step_bytes(&model, 2);
    layout = (struct layout){.n_ranks = 3, .pp = 3, .dp = 1, .tp = 1, .ep = 1, .etp = 1};
    ck_assert_uint_ge(model_kv_blocks_fit(&model, 64 * MIB), 3 * whole - whole / 5);
    uint64_t first = model_step_bytes(&model, 2);
    model.rank = 1;
    ck_assert_uint_eq(model_step_bytes(&model, 2), first + 3 * stage_bytes_max(&spec, 64));
    model.rank = 2;
    ck_assert_uint_gt(model_step_bytes(&model, 2), first + 3 * stage_bytes_max(&spec, 64));
    ck_assert_uint_gt(alone, first);
    spec.ffn[0] = spec.ffn[2] = FFN_DENSE;
    ck_assert_uint_ge(model_message_bytes_max(&spec, &layout, 64), stage_bytes_max(&spec, 64));
}
END_TEST

START_TEST(a_rank_that_shares_experts_counts_the_answers_of_all_that_do) {
    set_up(4);
    tiny_spec_split(&spec);
    uint64_t bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        // The same place of EP holds the same experts, by two ranks or by four.
        layout = (struct layout){.n_ranks = 4, .pp = 1, .dp = 4, .tp = 1, .ep = 1, .etp = 4};
        layout.n_ranks = layout.dp = layout.etp = i == 0 ? 2 : 4;
        weights.n_local_experts = 5;
        bytes[i] = model_step_bytes(&model, 2);
    }
    uint64_t peers = 2 * dispatch_bytes_max(&spec, 64), answers = 2 * combine_bytes_max(&spec, 64);
    ck_assert_uint_gt(bytes[1], bytes[0] + peers + answers);
}
END_TEST

START_TEST(nothing_left_is_refused_with_the_flags_to_lower) {
    set_up(1);
    room.memory_bytes = weights.bytes + model_step_bytes(&model, 2);
    expect_refused("max-num-batched-tokens 64");
    room.memory_bytes = weights.bytes - 1;
    expect_refused("not one KV page fits");
    room.kv_bytes = 1 * MIB;
    expect_refused("not one KV page fits");
    room.measured = true; // no fault of the options
    expect_refused("not one KV page fits");
    set_up(1);
    room.kv_bytes = model_kv_block_bytes(&model);
    ck_assert_uint_eq(blocks(), 1);
    room.kv_bytes--;
    expect_refused("is less than one KV page of");
}
END_TEST

START_TEST(messages_that_no_worker_would_take_are_refused_before_the_first_step) {
    set_up(2);
    room.message_bytes_max = model_message_bytes_max(&spec, &layout, 64);
    ck_assert_uint_gt(blocks(), 0);
    room.message_bytes_max--;
    expect_refused("max-num-batched-tokens 64 of this model needs messages of");
    set_up(1);
    room.message_bytes_max = 1; // alone, it sends none
    ck_assert_uint_gt(blocks(), 0);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("room");
    tcase_add_test(t, snapshots_fit_beside_the_pages);
    tcase_add_loop_test(t, pages_weights_and_step_fit_into_the_memory_together, 0, 2);
    tcase_add_test(t, narrow_pages_hold_nearly_twice_the_tokens);
    tcase_add_test(t, step_memory_grows_with_what_a_step_may_hold);
    tcase_add_test(t, a_rank_of_a_tp_group_counts_its_own_heads_and_messages);
    tcase_add_test(t, a_stage_counts_its_own_layers_and_messages);
    tcase_add_test(t, a_rank_that_shares_experts_counts_the_answers_of_all_that_do);
    tcase_add_test(t, nothing_left_is_refused_with_the_flags_to_lower);
    tcase_add_test(t, messages_that_no_worker_would_take_are_refused_before_the_first_step);
    Suite *s = suite_create("worker_room");
    suite_add_tcase(s, t);
    return suite_run(s);
}
