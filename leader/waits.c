// waits.c: see waits.h.
#include "leader/waits.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

#define NEWS_NS (5 * NS_PER_S)  // a load changes its words with every per cent
#define SAME_NS (60 * NS_PER_S) // nothing new is worth a line only so often

static bool is_due(const struct waits *w, const char *state, int64_t now_ns) {
    bool news = strcmp(w->said, state) != 0;
    return w->said_ns == 0 || now_ns - w->said_ns >= (news ? NEWS_NS : SAME_NS);
}

static void log_serving(struct waits *w, const struct serving *s) {
    if (w->has_served) return;
    w->has_served = true;
    double took_s = (double)(env_now_ns(s->env) - s->started_ns) / (double)NS_PER_S;
    log_event(LOG_INFO, "main", "serving", log_text("url", w->url),
              log_text("model", s->model_name), log_real("after_s", took_s));
}

void waits_log(struct waits *w, struct serving *s) {
    struct leader_view view;
    if (s->engine->view(s->engine->self, &view) != 0) return;
    int64_t now_ns = env_now_ns(s->env);
    if (view.ready) {
        log_serving(w, s);
        w->since_ns = w->said_ns = 0;
    }
    if (w->since_ns == 0) w->since_ns = now_ns;
    if (!view.ready && is_due(w, view.state, now_ns)) {
        log_event(LOG_INFO, "main", "waiting", log_text("state", view.state),
                  log_uint("seconds", (uint64_t)((now_ns - w->since_ns) / NS_PER_S)),
                  log_uint("requests", view.n_waiting));
        snprintf(w->said, sizeof w->said, "%s", view.state);
        w->said_ns = now_ns;
    }
    leader_view_finish(&view);
}
