// test_seeds.c: many random worlds (storm.h), spread over the CPUs by forking.
//
// SIM_SEEDS=n worlds (default 100). A failing seed is printed; SEED=n replays that one, with
// LOG=debug for the processes' logs.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/sim/storm.h"

#define REPLAY_EVERY 50 // of so many seeds one is run twice

struct totals {
    uint32_t n_seeds, n_failed, n_replayed;
    uint64_t n_turns, n_kills, n_pauses, n_errors, n_aborts, n_whole, n_replays, n_preemptions,
        n_cached;
};

static void report(uint64_t seed, const char *failure) {
    fprintf(stderr,
            "seed %" PRIu64 ": %s\n  replay: SEED=%" PRIu64 " LOG=debug build/.../sim_test_seeds\n",
            seed, failure, seed);
}

// The same seed must take the same steps to the same end.
static bool replays(const struct storm *storm, uint64_t seed, const struct storm_result *first) {
    struct storm_result second;
    storm_run(storm, seed, &second);
    if (second.trace_hash == first->trace_hash && second.steps == first->steps) return true;
    char text[128];
    snprintf(text, sizeof text,
             "a second run took %" PRIu64 " steps instead of %" PRIu64 ", or other ones",
             second.steps, first->steps);
    report(seed, text);
    return false;
}

static void run_seed(const struct storm *storm, uint64_t seed, struct totals *t) {
    struct storm_result result;
    storm_run(storm, seed, &result);
    bool ok = result.failure[0] == '\0';
    if (!ok) report(seed, result.failure);
    if (ok && seed % REPLAY_EVERY == 1) {
        ok = replays(storm, seed, &result);
        t->n_replayed++;
    }
    t->n_seeds++;
    t->n_failed += !ok;
    t->n_turns += result.n_turns;
    t->n_kills += result.n_kills;
    t->n_pauses += result.n_pauses;
    t->n_errors += result.n_errors;
    t->n_aborts += result.n_aborts;
    t->n_whole += result.n_whole;
    t->n_replays += result.n_replays;
    t->n_preemptions += result.n_preemptions;
    t->n_cached += result.n_cached;
}

static void add(struct totals *sum, const struct totals *t) {
    sum->n_seeds += t->n_seeds;
    sum->n_failed += t->n_failed;
    sum->n_replayed += t->n_replayed;
    sum->n_turns += t->n_turns;
    sum->n_kills += t->n_kills;
    sum->n_pauses += t->n_pauses;
    sum->n_errors += t->n_errors;
    sum->n_aborts += t->n_aborts;
    sum->n_whole += t->n_whole;
    sum->n_replays += t->n_replays;
    sum->n_preemptions += t->n_preemptions;
    sum->n_cached += t->n_cached;
}

// Child `part` of `n_parts` takes every n_parts-th seed and writes its totals into the pipe.
static pid_t start_part(const struct storm *storm, uint64_t n_seeds, uint64_t part,
                        uint64_t n_parts, int out) {
    pid_t pid = fork();
    check(pid >= 0);
    if (pid != 0) return pid;
    struct totals t = {0};
    for (uint64_t seed = 1 + part; seed <= n_seeds && t.n_failed < 10; seed += n_parts)
        run_seed(storm, seed, &t);
    bool told = write(out, &t, sizeof t) == (ssize_t)sizeof t;
    exit(told && t.n_failed == 0 ? 0 : 1);
}

static bool run_all(const struct storm *storm, uint64_t n_seeds, struct totals *sum) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n_parts = cpus < 1 ? 1 : cpus > 16 ? 16 : (uint64_t)cpus;
    bool ok = true;
    int pipes[2];
    pid_t pids[16];
    check(pipe(pipes) == 0);
    fflush(NULL);
    for (uint64_t part = 0; part < n_parts; part++)
        pids[part] = start_part(storm, n_seeds, part, n_parts, pipes[1]);
    close(pipes[1]);
    for (struct totals t; read(pipes[0], &t, sizeof t) == (ssize_t)sizeof t;)
        add(sum, &t);
    close(pipes[0]);
    for (uint64_t part = 0; part < n_parts; part++) {
        int status;
        if (waitpid(pids[part], &status, 0) != pids[part] || status != 0) ok = false;
    }
    return ok;
}

// The world's own lines are errors on purpose in a storm with kills; they are shown only when asked
// for.
static void set_log(void) {
    enum log_level level = LOG_SILENT;
    const char *name = getenv("LOG");
    if (name != NULL) check(log_level_parse(name, &level));
    log_setup("sim", level);
}

static bool run(const struct storm *storm, struct totals *sum) {
    uint64_t seed = storm_setting("SEED", 0);
    if (seed == 0) return run_all(storm, storm_setting("SIM_SEEDS", 100), sum);
    run_seed(storm, seed, sum);
    return sum->n_failed == 0;
}

int main(void) {
    struct model_cache model;
    struct job_pool pool;
    struct totals sum = {0};
    struct job_mix mix = {
        .seed = 11, .n_jobs = 48, .prompt_min = 1, .prompt_max = 90, .tokens_max = 24};
    set_log();
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    struct answer *reference = mem_array(pool.n_jobs, sizeof *reference);
    check(reference != NULL);
    reference_run(&model, &pool, reference);
    struct storm storm = {
        .model = &model, .pool = &pool, .reference = reference, .workers_min = 1, .workers_max = 7};
    bool ok = run(&storm, &sum);
    printf("%u seeds, %u failed, %u replayed; %" PRIu64 " requests: %" PRIu64 " whole, %" PRIu64
           " aborted, %" PRIu64 " lost; %" PRIu64 " kills, %" PRIu64 " pauses, %" PRIu64
           " replays, %" PRIu64 " preemptions, %" PRIu64 " cached tokens\n",
           sum.n_seeds, sum.n_failed, sum.n_replayed, sum.n_turns, sum.n_whole, sum.n_aborts,
           sum.n_errors, sum.n_kills, sum.n_pauses, sum.n_replays, sum.n_preemptions, sum.n_cached);
    // Or the storms are too mild to show anything.
    bool rough =
        sum.n_seeds < 100 || (sum.n_replays > 0 && sum.n_preemptions > 0 && sum.n_cached > 0);
    mem_free(reference);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return ok && rough ? 0 : 1;
}
