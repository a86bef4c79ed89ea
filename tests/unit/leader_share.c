// leader_share.c: the workers of a host divide its memory by what each needs, and take no more of
// it together than it has.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fake_cluster.h"
#include "tests/harness/suite.h"

#define MIB (UINT64_C(1) << 20)

static struct fake_cluster f;

// What a worker says of itself; pages are those that it could hold alone.
struct words {
    const char *host;
    uint64_t memory, weights, page;
    uint32_t pages;
    bool given;
};

static void join(uint64_t peer, const struct words *w) {
    Moesaic__Control__V1__Hello h;
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
    fake_hello_fill(&h, peer);
    h.host = (char *)w->host;
    h.memory_bytes = w->memory;
    h.memory_given = w->given;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HELLO;
    up.hello = &h;
    fake_open(&f, peer);
    fake_say(&f, peer, &up);
    l.model_digest = FAKE_MODEL_DIGEST;
    l.shared_digest = 11;
    l.experts_digest = 100 + f.peers[peer].rank;
    l.weight_bytes = w->weights;
    l.kv_blocks = w->pages;
    l.snapshots = w->pages;
    l.step_bytes = 20 * MIB;
    l.page_bytes = w->page;
    l.state_bytes = 2 * MIB;
    fake_loaded_with(&f, peer, &l);
}

// A group of these, of which the leader's options are set by now.
static void start(uint32_t n) {
    fake_start(&f, n);
    f.leader.max_num_seqs = 1024; // so that memory alone bounds the pages
    f.leader.snapshot_percent = 10;
}

static void form(const struct words *words, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        join(i + 1, &words[i]);
    fake_tick(&f);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(f.peers[i + 1].n_form, 1);
}

// Once all are there again; what broke while it formed waits longer.
static void form_again(void) {
    fake_pass(&f, MEMBER_SETTLE_NS > MEMBER_RETRY_NS ? MEMBER_SETTLE_NS : MEMBER_RETRY_NS);
    fake_tick(&f);
}

static const struct words twins[] = {{"host", 1000 * MIB, 400 * MIB, MIB, 580, false},
                                     {"host", 1000 * MIB, 400 * MIB, MIB, 580, false}};

START_TEST(a_per_cent_is_of_the_host_while_there_is_as_much) {
    start(2);
    f.leader.kv_cache_percent = 10;
    form(twins, 2);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 50);
    ck_assert_uint_eq(f.peers[2].kv_blocks, 50);
    ck_assert_uint_eq(f.peers[1].snapshots, 15); // of the 60 MiB that pages leave
    fake_finish(&f);
}
END_TEST

// Each alone would have 580 pages beside its own weights; the host has 160 MiB for both.
START_TEST(all_weights_and_steps_of_a_host_are_taken_off) {
    for (int bytes = 0; bytes < 2; bytes++) {
        start(2);
        f.leader.kv_cache_percent = 60;
        f.leader.kv_cache_bytes = bytes == 1 ? 500 * MIB : 0;
        form(twins, 2);
        ck_assert_uint_eq(f.peers[1].kv_blocks, 80);
        ck_assert_uint_eq(f.peers[2].kv_blocks, 80);
        ck_assert_uint_eq(f.peers[1].snapshots, 0); // pages have all
        fake_finish(&f);
    }
}
END_TEST

START_TEST(workers_with_larger_pages_have_as_many_of_them) {
    const struct words words[] = {{"host", 1000 * MIB, 300 * MIB, MIB, 680, false},
                                  {"host", 1000 * MIB, 500 * MIB, 3 * MIB, 160, false},
                                  {"other", 1000 * MIB, 400 * MIB, MIB, 580, false}};
    start(3);
    f.leader.kv_cache_percent = 100;
    form(words, 3);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 40);
    ck_assert_uint_eq(f.peers[2].kv_blocks, 40);
    ck_assert_uint_eq(f.peers[3].kv_blocks, 580); // alone on its own
    fake_finish(&f);
}
END_TEST

START_TEST(memory_that_was_given_to_one_worker_is_not_divided) {
    const struct words words[] = {{"host", 500 * MIB, 400 * MIB, MIB, 50, true},
                                  {"host", 1000 * MIB, 400 * MIB, MIB, 580, false}};
    start(2);
    f.leader.kv_cache_percent = 10;
    form(words, 2);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 50);
    ck_assert_uint_eq(f.peers[2].kv_blocks, 100);
    ck_assert_uint_eq(f.peers[1].n_on_host, 2); // cores are
    fake_finish(&f);
}
END_TEST

// A worker that is started beside others sees what they left.
START_TEST(a_worker_that_came_later_costs_the_others_nothing) {
    const struct words words[] = {{"host", 1000 * MIB, 400 * MIB, MIB, 580, false},
                                  {"host", 520 * MIB, 400 * MIB, MIB, 52, false}};
    start(2);
    f.leader.kv_cache_percent = 10;
    form(words, 2);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 50);
    ck_assert_uint_eq(f.peers[2].kv_blocks, 50);
    fake_finish(&f);
}
END_TEST

// What is started again sees what the other one leaves; the dead one's place remembers the host.
START_TEST(workers_that_are_started_again_one_by_one_have_as_many_pages_as_before) {
    static const struct words again = {"host", 520 * MIB, 400 * MIB, MIB, 100, false};
    start(2);
    f.leader.kv_cache_percent = 60;
    form(twins, 2);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 80);
    for (uint64_t peer = 1; peer <= 2; peer++) {
        fake_close(&f, peer, "it ended");
        join(peer + 2, &again);
        form_again();
        ck_assert_uint_eq(f.peers[peer + 2].n_form, 1);
        ck_assert_uint_eq(f.peers[peer + 2].kv_blocks, 80);
    }
    fake_finish(&f);
}
END_TEST

START_TEST(a_host_that_booted_again_is_seen_anew) {
    static const struct words again = {"host 2", 900 * MIB, 400 * MIB, MIB, 480, false};
    start(2);
    f.leader.kv_cache_percent = 60;
    form(twins, 2);
    for (uint64_t peer = 1; peer <= 2; peer++)
        fake_close(&f, peer, "it ended");
    for (uint64_t peer = 3; peer <= 4; peer++)
        join(peer, &again);
    form_again();
    ck_assert_uint_eq(f.peers[3].kv_blocks, 30);
    fake_finish(&f);
}
END_TEST

START_TEST(memory_that_was_given_says_nothing_of_the_host) {
    const struct words words[] = {{"host", 5000 * MIB, 400 * MIB, MIB, 580, true},
                                  {"host", 1000 * MIB, 400 * MIB, MIB, 580, false}};
    start(2);
    f.leader.kv_cache_percent = 10;
    form(words, 2);
    fake_close(&f, 2, "it ended");
    join(3, &words[1]);
    form_again();
    ck_assert_uint_eq(f.peers[3].kv_blocks, 100);
    fake_finish(&f);
}
END_TEST

START_TEST(a_host_without_room_leaves_one_page_which_the_worker_then_cannot_have) {
    const struct words words[] = {{"host", 500 * MIB, 400 * MIB, MIB, 80, false},
                                  {"host", 500 * MIB, 400 * MIB, MIB, 80, false}};
    start(2);
    form(words, 2);
    ck_assert_uint_eq(f.peers[1].kv_blocks, 1);
    ck_assert_uint_eq(f.peers[1].snapshots, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(sizes_that_no_worker_has_are_refused) {
    const uint64_t sizes[] = {UINT64_MAX, UINT64_C(1) << 53};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct words words = twins[0];
        start(2);
        words.page = sizes[i];
        join(1, &words);
        ck_assert(f.peers[1].refused);
        ck_assert_msg(strstr(f.peers[1].reason, "Loaded.page_bytes") != NULL, "%s",
                      f.peers[1].reason);
        words = twins[0];
        words.weights = sizes[i];
        join(2, &words);
        ck_assert(f.peers[2].refused);
        fake_finish(&f);
    }
}
END_TEST

// How often the text is in what this logs.
static uint32_t count_logged(const char *text, void (*what)(void)) {
    char line[1024];
    uint32_t n = 0;
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    ck_assert(log != NULL && before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    what();
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(log);
    while (fgets(line, sizeof line, log) != NULL)
        n += strstr(line, text) != NULL;
    fclose(log);
    return n;
}

static void form_beside_a_given_one(void) {
    const struct words words[] = {{"host", 500 * MIB, 400 * MIB, MIB, 50, true},
                                  {"host", 1000 * MIB, 400 * MIB, MIB, 580, false},
                                  {"host", 1000 * MIB, 400 * MIB, MIB, 580, false}};
    start(3);
    form(words, 3);
    fake_finish(&f);
}

START_TEST(what_was_divided_is_logged_once_though_the_first_has_no_part) {
    ck_assert_uint_eq(count_logged("memory divided", form_beside_a_given_one), 1);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("share");
    tcase_add_test(t, a_per_cent_is_of_the_host_while_there_is_as_much);
    tcase_add_test(t, all_weights_and_steps_of_a_host_are_taken_off);
    tcase_add_test(t, workers_with_larger_pages_have_as_many_of_them);
    tcase_add_test(t, memory_that_was_given_to_one_worker_is_not_divided);
    tcase_add_test(t, a_worker_that_came_later_costs_the_others_nothing);
    tcase_add_test(t, workers_that_are_started_again_one_by_one_have_as_many_pages_as_before);
    tcase_add_test(t, a_host_that_booted_again_is_seen_anew);
    tcase_add_test(t, memory_that_was_given_says_nothing_of_the_host);
    tcase_add_test(t, a_host_without_room_leaves_one_page_which_the_worker_then_cannot_have);
    tcase_add_test(t, what_was_divided_is_logged_once_though_the_first_has_no_part);
    tcase_add_test(t, sizes_that_no_worker_has_are_refused);
    Suite *s = suite_create("leader_share");
    suite_add_tcase(s, t);
    return suite_run(s);
}
