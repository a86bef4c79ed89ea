// view.c: see view.h. What a person sees of this is written by the status pages and /metrics.
#include "leader/view.h"

#include <pthread.h>
#include <string.h>

#include "common/base/mem.h"

struct view {
    struct view_sources sources;
    uint64_t members_version, steps; // as published
    uint32_t n_waiting, n_running;
    int64_t published_ns;
    size_t n_tokens;
    pthread_mutex_t lock;
    // Under the lock; written by the scheduler thread only.
    struct leader_view now;
    struct member_view *members; // [n_ranks], owned
    uint64_t *expert_tokens;     // [n_layers][n_experts], owned
};

int view_create(struct view **out, const struct view_sources *sources) {
    struct view *v = mem_zalloc(sizeof *v);
    if (v == NULL) return ERR_FATAL_NOMEM;
    v->sources = *sources;
    v->n_tokens = (size_t)sources->n_layers * sources->n_experts;
    v->members_version = UINT64_MAX; // so that the first refresh publishes
    pthread_mutex_init(&v->lock, NULL);
    v->members = mem_array(sources->n_ranks, sizeof *v->members);
    v->expert_tokens = mem_array(v->n_tokens, sizeof *v->expert_tokens);
    if (v->members == NULL || v->expert_tokens == NULL) {
        view_destroy(v);
        return ERR_FATAL_NOMEM;
    }
    v->now.n_ranks = sources->n_ranks;
    *out = v;
    return 0;
}

void view_destroy(struct view *v) {
    if (v == NULL) return;
    pthread_mutex_destroy(&v->lock);
    mem_free(v->members);
    mem_free(v->expert_tokens);
    mem_free(v);
}

static void fill_numbers(struct leader_view *now, const struct sched_counts *sched,
                         const struct drive_counts *drive) {
    now->steps = drive->steps;
    now->step_ns = drive->step_ns;
    memcpy(now->phase_ns, drive->phase_ns, sizeof now->phase_ns);
    now->n_waiting = sched->n_waiting;
    now->n_running = sched->n_running;
    now->prompt_tokens = sched->prompt_tokens;
    now->generation_tokens = sched->generation_tokens;
    now->requests_lost = sched->requests_lost;
}

static void publish(struct view *v, const struct sched_counts *sched,
                    const struct drive_counts *drive) {
    const struct view_sources *s = &v->sources;
    pthread_mutex_lock(&v->lock);
    struct leader_view *now = &v->now;
    fill_numbers(now, sched, drive);
    now->ready = members_ready(s->members);
    now->epoch = members_epoch(s->members);
    members_sentence(s->members, now->state, sizeof now->state);
    now->kv_blocks = now->kv_blocks_used = 0;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        struct member_view *k = &v->members[i];
        members_view(s->members, i, k);
        sched_count_rank(s->sched, i, &k->n_running, &k->kv_blocks_used);
        now->kv_blocks += k->kv_blocks;
        now->kv_blocks_used += k->kv_blocks_used;
    }
    if (v->n_tokens > 0)
        memcpy(v->expert_tokens, members_expert_tokens(s->members),
               v->n_tokens * sizeof *v->expert_tokens);
    pthread_mutex_unlock(&v->lock);
}

int64_t view_refresh(struct view *v, int64_t now_ns) {
    struct sched_counts sched;
    struct drive_counts drive;
    sched_count(v->sources.sched, &sched);
    drive_count(v->sources.drive, &drive);
    uint64_t version = members_version(v->sources.members);
    bool state = version != v->members_version;
    bool numbers = drive.steps != v->steps || sched.n_waiting != v->n_waiting ||
                   sched.n_running != v->n_running;
    if (!state && !numbers) return NO_DEADLINE;
    bool idle = !sched_has_work(v->sources.sched);
    if (!state && !idle && now_ns < v->published_ns + VIEW_NS) return v->published_ns + VIEW_NS;
    publish(v, &sched, &drive);
    v->members_version = version;
    v->steps = drive.steps;
    v->n_waiting = sched.n_waiting;
    v->n_running = sched.n_running;
    v->published_ns = now_ns;
    return NO_DEADLINE;
}

int view_copy(struct view *v, struct leader_view *out) {
    struct member_view *members = mem_array(v->sources.n_ranks, sizeof *members);
    uint64_t *tokens = mem_array(v->n_tokens, sizeof *tokens);
    if (members == NULL || tokens == NULL) {
        mem_free(members);
        mem_free(tokens);
        return ERR_FATAL_NOMEM;
    }
    pthread_mutex_lock(&v->lock);
    *out = v->now;
    memcpy(members, v->members, v->sources.n_ranks * sizeof *members);
    memcpy(tokens, v->expert_tokens, v->n_tokens * sizeof *tokens);
    pthread_mutex_unlock(&v->lock);
    out->members = members;
    out->expert_tokens = tokens;
    return 0;
}

void leader_view_finish(struct leader_view *v) {
    mem_free((void *)v->members); // view_copy made them for this caller
    mem_free((void *)v->expert_tokens);
    v->members = NULL;
    v->expert_tokens = NULL;
}
