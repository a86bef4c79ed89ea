// host.c: see host.h.
#include "common/base/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

void host_name(char *buf, size_t bytes) {
    char host[256] = "localhost", boot[64] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        log_warn("host", "gethostname failed, named localhost");
    host[sizeof host - 1] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(boot, sizeof boot, f) == NULL) boot[0] = '\0';
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(buf, bytes, "%s %s", host, boot);
}

void host_process_name(char *buf, size_t bytes, const char *host) {
    snprintf(buf, bytes, "%.*s:%d", (int)strcspn(host, " "), host, (int)getpid());
}
