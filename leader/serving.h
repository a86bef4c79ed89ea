// serving.h: what every call shares: the model as the API sees it, the limits, the counters. Made
// in main (or a test), outlives all calls; only the atomics change.
#ifndef MOESAIC_LEADER_SERVING_H
#define MOESAIC_LEADER_SERVING_H

#include "common/net/keys.h"
#include "common/text/chat.h"
#include "common/text/tokenizer.h"
#include "leader/admit.h"
#include "leader/engine.h"
#include "leader/meter.h"
#include "leader/openai.h"
#include "leader/request_log.h"

struct serving {
    struct env *env; // not owned, as all pointers here
    const struct engine *engine;
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; // NULL: the model has none
    const struct model_spec *spec;
    struct openai_defaults defaults;
    const char *bos_token, *eos_token;
    const char *model_name;  // --served-model-name
    const char *fingerprint; // build and model
    const char *version, *build_id;
    const struct keys *keys; // who may ask; NULL: everybody
    uint32_t max_model_len;
    // For who asks what serves here; nothing else depends on them.
    uint64_t model_digest;
    const char *dtype, *kv_dtype; // names
    uint32_t max_num_seqs, max_num_batched_tokens, pipeline_depth;
    bool digest; // show digests of logits
    struct request_log log;
    int64_t started_s, started_ns; // wall clock, and env's
    struct admit admit;
    struct meter meter;
    _Atomic uint64_t next_request_id;
    _Atomic bool draining; // new calls get 503
};

#endif
