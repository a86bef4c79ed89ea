// json_text.h: what moectl prints as JSON: one object a line.
#ifndef MOESAIC_CTL_JSON_TEXT_H
#define MOESAIC_CTL_JSON_TEXT_H

#include <jansson.h>

// A text from anywhere; null where it is no UTF-8.
json_t *json_text(const char *text);
// Prints the object and a line's end; 0 or ERR_FATAL_NOMEM, also when object is NULL. Takes no
// reference.
int json_text_print(const json_t *object);

#endif
