// pulse.c: see pulse.h.
#include "worker/pulse.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/link.h"

int pulse_init(struct pulse *p, struct env *env) {
    p->env = env;
    return pthread_mutex_init(&p->lock, NULL) == 0 ? 0 : ERR_FATAL_NOMEM;
}

void pulse_finish(struct pulse *p) {
    pthread_mutex_destroy(&p->lock);
}

void pulse_set_model(struct pulse *p, const struct model *model, uint64_t epoch,
                     uint32_t n_counters) {
    pthread_mutex_lock(&p->lock);
    p->model = model;
    p->n_counters = n_counters;
    atomic_store(&p->epoch, epoch); // under the lock: a beat's counters are of its epoch
    pthread_mutex_unlock(&p->lock);
}

void pulse_step_begin(struct pulse *p) {
    atomic_store(&p->progress_ns, env_now_ns(p->env));
    atomic_store(&p->busy, true);
}

void pulse_step_end(struct pulse *p, const struct fabric *fabric, bool counted) {
    struct fabric_counters counters;
    fabric_count(fabric, &counters);
    atomic_store(&p->bytes_sent, counters.bytes_sent);
    atomic_store(&p->bytes_received, counters.bytes_received);
    if (counted) atomic_fetch_add(&p->steps, 1);
    atomic_store(&p->busy, false);
}

// Copies the counters as they are now, and the epoch they are of. NULL when there are none, or no
// memory for them.
static uint64_t *copy_counters(struct pulse *p, uint64_t *epoch, size_t *n) {
    uint64_t *copy = NULL;
    pthread_mutex_lock(&p->lock);
    *epoch = atomic_load(&p->epoch);
    if (p->model != NULL && p->n_counters > 0) copy = mem_array(p->n_counters, sizeof *copy);
    if (copy != NULL) {
        const _Atomic uint64_t *counters = model_expert_tokens(p->model);
        for (uint32_t i = 0; i < p->n_counters; i++)
            copy[i] = atomic_load_explicit(&counters[i], memory_order_relaxed);
        *n = p->n_counters;
    }
    pthread_mutex_unlock(&p->lock);
    return copy;
}

void pulse_send(struct pulse *p, struct channel *channel) {
    if (!atomic_load(&p->joined)) return;
    Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    int64_t age_ns = env_now_ns(p->env) - atomic_load(&p->progress_ns);
    if (atomic_load(&p->busy) && age_ns > 0) {
        int64_t age_ms = age_ns / NS_PER_MS;
        beat.engine_age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    }
    beat.steps = atomic_load(&p->steps);
    beat.bytes_sent = atomic_load(&p->bytes_sent);
    beat.bytes_received = atomic_load(&p->bytes_received);
    beat.expert_tokens = copy_counters(p, &beat.epoch, &beat.n_expert_tokens);
    link_send_heartbeat(channel, &beat);
    mem_free(beat.expert_tokens);
}
