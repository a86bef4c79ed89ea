// leader_leaving.c: a worker that asks to leave is let go when no request needs it, or when its
// group is gone anyway.
#include "tests/harness/fake_cluster.h"
#include "tests/harness/suite.h"

static struct fake_cluster f;

START_TEST(leaving_waits_until_no_request_needs_the_worker) {
    char text[160];
    fake_start(&f, 2);
    fake_group(&f);
    fake_leaving(&f, 2, true);
    fake_leaving(&f, 2, true); // said again: no offence
    fake_tick(&f);
    ck_assert(members_leaving(f.members));
    ck_assert(!members_ready(f.members));
    members_sentence(f.members, text, sizeof text);
    ck_assert_str_eq(text, "1 of 2 workers leave when the running requests have ended");
    ck_assert_uint_eq(f.n_lost + f.n_left, 0);
    ck_assert_uint_eq(f.peers[2].n_leave + f.peers[2].n_drop, 0);
    members_let_go(f.members);
    ck_assert(!members_leaving(f.members));
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_uint_eq(f.n_left, 1);
    ck_assert_uint_eq(f.peers[1].n_close, 1);
    ck_assert_uint_eq(f.peers[1].n_drop, 0);
    ck_assert_uint_eq(f.peers[2].n_close, 1);
    ck_assert_uint_eq(f.peers[2].n_leave, 1);
    ck_assert_uint_eq(f.peers[2].n_drop, 1);
    ck_assert(!f.peers[2].refused);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOST);
    fake_close(&f, 2, "");
    fake_hello(&f, 3, -1);
    fake_loaded(&f, 3, 10);
    fake_pass(&f, MEMBER_SETTLE_NS);
    fake_tick(&f);
    ck_assert_uint_eq(f.peers[3].n_form, 1);
    fake_finish(&f);
}
END_TEST

START_TEST(leaving_ends_with_the_group_when_that_breaks_first) {
    fake_start(&f, 2);
    fake_group(&f);
    fake_leaving(&f, 1, true);
    members_break(f.members, "a step was late");
    ck_assert_uint_eq(f.n_left, 0);
    fake_pass(&f, MEMBER_SETTLE_NS);
    fake_tick(&f);
    ck_assert_uint_eq(f.n_left, 1);
    ck_assert_uint_eq(f.peers[1].n_leave, 1);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOST);
    ck_assert_uint_eq(f.peers[2].n_form, 1); // of the group that there was
    fake_finish(&f);
}
END_TEST

START_TEST(leaving_is_at_once_where_nothing_runs_or_nothing_is_waited_for) {
    fake_start(&f, 2);
    fake_hello(&f, 1, -1);
    fake_loaded(&f, 1, 10);
    fake_leaving(&f, 1, true);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOST);
    ck_assert_uint_eq(f.n_left, 1);
    fake_finish(&f);
    fake_start(&f, 2);
    fake_group(&f);
    fake_leaving(&f, 1, false);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_uint_eq(f.n_left, 1);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOST);
    ck_assert_uint_eq(f.peers[1].n_leave, 0);
    fake_finish(&f);
}
END_TEST

// Workers 1 and 2 as ranks 0 and 1, of which the leader starts the first so many if they are here.
static void group_of_named(uint32_t n_local, bool here) {
    static const char *const names[] = {"local-0", "local-1"};
    fake_start(&f, 2);
    f.leader.n_local = n_local;
    for (uint64_t peer = 1; peer <= 2; peer++) {
        if (here)
            fake_hello_local(&f, peer, names[peer - 1]);
        else
            fake_hello_named(&f, peer, names[peer - 1]);
        fake_loaded(&f, peer, 10);
    }
    fake_tick(&f);
    for (uint64_t peer = 1; peer <= 2; peer++)
        fake_formed(&f, peer, f.peers[peer].epoch, 8);
    for (uint64_t peer = 1; peer <= 2; peer++)
        fake_ready(&f, peer, f.peers[peer].epoch);
    ck_assert(members_ready(f.members));
}

START_TEST(leaving_of_a_worker_elsewhere_with_the_name_of_a_local_one_is_no_pause) {
    group_of_named(2, false);
    fake_leaving(&f, 2, true);
    fake_tick(&f);
    ck_assert(members_parting(f.members));
    fake_finish(&f);
}
END_TEST

START_TEST(leaving_of_a_worker_that_the_leader_starts_again_is_a_pause) {
    group_of_named(2, true);
    fake_leaving(&f, 2, true);
    fake_tick(&f);
    ck_assert(members_leaving(f.members));
    ck_assert(!members_parting(f.members));
    members_let_go(f.members);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert(!f.lost_on_purpose);
    ck_assert_uint_eq(f.n_left, 0);
    ck_assert_uint_eq(f.peers[2].n_leave, 1);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOST);
    fake_finish(&f);
    group_of_named(2, true); // and where it does not wait, or goes while there is no group
    fake_leaving(&f, 1, false);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert(!f.lost_on_purpose);
    fake_leaving(&f, 2, true);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOST);
    ck_assert_uint_eq(f.n_left, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(leaving_of_a_worker_from_elsewhere_beside_local_ones_is_for_good) {
    group_of_named(1, true);
    fake_leaving(&f, 1, true);
    ck_assert(!members_parting(f.members));
    fake_leaving(&f, 2, true);
    ck_assert(members_parting(f.members));
    members_let_go(f.members);
    ck_assert(f.lost_on_purpose);
    ck_assert_uint_eq(f.n_left, 1);
    ck_assert_uint_eq(f.peers[1].n_leave + f.peers[2].n_leave, 2);
    fake_finish(&f);
    group_of_named(2, true); // the leader itself leaves: nobody starts anything again
    members_leave(f.members, "the leader stops");
    ck_assert(f.lost_on_purpose);
    fake_finish(&f);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("leaving");
    tcase_add_test(t, leaving_waits_until_no_request_needs_the_worker);
    tcase_add_test(t, leaving_ends_with_the_group_when_that_breaks_first);
    tcase_add_test(t, leaving_of_a_worker_elsewhere_with_the_name_of_a_local_one_is_no_pause);
    tcase_add_test(t, leaving_of_a_worker_that_the_leader_starts_again_is_a_pause);
    tcase_add_test(t, leaving_of_a_worker_from_elsewhere_beside_local_ones_is_for_good);
    tcase_add_test(t, leaving_is_at_once_where_nothing_runs_or_nothing_is_waited_for);
    Suite *s = suite_create("leader_leaving");
    suite_add_tcase(s, t);
    return suite_run(s);
}
