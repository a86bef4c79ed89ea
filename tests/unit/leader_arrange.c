// leader_arrange.c: how many workers the leader's options ask for, and what memory it may reckon
// with.
#include "leader/arrange.h"

#include <string.h>

#include "common/base/cgroup.h"
#include "tests/harness/suite.h"

START_TEST(the_number_of_workers_comes_from_what_is_given) {
    static const struct {
        struct leader_options o;
        uint32_t n;
        bool derived;
    } rows[] = {
        {{.parallel = {.workers = 3}, .local_workers = 2}, 3, false},
        {{.lws_group_size = 5, .local_workers = 2}, 4, true},
        {{.local_workers = 2}, 2, true},
        {{.local_workers = 2, .parallel = {.tensor_size = 4}}, 4, true},
        {{.parallel = {.data_size = 2, .expert_size = 2, .expert_tensor_size = 2}}, 4, true},
        {{.port = 1}, 1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct leader_options o = rows[i].o;
        struct err_text e = {""};
        ck_assert_msg(arrange_count(&o, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(o.parallel.workers, rows[i].n);
        ck_assert(o.parallel.workers_derived == rows[i].derived);
    }
}
END_TEST

START_TEST(too_many_workers_are_refused_by_the_flags_that_were_given) {
    struct leader_options o = {.parallel = {.pipeline_size = 64, .expert_size = 64}};
    struct err_text e = {""};
    ck_assert_int_eq(arrange_count(&o, &e), ERR_FATAL_CONFIG);
    ck_assert_str_eq(e.text, "--pipeline-parallel-size 64 --expert-parallel-size 64: more than "
                             "1024 workers are not possible");
}
END_TEST

// Others may have any memory: what is known of this machine says nothing about them.
START_TEST(memory_is_known_when_given_or_when_all_workers_are_local) {
    struct leader_options o = {.local_workers = 2, .parallel = {.workers = 8}};
    ck_assert_uint_eq(arrange_memory(&o, NULL), 0);
    ck_assert_uint_eq(arrange_memory(&o, "1MiB"), 0);
    o.parallel.workers = 2;
    ck_assert_uint_eq(arrange_memory(&o, "1MiB"), 1 << 20);
    uint64_t share = arrange_memory(&o, NULL), all = cgroup_memory_bytes();
    ck_assert(share > all / 4 && share < all); // others take and give some meanwhile
    ck_assert(arrange_memory(&o, "0") > all / 4);
    ck_assert(arrange_memory(&o, "nonsense") > all / 4); // the workers refuse it by name
    o.parallel.worker_memory = 7;
    ck_assert_uint_eq(arrange_memory(&o, "1MiB"), 7);
    o.local_workers = 0;
    ck_assert_uint_eq(arrange_memory(&o, NULL), 7);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("arrange");
    tcase_add_test(t, the_number_of_workers_comes_from_what_is_given);
    tcase_add_test(t, too_many_workers_are_refused_by_the_flags_that_were_given);
    tcase_add_test(t, memory_is_known_when_given_or_when_all_workers_are_local);
    Suite *s = suite_create("leader_arrange");
    suite_add_tcase(s, t);
    return suite_run(s);
}
