// grpc_unpack.c: see grpc_unpack.h.
#include "common/net/grpc_unpack.h"

#include <zlib.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/mem.h"

#define PIECE_BYTES 65536

static void *zlib_alloc(void *unused, unsigned items, unsigned bytes) {
    (void)unused;
    return mem_array(items, bytes);
}

static void zlib_free(void *unused, void *p) {
    (void)unused;
    mem_free(p);
}

static size_t most_bytes(const struct grpc_packed *packed, size_t bytes_max) {
    size_t most = packed->bytes < bytes_max ? packed->bytes * GRPC_UNPACK_RATIO_MAX : bytes_max;
    most += GRPC_UNPACK_BYTES_MORE;
    return most < bytes_max ? most : bytes_max;
}

// One stream, and nothing behind it.
static int inflate_all(z_stream *z, size_t most, struct buf *out) {
    uint8_t piece[PIECE_BYTES];
    int rc = Z_OK;
    while (rc == Z_OK) {
        z->next_out = piece;
        z->avail_out = sizeof piece;
        rc = inflate(z, Z_NO_FLUSH);
        size_t n = sizeof piece - z->avail_out;
        if (n > most - out->bytes) return ERR_REQ_TOO_LARGE;
        buf_add(out, piece, n);
        if (out->failed || rc == Z_MEM_ERROR) return ERR_FATAL_NOMEM;
    }
    return rc == Z_STREAM_END && z->avail_in == 0 ? 0 : ERR_PEER_PROTOCOL;
}

int grpc_unpack(const struct grpc_packed *packed, size_t bytes_max, uint8_t **out,
                size_t *out_bytes) {
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};
    struct buf text;
    int window = packed->algorithm == GRPC_COMPRESS_GZIP ? 15 + 16 : 15; // deflate has zlib's head
    bool known =
        packed->algorithm == GRPC_COMPRESS_GZIP || packed->algorithm == GRPC_COMPRESS_DEFLATE;
    if (!known || packed->bytes > UINT32_MAX) return ERR_PEER_PROTOCOL;
    if (inflateInit2(&z, window) != Z_OK) return ERR_FATAL_NOMEM;
    z.next_in = (Bytef *)(uintptr_t)packed->data; // which it only reads
    z.avail_in = (unsigned)packed->bytes;
    buf_init(&text, 0);
    int rc = inflate_all(&z, most_bytes(packed, bytes_max), &text);
    inflateEnd(&z);
    buf_add(&text, "", 1); // so that an empty one has memory, too
    if (rc == 0 && text.failed) rc = ERR_FATAL_NOMEM;
    if (rc != 0) {
        buf_finish(&text);
        return rc;
    }
    *out = (uint8_t *)text.data; // a buf's bytes are mem_alloc'd
    *out_bytes = text.bytes - 1;
    return 0;
}

const char *grpc_unpack_error(int rc) {
    switch (rc) {
    case ERR_REQ_TOO_LARGE: return "the message is too large, or unpacks to too many bytes";
    case ERR_PEER_PROTOCOL: return "the message is not what its compression says";
    default: return "no memory for a message";
    }
}
