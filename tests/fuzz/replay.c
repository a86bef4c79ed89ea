// replay.c: drives one fuzz target without libFuzzer: replay DIR... runs every file of the folders
// (or files) given, then the empty input. SECONDS=n goes on with simple mutations of them for that
// long; SEED=n repeats a run (the seed is printed). An input that kills the process is left in
// crash-<target>.bin of the working directory, which the next replay takes as a file.
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUTS_MAX 4096
#define INPUT_BYTES_MAX (1u << 20)

struct input {
    uint8_t *data;
    size_t bytes;
};

static struct input inputs[INPUTS_MAX];
static size_t n_inputs;
static uint64_t rng_state;

// splitmix64: enough for mutations, and the whole state is the printed seed.
static uint64_t rng_next(void) {
    uint64_t z = (rng_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t rng_below(size_t n) {
    return n == 0 ? 0 : (size_t)(rng_next() % n);
}

// The exact size on the heap, so that a sanitizer sees a read one past the end.
static void run_once(const uint8_t *data, size_t bytes) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (copy == NULL) abort();
    if (bytes != 0) memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void add_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL || n_inputs == INPUTS_MAX) {
        fprintf(stderr, "replay: cannot take %s\n", path);
        exit(2);
    }
    uint8_t *data = malloc(INPUT_BYTES_MAX);
    if (data == NULL) abort();
    size_t bytes = fread(data, 1, INPUT_BYTES_MAX, f);
    fclose(f);
    inputs[n_inputs++] = (struct input){data, bytes};
}

static void add_path(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "replay: %s is missing\n", path);
        exit(2);
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(path);
        return;
    }
    struct dirent **entries;
    int n = scandir(path, &entries, NULL,
                    alphasort); // sorted, so that a seed means the same everywhere
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(file, &st) == 0 && S_ISREG(st.st_mode))
            add_file(file);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

// Numbers at the edges of what parsers compare with.
static void put_edge(uint8_t *data, size_t bytes) {
    static const uint64_t edges[] = {0,
                                     1,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX};
    size_t width = (size_t)1 << rng_below(4);
    if (bytes < width) return;
    uint64_t v = edges[rng_below(sizeof edges / sizeof *edges)];
    memcpy(data + rng_below(bytes - width + 1), &v, width);
}

static void put_text(uint8_t *data, size_t bytes) {
    static const char *const words[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "-1",
                                        "0",
                                        "1e9",
                                        "null",
                                        "true",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "\\u0000",
                                        "{{",
                                        "}}",
                                        "{%"};
    const char *w = words[rng_below(sizeof words / sizeof *words)];
    size_t len = strlen(w);
    if (bytes >= len) memcpy(data + rng_below(bytes - len + 1), w, len);
}

// Inserts, removes or doubles a piece. Returns the new size.
static size_t move_piece(uint8_t *data, size_t bytes) {
    size_t at = rng_below(bytes + 1), len = 1 + rng_below(16);
    if (rng_below(2) == 0) {
        if (len > bytes - at) len = bytes - at;
        memmove(data + at, data + at + len, bytes - at - len);
        return bytes - len;
    }
    if (bytes + len > INPUT_BYTES_MAX) return bytes;
    memmove(data + at + len, data + at, bytes - at);
    for (size_t i = 0; i < len; i++)
        data[at + i] = bytes > len ? data[rng_below(bytes)] : (uint8_t)rng_next();
    return bytes + len;
}

// Replaces the tail from a random place by a random tail of another input.
static size_t splice_input(uint8_t *data, size_t bytes) {
    const struct input *other = &inputs[rng_below(n_inputs)];
    size_t keep = rng_below(bytes + 1), from = rng_below(other->bytes + 1);
    size_t len = other->bytes - from;
    if (keep + len > INPUT_BYTES_MAX) len = INPUT_BYTES_MAX - keep;
    if (len != 0) memcpy(data + keep, other->data + from, len);
    return keep + len;
}

static size_t mutate(uint8_t *data, size_t bytes) {
    size_t rounds = 1 + rng_below(8);
    for (size_t i = 0; i < rounds; i++) {
        switch (rng_below(6)) {
        case 0:
            if (bytes != 0) data[rng_below(bytes)] ^= (uint8_t)(1u << rng_below(8));
            break;
        case 1:
            if (bytes != 0) data[rng_below(bytes)] = (uint8_t)rng_next();
            break;
        case 2: put_edge(data, bytes); break;
        case 3: put_text(data, bytes); break;
        case 4: bytes = move_piece(data, bytes); break;
        default: bytes = splice_input(data, bytes); break;
        }
    }
    return bytes;
}

// The input under test is written before each run: after a crash, however violent, the file has it.
static void keep_input(int fd, const uint8_t *data, size_t bytes) {
    if (ftruncate(fd, (off_t)bytes) != 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) {
        perror("replay: cannot keep the input");
        exit(2);
    }
}

static double seconds_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void fuzz(const char *target, double seconds) {
    char path[512];
    const char *slash = strrchr(target, '/');
    snprintf(path, sizeof path, "crash-%s.bin", slash == NULL ? target : slash + 1);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    uint8_t *data = malloc(INPUT_BYTES_MAX);
    if (fd < 0 || data == NULL) {
        fprintf(stderr, "replay: cannot write %s\n", path);
        exit(2);
    }
    double end = seconds_now() + seconds;
    unsigned long runs = 0;
    for (; (runs & 15) != 0 || seconds_now() < end; runs++) {
        const struct input *in = &inputs[rng_below(n_inputs)];
        if (in->bytes != 0) memcpy(data, in->data, in->bytes);
        size_t bytes = mutate(data, in->bytes);
        keep_input(fd, data, bytes);
        run_once(data, bytes);
    }
    free(data);
    close(fd);
    unlink(path);
    printf("%s: %lu mutated inputs\n", target, runs);
}

int main(int argc, char **argv) {
    const char *seconds = getenv("SECONDS"), *seed = getenv("SEED");
    rng_state = seed != NULL ? strtoull(seed, NULL, 0)
                             : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    printf("%s: SEED=%llu\n", argv[0], (unsigned long long)rng_state);
    fflush(stdout);
    for (int i = 1; i < argc; i++)
        add_path(argv[i]);
    size_t n_files = n_inputs;
    for (size_t i = 0; i < n_files; i++)
        run_once(inputs[i].data, inputs[i].bytes);
    run_once(NULL, 0);
    printf("%s: %zu files\n", argv[0], n_files);
    if (n_files == 0 && argc > 1) {
        fprintf(stderr, "replay: no file in %s\n", argv[1]);
        return 2;
    }
    if (seconds != NULL && n_inputs != 0) fuzz(argv[0], strtod(seconds, NULL));
    for (size_t i = 0; i < n_inputs; i++)
        free(inputs[i].data);
    return 0;
}
