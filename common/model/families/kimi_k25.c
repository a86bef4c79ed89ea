// kimi_k25.c: the text model of Kimi K2.5 and K2.6: DeepSeek-V3's inside a multimodal checkpoint,
// whose vision tower and projector are left out.
#include <stdio.h>
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

#define PREFIX "language_model."

// The other family does not know that its object stands inside another.
static void say_where(struct err_text *e) {
    static const char file[] = "config.json: ";
    const struct err_text inner = *e;
    if (strncmp(inner.text, file, sizeof file - 1) == 0)
        snprintf(e->text, sizeof e->text, "%stext_config: %.*s", file, ERR_TEXT_MAX - 64,
                 inner.text + sizeof file - 1);
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    bool tied = config_flag_or(&r, "tie_word_embeddings", false);
    decoder_enter_text(&r);
    if (r.rc == 0 && (r.rc = family_deepseek_mla.read(spec, r.object, e)) != 0) say_where(e);
    // Both objects have the key, and the class reads the outer one.
    if (config_value(&(struct config_reader){.object = config}, "tie_word_embeddings") != NULL)
        spec->tied_embeddings = tied;
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    uint32_t n = sizeof PREFIX - 1;
    if (buf_bytes <= n) return false;
    memcpy(buf, PREFIX, n);
    return family_deepseek_mla.tensor_name(spec, ref, buf + n, buf_bytes - n);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    family_deepseek_mla.tensor_place(spec, ref, place);
}

static bool leaves_out(const struct model_spec *spec, const char *name) {
    return strncmp(name, "vision_tower.", 13) == 0 || strncmp(name, "mm_projector.", 13) == 0 ||
           (strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 &&
            decoder_is_later_layer(spec, name + sizeof PREFIX - 1));
}

// The released files name the class one way, transformers the other.
const struct family family_kimi_k25 = {
    .names = (const struct model_name[]){{"KimiK25ForConditionalGeneration", "kimi_k25"},
                                         {"Kimi_K25ForConditionalGeneration", "kimi_k25"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
    .leaves_out = leaves_out,
};
