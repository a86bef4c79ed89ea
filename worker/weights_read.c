// weights_read.c: the reader threads: each takes the next piece, reads it, checks its values,
// hashes it and packs it.
//
// A piece is a few rows of one destination, so memory stays at one small buffer a thread. Which
// thread does what, and when, changes neither the packed bytes nor the digests.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/weights_plan.h"

// Large enough that a disk streams, small enough that it stays in the second cache level while it
// is packed.
#define PIECE_BYTES ((size_t)1 << 20)

struct piece {
    const struct weights_item *item;
    uint32_t row, n_rows; // whole panels, but for the last piece
};

struct load {
    const struct weights_config *config;
    const struct safetensors *st;
    struct piece *pieces; // owned
    size_t n_pieces, buffer_bytes;
    _Atomic size_t next;
    _Atomic uint64_t shared_digest, experts_digest;
    _Atomic bool stop;
    pthread_mutex_t lock; // of what follows
    int rc;
    struct err_text error;
};

// Independent of the number of threads and of the held type: hashes cover exactly these pieces.
static uint32_t rows_of_piece(const struct weights_item *item) {
    size_t rows = PIECE_BYTES / ((size_t)item->n_cols * sizeof(float)) / PANEL_COLS * PANEL_COLS;
    if (rows < PANEL_COLS) rows = PANEL_COLS;
    return rows > item->n_rows ? item->n_rows : (uint32_t)rows;
}

// In the order of the files, which is how a disk likes to be read.
static int by_place(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const struct safetensors_tensor *s = x->item->sources[0], *t = y->item->sources[0];
    if (s->shard != t->shard) return s->shard < t->shard ? -1 : 1;
    if (s->offset != t->offset) return s->offset < t->offset ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int make_pieces(struct load *load, const struct weights_plan *plan, struct err_text *e) {
    size_t n = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        uint32_t rows = rows_of_piece(&plan->items[i]);
        n += (plan->items[i].n_rows + rows - 1) / rows;
    }
    load->pieces = mem_array(n, sizeof *load->pieces);
    if (load->pieces == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of pieces");
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct weights_item *item = &plan->items[i];
        uint32_t rows = rows_of_piece(item);
        size_t bytes = (size_t)rows * item->n_cols * dtype_bytes(item->src_dtype);
        if (bytes > load->buffer_bytes) load->buffer_bytes = bytes;
        for (uint32_t row = 0; row < item->n_rows; row += rows) {
            uint32_t left = item->n_rows - row;
            load->pieces[load->n_pieces++] = (struct piece){item, row, left < rows ? left : rows};
        }
    }
    qsort(load->pieces, n, sizeof *load->pieces, by_place);
    return 0;
}

// The largest magnitude as float32 bits (float16 bits for that type): one pass without branches.
static uint32_t largest_bits(const void *data, enum dtype dtype, size_t n) {
    uint32_t max = 0;
    if (dtype == DTYPE_F32) {
        const uint32_t *p = data;
        for (size_t i = 0; i < n; i++)
            max = (p[i] & 0x7fffffffu) > max ? p[i] & 0x7fffffffu : max;
        return max;
    }
    const uint16_t *p = data;
    for (size_t i = 0; i < n; i++)
        max = (p[i] & 0x7fffu) > max ? p[i] & 0x7fffu : max;
    return dtype == DTYPE_BF16 ? max << 16 : max;
}

// A NaN or infinity in the file, or made by rounding to the held type, would poison answers far
// from its cause.
static int check_values(const struct weights_item *item, const char *name, const void *data,
                        size_t n, struct err_text *e) {
    static const uint32_t too_large[] = {
        [DTYPE_F32] = 0x7f800000u,  // infinity
        [DTYPE_F16] = 0x477ff000u,  // 65520, which rounds to float16's infinity
        [DTYPE_BF16] = 0x7f7f8000u, // rounds to bfloat16's infinity
    };
    uint32_t max = largest_bits(data, item->src_dtype, n);
    if (max >= (item->src_dtype == DTYPE_F16 ? 0x7c00u : 0x7f800000u))
        return err_set(e, ERR_FATAL_MODEL, "tensor %s has a value that is NaN or infinite", name);
    if (item->src_dtype != DTYPE_F16 && max >= too_large[item->dst_dtype])
        return err_set(e, ERR_FATAL_MODEL,
                       "tensor %s has a value beyond the range of %s; load it as another dtype",
                       name, dtype_name(item->dst_dtype));
    return 0;
}

static void add_digest(struct load *load, const struct weights_item *item, uint64_t hash) {
    // Addition, because it does not mind the order.
    atomic_fetch_add(item->expert ? &load->experts_digest : &load->shared_digest, hash);
}

// Rows [row, row + n_rows) of one source tensor: read, check, hash.
static int read_rows(struct load *load, const struct piece *part, uint32_t source, void *buf,
                     struct err_text *e) {
    const struct weights_item *item = part->item;
    const struct safetensors_tensor *t = item->sources[source];
    size_t row_bytes = (size_t)item->n_cols * dtype_bytes(item->src_dtype);
    const struct safetensors_range range = {part->row * row_bytes, part->n_rows * row_bytes};
    int rc = safetensors_read(load->st, t, range, buf, e);
    if (rc == 0) rc = check_values(item, t->name, buf, (size_t)part->n_rows * item->n_cols, e);
    if (rc != 0) return rc;
    uint64_t seed = XXH3_64bits_withSeed(t->name, strlen(t->name), part->row);
    add_digest(load, item, XXH3_64bits_withSeed(buf, range.bytes, seed));
    if (load->config->progress != NULL)
        atomic_fetch_add(&load->config->progress->bytes_done, range.bytes);
    return 0;
}

// All rows of a piece, from the tensors that are stacked in its destination.
static int gather(struct load *load, const struct piece *piece, uint8_t *buf, struct err_text *e) {
    const struct weights_item *item = piece->item;
    size_t row_bytes = (size_t)item->n_cols * dtype_bytes(item->src_dtype);
    uint32_t first = 0, end = piece->row + piece->n_rows;
    for (uint32_t i = 0; i < item->n_sources; first += item->source_rows[i], i++) {
        uint32_t begin = piece->row > first ? piece->row : first;
        uint32_t stop = end < first + item->source_rows[i] ? end : first + item->source_rows[i];
        if (begin >= stop) continue;
        const struct piece part = {item, begin - first, stop - begin};
        int rc = read_rows(load, &part, i, buf + (begin - piece->row) * row_bytes, e);
        if (rc != 0) return rc;
    }
    return 0;
}

static void convert(void *dst, enum dtype to, const void *src, enum dtype from, size_t n) {
    if (from == to) {
        memcpy(dst, src, n * dtype_bytes(to));
        return;
    }
    const struct kernel_ops *ops = kernel_ops_select(NULL);
    float wide[256];
    for (size_t i = 0; i < n; i += sizeof wide / sizeof *wide) {
        uint32_t some =
            n - i < sizeof wide / sizeof *wide ? (uint32_t)(n - i) : sizeof wide / sizeof *wide;
        ops->unpack(wide, (const uint8_t *)src + i * dtype_bytes(from), from, some);
        ops->pack((uint8_t *)dst + i * dtype_bytes(to), wide, to, some);
    }
}

// Panels lie behind each other, so a piece's panels are a smaller matrix at an offset.
static void pack_panels(const struct piece *piece, const uint8_t *buf) {
    const struct matrix *m = piece->item->packed;
    struct matrix some = *m;
    some.n_out = piece->n_rows;
    size_t offset = (size_t)piece->row * m->n_in * dtype_bytes(m->dtype);
    // The plan allocated this memory; readers of the weights see it const.
    matrix_pack(&some, (uint8_t *)m->data + offset, buf, piece->item->src_dtype, m->n_in);
}

static void store(const struct piece *piece, const uint8_t *buf) {
    const struct weights_item *item = piece->item;
    size_t at = (size_t)piece->row * item->n_cols, n = (size_t)piece->n_rows * item->n_cols;
    if (item->rows != NULL)
        convert((uint8_t *)item->rows + at * dtype_bytes(item->dst_dtype), item->dst_dtype, buf,
                item->src_dtype, n);
    if (item->vector != NULL) convert(item->vector + at, DTYPE_F32, buf, item->src_dtype, n);
    if (item->packed != NULL) pack_panels(piece, buf);
}

static void fail(struct load *load, int rc, const struct err_text *error) {
    pthread_mutex_lock(&load->lock);
    if (load->rc == 0) {
        load->rc = rc;
        load->error = *error;
    }
    pthread_mutex_unlock(&load->lock);
    atomic_store(&load->stop, true);
}

static bool cancelled(const struct load *load) {
    return load->config->cancel != NULL && atomic_load(load->config->cancel);
}

static void *reader(void *context) {
    struct load *load = context;
    struct err_text e = {""};
    kernel_thread_init();
    uint8_t *buf = mem_alloc(load->buffer_bytes);
    int rc = buf == NULL ? err_set(&e, ERR_FATAL_NOMEM, "no memory for a read buffer") : 0;
    while (rc == 0 && !atomic_load(&load->stop)) {
        size_t i = atomic_fetch_add(&load->next, 1);
        if (i >= load->n_pieces) break;
        if (cancelled(load)) {
            rc = err_set(&e, ERR_FATAL_STOPPED, "loading was cancelled");
            break;
        }
        rc = gather(load, &load->pieces[i], buf, &e);
        if (rc == 0) store(&load->pieces[i], buf);
    }
    mem_free(buf);
    if (rc != 0) fail(load, rc, &e);
    return NULL;
}

// The calling thread reads too, so a machine that gives no more threads only loads slower.
static int run_readers(struct load *load, struct err_text *e) {
    uint32_t wanted = load->config->n_threads - 1, started = 0;
    if (wanted > load->n_pieces) wanted = (uint32_t)load->n_pieces;
    pthread_t *threads = mem_array(wanted, sizeof *threads);
    if (threads == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the readers");
    while (started < wanted && pthread_create(&threads[started], NULL, reader, load) == 0)
        started++;
    if (started < wanted)
        log_warn("weights", "readers wanted %u started %u", wanted + 1, started + 1);
    reader(load);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    mem_free(threads);
    if (load->rc != 0) return err_set(e, load->rc, "%s", load->error.text);
    return 0;
}

int weights_read(struct weights *w, const struct weights_plan *plan,
                 const struct weights_config *config, const struct safetensors *st,
                 struct err_text *e) {
    struct load load = {.config = config, .st = st, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = make_pieces(&load, plan, e);
    if (rc == 0) rc = run_readers(&load, e);
    mem_free(load.pieces);
    if (rc != 0) return rc;
    w->shared_digest = atomic_load(&load.shared_digest);
    w->experts_digest = atomic_load(&load.experts_digest);
    return 0;
}
