// options.c: reads a table's values from flags, environment, YAML and LeaderWorkerSet's variables,
// in that order of strength.
#include "common/conf/options.h"

#include <ctype.h>
#include <string.h>

#include "common/base/check.h"
#include "common/conf/foreign.h"
#include "common/conf/options_private.h"

#define ENVIRONMENT_PREFIX "MOESAIC_"

static bool same_name(const char *a, const char *b) {
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b)) return false;
    }
    return *a == *b;
}

const struct option *option_find(const struct option_table *table, const char *name) {
    for (size_t i = 0; i < table->n_options; i++) {
        if (same_name(table->options[i].name, name)) return &table->options[i];
    }
    return NULL;
}

// Levenshtein distance, one row at a time. A name longer than the limit is far from everything.
static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), row[OPTION_NAME_BYTES_MAX + 1];
    if (n > OPTION_NAME_BYTES_MAX || m > OPTION_NAME_BYTES_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

const char *option_nearest(const struct option_table *table, const char *name) {
    const char *nearest = NULL;
    size_t best = strlen(name) / 2 + 1; // further away it is another word
    for (size_t i = 0; i < table->n_options; i++) {
        size_t d = edit_distance(name, table->options[i].name);
        if (d >= best) continue;
        best = d;
        nearest = table->options[i].name;
    }
    return nearest;
}

// Whether another program of the house knows the name.
static bool is_elsewhere(const struct option_table *table, const char *name) {
    for (const struct option_table *t = table->other; t != NULL && t != table; t = t->other) {
        if (option_find(t, name) != NULL) return true;
    }
    return false;
}

static void variable_name(const char *option, char *buf, size_t cap) {
    snprintf(buf, cap, "%s%s", ENVIRONMENT_PREFIX, option);
    for (char *c = buf; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

// The nearest name is given as it would be written in the same place, ready to be copied.
static int unknown(const struct parse *p, const char *where, const char *name, struct err_text *e) {
    const char *nearest = option_nearest(p->table, name);
    char written[OPTION_NAME_BYTES_MAX + 16];
    struct foreign_flag begun;
    if (nearest == NULL && option_foreign_begun(p->table, name, &begun))
        return err_set(e, ERR_FATAL_CONFIG, "%s: unknown option; did you mean %s?", where,
                       begun.name);
    if (nearest == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%s: unknown option; %s --help lists all", where,
                       p->table->program);
    if (strncmp(where, ENVIRONMENT_PREFIX, strlen(ENVIRONMENT_PREFIX)) == 0)
        variable_name(nearest, written, sizeof written);
    else
        snprintf(written, sizeof written, "%s%s", strncmp(where, "--", 2) == 0 ? "--" : "",
                 nearest);
    return err_set(e, ERR_FATAL_CONFIG, "%s: unknown option; did you mean %s?", where, written);
}

// A bad value is an error even when a stronger source gave a good one: somebody wrote it and
// believes in it.
int option_set_from(struct parse *p, const struct option *o, enum source source,
                    const struct option_text *value, struct err_text *e) {
    enum source *by = &p->set_by[o - p->table->options];
    if (*by == source) return err_set(e, ERR_FATAL_CONFIG, "%s: given twice", value->where);
    struct option_text ours = *value;
    ours.text = option_own_word(p, o, value->text);
    if (*by < source) {
        *by = source;
        return option_set(o, p->out, &ours, e);
    }
    uint64_t ignored[4];
    struct option elsewhere = *o;
    elsewhere.offset = 0;
    return option_set(&elsewhere, ignored, &ours, e);
}

// --- flags

// Neither the command line nor a file of options, which is often shared, is a place for a secret.
static int refuse_secret(const struct option *o, const char *where, struct err_text *e) {
    char variable[OPTION_NAME_BYTES_MAX + 16];
    variable_name(o->name, variable, sizeof variable);
    return err_set(e, ERR_FATAL_CONFIG,
                   "%s: a secret given here can be read by others; put it into a file "
                   "(--%s-file FILE) or the variable %s",
                   where, o->name, variable);
}

static int set_flag(struct parse *p, const char *name, const char *value, struct err_text *e) {
    char where[OPTION_WHERE_BYTES_MAX];
    snprintf(where, sizeof where, "%s%s", name[0] == '-' ? "" : "--", name);
    const struct option *o = option_find(p->table, name);
    struct option_text text = {value, where, p->arena};
    struct foreign_flag foreign;
    if (o == NULL && option_is_foreign(p->table, name, &foreign))
        return option_set_foreign(p, &foreign, SOURCE_FLAG, &text, e);
    if (o == NULL) return unknown(p, where, name, e);
    if (o->type == OPTION_SECRET) return refuse_secret(o, where, e);
    if (value == NULL) return err_set(e, ERR_FATAL_CONFIG, "%s: needs a value", where);
    return option_set_from(p, o, SOURCE_FLAG, &text, e);
}

// The value of a flag that needs none of its own: a boolean, its denial (*name is moved past "no-"
// then), or one that may stand alone and does. NULL: the next entry is its value.
static const char *implied_value(const struct parse *p, const char **name, const char *next) {
    const struct option *o = option_find(p->table, *name);
    bool alone = next == NULL || next[0] == '-';
    struct foreign_flag flag;
    if (o != NULL) return o->type == OPTION_BOOL ? "true" : alone ? o->lone : NULL;
    if (option_is_foreign(p->table, *name, &flag)) return option_foreign_implied(&flag, next);
    if (strncmp(*name, "no-", 3) != 0 && strncmp(*name, "no_", 3) != 0) return NULL;
    o = option_find(p->table, *name + 3);
    bool is_switch = o != NULL ? o->type == OPTION_BOOL
                               : option_is_foreign(p->table, *name + 3, &flag) && flag.takes == 0;
    if (!is_switch) return NULL;
    *name += 3;
    return "false";
}

// How many of these entries are values of a flag that takes several; at least one.
static int count_values(const struct parse *p, const char *name, const char *const *argv) {
    struct foreign_flag flag;
    int n = 1;
    if (option_find(p->table, name) != NULL || !option_is_foreign(p->table, name, &flag)) return n;
    while (flag.takes == '*' && argv[0] != NULL && argv[n] != NULL && argv[n][0] != '-')
        n++;
    return n;
}

// A flag of another engine that only leaves a note would swallow the next flag for its value, which
// then would be lost without a word.
static bool lacks_value(const struct parse *p, const char *name, const char *next) {
    struct foreign_flag flag;
    return next != NULL && strncmp(next, "--", 2) == 0 && option_find(p->table, name) == NULL &&
           option_is_foreign(p->table, name, &flag);
}

// Takes one flag: "--name=value", "--name value", "--name" or "--no-name"; of other engines "-n"
// as well. Returns how many entries it used in *used.
static int parse_flag(struct parse *p, const char *const *argv, int *used, struct err_text *e) {
    char buf[OPTION_NAME_BYTES_MAX + 1];
    const char *equals = strchr(argv[0], '=');
    const char *begin = argv[0] + (argv[0][1] == '-' ? 2 : 0);
    size_t n = equals != NULL ? (size_t)(equals - begin) : strlen(begin);
    if (n > OPTION_NAME_BYTES_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "%.64s...: unknown option", argv[0]);
    memcpy(buf, begin, n);
    buf[n] = '\0';
    const char *name = buf, *value = equals != NULL ? equals + 1 : implied_value(p, &name, argv[1]);
    *used = 1;
    if (value == NULL && !lacks_value(p, name, argv[1])) {
        value = argv[1];
        *used = 1 + count_values(p, name, argv + 1);
    }
    if (strcmp(name, "config") != 0) return set_flag(p, name, value, e);
    if (value == NULL) return err_set(e, ERR_FATAL_CONFIG, "--config: needs a value");
    p->config_path = value;
    return 0;
}

static int asked_for(const char *const *argv) {
    for (; *argv != NULL; argv++) {
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0) return 'h';
        if (strcmp(*argv, "--version") == 0) return 'v';
        if (strcmp(*argv, "--help-markdown") == 0) return 'm';
        if (strcmp(*argv, "--help-flags-markdown") == 0) return 'f';
        if (strcmp(*argv, "--help-openapi") == 0) return 'o';
    }
    return 0;
}

// Our own flags have two dashes; other engines have some with one.
static bool is_flag(const struct parse *p, const char *text) {
    char name[OPTION_NAME_BYTES_MAX + 1];
    struct foreign_flag flag;
    if (strncmp(text, "--", 2) == 0) return text[2] != '-';
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    return text[0] == '-' && option_is_foreign(p->table, name, &flag);
}

static bool is_yes_or_no(const char *text) {
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) return true;
    }
    return false;
}

// A number or a yes; anything else may be the model, whose flag was left out.
static bool looks_like_value(const char *text) {
    return is_yes_or_no(text) || isdigit((unsigned char)text[0]) != 0;
}

// And nothing more than that: a folder or a prompt may begin with a digit.
static bool is_plain_value(const char *text) {
    bool number = isdigit((unsigned char)text[0]) && text[strspn(text, "0123456789.")] == '\0';
    return number || is_yes_or_no(text);
}

// before: the flag before it if that took no value, or NULL: whoever wrote a value behind it
// thought that it would.
static bool takes_positional(const struct parse *p, const char *text, const char *before) {
    return p->positional != NULL && *p->positional == NULL && text[0] != '-' &&
           (before == NULL || !is_plain_value(text));
}

// before: as above.
static int refuse_positional(const struct parse *p, const char *text, const char *before,
                             struct err_text *e) {
    if (before != NULL && looks_like_value(text))
        return option_refuse_value(p->table, text, before, e);
    if (p->positional != NULL && text[0] != '-')
        return err_set(e, ERR_FATAL_CONFIG,
                       "\"%.200s\" stands where a flag should, as \"%.200s\" is already there: a "
                       "text with blanks needs quotes",
                       text, *p->positional);
    return option_refuse_word(p->table, text, e);
}

static int parse_flags(struct parse *p, const char *const *argv, struct err_text *e) {
    const char *before = NULL; // the flag before argv[0] that took no value
    while (*argv != NULL) {
        if (takes_positional(p, *argv, before)) {
            *p->positional = *argv++;
            before = NULL;
            continue;
        }
        if (!is_flag(p, *argv)) return refuse_positional(p, *argv, before, e);
        int used = 0, err = parse_flag(p, argv, &used, e);
        if (err != 0) return err;
        before = used < 2 && strchr(*argv, '=') == NULL ? *argv : NULL;
        argv += used < 2 || argv[1] != NULL ? used : 1;
    }
    return 0;
}

// --- environment

static int parse_variable(struct parse *p, const char *entry, struct err_text *e) {
    size_t prefix = strlen(ENVIRONMENT_PREFIX);
    const char *equals = strchr(entry, '=');
    if (equals == NULL || strncmp(entry, ENVIRONMENT_PREFIX, prefix) != 0) return 0;
    char name[OPTION_NAME_BYTES_MAX + 1], where[OPTION_WHERE_BYTES_MAX];
    size_t n = (size_t)(equals - entry) - prefix;
    snprintf(where, sizeof where, "%.*s", (int)(n < 80 ? n + prefix : 80), entry);
    if (n > OPTION_NAME_BYTES_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "%s...: unknown option", where);
    for (size_t i = 0; i < n; i++)
        name[i] = (char)tolower((unsigned char)entry[prefix + i]);
    name[n] = '\0';
    if (strcmp(name, "config") == 0) {
        if (p->config_path == NULL) p->config_path = equals + 1;
        return 0;
    }
    const struct option *o = option_find(p->table, name);
    if (o != NULL)
        return option_set_from(p, o, SOURCE_ENVIRONMENT,
                               &(struct option_text){equals + 1, where, p->arena}, e);
    if (is_elsewhere(p->table, name)) return 0;
    return unknown(p, where, name, e);
}

static const char *variable(const char *const *environment, const char *name) {
    size_t n = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return *environment + n + 1;
    }
    return NULL;
}

// --- YAML, LeaderWorkerSet, defaults

static int set_yaml(void *context, const char *key, const char *value, unsigned line,
                    struct err_text *e) {
    struct parse *p = context;
    char where[OPTION_WHERE_BYTES_MAX];
    snprintf(where, sizeof where, "%.300s:%u: %.64s", p->config_path, line, key);
    const struct option *o = option_find(p->table, key);
    if (o != NULL && o->type == OPTION_SECRET) return refuse_secret(o, where, e);
    if (o != NULL)
        return option_set_from(p, o, SOURCE_YAML, &(struct option_text){value, where, p->arena}, e);
    if (is_elsewhere(p->table, key)) return 0;
    struct foreign_flag foreign;
    if (!option_is_foreign(p->table, key, &foreign)) return unknown(p, where, key, e);
    return option_set_foreign(p, &foreign, SOURCE_YAML,
                              &(struct option_text){value, where, p->arena}, e);
}

static int set_defaults(struct parse *p, struct err_text *e) {
    for (size_t i = 0; i < p->table->n_options; i++) {
        const struct option *o = &p->table->options[i];
        int err =
            o->fallback == NULL
                ? 0
                : option_set(o, p->out, &(struct option_text){o->fallback, o->name, p->arena}, e);
        if (err != 0) return err;
    }
    return 0;
}

static int set_lws(struct parse *p, const char *const *environment, struct err_text *e) {
    for (size_t i = 0; i < p->table->n_options; i++) {
        const struct option *o = &p->table->options[i];
        const char *value = o->lws != NULL ? variable(environment, o->lws) : NULL;
        if (value == NULL) continue;
        // An empty address means that the name is not known yet: going on with it would dial
        // nobody.
        if (*value == '\0') return err_set(e, ERR_FATAL_CONFIG, "%s: is empty", o->lws);
        int err =
            option_set_from(p, o, SOURCE_LWS, &(struct option_text){value, o->lws, p->arena}, e);
        if (err != 0) return err;
    }
    return 0;
}

int options_parse(const struct option_table *table, void *out, const struct option_input *input,
                  int *asked, struct err_text *e) {
    check(table->n_options <= OPTIONS_MAX);
    struct parse p = {.table = table,
                      .out = out,
                      .arena = input->arena,
                      .notes = input->notes,
                      .positional = input->positional};
    *asked = asked_for(input->argv);
    int err = set_defaults(&p, e);
    if (err != 0 || *asked != 0) return err;
    if ((err = parse_flags(&p, input->argv, e)) != 0) return err;
    if (input->flagged != NULL)
        input->flagged->given =
            p.set_by[option_find(table, input->flagged->name) - table->options] == SOURCE_FLAG;
    for (const char *const *v = input->environment; *v != NULL; v++) {
        if ((err = parse_variable(&p, *v, e)) != 0) return err;
    }
    if (p.config_path != NULL) {
        struct yaml_sink sink = {set_yaml, &p};
        if ((err = options_read_yaml(p.config_path, &sink, e)) != 0) return err;
    }
    return set_lws(&p, input->environment, e);
}

// --- what a person reads

#define HELP_COLUMNS 80

// Words in lines of HELP_COLUMNS, each begun by the indent.
static void print_wrapped(const char *text, int indent, FILE *to) {
    int column = 0;
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        bool fits = column > 0 && (size_t)column + 1 + n <= HELP_COLUMNS;
        if (!fits) fprintf(to, "%s%*s", column > 0 ? "\n" : "", indent, "");
        fprintf(to, "%s%.*s", fits ? " " : "", (int)n, text);
        column = (fits ? column + 1 : indent) + (int)n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', to);
}

void options_print_help(const struct option_table *table, FILE *to) {
    fprintf(to, "Usage: %s%s [--name value]...\n\n", table->program, table->command);
    print_wrapped(table->summary, 0, to);
    fprintf(to, "\n%s\n", table->example);
    print_wrapped(
        "Each option is also a variable (--max-model-len: MOESAIC_MAX_MODEL_LEN) and a key "
        "of the YAML file given by --config. Flags win over variables, variables over the "
        "file. Defaults stand in brackets.",
        0, to);
    fputc('\n', to);
    for (size_t i = 0; i < table->n_options; i++) {
        const struct option *o = &table->options[i];
        char variable[OPTION_NAME_BYTES_MAX + 16];
        variable_name(o->name, variable, sizeof variable);
        if (o->type == OPTION_SECRET)
            fprintf(to, "  %s (only as a variable)", variable);
        else
            fprintf(to, "  --%s%s%s", o->name, o->argument ? " " : "",
                    o->argument ? o->argument : "");
        if (o->choices != NULL) fprintf(to, " (%s)", o->choices);
        if (o->fallback != NULL) fprintf(to, " [%s]", o->fallback);
        fputc('\n', to);
        print_wrapped(o->help, 6, to);
    }
    fprintf(to, "  --config FILE\n      YAML file of options.\n  --help, --version\n");
}

static void print_choices(const char *choices, FILE *to) {
    fputs(" One of ", to);
    for (const char *c = choices; *c != '\0'; c++) {
        if (*c == '|')
            fputs(", ", to);
        else
            fputc(*c, to);
    }
    fputc('.', to);
}

void options_print_markdown(const struct option_table *table, FILE *to) {
    fprintf(to, "## %s\n\n%s\n\n", table->program, table->summary);
    fprintf(to, "| flag and YAML key | variable | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < table->n_options; i++) {
        const struct option *o = &table->options[i];
        char name[OPTION_NAME_BYTES_MAX + 16];
        variable_name(o->name, name, sizeof name);
        if (o->type == OPTION_SECRET)
            fprintf(to, "| - | `%s` | - | %s", name, o->help);
        else
            fprintf(to, "| `--%s` | `%s` | %s | %s", o->name, name, o->fallback ? o->fallback : "-",
                    o->help);
        if (o->choices != NULL) print_choices(o->choices, to);
        if (o->lws != NULL) fprintf(to, " Else from `%s`.", o->lws);
        fprintf(to, " |\n");
    }
    fprintf(to, "\n");
}
