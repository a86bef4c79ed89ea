// bench_tokenizer.c: speed of texts to ids as one fixed CSV: text,bytes,ids,seconds,mb_per_s.
//
// Arguments: model folder (models/seedling), then files with texts; without any, texts are made
// here, the worst kinds among them. Each line is the best of three. tokenizer_peer.py runs Hugging
// Face's tokenizers on the same files beside it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/tokenizer.h"

#define RUNS 3
#define MADE_BYTES (10u << 20)

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void report(struct env *env, const struct tokenizer *t, const char *name,
                   const struct encode_text *text) {
    struct err_text e;
    double best = 1e300;
    size_t n = 0;
    for (int run = 0; run < RUNS; run++) {
        struct id_list ids = {0};
        int64_t begin = env_now_ns(env);
        must(tokenizer_encode(t, text, &ids, &e), &e);
        double seconds = (double)(env_now_ns(env) - begin) / NS_PER_S;
        if (seconds < best) best = seconds;
        n = ids.n;
        id_list_finish(&ids);
    }
    printf("%s,%zu,%zu,%.4f,%.2f\n", name, text->bytes, n, best, (double)text->bytes / best / 1e6);
    fflush(stdout);
}

static void made(struct env *env, const struct tokenizer *t, const char *name, const char *unit) {
    struct buf text;
    buf_init(&text, 0);
    while (text.bytes < MADE_BYTES)
        buf_text(&text, unit);
    check(!text.failed);
    struct encode_text whole = {
        .text = text.data, .bytes = MADE_BYTES, .parse_special = true, .ids_max = MADE_BYTES};
    report(env, t, name, &whole);
    buf_finish(&text);
}

static void from_file(struct env *env, const struct tokenizer *t, const char *path) {
    struct file_bytes file;
    struct err_text e;
    must(file_read_path(&file, path, 1u << 30, &e), &e);
    struct encode_text whole = {
        .text = file.data, .bytes = file.bytes, .parse_special = true, .ids_max = file.bytes + 1};
    report(env, t, path, &whole);
    mem_free(file.data);
}

int main(int argc, char **argv) {
    struct env *env = env_real_create();
    struct tokenizer *t;
    struct err_text e;
    must(tokenizer_load(&t, argc > 1 ? argv[1] : "models/seedling", &e), &e);
    printf("text,bytes,ids,seconds,mb_per_s\n");
    for (int i = 2; i < argc; i++)
        from_file(env, t, argv[i]);
    if (argc <= 2) {
        made(env, t, "letter", "a");
        made(env, t, "two_letters", "ab");
        made(env, t, "sentence", "The quick brown fox jumps over the lazy dog. ");
        made(env, t, "spaces", " ");
    }
    tokenizer_destroy(t);
    env_real_destroy(env);
    return 0;
}
