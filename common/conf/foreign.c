// foreign.c: looks the flags of other engines up and prints the page about them.
#include "common/conf/foreign.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct foreign_part *const parts[] = {&foreign_names, &foreign_text, &foreign_http,
                                                   &foreign_cluster, &foreign_kernels};
#define N_PARTS (sizeof parts / sizeof parts[0])

// Takes the next word of a list; its length is 0 at the end.
static size_t next_word(const char **at, const char **word) {
    *at += strspn(*at, " ");
    *word = *at;
    size_t n = strcspn(*at, " ");
    *at += n;
    return n;
}

static void set_name(struct foreign_flag *out, const char *word, size_t n) {
    char last = word[n - 1];
    out->takes = last == '=' || last == '?' || last == '*' ? last : 0;
    if (out->takes != 0) n--;
    snprintf(out->name, sizeof out->name, "%s%.*s", word[0] == '-' ? "" : "--", (int)n, word);
}

static const struct foreign_row *row_at(size_t index) {
    for (size_t i = 0; i < N_PARTS; i++) {
        if (index < parts[i]->n_rows) return &parts[i]->rows[index];
        index -= parts[i]->n_rows;
    }
    return NULL;
}

bool foreign_next(struct foreign_walk *w, struct foreign_flag *out) {
    const char *word;
    while ((out->row = row_at(w->row)) != NULL) {
        if (w->rest == NULL) w->rest = out->row->names;
        size_t n = next_word(&w->rest, &word);
        if (n == 0) {
            *w = (struct foreign_walk){.row = w->row + 1};
        } else if (word[n - 1] == ':') {
            snprintf(w->engines, sizeof w->engines, "%.*s", (int)n - 1, word);
        } else {
            set_name(out, word, n);
            memcpy(out->engines, w->engines, sizeof out->engines);
            return true;
        }
    }
    return false;
}

static bool same_name(const char *known, const char *given, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (known[i] == '\0' || known[i] != (given[i] == '_' && i > 0 ? '-' : given[i]))
            return false;
    }
    return known[n] == '\0';
}

static bool find(const char *name, size_t n, struct foreign_flag *out) {
    struct foreign_walk w = {0};
    while (foreign_next(&w, out)) {
        if (same_name(out->name[1] == '-' ? out->name + 2 : out->name, name, n)) return true;
    }
    return false;
}

bool foreign_find(const char *name, struct foreign_flag *out) {
    size_t n = strlen(name), dot = strcspn(name, ".");
    if (find(name, n, out)) return true;
    bool is_level = strncmp(name, "-O", 2) == 0 && strspn(name + 2, "0123456789") == n - 2;
    if (is_level && find(name, 2, out)) { // -O3
        out->takes = 0;
        return true;
    }
    if (dot == n || !find(name, dot, out)) return false;
    out->takes = '=';
    return true;
}

bool foreign_is_fine(const struct foreign_row *row, const char *value) {
    const char *at = row->fine != NULL ? row->fine : "", *word;
    size_t n;
    while ((n = next_word(&at, &word)) != 0) {
        if (strlen(value) == n && strncasecmp(value, word, n) == 0) return true;
    }
    return false;
}

// "their>ours": ours goes into buf.
static const char *word_for(const char *words, const char *text, char buf[FOREIGN_VALUE_BYTES]) {
    size_t n, bytes = strlen(text);
    for (const char *word; (n = next_word(&words, &word)) != 0;) {
        if (n <= bytes || word[bytes] != '>' || strncmp(word, text, bytes) != 0) continue;
        snprintf(buf, FOREIGN_VALUE_BYTES, "%.*s", (int)(n - bytes - 1), word + bytes + 1);
        return buf;
    }
    return NULL;
}

// "8k" and "1.5M" as plain numbers. Others stay as they are, for the option to judge.
static const char *number_for(const char *text, char buf[FOREIGN_VALUE_BYTES]) {
    static const char letters[] = "kmg";
    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits > 15 || text[digits] == '\0' || text[digits + 1] != '\0') return text;
    bool binary = text[digits] < 'a';
    // Not strchr, for which the end of the letters is one, too.
    const char *letter =
        memchr(letters, binary ? text[digits] + ('a' - 'A') : text[digits], sizeof letters - 1);
    char *end;
    double value = strtod(text, &end);
    if (letter == NULL || end != text + digits) return text;
    for (const char *l = letters; l <= letter; l++)
        value *= binary ? 1024 : 1000;
    if (value >= 1e18) return text;
    snprintf(buf, FOREIGN_VALUE_BYTES, "%.0f", value);
    return buf;
}

const char *foreign_value(const struct foreign_row *row, const char *text,
                          char buf[FOREIGN_VALUE_BYTES]) {
    const char *word = row->words != NULL ? word_for(row->words, text, buf) : NULL;
    if (word != NULL) return word;
    return row->human ? number_for(text, buf) : text;
}

// --- the page

static void print_engines(const char *letters, FILE *to) {
    static const struct {
        char letter;
        const char *name;
    } engines[] = {
        {'v', "vLLM"}, {'s', "SGLang"}, {'t', "TGI"}, {'l', "llama-server"}, {'o', "others"}};
    for (; *letters != '\0'; letters++) {
        for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
            if (engines[i].letter != *letters) continue;
            fprintf(to, "%s%s", engines[i].name, letters[1] != '\0' ? ", " : "");
        }
    }
}

// Words of a list, each in back quotes.
static void print_words(const char *before, const char *list, FILE *to) {
    const char *word, *between = before;
    size_t n;
    while ((n = next_word(&list, &word)) != 0) {
        const char *arrow = memchr(word, '>', n);
        int first = (int)(arrow != NULL ? (size_t)(arrow - word) : n);
        fprintf(to, "%s`%.*s`", between, first, word);
        if (arrow != NULL) fprintf(to, " means `%.*s`", (int)n - first - 1, arrow + 1);
        between = ", ";
    }
}

static void print_meaning(const struct foreign_row *row, FILE *to) {
    static const char *const kinds[] = {"the same option", "taken as", "always so", "no effect",
                                        "refused"};
    fputs(kinds[row->kind], to);
    if (row->to != NULL) fprintf(to, " `--%s`", row->to);
    if (row->says != NULL) fprintf(to, ": %s", row->says);
    if (row->words != NULL) print_words("; ", row->words, to);
    if (row->fine != NULL) print_words("; no objection to ", row->fine, to);
}

static void end_line(const struct foreign_flag *flag, FILE *to) {
    fputs(" | ", to);
    print_engines(flag->engines, to);
    fputs(" | ", to);
    print_meaning(flag->row, to);
    fputs(" |\n", to);
}

// One line for the names of a row that the same engines have.
void foreign_print_markdown(FILE *to) {
    struct foreign_walk w = {0};
    struct foreign_flag flag, before = {0};
    fprintf(to, "| flag | engines | what happens |\n|---|---|---|\n");
    while (foreign_next(&w, &flag)) {
        bool more = flag.row == before.row && strcmp(flag.engines, before.engines) == 0;
        if (!more && before.row != NULL) end_line(&before, to);
        fprintf(to, "%s`%s`", more ? ", " : "| ", flag.name);
        before = flag;
    }
    end_line(&before, to);
}
