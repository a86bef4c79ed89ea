// leader_render.c: the pool before the scheduler: whose message it still reads.
#include "leader/render.h"

#include <stdatomic.h>

#include "tests/harness/suite.h"
#include "tests/harness/toy_house.h"

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

// --- after the requests are made

// A client that stays, whatever it hears.
struct listener {
    _Atomic uint32_t n_holds, n_failed;
};

static void listener_hold(void *self) {
    ((struct listener *)self)->n_holds++;
}

static void listener_release(void *self) {
    ((struct listener *)self)->n_holds--;
}

static int64_t long_ago(const void *self) {
    (void)self;
    return 0;
}

static int32_t no_key(const void *self) {
    (void)self;
    return KEY_NONE;
}

static size_t no_bytes(const void *self) {
    (void)self;
    return 0;
}

static int ask_for_three(void *self, struct openai_request *out, const struct openai_defaults *d,
                         struct api_error *e) {
    static const char text[] = "{\"prompt\":\"a\",\"n\":3,\"max_tokens\":8}";
    (void)self;
    return openai_parse(out, &(struct openai_body){.text = text, .bytes = sizeof text - 1}, d, e);
}

static bool never(void *self) {
    (void)self;
    return false;
}

static bool always_there(void *self, void (*gone)(void *context), void *context) {
    (void)self, (void)gone, (void)context;
    return true;
}

static void show_nothing(struct generation *g, struct choice *c) {
    (void)g, (void)c;
}

static void count_failure(void *self, bool begun, const struct api_error *e) {
    (void)begun, (void)e;
    ((struct listener *)self)->n_failed++;
}

static struct client listening(struct listener *l) {
    static const struct client_ops ops = {.hold = listener_hold,
                                          .release = listener_release,
                                          .request_id = request_id,
                                          .arrived_ns = long_ago,
                                          .key = no_key,
                                          .bytes = no_bytes,
                                          .parse = ask_for_three,
                                          .gone = never,
                                          .on_gone = always_there,
                                          .unwanted = never,
                                          .show = show_nothing,
                                          .fail = count_failure};
    return (struct client){.ops = &ops, .self = l};
}

// The first is refused; the others come only after that made an end of all that were known.
START_TEST(choices_that_are_submitted_after_one_was_refused_do_not_run_unheard) {
    struct toy_house h = {0};
    struct listener l = {0};
    struct stream *stream;
    struct render *r;
    struct err_text e;
    const struct toy_house_config config = {
        .model = SOURCE_ROOT "/models/seedling",
        .script = {.submit_error = ERR_REQ_UNAVAILABLE, .n_errors = 1, .tick_ns = 10 * NS_PER_S},
        .queue_max = PLACES,
        .max_model_len = 512};
    toy_house_start(&h, &config);
    ck_assert_int_eq(stream_create(&stream, h.serving, &e), 0);
    ck_assert_int_eq(render_create(&r, h.serving, stream, 1, &e), 0);
    ck_assert(render_take(r, listening(&l)));
    render_destroy(r); // when it has submitted all
    ck_assert_uint_eq(toy_engine_counts(h.toy).submitted, 3);
    ck_assert_uint_eq(toy_engine_counts(h.toy).inside, 2);
    ck_assert_uint_eq(toy_engine_aborting(h.toy), 2);
    ck_assert_uint_eq(l.n_failed, 1);
    toy_engine_stop(h.toy);
    stream_destroy(stream);
    ck_assert_uint_eq(l.n_holds, 0);
    toy_house_stop(&h);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("render");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, who_left_while_it_waited_for_a_thread_is_not_read);
    tcase_add_test(t, large_requests_leave_a_thread_to_small_ones);
    tcase_add_test(t, choices_that_are_submitted_after_one_was_refused_do_not_run_unheard);
    Suite *s = suite_create("leader_render");
    suite_add_tcase(s, t);
    return suite_run(s);
}
