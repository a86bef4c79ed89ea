// fabric_sysv.h: System V shared memory that processes of this program left behind.
//
// UCX marks a segment for removal right after it has attached it, so the kernel frees it with its
// last process. Only who is killed between the two leaves one behind; such are swept here.
#ifndef MOESAIC_COMMON_NET_FABRIC_SYSV_H
#define MOESAIC_COMMON_NET_FABRIC_SYSV_H

#include <stddef.h>
#include <stdint.h>

struct fabric_swept {
    uint32_t n;
    uint64_t bytes;
};

// Removes segments that look like one that this process has made itself (private key, same size,
// mode and owner), are attached nowhere, and whose maker and last user are dead. Everything else is
// left alone: what belongs to whom cannot be told otherwise.
void fabric_sysv_sweep(struct fabric_swept *out);

#endif
