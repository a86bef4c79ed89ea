// base_log.c: log lines: what hostile text cannot do to them, their two forms, their limit, and
// that lines of several writers stay whole.
#include "common/base/log.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log_line.h"
#include "tests/harness/suite.h"

static char line[LOG_LINE_BYTES_MAX + 1];

static struct log_record record_of(enum log_format format, const char *message) {
    return (struct log_record){.format = format,
                               .wall_ns = INT64_C(1700000000123456789),
                               .level = "info",
                               .process = "leader",
                               .area = "members",
                               .message = message};
}

static const char *write_line(const struct log_record *r) {
    size_t n = log_line(line, r);
    ck_assert(n > 0 && n <= LOG_LINE_BYTES_MAX);
    line[n] = '\0';
    return line;
}

START_TEST(a_text_line_is_time_level_process_area_event_and_fields) {
    struct log_record r = record_of(LOG_FORMAT_TEXT, "worker lost");
    const struct log_field fields[] = {log_uint("rank", 3), log_text("name", "w3"),
                                       log_text("reason", "it said \"no\"\n"), log_text("x", ""),
                                       log_real("s", 0.25)};
    r.fields = fields;
    r.n_fields = sizeof fields / sizeof *fields;
    ck_assert_str_eq(write_line(&r),
                     "2023-11-14T22:13:20.123Z info  leader members: worker lost rank 3 name w3 "
                     "reason \"it said \\\"no\\\"\\n\" x \"\" s 0.250\n");
}
END_TEST

START_TEST(a_json_line_is_one_object_with_the_same) {
    struct log_record r = record_of(LOG_FORMAT_JSON, "worker lost");
    const struct log_field fields[] = {log_uint("rank", UINT64_MAX), log_text("name", NULL),
                                       log_real("s", 1.5), log_real("nan", 0.0 / 0.0)};
    r.fields = fields;
    r.n_fields = sizeof fields / sizeof *fields;
    ck_assert_str_eq(write_line(&r),
                     "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"who\":\"leader\","
                     "\"area\":\"members\",\"message\":\"worker lost\",\"fields\":"
                     "{\"rank\":18446744073709551615,\"name\":\"\",\"s\":1.500,\"nan\":null}}\n");
}
END_TEST

START_TEST(text_from_outside_forges_no_line_and_drives_no_terminal) {
    // A newline, an escape sequence, its 8-bit form, DEL, an invalid byte, an override of the
    // direction, a line separator; and what a person may well write.
    struct log_record r =
        record_of(LOG_FORMAT_TEXT,
                  "a\nb \x1b[2J \xc2\x9b \x7f \xff \xe2\x80\xae \xe2\x80\xa8 \\n caf\xc3\xa9");
    const char *text = strstr(write_line(&r), "members: ");
    ck_assert_str_eq(
        text, "members: a\\nb \\x1b[2J \\u009b \\x7f \\xff \\u202e \\u2028 \\\\n caf\xc3\xa9\n");
}
END_TEST

// --- any bytes at all

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// Mixes of plain text, quotes, controls, valid characters of all lengths and broken ones.
static void draw_text(uint64_t *state, char *out, size_t cap) {
    static const char *const parts[] = {"a",
                                        " ",
                                        "\"",
                                        "\\",
                                        "\n",
                                        "\x1b",
                                        "\t",
                                        "\x7f",
                                        "\xc3\xa9",
                                        "\xe2\x82",
                                        "\xe2\x82\xac",
                                        "\xff",
                                        "\xf0\x9f\x98\x80",
                                        "\xed\xa0\x80",
                                        "\xc2\x85",
                                        "\xe2\x80\xae"};
    size_t n = 0, want = draw(state) % 4 == 0 ? draw(state) % cap : draw(state) % 64;
    while (n < want) {
        const char *part = parts[draw(state) % (sizeof parts / sizeof *parts)];
        size_t bytes = strlen(part);
        if (n + bytes >= cap) break;
        memcpy(out + n, part, bytes);
        n += bytes;
    }
    out[n] = '\0';
}

// Check tells its parent of every assertion, so this loop has none.
static const char *find_dirt(const char *text, size_t n) {
    if (n == 0 || n > LOG_LINE_BYTES_MAX || text[n - 1] != '\n') return "no newline at the end";
    for (size_t i = 0, bytes; i + 1 < n; i += bytes) {
        const unsigned char *c = (const unsigned char *)text + i;
        bytes = utf8_char_bytes(text + i, n - 1 - i);
        if (bytes == 0) return "invalid UTF-8";
        if (c[0] < 0x20 || c[0] == 0x7f) return "a control byte";
        if (c[0] == 0xc2 && c[1] < 0xa0) return "a control character of two bytes";
        if (memcmp(c, "\xe2\x80\xae", 3) == 0) return "an override of the direction";
    }
    return NULL;
}

static void check_clean(const char *text, size_t n) {
    const char *dirt = find_dirt(text, n);
    ck_assert_msg(dirt == NULL, "%s in %.*s", dirt, (int)n, text);
}

static bool is_utf8(const char *text) {
    size_t left = strlen(text), n;
    for (; left > 0; text += n, left -= n) {
        if ((n = utf8_char_bytes(text, left)) == 0) return false;
    }
    return true;
}

static void check_value(const json_t *got, const char *given) {
    ck_assert(json_is_string(got));
    const char *text = json_string_value(got);
    size_t n = strlen(text);
    bool cut = n >= 3 && strcmp(text + n - 3, "...") == 0 && strlen(given) > 256;
    if (is_utf8(given) && !cut) ck_assert_str_eq(text, given);
}

START_TEST(any_bytes_make_one_valid_line) {
    static char message[6000], name[6000], reason[200];
    uint64_t seed = getenv("SEED") != NULL ? strtoull(getenv("SEED"), NULL, 0) : 0x5eed;
    uint64_t state = seed;
    for (int i = 0; i < 4000; i++) {
        draw_text(&state, message, sizeof message);
        draw_text(&state, name, draw(&state) % 8 == 0 ? sizeof name : 100);
        draw_text(&state, reason, sizeof reason);
        const struct log_field fields[] = {log_text("name", name), log_uint("rank", (uint64_t)i),
                                           log_text("reason", reason)};
        struct log_record r = record_of(i % 2 == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT, message);
        r.fields = fields;
        r.n_fields = 1 + draw(&state) % 3;
        size_t n = log_line(line, &r);
        check_clean(line, n);
        if (i % 2 != 0) continue;
        json_error_t error;
        json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        ck_assert_msg(root != NULL, "seed %llu round %d: %s", (unsigned long long)seed, i,
                      error.text);
        check_value(json_object_get(root, "message"), message);
        const json_t *named = json_object_get(json_object_get(root, "fields"), "name");
        if (named != NULL) check_value(named, name);
        json_decref(root);
    }
}
END_TEST

START_TEST(a_long_line_is_cut_where_it_stays_valid) {
    static char name[9000];
    for (size_t size = 3800; size < 4200; size++) {
        memset(name, 'n', size);
        name[size] = '\0';
        const struct log_field fields[] = {log_text("name", name), log_uint("rank", 77777777),
                                           log_text("reason", "why")};
        for (int format = 0; format < 2; format++) {
            struct log_record r = record_of((enum log_format)format, "worker lost");
            r.fields = fields;
            r.n_fields = 3;
            size_t n = log_line(line, &r);
            check_clean(line, n);
            if (format == LOG_FORMAT_TEXT) continue;
            json_t *root = json_loadb(line, n, 0, NULL);
            ck_assert(root != NULL);
            json_decref(root);
        }
    }
}
END_TEST

// --- writing

struct capture {
    int saved, read_fd;
};

static struct capture capture_begin(void) {
    int ends[2];
    struct capture c = {.saved = dup(STDERR_FILENO)};
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    c.read_fd = ends[0];
    return c;
}

static void capture_end(const struct capture *c, struct buf *out) {
    char part[4096];
    ssize_t n;
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    buf_init(out, 0);
    while ((n = read(c->read_fd, part, sizeof part)) > 0)
        buf_add(out, part, (size_t)n);
    close(c->read_fd);
    buf_add(out, "", 1);
}

static unsigned count(const char *text, const char *what) {
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

START_TEST(levels_decide_what_is_written) {
    struct buf out;
    struct capture c = capture_begin();
    log_setup("leader", LOG_INFO);
    log_event(LOG_DEBUG, "a", "hidden", log_uint("n", 1));
    log_trace("a", "hidden %d", 2);
    log_event(LOG_INFO, "a", "shown", log_uint("n", 3));
    log_warn("a", "shown %d", 4);
    log_set_level(LOG_SILENT);
    log_error("a", "hidden %d", 5);
    capture_end(&c, &out);
    ck_assert_uint_eq(count(out.data, "hidden"), 0);
    ck_assert_uint_eq(count(out.data, "shown"), 2);
    buf_finish(&out);
    enum log_level level;
    enum log_format format;
    ck_assert(log_level_parse("trace", &level) && level == LOG_TRACE);
    ck_assert(!log_level_parse("loud", &level));
    ck_assert(log_format_parse("json", &format) && format == LOG_FORMAT_JSON);
    ck_assert(log_format_parse("text", &format) && format == LOG_FORMAT_TEXT);
    ck_assert(!log_format_parse("xml", &format));
}
END_TEST

#define WRITERS 4
#define LINES_EACH 200

static void *write_lines(void *mark) {
    char text[3000];
    memset(text, *(char *)mark, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < LINES_EACH; i++)
        log_event(LOG_INFO, "a", "line", log_text("text", text));
    return NULL;
}

struct reader {
    int fd;
    unsigned n_lines, n_mixed;
};

static void *read_lines(void *context) {
    struct reader *r = context;
    FILE *from = fdopen(r->fd, "r");
    char text[8192];
    while (fgets(text, sizeof text, from) != NULL) {
        const char *mark = strstr(text, "line text ");
        r->n_lines++;
        if (mark == NULL || strspn(mark + 10, (char[]){mark[10], '\0'}) != 2999) r->n_mixed++;
    }
    fclose(from);
    return NULL;
}

START_TEST(lines_of_several_writers_on_one_pipe_stay_whole) {
    static char marks[WRITERS] = {'a', 'b', 'c', 'd'};
    pthread_t threads[WRITERS], reading;
    struct capture c = capture_begin();
    struct reader r = {.fd = c.read_fd};
    log_setup("leader", LOG_INFO);
    pthread_create(&reading, NULL, read_lines, &r);
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, write_lines, &marks[i]);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    dup2(c.saved, STDERR_FILENO);
    pthread_join(reading, NULL);
    close(c.saved);
    ck_assert_uint_eq(r.n_lines, WRITERS * LINES_EACH);
    ck_assert_uint_eq(r.n_mixed, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base_log");
    TCase *t = tcase_create("lines");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_text_line_is_time_level_process_area_event_and_fields);
    tcase_add_test(t, a_json_line_is_one_object_with_the_same);
    tcase_add_test(t, text_from_outside_forges_no_line_and_drives_no_terminal);
    tcase_add_test(t, any_bytes_make_one_valid_line);
    tcase_add_test(t, a_long_line_is_cut_where_it_stays_valid);
    tcase_add_test(t, levels_decide_what_is_written);
    tcase_add_test(t, lines_of_several_writers_on_one_pipe_stay_whole);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
