// nfc.h: Unicode normalisation form C in linear time, also for text made of nothing but combining
// marks.
#ifndef MOESAIC_COMMON_TEXT_NFC_H
#define MOESAIC_COMMON_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// Characters below are never changed by NFC and never combine with what stands before them, so text
// may be cut before one.
#define NFC_SAFE_BELOW 0x300u

// True when no character of text is at or above NFC_SAFE_BELOW: it is its own normal form.
bool nfc_is_plain(const char *text, size_t n);
// Appends the normal form of valid UTF-8 text. 0 or ERR_FATAL_NOMEM.
int nfc_append(struct buf *out, const char *text, size_t n);

#endif
