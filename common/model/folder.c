// folder.c: see folder.h.
#include "common/model/folder.h"

#include <xxhash.h>

#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/model/safetensors.h"

// A file's hash on top of hash; its length keeps two neighbours from sharing a border.
static int hash_file(uint64_t *hash, const char *folder, const char *name, size_t bytes_max,
                     struct err_text *e) {
    struct file_bytes file;
    int rc = file_read_whole(&file, folder, name, bytes_max, e);
    if (rc != 0) return rc;
    *hash = XXH3_64bits_withSeed(file.data, file.bytes, *hash + file.bytes);
    mem_free(file.data);
    return 0;
}

int model_folder_digest(uint64_t *out, const char *folder, struct err_text *e) {
    uint64_t hash = 0;
    int rc = hash_file(&hash, folder, "config.json", CONFIG_BYTES_MAX, e);
    // Bare checkpoints have neither; a leader that needs one says so itself.
    static const char *const tokenizers[] = {"tokenizer.json", "tiktoken.model",
                                             "tokenizer.tok.json"};
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers && rc == 0; i++) {
        if (file_exists(folder, tokenizers[i]))
            rc = hash_file(&hash, folder, tokenizers[i], TOKENIZER_BYTES_MAX, e);
    }
    struct safetensors *st = NULL;
    if (rc == 0) rc = safetensors_open(&st, folder, e);
    if (rc != 0) return rc;
    const uint64_t parts[] = {hash, safetensors_layout_hash(st)};
    safetensors_close(st);
    *out = XXH3_64bits(parts, sizeof parts);
    return 0;
}
