// layout_wire.c: see layout_wire.h.
#include "common/net/layout_wire.h"

#include "common/base/limits.h"

void layout_pack(Moesaic__Control__V1__Layout *out, const struct layout *l) {
    moesaic__control__v1__layout__init(out);
    out->pp = l->pp;
    out->dp = l->dp;
    out->tp = l->tp;
    out->ep = l->ep;
    out->etp = l->etp;
}

int layout_unpack(struct layout *out, const Moesaic__Control__V1__Layout *l, struct err_text *e) {
    uint64_t stage = (uint64_t)l->dp * l->tp, n_ranks = l->pp;
    if (stage > RANKS_MAX || n_ranks > RANKS_MAX || (n_ranks *= stage) > RANKS_MAX)
        return err_set(e, ERR_FATAL_CONFIG,
                       "pipeline %u x data %u x tensor %u parallel are more than %d workers", l->pp,
                       l->dp, l->tp, RANKS_MAX);
    struct layout wanted = {.n_ranks = (uint32_t)n_ranks,
                            .pp = l->pp,
                            .dp = l->dp,
                            .tp = l->tp,
                            .ep = l->ep,
                            .etp = l->etp};
    int err = layout_check(&wanted, e);
    if (err == 0) *out = wanted;
    return err;
}
