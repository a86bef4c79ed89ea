// toy_house.h: seedling's texts before a toy scheduler: all that HTTP and gRPC need to serve, for
// their tests.
#ifndef MOESAIC_TESTS_HARNESS_TOY_HOUSE_H
#define MOESAIC_TESTS_HARNESS_TOY_HOUSE_H

#include "leader/serving.h"
#include "tests/harness/toy_engine.h"

// What every request answers unless the script has ids of its own.
#define TOY_ANSWER "The capital of Kenya is Nairobi."

struct toy_house {
    struct env *env;
    struct toy_engine *toy;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct model_spec spec;
    struct id_list answer;
    struct serving *serving;
};

struct toy_house_config {
    const char *model; // folder
    struct toy_script script;
    uint32_t queue_max, max_model_len;
};

// Fails the running Check test when a part cannot start.
void toy_house_start(struct toy_house *h, const struct toy_house_config *config);
// The scheduler ends first, then whoever served (the caller's API), then the rest.
void toy_house_stop(struct toy_house *h); // after toy_engine_stop and the API's end

#endif
