// jinja_lookup.h: attributes, items and slices of values, with Jinja's rules for what is not there.
#ifndef MOESAIC_COMMON_TEXT_JINJA_LOOKUP_H
#define MOESAIC_COMMON_TEXT_JINJA_LOOKUP_H

#include "common/text/jinja_text.h"

// v.name for everything but loops. Methods as values are refused.
bool lookup_attribute(struct render *r, const struct value *v, const struct text *name,
                      struct value *out);
// v[key]: undefined when it is not there; fails when v itself is undefined.
bool lookup_item(struct render *r, const struct value *v, const struct value *key,
                 struct value *out);
// v[bounds[0]:bounds[1]:bounds[2]], none where left out.
bool lookup_slice(struct render *r, const struct value *v, const struct value bounds[3],
                  struct value *out);
// "a.b" or an index, as map(attribute=...) takes it.
bool lookup_path(struct render *r, const struct value *v, const struct value *path,
                 struct value *out);

#endif
