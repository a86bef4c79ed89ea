// jinja_run.c: the stack machine.
//
// The value stack holds what expressions compute; the environment holds names in scopes, the
// innermost last. A loop or a macro call begins a scope, and ends it by cutting the environment
// back.
#include "common/text/jinja_run.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/text/jinja_builtin.h"
#include "common/text/jinja_lookup.h"
#include "common/text/jinja_operators.h"

#define STACK_MAX 4096
#define NAMES_MAX 4096
#define LOOPS_MAX 64
#define CALLS_MAX 32
#define CAPTURES_MAX 40

struct binding {
    size_t name; // a string of the program
    struct value value;
};

struct loop {
    struct value list;
    size_t n, next; // items, and how many came
    bool done;      // one went through the whole body
    bool scope;     // no loop: names of a block
    size_t first_binding;
    int64_t serial;    // tells a loop object of a loop that is over
    struct value kept; // of a filtering loop
};

struct frame {
    size_t return_at;
    size_t first_binding, first_loop, first_value;
    size_t n_args, n_bound;
    struct value args[16];
};

struct machine {
    struct render r;
    const struct jinja_program *program;
    const json_t *variables;
    struct value *stack;      // [STACK_MAX]
    struct binding *bindings; // [NAMES_MAX]
    size_t n_values, n_bindings, n_globals;
    struct loop loops[LOOPS_MAX];
    size_t n_loops;
    struct frame frames[CALLS_MAX];
    size_t n_frames;
    struct text_writer *sinks[CAPTURES_MAX];
    struct text_writer captures[CAPTURES_MAX];
    size_t n_captures;
    size_t at;
    int64_t loop_serial;
};

static bool fail(struct machine *m, const char *what) {
    return render_fail(&m->r, ERR_REQ_INVALID, "chat template: %s", what);
}

// --- the value stack

static bool push(struct machine *m, struct value v) {
    if (m->n_values == STACK_MAX) return fail(m, "an expression needs too many values");
    m->stack[m->n_values++] = v;
    return true;
}

static struct value pop(struct machine *m) {
    check(m->n_values > 0);
    return m->stack[--m->n_values];
}

static struct value *top(struct machine *m, size_t n) {
    check(m->n_values >= n);
    return &m->stack[m->n_values - n];
}

// Replaces the n topmost values by one.
static bool replace(struct machine *m, size_t n, struct value v) {
    check(m->n_values >= n);
    m->n_values -= n;
    return push(m, v);
}

// --- names

static bool same_name(const struct machine *m, size_t a, size_t b) {
    const struct jinja_string *x = &m->program->strings[a], *y = &m->program->strings[b];
    return a == b || (x->n == y->n && memcmp(x->bytes, y->bytes, x->n) == 0);
}

static size_t scope_begin(const struct machine *m) {
    size_t begin = m->n_frames == 0 ? 0 : m->frames[m->n_frames - 1].first_binding;
    size_t first_loop = m->n_frames == 0 ? 0 : m->frames[m->n_frames - 1].first_loop;
    return m->n_loops > first_loop ? m->loops[m->n_loops - 1].first_binding : begin;
}

static bool bind(struct machine *m, size_t name, struct value v) {
    size_t begin = scope_begin(m);
    v.keyword = KEYWORD_NONE;
    for (size_t i = begin; i < m->n_bindings; i++) {
        if (!same_name(m, m->bindings[i].name, name)) continue;
        m->bindings[i].value = v;
        return true;
    }
    if (m->n_bindings == NAMES_MAX) return fail(m, "too many names are set");
    m->bindings[m->n_bindings++] = (struct binding){name, v};
    if (m->n_frames == 0 && m->n_loops == 0) m->n_globals = m->n_bindings;
    return true;
}

static const struct value *find_binding(const struct machine *m, size_t begin, size_t end,
                                        size_t name) {
    for (size_t i = end; i > begin; i--) {
        if (same_name(m, m->bindings[i - 1].name, name)) return &m->bindings[i - 1].value;
    }
    return NULL;
}

static bool is_trusted_name(const struct jinja_string *name) {
    static const char suffix[] = "_token";
    size_t n = sizeof suffix - 1;
    return name->n > n && memcmp(name->bytes + name->n - n, suffix, n) == 0;
}

static struct value variable(struct machine *m, size_t index) {
    const struct jinja_string *name = &m->program->strings[index];
    const json_t *found = json_object_getn(m->variables, name->bytes, name->n);
    if (found == NULL) return value_undefined(name->bytes, name->n);
    return value_from_json(found, !is_trusted_name(name));
}

static const struct loop *innermost_loop(const struct machine *m, size_t first) {
    size_t i = m->n_loops;
    while (i > first && m->loops[i - 1].scope)
        i--;
    return i > first ? &m->loops[i - 1] : NULL;
}

static bool run_name(struct machine *m, size_t name) {
    const struct frame *frame = m->n_frames == 0 ? NULL : &m->frames[m->n_frames - 1];
    size_t begin = frame == NULL ? 0 : frame->first_binding;
    const struct value *found = find_binding(m, begin, m->n_bindings, name);
    const struct jinja_string *text = &m->program->strings[name];
    const struct loop *loop = innermost_loop(m, frame == NULL ? 0 : frame->first_loop);
    if (found == NULL && loop != NULL && text->n == 4 && memcmp(text->bytes, "loop", 4) == 0)
        return push(m, (struct value){.kind = VALUE_LOOP, .integer = loop->serial});
    if (found == NULL && frame != NULL) found = find_binding(m, 0, m->n_globals, name);
    return push(m, found != NULL ? *found : variable(m, name));
}

// --- attributes

static struct value loop_item(const struct loop *l, size_t i, const char *name) {
    return i < l->n ? value_at(&l->list, i) : value_undefined(name, strlen(name));
}

static bool loop_attribute(struct machine *m, int64_t serial, const struct text *name,
                           struct value *out) {
    static const char *const names[] = {"index",    "index0", "revindex", "revindex0",
                                        "first",    "last",   "length",   "previtem",
                                        "nextitem", "depth",  "depth0"};
    size_t which = 0, i = m->n_loops, depth = 0;
    while (i > 0 && m->loops[i - 1].serial != serial)
        i--;
    if (i == 0) return fail(m, "the loop is over");
    const struct loop *l = &m->loops[i - 1];
    int64_t index0 = (int64_t)l->next - 1, n = (int64_t)l->n;
    while (which < 11 &&
           !(strlen(names[which]) == name->n && memcmp(names[which], name->bytes, name->n) == 0))
        which++;
    // depth counts recursive loops, which are not supported: always the first.
    const int64_t numbers[] = {index0 + 1, index0, n - index0, n - index0 - 1};
    if (which < 4)
        *out = value_int(numbers[which]);
    else if (which < 6)
        *out = value_bool(which == 4 ? index0 == 0 : index0 == n - 1);
    else if (which == 6)
        *out = value_int(n);
    else if (which == 7)
        *out = loop_item(l, l->next >= 2 ? l->next - 2 : SIZE_MAX, "previtem");
    else if (which == 8)
        *out = loop_item(l, l->next, "nextitem");
    else if (which < 11)
        *out = value_int((int64_t)(depth + (which == 9)));
    else
        *out = value_undefined(name->bytes, name->n);
    return true;
}

static bool run_attribute(struct machine *m, size_t name) {
    const struct jinja_string *string = &m->program->strings[name];
    const struct text text = {.bytes = string->bytes, .n = string->n};
    struct value *v = top(m, 1), out;
    bool ok = v->kind == VALUE_LOOP ? loop_attribute(m, v->integer, &text, &out)
                                    : lookup_attribute(&m->r, v, &text, &out);
    return ok && replace(m, 1, out);
}

static bool run_item(struct machine *m) {
    struct value *v = top(m, 2), out;
    if (v->kind == VALUE_LOOP && v[1].kind == VALUE_TEXT)
        return loop_attribute(m, v->integer, &v[1].text, &out) && replace(m, 2, out);
    return lookup_item(&m->r, v, v + 1, &out) && replace(m, 2, out);
}

static bool run_slice(struct machine *m) {
    struct value *v = top(m, 4), out;
    return lookup_slice(&m->r, v, v + 1, &out) && replace(m, 4, out);
}

static bool run_store_attribute(struct machine *m, size_t name) {
    const struct jinja_string *string = &m->program->strings[name];
    struct value value = pop(m), target = pop(m), key = value_text(string->bytes, string->n, false);
    if (target.kind != VALUE_NAMESPACE)
        return fail(m, "cannot assign attribute on non-namespace object");
    value.keyword = KEYWORD_NONE;
    return dict_set(&m->r, target.dict, &key, &value);
}

// --- operators and containers

static bool run_binary(struct machine *m, enum jinja_binary op) {
    struct value *operands = top(m, 2), out;
    bool compares = op == BINARY_EQUAL || op == BINARY_NOT_EQUAL || op == BINARY_CONCAT ||
                    op == BINARY_IN || op == BINARY_NOT_IN;
    for (size_t i = 0; i < 2 && !compares; i++) {
        const struct value *v = &operands[i];
        if (v->kind == VALUE_UNDEFINED)
            return render_fail(&m->r, ERR_REQ_INVALID, "chat template: '%.*s' is undefined",
                               (int)(v->text.n < 80 ? v->text.n : 80), v->text.bytes);
    }
    return operator_binary(&m->r, op, operands, &out) && replace(m, 2, out);
}

static bool run_list(struct machine *m, size_t n, bool tuple) {
    struct value out, *items = top(m, n);
    if (!list_create(&m->r, n, &out)) return false;
    if (n > 0) memcpy(out.list->items, items, n * sizeof *items);
    out.list->tuple = tuple;
    return replace(m, n, out);
}

static bool run_dict(struct machine *m, size_t n) {
    struct value out, *pairs = top(m, 2 * n);
    if (!dict_create(&m->r, false, &out)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!dict_set(&m->r, out.dict, &pairs[2 * i], &pairs[2 * i + 1])) return false;
    }
    return replace(m, 2 * n, out);
}

static bool run_unpack(struct machine *m, size_t n) {
    struct value v = pop(m), list;
    size_t length = 0;
    if (!value_iterate(&m->r, &v, &list)) return false;
    value_length(&list, &length);
    if (length != n) return fail(m, "the number of values to unpack is wrong");
    for (size_t i = n; i > 0; i--) {
        if (!push(m, value_at(&list, i - 1))) return false;
    }
    return true;
}

static bool run_builtin(struct machine *m, enum builtin_kind kind,
                        const struct jinja_instruction *i) {
    struct value out, *args = top(m, i->argc);
    // What a filter, test or method works on is no argument by name, whatever it was before.
    if (kind != BUILTIN_FUNCTION) args[0].keyword = KEYWORD_NONE;
    if (kind == BUILTIN_METHOD && args[0].kind == VALUE_UNDEFINED) {
        struct value none = value_none();
        return lookup_item(&m->r, &args[0], &none, &out); // fails by the name
    }
    struct call c = {.r = &m->r, .program = m->program, .args = args, .n = i->argc};
    out = value_none();
    return builtin_call(kind, (size_t)i->a, &c, &out) && replace(m, i->argc, out);
}

// --- loops

static bool run_for(struct machine *m) {
    struct value v = pop(m);
    if (m->n_loops == LOOPS_MAX) return fail(m, "loops are nested too deep");
    struct loop l = {.first_binding = m->n_bindings, .serial = ++m->loop_serial};
    if (!value_iterate(&m->r, &v, &l.list)) return false;
    value_length(&l.list, &l.n);
    m->loops[m->n_loops++] = l;
    return true;
}

static bool run_for_next(struct machine *m, int64_t distance) {
    struct loop *l = &m->loops[m->n_loops - 1];
    m->n_bindings = l->first_binding;
    if (l->next == l->n) {
        m->at = (size_t)((int64_t)m->at + distance);
        return true;
    }
    return push(m, value_at(&l->list, l->next++));
}

static bool run_for_keep(struct machine *m) {
    struct loop *l = &m->loops[m->n_loops - 1];
    struct value condition = pop(m);
    if (l->kept.kind != VALUE_LIST) {
        if (!list_create(&m->r, l->n, &l->kept)) return false;
        l->kept.list->n = 0;
    }
    if (value_true(&condition))
        l->kept.list->items[l->kept.list->n++] = value_at(&l->list, l->next - 1);
    return true;
}

static bool run_for_filtered(struct machine *m) {
    struct loop *l = &m->loops[--m->n_loops];
    struct value kept = l->kept;
    m->n_bindings = l->first_binding;
    if (kept.kind != VALUE_LIST && !list_create(&m->r, 0, &kept)) return false;
    return push(m, kept);
}

static bool run_for_end(struct machine *m, int64_t distance) {
    struct loop *l = &m->loops[--m->n_loops];
    m->n_bindings = l->first_binding;
    if (l->done) m->at = (size_t)((int64_t)m->at + distance);
    l->serial = 0;
    return true;
}

// A scope without a loop stands among the loops, as either ends what was begun inside it.
static bool begin_scope(struct machine *m) {
    if (m->n_loops == LOOPS_MAX) return fail(m, "blocks are nested too deep");
    m->loops[m->n_loops++] = (struct loop){.scope = true, .first_binding = m->n_bindings};
    return true;
}

static bool end_scope(struct machine *m) {
    m->n_bindings = m->loops[--m->n_loops].first_binding;
    return true;
}

static bool run_fail(struct machine *m, size_t index) {
    const struct jinja_string *s = &m->program->strings[index];
    return render_fail(&m->r, ERR_REQ_INVALID, "%.*s", (int)s->n, s->bytes);
}

// --- captured output and macros

static bool begin_capture(struct machine *m) {
    if (m->n_captures == CAPTURES_MAX - 1) return fail(m, "texts are captured too deep");
    text_writer_init(&m->captures[m->n_captures], m->r.arena.bytes_max);
    m->sinks[m->n_captures + 1] = &m->captures[m->n_captures];
    m->n_captures++;
    return true;
}

static bool end_capture(struct machine *m) {
    struct value out;
    check(m->n_captures > 0);
    bool ok = text_written(&m->r, &m->captures[m->n_captures - 1], &out);
    text_writer_finish(&m->captures[--m->n_captures]);
    return ok && push(m, out);
}

static bool run_macro(struct machine *m, size_t name) {
    // The body begins behind the jump over it.
    return bind(m, name, (struct value){.kind = VALUE_MACRO, .integer = (int64_t)m->at + 1});
}

static bool run_call(struct machine *m, const struct jinja_instruction *i) {
    if (!run_name(m, (size_t)i->a)) return false;
    struct value macro = pop(m);
    if (macro.kind != VALUE_MACRO) return fail(m, "what is called is no macro");
    if (m->n_frames == CALLS_MAX) return fail(m, "macros are called too deep");
    struct frame *f = &m->frames[m->n_frames];
    *f = (struct frame){.return_at = m->at,
                        .first_binding = m->n_bindings,
                        .first_loop = m->n_loops,
                        .n_args = i->argc};
    if (i->argc > sizeof f->args / sizeof *f->args)
        return fail(m, "a macro is called with too many arguments");
    if (i->argc > 0) memcpy(f->args, top(m, i->argc), i->argc * sizeof *f->args);
    m->n_values -= i->argc;
    f->first_value = m->n_values;
    m->n_frames++;
    m->at = (size_t)macro.integer;
    return begin_capture(m);
}

// The argument for a parameter: the next one by position, or the one of its name.
static struct value *take_argument(struct machine *m, struct frame *f, size_t name) {
    for (size_t i = 0; i < f->n_args; i++) {
        struct value *arg = &f->args[i];
        bool by_place = arg->keyword == KEYWORD_NONE && i == f->n_bound;
        bool by_name = arg->keyword != KEYWORD_NONE && arg->keyword != UINT32_MAX &&
                       same_name(m, arg->keyword - 1, name);
        if (by_place || by_name) return arg;
    }
    return NULL;
}

static bool run_parameter(struct machine *m, size_t name, bool has_default) {
    struct frame *f = &m->frames[m->n_frames - 1];
    struct value *arg = take_argument(m, f, name);
    const struct jinja_string *text = &m->program->strings[name];
    f->n_bound++;
    if (arg == NULL) {
        m->at += has_default; // past the jump over the default
        return has_default || bind(m, name, value_undefined(text->bytes, text->n));
    }
    struct value v = *arg;
    arg->keyword = UINT32_MAX; // taken
    return bind(m, name, v);
}

static bool run_parameters_end(struct machine *m) {
    const struct frame *f = &m->frames[m->n_frames - 1];
    for (size_t i = 0; i < f->n_args; i++) {
        if (f->args[i].keyword != UINT32_MAX)
            return fail(m, "a macro is called with an argument it does not take");
    }
    return true;
}

static bool run_return(struct machine *m) {
    check(m->n_frames > 0);
    const struct frame *f = &m->frames[--m->n_frames];
    m->n_bindings = f->first_binding;
    m->n_loops = f->first_loop;
    m->n_values = f->first_value;
    m->at = f->return_at;
    return end_capture(m);
}

// --- the loop

static bool run_print(struct machine *m) {
    struct value v = pop(m);
    struct text text;
    return value_string(&m->r, &v, &text) && text_write(&m->r, m->sinks[m->n_captures], &text);
}

static bool run_jump(struct machine *m, const struct jinja_instruction *i) {
    bool jump = i->op == OP_JUMP;
    if (i->op == OP_JUMP_FALSE) {
        struct value v = pop(m);
        jump = !value_true(&v);
    }
    if (i->op == OP_JUMP_FALSE_KEEP) jump = !value_true(top(m, 1));
    if (i->op == OP_JUMP_TRUE_KEEP) jump = value_true(top(m, 1));
    if (jump)
        m->at = (size_t)((int64_t)m->at + i->a);
    else if (i->op != OP_JUMP_FALSE)
        pop(m);
    return true;
}

static bool run_sign(struct machine *m, bool negate) {
    struct value out;
    return operator_sign(&m->r, negate, top(m, 1), &out) && replace(m, 1, out);
}

static struct value string_constant(const struct machine *m, size_t index) {
    const struct jinja_string *s = &m->program->strings[index];
    return value_text(s->bytes, s->n, false);
}

static bool run_constant(struct machine *m, const struct jinja_instruction *i) {
    switch (i->op) {
    case OP_CONST: return push(m, string_constant(m, (size_t)i->a));
    case OP_TRUE: return push(m, value_bool(true));
    case OP_FALSE: return push(m, value_bool(false));
    case OP_UNDEFINED: return push(m, value_undefined("the inline if-expression", 24));
    case OP_INT: return push(m, value_int(i->a));
    case OP_FLOAT:
        return push(m, (struct value){.kind = VALUE_FLOAT, .real = m->program->floats[i->a]});
    default: return push(m, value_none());
    }
}

static bool step(struct machine *m, const struct jinja_instruction *i) {
    const struct jinja_string *s;
    switch ((enum jinja_op)i->op) {
    case OP_DATA:
        s = &m->program->strings[i->a];
        return text_write_bytes(&m->r, m->sinks[m->n_captures], s->bytes, s->n, false);
    case OP_CONST:
    case OP_TRUE:
    case OP_FALSE:
    case OP_NONE:
    case OP_UNDEFINED:
    case OP_INT:
    case OP_FLOAT: return run_constant(m, i);
    case OP_NAME: return run_name(m, (size_t)i->a);
    case OP_PRINT: return run_print(m);
    case OP_ATTRIBUTE: return run_attribute(m, (size_t)i->a);
    case OP_ITEM: return run_item(m);
    case OP_SLICE: return run_slice(m);
    case OP_BINARY: return run_binary(m, (enum jinja_binary)i->a);
    case OP_NOT: return replace(m, 1, value_bool(!value_true(top(m, 1))));
    case OP_NEGATE: return run_sign(m, true);
    case OP_PLUS: return run_sign(m, false);
    case OP_LIST: return run_list(m, i->argc, i->a != 0);
    case OP_DICT: return run_dict(m, i->argc);
    case OP_KEYWORD: top(m, 1)->keyword = (uint32_t)i->a + 1; return true;
    case OP_FILTER: return run_builtin(m, BUILTIN_FILTER, i);
    case OP_TEST: return run_builtin(m, BUILTIN_TEST, i);
    case OP_FUNCTION: return run_builtin(m, BUILTIN_FUNCTION, i);
    case OP_METHOD: return run_builtin(m, BUILTIN_METHOD, i);
    case OP_CALL: return run_call(m, i);
    case OP_POP: pop(m); return true;
    case OP_JUMP:
    case OP_JUMP_FALSE:
    case OP_JUMP_FALSE_KEEP:
    case OP_JUMP_TRUE_KEEP: return run_jump(m, i);
    case OP_STORE: return bind(m, (size_t)i->a, pop(m));
    case OP_STORE_ATTRIBUTE: return run_store_attribute(m, (size_t)i->a);
    case OP_UNPACK: return run_unpack(m, i->argc);
    case OP_FOR: return run_for(m);
    case OP_FOR_NEXT: return run_for_next(m, i->a);
    case OP_FOR_DONE: m->loops[m->n_loops - 1].done = true; return true;
    case OP_FOR_KEEP: return run_for_keep(m);
    case OP_FOR_FILTERED: return run_for_filtered(m);
    case OP_FOR_END: return run_for_end(m, i->a);
    case OP_SCOPE: return begin_scope(m);
    case OP_SCOPE_END: return end_scope(m);
    case OP_FAIL: return run_fail(m, (size_t)i->a);
    case OP_CAPTURE: return begin_capture(m);
    case OP_CAPTURE_END: return end_capture(m);
    case OP_MACRO: return run_macro(m, (size_t)i->a);
    case OP_PARAMETER: return run_parameter(m, (size_t)i->a, i->argc != 0);
    case OP_PARAMETERS_END: return run_parameters_end(m);
    case OP_RETURN: return run_return(m);
    case OP_END: break;
    }
    return true;
}

static void run_all(struct machine *m) {
    bool ok = true;
    while (ok) {
        check(m->at < m->program->n_code);
        const struct jinja_instruction *i = &m->program->code[m->at++];
        if (i->op == OP_END) return;
        ok = render_spend(&m->r, 0) && step(m, i);
    }
    check(m->r.rc != 0);
}

int jinja_run(const struct jinja_program *p, const struct jinja_input *input,
              struct text_writer *out, uint64_t *steps, struct err_text *e) {
    struct machine *m = mem_zalloc(sizeof *m);
    if (m == NULL) return err_set(e, ERR_FATAL_NOMEM, "chat template: no memory");
    arena_init(&m->r.arena, TEMPLATE_RENDER_BYTES_MAX);
    m->r.e = e;
    m->r.steps_left = TEMPLATE_STEPS_MAX;
    m->program = p;
    m->r.wall_ns = input->wall_ns;
    m->variables = input->variables;
    m->sinks[0] = out;
    m->stack = render_alloc(&m->r, STACK_MAX, sizeof *m->stack);
    m->bindings = render_alloc(&m->r, NAMES_MAX, sizeof *m->bindings);
    if (m->r.rc == 0) run_all(m);
    while (m->n_captures > 0)
        text_writer_finish(&m->captures[--m->n_captures]);
    if (steps != NULL) *steps = TEMPLATE_STEPS_MAX - m->r.steps_left;
    int rc = m->r.rc;
    arena_finish(&m->r.arena);
    mem_free(m);
    return rc;
}
