// host.h: what tells the machine of this process from others.
#ifndef MOESAIC_COMMON_BASE_HOST_H
#define MOESAIC_COMMON_BASE_HOST_H

#include <stddef.h>

// "hostname boot-id": equal for the processes of one machine, and another after it booted again.
void host_name(char *buf, size_t bytes);
// "hostname:pid" of this process: the boot id tells machines apart, a person needs only the name.
void host_process_name(char *buf, size_t bytes, const char *host);

#endif
