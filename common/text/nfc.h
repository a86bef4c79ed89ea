// nfc.h: Unicode's normalisation forms in linear time, also for text made of nothing but combining
// marks.
#ifndef MOESAIC_COMMON_TEXT_NFC_H
#define MOESAIC_COMMON_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// What a character below becomes never combines with what stands before it, so text may be cut
// before one.
#define NFC_SAFE_BELOW 0x300u

enum unicode_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };

// True when a look at the bytes shows that text is its own normal form.
bool nfc_is_plain(enum unicode_form form, const char *text, size_t n);
// Appends the normal form of valid UTF-8 text. 0 or ERR_FATAL_NOMEM.
int nfc_append(struct buf *out, enum unicode_form form, const char *text, size_t n);

#endif
