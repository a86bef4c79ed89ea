// options_foreign.c: applies the table of other engines' flags: sets our option, leaves a note, or
// refuses with what to use instead.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/conf/foreign.h"
#include "common/conf/options_private.h"

#define NOTE_BYTES_MAX 600

static bool is_answered(const struct option_table *table, const struct foreign_row *row) {
    return table->foreign == OPTION_FOREIGN_ALL || row->plan;
}

bool option_is_foreign(const struct option_table *table, const char *name,
                       struct foreign_flag *out) {
    return table->foreign != OPTION_FOREIGN_NONE && foreign_find(name, out) &&
           is_answered(table, out->row);
}

static bool is_switch_word(const char *text) {
    return strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0;
}

// "--trust-remote-code true" is what some engines took, "--trust-remote-code --next" what all take.
const char *option_foreign_implied(const struct foreign_flag *flag, const char *next) {
    if (flag->takes == '=' || flag->takes == '*') return NULL;
    if (flag->takes == 0) return next != NULL && is_switch_word(next) ? NULL : "true";
    return next != NULL && next[0] != '-' ? NULL : "true";
}

static bool is_off(const struct foreign_flag *flag, const char *value) {
    static const char *const words[] = {"false", "0", "no", "off"};
    for (size_t i = 0; flag->takes == 0 && i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(value, words[i]) == 0) return true;
    }
    return false;
}

static bool is_noted(const struct option_notes *notes, const char *text) {
    for (const struct option_note *n = notes->first; n != NULL; n = n->next) {
        if (strcmp(n->text, text) == 0) return true;
    }
    return false;
}

// The number of notes is bounded by the table: their texts hold no value.
static int note(struct parse *p, bool warn, const char *text, struct err_text *e) {
    if (p->notes == NULL || is_noted(p->notes, text)) return 0;
    size_t bytes = strlen(text) + 1;
    struct option_note *n = arena_alloc(p->arena, sizeof *n + bytes);
    if (n == NULL) return err_set(e, ERR_FATAL_NOMEM, "out of memory");
    memcpy(n + 1, text, bytes);
    *n = (struct option_note){.text = (const char *)(n + 1), .warn = warn};
    if (p->notes->last != NULL)
        p->notes->last->next = n;
    else
        p->notes->first = n;
    p->notes->last = n;
    return 0;
}

static int note_flag(struct parse *p, const struct foreign_flag *flag, bool off,
                     struct err_text *e) {
    const struct foreign_row *row = flag->row;
    char text[NOTE_BYTES_MAX];
    const char *verb = row->kind == FOREIGN_IMPLIED && !off ? "is always so"
                       : row->kind == FOREIGN_IMPLIED       ? "cannot be switched off"
                       : row->kind == FOREIGN_IDLE && !off  ? "has no effect"
                                                            : "asks for nothing";
    bool warn = row->kind == FOREIGN_IMPLIED ? off : row->kind == FOREIGN_IDLE && !off;
    snprintf(text, sizeof text, "%s %s%s%s", flag->name, verb, row->says != NULL ? ": " : "",
             row->says != NULL ? row->says : "");
    return note(p, warn, text, e);
}

static int set_alias(struct parse *p, const struct foreign_flag *flag, enum source source,
                     const struct option_text *value, struct err_text *e) {
    const char *to = flag->row->to;
    char text[NOTE_BYTES_MAX], where[OPTION_WHERE_BYTES_MAX], number[FOREIGN_VALUE_BYTES];
    snprintf(where, sizeof where, "%.300s (here --%s)", value->where, to);
    snprintf(text, sizeof text, "%s is taken as --%s", flag->name, to);
    struct option_text ours = {foreign_value(flag->row, value->text, number), where, p->arena};
    int err = note(p, false, text, e);
    return err != 0 ? err : option_set_from(p, option_find(p->table, to), source, &ours, e);
}

static int refuse(const struct foreign_row *row, const char *where, struct err_text *e) {
    return err_set(e, ERR_FATAL_CONFIG, "%s: %s", where, row->says);
}

int option_set_foreign(struct parse *p, const struct foreign_flag *flag, enum source source,
                       const struct option_text *value, struct err_text *e) {
    const struct foreign_row *row = flag->row;
    const char *text = value->text;
    if (text == NULL && row->kind == FOREIGN_REFUSED) return refuse(row, value->where, e);
    if (text == NULL) return err_set(e, ERR_FATAL_CONFIG, "%s: needs a value", value->where);
    bool off = is_off(flag, text);
    if (foreign_is_fine(row, text)) return note_flag(p, flag, off, e);
    if (row->kind == FOREIGN_ALIAS) return set_alias(p, flag, source, value, e);
    if (row->kind == FOREIGN_REFUSED && !off) return refuse(row, value->where, e);
    return note_flag(p, flag, off, e);
}

const char *option_own_word(const struct parse *p, const struct option *o, const char *text) {
    struct foreign_flag flag;
    char buf[FOREIGN_VALUE_BYTES];
    if (!option_is_foreign(p->table, o->name, &flag)) return text;
    const char *word = foreign_value(flag.row, text, buf);
    size_t bytes = strlen(word) + 1;
    char *kept = word != buf ? NULL : arena_alloc(p->arena, bytes);
    return kept != NULL ? memcpy(kept, word, bytes) : text;
}

bool option_foreign_begun(const struct option_table *table, const char *name,
                          struct foreign_flag *out) {
    struct foreign_walk w = {0};
    size_t n = strlen(name);
    while (table->foreign != OPTION_FOREIGN_NONE && n >= 4 && foreign_next(&w, out)) {
        if (!is_answered(table, out->row)) continue;
        if (strncmp(out->name, "--", 2) == 0 && strncmp(out->name + 2, name, n) == 0) return true;
    }
    return false;
}

// "-ep 3": without its dash the name may be another one's that takes a value ("--ep 3").
int option_refuse_value(const struct option_table *table, const char *text, const char *flag,
                        struct err_text *e) {
    const char *name = flag + strspn(flag, "-");
    struct foreign_flag other;
    if (option_find(table, name) != NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%.80s: takes no value of its own; write %.80s=%.200s",
                       flag, flag, text);
    if (option_is_foreign(table, name, &other) && other.takes == '=' &&
        other.row->kind == FOREIGN_ALIAS)
        return err_set(e, ERR_FATAL_CONFIG, "%.80s: takes no value; did you mean --%s %.200s?",
                       flag, other.row->to, text);
    return err_set(e, ERR_FATAL_CONFIG, "%.80s: takes no value, but \"%.200s\" follows it", flag,
                   text);
}

int option_refuse_word(const struct option_table *table, const char *text, struct err_text *e) {
    if (table->foreign != OPTION_FOREIGN_ALL)
        return err_set(e, ERR_FATAL_CONFIG, "\"%.200s\" is not a flag; %s --help lists all", text,
                       table->program);
    return err_set(e, ERR_FATAL_CONFIG,
                   "\"%.200s\" is not a flag; to serve a model use: %s --model FOLDER", text,
                   table->program);
}
