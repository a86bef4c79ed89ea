// set_up_memory.c: memory runs out at every single allocation of the set-up paths: each time there
// is one clean error, nothing is given out and (under ASan) nothing is left behind.
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/folder.h"
#include "leader/leader.h"
#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"
#include "worker/step.h"
#include "worker/weights.h"
#include "worker/worker.h"

#define ALLOCATIONS_MAX 100000

// One set-up: makes its object and unmakes it; returns what making it returned.
typedef int (*set_up_fn)(struct err_text *e);

// Fails the first allocation, then the second, ... until the set-up needs fewer than that. At least
// `least` allocations must have been made to fail, or the path under test was not the one meant.
static void fail_each(set_up_fn set_up, long least) {
    for (long nth = 1; nth < ALLOCATIONS_MAX; nth++) {
        struct err_text e = {0};
        mem_fail_after(nth);
        int rc = set_up(&e);
        mem_fail_after(0);
        if (rc == 0) {
            ck_assert_int_gt(nth, least);
            return;
        }
        ck_assert_msg(rc == ERR_FATAL_NOMEM, "allocation %ld: %s %s", nth, err_name(rc), e.text);
        ck_assert_msg(e.text[0] != '\0', "allocation %ld failed without a text", nth);
    }
    ck_abort_msg("never succeeded");
}

static struct fabric_peers peers;
static struct tiny *tiny;
static struct pool *pool;

static void open_peers(void) {
    struct err_text e = {0};
    struct model_spec spec;
    log_setup("fault", LOG_SILENT);
    tiny_spec(&spec);
    tiny = tiny_create(&spec, 1, DTYPE_F32, 3);
    peers_open(&peers, FABRIC_MEM, 2, NULL);
    peers_begin(&peers);
    peers_connect(&peers);
    ck_assert_int_eq(pool_create(&pool, 1, NULL, false, &e), 0);
}

static void close_peers(void) {
    peers_end(&peers);
    pool_destroy(pool);
    peers_close(&peers);
    tiny_destroy(tiny);
}

static int make_worker(struct err_text *e) {
    struct worker *worker = NULL;
    struct worker_config config = {.env = peers.peers[0].env,
                                   .waker = peers.peers[0].waker,
                                   .fabric = peers.peers[0].fabric,
                                   .build_id = "test",
                                   .wanted_rank = -1,
                                   .single_thread = true};
    int rc = worker_create(&worker, &config, e);
    ck_assert(rc == 0 || worker == NULL);
    worker_destroy(worker);
    return rc;
}

static int make_model_and_step(struct err_text *e) {
    struct model *model = NULL;
    struct step *step = NULL;
    struct model_config config = {.env = peers.peers[0].env,
                                  .weights = tiny_weights(tiny, 0),
                                  .layout = tiny_layout(tiny),
                                  .ops = kernel_ops_select(NULL),
                                  .pool = pool,
                                  .fabric = peers.peers[0].fabric,
                                  .n_slots = 4,
                                  .rows_max = 8,
                                  .max_model_len = 64,
                                  .kv_blocks = 8,
                                  .kv_dtype = DTYPE_BF16,
                                  .digest = true,
                                  .exchange_timeout_ns = NS_PER_S};
    int rc = model_create(&model, &config, e);
    ck_assert(rc == 0 || model == NULL);
    struct step_config step_config = {.env = config.env,
                                      .fabric = config.fabric,
                                      .model = model,
                                      .epoch = 1,
                                      .n_ranks = 1,
                                      .n_slots = 4,
                                      .rows_max = 8,
                                      .kv_blocks = 8,
                                      .send_timeout_ns = NS_PER_S};
    if (rc == 0) rc = step_create(&step, &step_config, e);
    ck_assert(rc == 0 || step == NULL);
    step_destroy(step);
    model_destroy(model);
    return rc;
}

static int make_pool(struct err_text *e) {
    struct pool *p = NULL;
    int rc = pool_create(&p, 3, NULL, false, e);
    ck_assert(rc == 0 || p == NULL);
    pool_destroy(p);
    return rc;
}

static int make_weights(struct err_text *e) {
    const char *folder = SOURCE_ROOT "/tests/data/models/tiny-qwen3-moe";
    struct model_spec spec;
    struct layout layout;
    struct weights *weights = NULL;
    uint64_t digest;
    int rc = spec_load(&spec, folder, e);
    if (rc == 0) rc = model_folder_digest(&digest, folder, e);
    if (rc == 0) rc = layout_make(&layout, 2, e);
    struct weights_config config = {.folder = folder,
                                    .spec = &spec,
                                    .layout = &layout,
                                    .rank = 1,
                                    .dtype = DTYPE_BF16,
                                    .n_threads = 2};
    if (rc == 0) rc = weights_load(&weights, &config, e);
    ck_assert(rc == 0 || weights == NULL);
    weights_destroy(weights);
    return rc;
}

static int make_leader(struct err_text *e) {
    struct leader *leader = NULL;
    const struct model_spec *spec = tiny_weights(tiny, 0)->spec;
    struct leader_config config = {.env = peers.peers[1].env,
                                   .waker = peers.peers[1].waker,
                                   .fabric = peers.peers[1].fabric,
                                   .spec = spec,
                                   .model = "models/a",
                                   .build_id = "test",
                                   .dtype = "auto",
                                   .kv_dtype = DTYPE_F32,
                                   .layout = layout_even(2),
                                   .max_num_seqs = 4,
                                   .max_num_batched_tokens = 16,
                                   .max_model_len = 64,
                                   .pipeline_depth = 2,
                                   .kv_cache_percent = 10,
                                   .step_timeout_ns = NS_PER_S,
                                   .recovery_timeout_ns = NS_PER_S};
    int rc = leader_create(&leader, &config, e);
    ck_assert(rc == 0 || leader == NULL);
    leader_destroy(leader);
    return rc;
}

START_TEST(worker_create_fails_cleanly_at_every_allocation) {
    fail_each(make_worker, 0);
}
END_TEST
START_TEST(model_and_step_creation_fail_cleanly_at_every_allocation) {
    fail_each(make_model_and_step, 4);
}
END_TEST
START_TEST(pool_create_fails_cleanly_at_every_allocation) {
    fail_each(make_pool, 0);
}
END_TEST
START_TEST(loading_weights_fails_cleanly_at_every_allocation) {
    fail_each(make_weights, 20);
}
END_TEST
START_TEST(leader_create_fails_cleanly_at_every_allocation) {
    fail_each(make_leader, 4);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("set_up_memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_checked_fixture(tcase, open_peers, close_peers);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, worker_create_fails_cleanly_at_every_allocation);
    tcase_add_test(tcase, model_and_step_creation_fail_cleanly_at_every_allocation);
    tcase_add_test(tcase, pool_create_fails_cleanly_at_every_allocation);
    tcase_add_test(tcase, loading_weights_fails_cleanly_at_every_allocation);
    tcase_add_test(tcase, leader_create_fails_cleanly_at_every_allocation);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
