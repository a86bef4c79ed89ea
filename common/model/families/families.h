// families.h: one line for each file of this folder. spec.c alone uses it.
#ifndef MOESAIC_COMMON_MODEL_FAMILIES_FAMILIES_H
#define MOESAIC_COMMON_MODEL_FAMILIES_FAMILIES_H

#include "common/model/spec.h"

// X(name of the file, its model types as messages list them). The order is that of the messages.
#define FAMILIES(X)                                                                                \
    X(mixtral, "mixtral")                                                                          \
    X(qwen2_moe, "qwen2_moe")                                                                      \
    X(qwen3_moe, "qwen3_moe")                                                                      \
    X(olmoe, "olmoe")                                                                              \
    X(granitemoe, "granitemoe, granitemoeshared")                                                  \
    X(glm4_moe, "glm4_moe")                                                                        \
    X(minimax_m2, "minimax_m2")                                                                    \
    X(ernie4_5_moe, "ernie4_5_moe")                                                                \
    X(dbrx, "dbrx")                                                                                \
    X(phimoe, "phimoe")                                                                            \
    X(gpt_oss, "gpt_oss")                                                                          \
    X(grok, "grok-1, git")                                                                         \
    X(llama4, "llama4_text, llama4")                                                               \
    X(deepseek, "deepseek")                                                                        \
    X(deepseek_mla, "deepseek_v2, deepseek_v3, kimi_k2, deepseek_v32, glm_moe_dsa")                \
    X(deepseek_v4, "deepseek_v4")                                                                  \
    X(kimi_k25, "kimi_k25")                                                                        \
    X(qwen3_next, "qwen3_next")                                                                    \
    X(qwen3_5, "qwen3_5_moe_text, qwen3_5_moe, qwen3_5_text, qwen3_5")                             \
    X(dense, "llama, mistral, qwen2, qwen3")

#define FAMILIES_DECLARE(name, types) extern const struct family family_##name;
FAMILIES(FAMILIES_DECLARE)
#undef FAMILIES_DECLARE

#endif
