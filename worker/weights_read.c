// weights_read.c: the reader threads: each takes the next piece, reads it, checks its values,
// hashes it and packs it.
//
// A piece is a few rows of one destination (or columns, where the file stores columns), so memory
// stays at two small buffers a thread. Which thread does what, and when, changes neither the packed
// bytes nor the digests.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/tensors.h"
#include "worker/weights_plan.h"
#include "worker/weights_runs.h"

// Large enough that a disk streams, small enough that it stays in the second cache level while it
// is packed.
#define PIECE_BYTES ((size_t)1 << 20)

struct piece {
    const struct weights_item *item;
    uint32_t first, n; // rows (whole panels, but for the last piece) or columns
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

// One thread's.
struct reader {
    struct load *load;
    uint8_t *piece;  // owned: a whole piece, behind it the bounce buffer
    uint8_t *bounce; // [RUNS_BOUNCE_BYTES]
};

// Bytes that a piece's unit takes in the read buffer.
static size_t unit_bytes(const struct weights_item *item) {
    if (!item->by_columns) return (size_t)item->n_cols * dtype_bytes(item->src_dtype);
    // Columns come with what lies between their elements.
    return (size_t)item->n_rows * item->sources[0].row_stride * dtype_bytes(item->src_dtype);
}

static uint32_t units_of_item(const struct weights_item *item) {
    return item->by_columns ? item->n_cols : item->n_rows;
}

// Independent of the number of threads and of the held type: hashes cover exactly these pieces.
static uint32_t units_of_piece(const struct weights_item *item) {
    uint32_t all = units_of_item(item), least = item->by_columns ? 1 : PANEL_COLS;
    size_t bytes = unit_bytes(item) / dtype_bytes(item->src_dtype) * sizeof(float);
    size_t n = PIECE_BYTES / bytes / least * least;
    if (n < least) n = least;
    return n > all ? all : (uint32_t)n;
}

// In the order of the files, which is how a disk likes to be read.
static int by_place(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const struct weights_source *s = &x->item->sources[0], *t = &y->item->sources[0];
    if (s->tensor->shard != t->tensor->shard) return s->tensor->shard < t->tensor->shard ? -1 : 1;
    if (s->tensor->offset != t->tensor->offset)
        return s->tensor->offset < t->tensor->offset ? -1 : 1;
    if (s->offset != t->offset) return s->offset < t->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int make_pieces(struct load *load, const struct weights_plan *plan, struct err_text *e) {
    size_t n = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        uint32_t units = units_of_piece(&plan->items[i]);
        n += (units_of_item(&plan->items[i]) + units - 1) / units;
    }
    load->pieces = mem_array(n, sizeof *load->pieces);
    if (load->pieces == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of pieces");
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct weights_item *item = &plan->items[i];
        uint32_t units = units_of_piece(item), all = units_of_item(item);
        size_t bytes = units * unit_bytes(item);
        if (bytes > load->buffer_bytes) load->buffer_bytes = bytes;
        for (uint32_t at = 0; at < all; at += units)
            load->pieces[load->n_pieces++] =
                (struct piece){item, at, all - at < units ? all - at : units};
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
    uint32_t max = largest_bits(data, item->src_dtype, n);
    if (max >= (item->src_dtype == DTYPE_F16 ? 0x7c00u : 0x7f800000u))
        return err_set(e, ERR_FATAL_MODEL, "tensor %s has a value that is NaN or infinite", name);
    if (item->src_dtype != DTYPE_F16 && max >= dtype_overflow_bits(item->dst_dtype))
        return err_set(e, ERR_FATAL_MODEL,
                       "tensor %s has a value beyond the range of %s; load it as another dtype",
                       name, dtype_name(item->dst_dtype));
    return 0;
}

static void add_digest(struct load *load, const struct weights_item *item, uint64_t hash) {
    // Addition, because it does not mind the order.
    atomic_fetch_add(item->expert ? &load->experts_digest : &load->shared_digest, hash);
}

// What was read of one source, without gaps: its values are looked at and hashed.
static int take_in(struct load *load, const struct piece *part, uint32_t source, const void *buf,
                   struct err_text *e) {
    const struct weights_item *item = part->item;
    const struct weights_source *s = &item->sources[source];
    size_t n = (size_t)part->n * (item->by_columns ? item->n_rows : item->n_cols);
    size_t bytes = n * dtype_bytes(item->src_dtype);
    int rc = check_values(item, s->tensor->name, buf, n, e);
    if (rc != 0) return rc;
    // Where in the tensor the piece stands is a part of what is hashed.
    uint64_t place = part->first + s->offset * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t seed = XXH3_64bits_withSeed(s->tensor->name, strlen(s->tensor->name), place);
    add_digest(load, item, XXH3_64bits_withSeed(buf, bytes, seed));
    if (load->config->progress != NULL)
        atomic_fetch_add(&load->config->progress->bytes_done, bytes);
    return 0;
}

// Elements of so many bytes, stride elements apart.
struct elements {
    size_t n, stride, bytes;
};

// Move to lie behind each other; to is not behind from.
static void close_gaps(uint8_t *to, const uint8_t *from, const struct elements *x) {
    if (x->stride == 1) {
        memmove(to, from, x->n * x->bytes);
        return;
    }
    for (size_t i = 0; i < x->n; i++)
        memmove(to + i * x->bytes, from + i * x->stride * x->bytes, x->bytes);
}

// Rows of one source tensor into buf, which is of the piece; others' columns may lie between.
static int read_rows(const struct reader *r, const struct piece *part, uint32_t source,
                     uint8_t *buf, struct err_text *e) {
    const struct weights_item *item = part->item;
    const struct weights_source *s = &item->sources[source];
    size_t element = dtype_bytes(item->src_dtype);
    const struct runs rows = {.at = (s->offset + (uint64_t)part->first * s->row_stride) * element,
                              .stride = s->row_stride * element,
                              .bytes = item->n_cols * element,
                              .n = part->n};
    int rc = runs_read(r->load->st, s->tensor, &rows, &(struct runs_buffers){buf, r->bounce}, e);
    return rc == 0 ? take_in(r->load, part, source, buf, e) : rc;
}

// Columns, of which each comes with what lies between its elements; that is then left out.
static int read_columns(const struct reader *r, const struct piece *piece, struct err_text *e) {
    const struct weights_item *item = piece->item;
    const struct weights_source *s = &item->sources[0];
    size_t element = dtype_bytes(item->src_dtype), n_rows = item->n_rows;
    size_t span = (n_rows - 1) * s->row_stride + 1; // of one column
    bool together = n_rows * s->row_stride == s->column_stride;
    struct runs columns = {.at = (s->offset + (uint64_t)piece->first * s->column_stride) * element,
                           .stride = s->column_stride * element,
                           .bytes = span * element,
                           .n = piece->n};
    if (together) { // their elements are equally far apart
        columns.bytes += (columns.n - 1) * columns.stride;
        columns.stride = columns.bytes;
        columns.n = 1;
    }
    int rc =
        runs_read(r->load->st, s->tensor, &columns, &(struct runs_buffers){r->piece, r->bounce}, e);
    if (rc != 0) return rc;
    for (size_t c = 0, n = together ? piece->n * n_rows : n_rows; c < columns.n; c++)
        close_gaps(r->piece + c * n * element, r->piece + c * columns.bytes,
                   &(struct elements){n, s->row_stride, element});
    return take_in(r->load, piece, 0, r->piece, e);
}

// All rows of a piece, from the tensors that are stacked in its destination.
static int gather(const struct reader *r, const struct piece *piece, struct err_text *e) {
    const struct weights_item *item = piece->item;
    if (item->by_columns) return read_columns(r, piece, e);
    size_t row_bytes = (size_t)item->n_cols * dtype_bytes(item->src_dtype);
    uint32_t first = 0, end = piece->first + piece->n;
    for (uint32_t i = 0; i < item->n_sources; first += item->sources[i].n_rows, i++) {
        uint32_t n_rows = item->sources[i].n_rows;
        uint32_t begin = piece->first > first ? piece->first : first;
        uint32_t stop = end < first + n_rows ? end : first + n_rows;
        if (begin >= stop) continue;
        const struct piece part = {item, begin - first, stop - begin};
        int rc = read_rows(r, &part, i, r->piece + (begin - piece->first) * row_bytes, e);
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
    some.n_out = piece->n;
    size_t offset = (size_t)piece->first * m->n_in * dtype_bytes(m->dtype);
    // The plan allocated this memory; readers of the weights see it const.
    matrix_pack(&some, (uint8_t *)m->data + offset, buf, piece->item->src_dtype, m->n_in);
}

static void store(const struct piece *piece, const uint8_t *buf) {
    const struct weights_item *item = piece->item;
    size_t at = item->by_columns ? 0 : (size_t)piece->first * item->n_cols;
    size_t n = (size_t)piece->n * (item->by_columns ? item->n_rows : item->n_cols);
    if (item->rows != NULL)
        convert((uint8_t *)item->rows + at * dtype_bytes(item->dst_dtype), item->dst_dtype, buf,
                item->src_dtype, n);
    if (item->vector != NULL) convert(item->vector + at, DTYPE_F32, buf, item->src_dtype, n);
    for (size_t i = 0; item->plus_one && i < n; i++)
        item->vector[at + i] += 1.0f;
    if (item->packed == NULL) return;
    if (item->by_columns)
        matrix_pack_inputs(item->packed, (void *)item->packed->data, buf, item->src_dtype,
                           (uint32_t[2]){piece->first, piece->n});
    else
        pack_panels(piece, buf);
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
    struct reader r = {load, mem_alloc(load->buffer_bytes + RUNS_BOUNCE_BYTES), NULL};
    int rc = r.piece == NULL ? err_set(&e, ERR_FATAL_NOMEM, "no memory for a read buffer") : 0;
    if (rc == 0) r.bounce = r.piece + load->buffer_bytes;
    while (rc == 0 && !atomic_load(&load->stop)) {
        size_t i = atomic_fetch_add(&load->next, 1);
        if (i >= load->n_pieces) break;
        if (cancelled(load)) {
            rc = err_set(&e, ERR_FATAL_STOPPED, "loading was cancelled");
            break;
        }
        rc = gather(&r, &load->pieces[i], &e);
        if (rc == 0) store(&load->pieces[i], r.piece);
    }
    mem_free(r.piece);
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
