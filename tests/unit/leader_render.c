// leader_render.c: the pool before the scheduler: whose message it still reads.
#include "leader/render.h"

#include <stdatomic.h>

#include "tests/harness/suite.h"

#define PLACES 8

// A client without a network, whose message is always wrong.
struct asker {
    struct env *env;
    _Atomic bool reads, may_go_on; // parse has begun; what it waits for
    _Atomic bool left;
    size_t bytes;
    _Atomic uint32_t n_holds, n_read, n_failed;
};

static void hold(void *self) {
    ((struct asker *)self)->n_holds++;
}

static void release(void *self) {
    ((struct asker *)self)->n_holds--;
}

static const char *request_id(const void *self) {
    (void)self;
    return "one";
}

static void await(struct asker *a, const _Atomic bool *what) {
    struct waker *w;
    ck_assert_int_eq(waker_create(a->env, &w), 0);
    while (!atomic_load(what))
        waker_wait(w, env_now_ns(a->env) + NS_PER_MS);
    waker_destroy(w);
}

static size_t bytes(const void *self) {
    return ((const struct asker *)self)->bytes;
}

static int parse(void *self, struct openai_request *out, const struct openai_defaults *defaults,
                 struct api_error *e) {
    struct asker *a = self;
    (void)out, (void)defaults;
    a->n_read++;
    a->reads = true;
    await(a, &a->may_go_on);
    return api_error_set(e, 400, NULL, "wrong");
}

static bool unwanted(void *self) {
    return ((struct asker *)self)->left;
}

static void hear_failure(void *self, bool begun, const struct api_error *e) {
    (void)begun, (void)e;
    ((struct asker *)self)->n_failed++;
}

static struct client client_of(struct asker *a) {
    static const struct client_ops ops = {.hold = hold,
                                          .release = release,
                                          .request_id = request_id,
                                          .bytes = bytes,
                                          .parse = parse,
                                          .unwanted = unwanted,
                                          .fail = hear_failure};
    return (struct client){.ops = &ops, .self = a};
}

START_TEST(who_left_while_it_waited_for_a_thread_is_not_read) {
    static struct serving s; // large
    struct env *env = env_real_create();
    struct asker first = {.env = env}, leaves = {.env = env}, stays = {.env = env};
    struct render *r;
    struct err_text e;
    s.env = env;
    s.admit.max = PLACES;
    leaves.may_go_on = stays.may_go_on = true;
    ck_assert_int_eq(render_create(&r, &s, NULL, 1, &e), 0);
    ck_assert(render_take(r, client_of(&first)));
    await(&first, &first.reads);
    ck_assert(render_take(r, client_of(&leaves)));
    ck_assert(render_take(r, client_of(&stays)));
    ck_assert_uint_eq(s.admit.in_flight, 3);
    leaves.left = true;
    first.may_go_on = true;
    render_destroy(r); // finishes what it has
    ck_assert_uint_eq(first.n_read, 1);
    ck_assert_uint_eq(leaves.n_read, 0);
    ck_assert_uint_eq(leaves.n_failed, 0);
    ck_assert_uint_eq(stays.n_read, 1);
    ck_assert_uint_eq(stays.n_failed, 1);
    ck_assert_uint_eq(s.admit.in_flight, 0);
    ck_assert_uint_eq(first.n_holds + leaves.n_holds + stays.n_holds, 0);
    env_real_destroy(env);
}
END_TEST

START_TEST(large_requests_leave_a_thread_to_small_ones) {
    static struct serving s; // large
    struct env *env = env_real_create();
    struct asker large[3], small[2];
    struct render *r;
    struct err_text e;
    s.env = env;
    s.admit.max = PLACES;
    for (int i = 0; i < 3; i++)
        large[i] = (struct asker){.env = env, .bytes = 8u << 20};
    for (int i = 0; i < 2; i++)
        small[i] = (struct asker){.env = env, .bytes = 100, .may_go_on = true};
    ck_assert_int_eq(render_create(&r, &s, NULL, 2, &e), 0);
    for (int i = 0; i < 3; i++)
        ck_assert(render_take(r, client_of(&large[i])));
    await(&large[0], &large[0].reads);
    for (int i = 0; i < 2; i++)
        ck_assert(render_take(r, client_of(&small[i])));
    await(&small[1], &small[1].reads); // while the first large one is at work
    ck_assert_uint_eq(large[1].n_read + large[2].n_read, 0);
    for (int i = 0; i < 3; i++)
        large[i].may_go_on = true;
    render_destroy(r);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(large[i].n_failed, 1);
    ck_assert_uint_eq(s.admit.in_flight, 0);
    env_real_destroy(env);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("render");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, who_left_while_it_waited_for_a_thread_is_not_read);
    tcase_add_test(t, large_requests_leave_a_thread_to_small_ones);
    Suite *s = suite_create("leader_render");
    suite_add_tcase(s, t);
    return suite_run(s);
}
