// snapshot.h: how snapshots of slots' states are named: by an index inside a process, and in a step
// plan (proto/step.proto) by 1 + that, as 0 means none there.
#ifndef MOESAIC_COMMON_BASE_SNAPSHOT_H
#define MOESAIC_COMMON_BASE_SNAPSHOT_H

#include <stdint.h>

#define SNAPSHOT_NONE UINT32_MAX // no index

static inline uint32_t snapshot_number(uint32_t index) {
    return index == SNAPSHOT_NONE ? 0 : index + 1;
}
static inline uint32_t snapshot_index(uint32_t number) {
    return number == 0 ? SNAPSHOT_NONE : number - 1;
}

#endif
