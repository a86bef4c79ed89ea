// arrange.h: how the group's workers are arranged: from the options and the model to a layout, and
// its explanation.
#ifndef MOESAIC_LEADER_ARRANGE_H
#define MOESAIC_LEADER_ARRANGE_H

#include "common/conf/options.h"
#include "common/model/choice.h"

// How much memory each worker can have for the choice of a layout, 0 = not known: as given, else
// what local workers are told (given: MOESAIC_MEMORY, which they have from this process, or NULL)
// or find, when there are no others.
uint64_t arrange_memory(const struct leader_options *o, const char *given);

// Sets o->parallel.workers: as given, else of the LeaderWorkerSet group, else as many as the sizes
// or --local-workers ask for.
int arrange_count(struct leader_options *o, struct err_text *e);

// The layout of so many workers, said in the log, and where that is text, on standard output as a
// table. o->max_model_len is set. ERR_FATAL_CONFIG names the flags and the rule.
int arrange_layout(struct layout *out, const struct leader_options *o,
                   const struct footprint_model *model, struct err_text *e);

#endif
