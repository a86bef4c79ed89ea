// persona.h: what a model's folder says about how it wants to be asked: sampling defaults
// (generation_config.json) and the special strings its template may use (tokenizer_config.json).
#ifndef MOESAIC_LEADER_PERSONA_H
#define MOESAIC_LEADER_PERSONA_H

#include <stdbool.h>

#include "leader/openai.h"

struct persona {
    struct openai_defaults sampling; // vocab is the caller's
    char *bos_token, *eos_token;     // owned; "" when the model has none
};

// use_generation false: the API's own defaults. Both files are optional; what is wrong in one that
// is there is ERR_FATAL_MODEL.
int persona_load(struct persona *out, const char *folder, bool use_generation, struct err_text *e);
void persona_finish(struct persona *p);

#endif
