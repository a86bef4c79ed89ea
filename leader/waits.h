// waits.h: while the group does not serve, what is awaited, said in the log every now and then; and
// that it does, the first time.
#ifndef MOESAIC_LEADER_WAITS_H
#define MOESAIC_LEADER_WAITS_H

#include "leader/serving.h"

struct waits {
    const char *url;           // where it serves, said once it does for the first time
    int64_t since_ns, said_ns; // 0: it serves; nothing was said yet
    bool has_served;
    char said[160];
};

// Call it about once a second. Main thread.
void waits_log(struct waits *w, struct serving *s);

#endif
