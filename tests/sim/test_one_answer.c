// test_one_answer.c: promise 1: the same requests give equal tokens, log-probabilities (also of
// their prompts) and logits digests however they are served.
//
// SIM_SEEDS below 1000 (sanitizer builds) shortens prompts and drops the slowest variations; the
// full matrix runs in release.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"
#include "tests/sim/halves.h"
#include "tests/sim/storm.h"

#define N_JOBS 64
#define N_JOBS_REF 36 // the reference kernels are slow, so they leave out the long prompts
#define FULL_SEEDS 1000

struct variation {
    uint32_t n_workers, max_num_seqs, max_num_batched_tokens, pipeline_depth;
    const char *kernels; // NULL = best
    bool slow;
};

static const struct variation variations[] = {
    {1, 64, 512, 1, NULL, false},  {1, 64, 7, 2, NULL, false},  {1, 1, 1, 2, NULL, true},
    {2, 64, 512, 2, NULL, false},  {2, 1, 7, 1, NULL, false},   {2, 64, 1, 1, NULL, true},
    {2, 1, 512, 1, NULL, true},    {3, 64, 7, 2, NULL, false},  {4, 64, 512, 1, NULL, false},
    {4, 64, 7, 2, NULL, false},    {4, 1, 1, 1, NULL, true},    {7, 64, 512, 2, NULL, false},
    {1, 64, 512, 2, "avx2", true}, {2, 64, 7, 2, "avx2", true}, {1, 64, 512, 1, "ref", true},
    {2, 64, 7, 2, "ref", true},    {4, 1, 1, 2, NULL, true},
};
#define N_VARIATIONS (sizeof variations / sizeof variations[0])

// The formats of KV pages differ in a few lines, which fewer requests meet as well.
static const struct {
    const char *folder;
    enum dtype kv_dtype;
    uint32_t n_jobs;
    enum mla_form mla_form;
} models[] = {{"models/seedling", DTYPE_F32, N_JOBS, MLA_ABSORBED},
              {"tests/data/models/awkward", DTYPE_F32, N_JOBS, MLA_ABSORBED},
              {"models/seedling", DTYPE_BF16, N_JOBS, MLA_ABSORBED},
              {"tests/data/models/tiny-mixtral", DTYPE_BF16, N_JOBS, MLA_ABSORBED},
              {"tests/data/models/awkward", DTYPE_E4M3, 12, MLA_ABSORBED},
              {"tests/data/models/tiny-qwen3-moe", DTYPE_I8, 12, MLA_ABSORBED},
              {"tests/data/models/deepseek-v3", DTYPE_I8, 12, MLA_ABSORBED},
              {"tests/data/models/deepseek-v3", DTYPE_BF16, 12, MLA_EXPANDED},
              {"tests/data/models/deepseek-v32", DTYPE_I8, 12, MLA_ABSORBED},
              {"tests/data/models/glm5", DTYPE_BF16, 12, MLA_ABSORBED},
              {"tests/data/models/qwen3-next", DTYPE_F32, 12, MLA_ABSORBED},
              {"tests/data/models/deepseek-v4", DTYPE_BF16, 12, MLA_ABSORBED}};
#define N_MODELS (sizeof models / sizeof models[0])

// Made before Check forks, anew for each model.
static struct model_cache model;
static struct job_pool pool;
static atomic_uint *next_model; // in memory that both processes share
static struct answer reference[N_JOBS];
static bool full;

static void shuffle(struct turn *turns, uint32_t n, uint64_t seed) {
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t i = 0; i < n; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        turns[i].arrival_ns = (int64_t)(random >> 33) % (100 * NS_PER_MS);
    }
}

static void run_variation(const struct variation *v, uint64_t seed) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    char text[256];
    bool is_ref = v->kernels != NULL && strcmp(v->kernels, "ref") == 0;
    uint32_t n_jobs = is_ref && pool.n_jobs > N_JOBS_REF ? N_JOBS_REF : pool.n_jobs;
    struct cluster_config config = cluster_config_default(&model, seed);
    config.n_workers = v->n_workers;
    config.max_num_seqs = v->max_num_seqs;
    config.max_num_batched_tokens = v->max_num_batched_tokens;
    config.pipeline_depth = v->pipeline_depth;
    config.kernels = v->kernels;
    config.kv_blocks *= 2; // still less than 64 prompts want, so that some wait for blocks
    turns_make(turns, &pool);
    shuffle(turns, n_jobs, seed);
    cluster_create(&c, &config, turns, n_jobs);
    enum sim_end end = cluster_run(&c, NO_DEADLINE);
    ck_assert_int_eq(end, SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    if (full && v->n_workers * v->max_num_seqs == 1) ck_assert_uint_gt(c.view.prefix_hits, 0);
    cluster_destroy(&c);
    for (uint32_t i = 0; i < n_jobs; i++) {
        const struct answer *a = &turns[i].answer;
        ck_assert_msg(a->finish == FINISH_STOP || a->finish == FINISH_LENGTH, "job %u: %s", i,
                      a->message);
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u of %u tokens: %s", i, pool.jobs[i].n_prompt, text);
    }
}

static bool runs_here(const char *kernels) {
    return kernels == NULL || kernel_ops_select(kernels) != NULL;
}

START_TEST(answers_are_equal_however_the_group_is_made) {
    const struct variation *v = &variations[_i];
    if (v->slow && !full) return;
    if (!runs_here(v->kernels)) {
        // tests/run.py counts these lines: a program's exit code has no word for a part of it.
        printf("SKIPPED variation %d: this CPU cannot run %s\n", _i, v->kernels);
        return;
    }
    run_variation(v, (uint64_t)_i + 100);
}
END_TEST

// Without this a digest that is always 0, or a sampler that ignores its seed, would pass all of the
// above.
START_TEST(different_requests_have_different_digests) {
    for (uint32_t i = 0; i < pool.n_jobs; i++) {
        ck_assert_uint_ge(reference[i].n_tokens, 1);
        ck_assert_uint_ne(reference[i].last_digest, 0);
        uint32_t n_scores = pool.jobs[i].score_prompt ? pool.jobs[i].n_prompt - 1 : 0;
        ck_assert_uint_eq(reference[i].n_scores, n_scores);
        for (uint32_t j = 0; j < i; j++)
            ck_assert_uint_ne(reference[i].last_digest, reference[j].last_digest);
    }
}
END_TEST

static int run_model(uint32_t index) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/%s", SOURCE_ROOT, models[index].folder);
    model_cache_open(&model, folder);
    model.kv_dtype = models[index].kv_dtype;
    struct err_text e;
    check(spec_take_mla_form(&model.spec, models[index].mla_form, &e) == 0);
    uint32_t longest = model.spec.max_position - 128;
    if (longest > 1900) longest = 1900;
    struct job_mix mix = {.seed = 5 + index,
                          .n_jobs = full || models[index].n_jobs < 16 ? models[index].n_jobs : 16,
                          .prompt_min = 1,
                          .prompt_max = full ? longest : 100,
                          .tokens_max = full ? 16 : 6};
    job_pool_make(&pool, &model.spec, &mix);
    reference_run(&model, &pool, reference);
    Suite *suite = suite_create(models[index].folder);
    TCase *tcase = tcase_create("one_answer");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, different_requests_have_different_digests);
    tcase_add_loop_test(tcase, answers_are_equal_however_the_group_is_made, 0, N_VARIATIONS);
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return code;
}

// One model after the other, of those that neither process has begun: they differ much in length.
static int run_models(uint32_t process) {
    (void)process;
    int code = EXIT_SUCCESS;
    for (uint32_t i; (i = atomic_fetch_add(next_model, 1)) < N_MODELS;) {
        if (i < 2 || full) code |= run_model(i);
    }
    return code;
}

int main(void) {
    int shared = MAP_SHARED | MAP_ANONYMOUS;
    next_model = mmap(NULL, sizeof *next_model, PROT_READ | PROT_WRITE, shared, -1, 0);
    check(next_model != MAP_FAILED); // it begins as 0
    log_setup("sim", LOG_SILENT);
    full = storm_setting("SIM_SEEDS", FULL_SEEDS) >= FULL_SEEDS;
    return sim_run_halves(run_models);
}
