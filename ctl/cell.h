// cell.h: text and numbers in a fixed count of terminal columns. Text may come from anywhere: what
// would drive a terminal or hide is shown as '?'.
#ifndef MOESAIC_CTL_CELL_H
#define MOESAIC_CTL_CELL_H

#include "common/base/buf.h"

#define CELL_NUMBER_BYTES 16

// Columns that the text takes as cell_text shows it.
unsigned cell_width(const char *text);
// Shows text in exactly `width` columns, cut with an ellipsis or padded on the right. width 0: as
// many columns as it takes.
void cell_text(struct buf *out, const char *text, unsigned width);
void cell_right(struct buf *out, const char *text, unsigned width);

// Short forms of at most 5 columns: 1234, 12.3k, 4.5M; 512B, 1.2G; 0.4s, 12s, 3m, 2h, 9d; 0.48,
// 12.3, 4321. A number that is not known (below 0) is "-".
void cell_count(char out[CELL_NUMBER_BYTES], double n);
void cell_bytes(char out[CELL_NUMBER_BYTES], double bytes);
void cell_age(char out[CELL_NUMBER_BYTES], double seconds);
void cell_rate(char out[CELL_NUMBER_BYTES], double rate);

#endif
