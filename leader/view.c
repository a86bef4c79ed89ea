// view.c: see view.h. What a person sees of this is written by the status pages and /metrics.
#include "leader/view.h"

#include <pthread.h>
#include <string.h>

#include "common/base/mem.h"
#include "leader/window.h"

struct view {
    struct view_sources sources;
    uint64_t members_version, steps; // as published
    uint32_t n_waiting, n_running;
    uint64_t beats;
    int64_t published_ns;
    size_t n_tokens;
    uint64_t *recent_counts; // [WINDOW_SLOTS][n_ranks], owned
    struct window recent;    // sampled tokens by rank, under the lock
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
    v->members = mem_array(sources->layout.n_ranks, sizeof *v->members);
    v->expert_tokens = mem_array(v->n_tokens, sizeof *v->expert_tokens);
    v->recent_counts =
        mem_array((size_t)WINDOW_SLOTS * sources->layout.n_ranks, sizeof *v->recent_counts);
    if (v->members == NULL || v->expert_tokens == NULL || v->recent_counts == NULL) {
        view_destroy(v);
        return ERR_FATAL_NOMEM;
    }
    window_init(&v->recent, v->recent_counts, sources->layout.n_ranks, env_now_ns(sources->env));
    v->now.layout = sources->layout;
    *out = v;
    return 0;
}

void view_destroy(struct view *v) {
    if (v == NULL) return;
    pthread_mutex_destroy(&v->lock);
    mem_free(v->members);
    mem_free(v->expert_tokens);
    mem_free(v->recent_counts);
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
    now->n_resuming = sched->n_resuming;
    now->preemptions = sched->preemptions;
    now->replays = sched->replays;
    now->prefix_queries = sched->prefix_queries;
    now->prefix_hits = sched->prefix_hits;
    now->replay_mismatches = sched->replay_mismatches;
    now->requests_lost = sched->requests_lost;
}

// Requests and blocks are the DP group's, whichever of its ranks is asked; tokens are of the one
// that samples, and sums are over groups.
static void publish_rank(struct view *v, uint32_t rank, int64_t now_ns) {
    struct member_view *k = &v->members[rank];
    struct sched_rank_counts counts;
    uint64_t before = k->generation_tokens;
    members_view(v->sources.members, rank, k);
    sched_count_rank(v->sources.sched, layout_place(&v->sources.layout, rank).dp, &counts);
    k->n_running = counts.n_running;
    k->kv_blocks_used = counts.blocks_used;
    k->snapshots_used = counts.snapshots_used;
    if (!layout_answers(&v->sources.layout, rank)) return;
    k->generation_tokens = counts.generation_tokens;
    if (counts.generation_tokens > before)
        window_add(&v->recent, now_ns, rank, counts.generation_tokens - before);
    v->now.kv_blocks += k->kv_blocks;
    v->now.kv_blocks_used += k->kv_blocks_used;
    v->now.snapshots += k->snapshots;
    v->now.snapshots_used += k->snapshots_used;
}

static void publish(struct view *v, const struct sched_counts *sched,
                    const struct drive_counts *drive, int64_t now_ns) {
    const struct view_sources *s = &v->sources;
    pthread_mutex_lock(&v->lock);
    struct leader_view *now = &v->now;
    fill_numbers(now, sched, drive);
    now->ready = members_ready(s->members);
    now->epoch = members_epoch(s->members);
    now->group = members_group(s->members);
    members_count(s->members, &now->counts);
    members_sentence(s->members, now->state, sizeof now->state);
    now->kv_blocks = now->kv_blocks_used = now->snapshots = now->snapshots_used = 0;
    for (uint32_t i = 0; i < s->layout.n_ranks; i++)
        publish_rank(v, i, now_ns);
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
    uint64_t beats = members_beats(v->sources.members);
    bool work = drive.steps != v->steps || sched.n_waiting != v->n_waiting ||
                sched.n_running != v->n_running;
    if (!state && !work && beats == v->beats) return NO_DEADLINE;
    bool at_once = state || (work && !sched_has_work(v->sources.sched));
    if (!at_once && now_ns < v->published_ns + VIEW_NS) return v->published_ns + VIEW_NS;
    publish(v, &sched, &drive, now_ns);
    v->members_version = version;
    v->beats = beats;
    v->steps = drive.steps;
    v->n_waiting = sched.n_waiting;
    v->n_running = sched.n_running;
    v->published_ns = now_ns;
    return NO_DEADLINE;
}

int view_copy(struct view *v, struct leader_view *out) {
    int64_t now_ns = env_now_ns(v->sources.env);
    struct member_view *members = mem_array(v->sources.layout.n_ranks, sizeof *members);
    uint64_t *tokens = mem_array(v->n_tokens, sizeof *tokens);
    if (members == NULL || tokens == NULL) {
        mem_free(members);
        mem_free(tokens);
        return ERR_FATAL_NOMEM;
    }
    pthread_mutex_lock(&v->lock);
    *out = v->now;
    memcpy(members, v->members, v->sources.layout.n_ranks * sizeof *members);
    memcpy(tokens, v->expert_tokens, v->n_tokens * sizeof *tokens);
    double span_s = window_span_s(&v->recent, now_ns);
    for (uint32_t i = 0; i < v->sources.layout.n_ranks; i++)
        members[i].tokens_per_s = (double)window_sum(&v->recent, now_ns, i) / span_s;
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
