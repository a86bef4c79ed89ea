#include "common/net/fabric_impl.h"
int fabric_open_ucx(struct fabric **out, const struct fabric_config *config, struct err_text *e) {
    (void)out;
    (void)config;
    return err_set(e, ERR_FATAL_CONFIG, "this build has no UCX fabric");
}
