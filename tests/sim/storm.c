// storm.c: see storm.h. What is promised: no deadlock and no livelock, books that balance, exactly
// one final event a request and never an error, whoever is killed, an abort only when asked for,
// and one answer.
#include "tests/sim/storm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

// A storm lasts seconds; whatever still waits after this much virtual time waits for ever.
#define STORM_NS_MAX (600 * NS_PER_S)
#define STORM_PASSES_MAX UINT64_C(2000000)

struct weather {
    uint64_t random; // of the script's own choices
    struct cluster_config config;
    struct turn turns[STORM_TURNS_MAX];
    uint32_t n_turns;
    bool crowd;
    int64_t span_ns; // in which requests arrive
};

static uint64_t draw(struct weather *w, uint64_t n) {
    w->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = w->random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % n;
}

static void draw_config(struct weather *w, const struct storm *storm, uint64_t seed) {
    static const uint32_t rows[] = {1, 2, 7, 16, 64}, slots[] = {1, 2, 3, 8, 16};
    static const int64_t delays_ns[] = {0, 50 * 1000, 1000 * 1000, 20 * 1000 * 1000};
    w->config = cluster_config_default(storm->model, seed);
    w->config.world.fabric_delay_ns_max = delays_ns[draw(w, 4)];
    w->config.world.channel_delay_ns_max = delays_ns[draw(w, 4)];
    w->config.world.detect_ns_max = (int64_t)draw(w, 3) * 300 * NS_PER_MS;
    w->config.world.steps_max = STORM_PASSES_MAX;
    w->config.world.verbose = storm->verbose;
    w->config.n_workers =
        storm->workers_min + (uint32_t)draw(w, storm->workers_max - storm->workers_min + 1);
    w->config.max_num_seqs = slots[draw(w, 5)];
    w->config.max_num_batched_tokens = rows[draw(w, 5)];
    w->config.max_model_len = 256;
    w->config.pipeline_depth = 1 + (uint32_t)draw(w, 2);
    w->config.kv_blocks = 8 + (uint32_t)draw(w, 32); // the longest job needs 8
    w->span_ns = (int64_t)(1 + draw(w, 2000)) * NS_PER_MS;
    if (draw(w, 4) != 0) return;
    // A crowd that wants more blocks than there are, of jobs that go on to their end.
    w->crowd = true;
    w->config.n_workers = storm->workers_min;
    w->config.max_num_seqs = 16;
    w->config.max_num_batched_tokens = 64;
    w->config.kv_blocks = 8 + (uint32_t)draw(w, 4);
    w->span_ns = 5 * NS_PER_MS;
    w->n_turns = STORM_TURNS_MAX;
}

// Half of the worlds have queues that are full at times. From a script of their own, so that a seed
// keeps its world beside that.
static void draw_queues(struct weather *w, uint64_t seed) {
    static const uint32_t percents[] = {0, 0, 0, 5, 30, 100};
    static const int64_t waits_ns[] = {50 * 1000, 1000 * 1000, 20 * 1000 * 1000};
    struct weather queues = {.random = ~seed * UINT64_C(0x2545f4914f6cdd1d)};
    w->config.world.full_percent = percents[draw(&queues, 6)];
    w->config.world.full_ns_max = waits_ns[draw(&queues, 3)];
}

static void draw_turns(struct weather *w, const struct storm *storm) {
    if (w->n_turns == 0) w->n_turns = 2 + (uint32_t)draw(w, STORM_TURNS_MAX - 1);
    for (uint32_t i = 0; i < w->n_turns; i++) {
        uint32_t job = (uint32_t)draw(w, storm->pool->n_jobs);
        if (w->crowd) job = job / 4 * 4 + 3;
        w->turns[i] = (struct turn){.job = &storm->pool->jobs[job]};
        w->turns[i].arrival_ns = (int64_t)draw(w, (uint64_t)w->span_ns);
        if (draw(w, 4) == 0)
            w->turns[i].abort_ns = 1 + (int64_t)draw(w, (uint64_t)w->span_ns / 4 + 1);
    }
}

// Strikes one worker at a random time: it is killed and started again a while later, or only stands
// still for a while.
static enum sim_end strike(struct weather *w, struct cluster *c, struct storm_result *out) {
    uint32_t index = (uint32_t)draw(w, w->config.n_workers);
    bool kill = draw(w, 4) != 0;
    int64_t span_ns = (int64_t)draw(w, 8000) * NS_PER_MS;
    int64_t wait_ns = (int64_t)draw(w, (uint64_t)w->span_ns + 300 * NS_PER_MS);
    enum sim_end end = cluster_run(c, sim_now_ns(c->sim) + wait_ns);
    if (end != SIM_TIME) return end;
    if (!kill) {
        sim_pause(c->sim, c->workers[index], span_ns);
        out->n_pauses++;
        return end;
    }
    cluster_kill_worker(c, index);
    out->n_kills++;
    end = cluster_run(c, sim_now_ns(c->sim) + span_ns);
    if (end == SIM_TIME) cluster_start_worker(c, index);
    return end;
}

static const char *end_name(enum sim_end end) {
    static const char *const names[] = {"done", "time", "until", "deadlock", "livelock"};
    return names[end];
}

static void check_turn(const struct storm *storm, const struct turn *turn,
                       struct storm_result *out) {
    const struct answer *a = &turn->answer;
    const struct answer *reference = &storm->reference[turn->job - storm->pool->jobs];
    char text[256];
    const char *differs = answer_differs(a, reference, text, sizeof text);
    out->n_errors += a->finish == FINISH_ERROR;
    out->n_aborts += a->finish == FINISH_ABORT;
    out->n_whole += a->finish == FINISH_STOP || a->finish == FINISH_LENGTH;
    if (out->failure[0] != '\0') return;
    int job = (int)(turn->job - storm->pool->jobs);
    if (a->n_finals != 1 || a->n_late != 0)
        snprintf(out->failure, sizeof out->failure, "job %d has %u final events and %u after them",
                 job, a->n_finals, a->n_late);
    else if (a->finish == FINISH_ERROR)
        snprintf(out->failure, sizeof out->failure, "job %d ended with %s: %s", job,
                 err_name(a->error), a->message);
    else if (a->finish == FINISH_ABORT && !turn->abort_sent)
        snprintf(out->failure, sizeof out->failure, "job %d was aborted by nobody", job);
    else if (differs != NULL)
        snprintf(out->failure, sizeof out->failure, "job %d differs with %u workers: %s", job,
                 out->n_workers, differs);
}

static void play(struct weather *w, struct storm_result *out) {
    struct cluster c;
    enum sim_end end = SIM_TIME;
    cluster_create(&c, &w->config, w->turns, w->n_turns);
    for (uint64_t n = draw(w, 10) < 4 ? 1 + draw(w, 3) : 0; n > 0 && end == SIM_TIME; n--)
        end = strike(w, &c, out);
    if (end == SIM_TIME) end = cluster_run(&c, sim_now_ns(c.sim) + STORM_NS_MAX);
    out->trace_hash = sim_trace_hash(c.sim);
    out->steps = sim_steps(c.sim);
    int checked = c.check_result;
    out->n_replays = c.view.replays;
    out->n_preemptions = c.view.preemptions;
    out->n_cached = c.view.prefix_hits;
    cluster_destroy(&c);
    if (end != SIM_UNTIL)
        snprintf(out->failure, sizeof out->failure, "ended with %s, %u of %u requests had ended",
                 end_name(end), c.n_ended, c.n_turns);
    else if (checked != 0)
        snprintf(out->failure, sizeof out->failure, "the leader's books do not balance: %s",
                 err_name(checked));
    else if (c.view.replay_mismatches != 0)
        snprintf(out->failure, sizeof out->failure, "a replay gave another token");
}

void storm_run(const struct storm *storm, uint64_t seed, struct storm_result *out) {
    struct weather *w = mem_zalloc(sizeof *w);
    check(w != NULL && storm->workers_max <= CLUSTER_WORKERS_MAX);
    *out = (struct storm_result){0};
    w->random = seed * UINT64_C(0x2545f4914f6cdd1d);
    draw_config(w, storm, seed);
    draw_queues(w, seed);
    draw_turns(w, storm);
    out->n_workers = w->config.n_workers;
    out->n_turns = w->n_turns;
    play(w, out);
    for (uint32_t i = 0; i < w->n_turns; i++)
        check_turn(storm, &w->turns[i], out);
    mem_free(w);
}

uint64_t storm_setting(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : fallback;
}
