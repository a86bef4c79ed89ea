// loaded.c: see loaded.h.
#include "tests/harness/loaded.h"

#include "tests/harness/suite.h"

int loaded_try(struct loaded *l, const char *folder, struct weights_config *config,
               struct err_text *e) {
    int rc = spec_load(&l->spec, folder, e);
    if (rc != 0) return rc;
    ck_assert_int_eq(layout_make(&l->layout, l->layout.n_ranks, e), 0);
    l->w = NULL;
    config->folder = folder;
    config->spec = &l->spec;
    config->layout = &l->layout;
    config->progress = &l->progress;
    if (config->n_threads == 0) config->n_threads = 1;
    return weights_load(&l->w, config, e);
}
