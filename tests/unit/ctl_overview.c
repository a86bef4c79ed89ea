// ctl_overview.c: the picture of moectl status: 80 columns whatever the names and numbers are,
// nothing that drives a terminal, and the rows that matter when there are too many.
#include "ctl/overview.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "common/base/mem.h"
#include "ctl/cell.h"
#include "tests/harness/suite.h"

// --- looking at the picture with another library's idea of widths

static unsigned columns_of(const char *line, size_t bytes) {
    char text[2048];
    wchar_t wide[2048];
    ck_assert(bytes < sizeof text);
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    size_t n = mbstowcs(wide, text, 2048);
    ck_assert_msg(n != (size_t)-1, "not UTF-8: %s", text);
    int width = wcswidth(wide, n);
    ck_assert_msg(width >= 0, "a character that drives the terminal: %s", text);
    return (unsigned)width;
}

static void check_picture(const struct buf *page) {
    ck_assert(!page->failed && page->bytes > 0 && page->data[page->bytes - 1] == '\n');
    const char *at = page->data, *end = page->data + page->bytes;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        unsigned columns = columns_of(at, (size_t)(newline - at));
        ck_assert_msg(columns <= OVERVIEW_COLUMNS, "%u columns: %.*s", columns, (int)(newline - at),
                      at);
        at = newline + 1;
    }
}

static char *draw(json_t *status, unsigned rows_max) {
    struct overview_style style = {.rows_max = rows_max};
    struct buf page;
    buf_init(&page, 0);
    overview_write(&page, status, &style);
    check_picture(&page);
    buf_add(&page, "", 1);
    json_decref(status);
    return page.data;
}

static json_t *worker(int rank, const char *name, const char *state) {
    json_t *w = json_pack(
        "{s:i, s:o, s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:I}", "rank", rank, "name",
        json_stringn_nocheck(name, strlen(name)), "host", "node-17.cluster.example.org", "state",
        state, "kernels", "avx512", "cores", 96, "bytes_loaded", (json_int_t)430, "bytes_to_load",
        (json_int_t)1000, "heartbeat_age_s", 0.4, "engine_age_s", 0.0, "steps", (json_int_t)123456);
    json_object_update_new(w,
                           json_pack("{s:f, s:i, s:i, s:I, s:I}", "tokens_per_s", 512.25,
                                     "kv_blocks", 100, "kv_blocks_used", 25, "bytes_sent",
                                     (json_int_t)1 << 33, "bytes_received", (json_int_t)1 << 20));
    return w;
}

static json_t *status_of(const char *model, json_t *workers) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:f, s:f, s:o}", "object",
                     "moesaic.status", "model", model, "build", "0.1.0+0123456789ab-dirty", "state",
                     "loading", "reason", "1 of 2 workers load weights, 43 % done", "ready", 0,
                     "epoch", 3, "uptime_s", 8000.0, "load_share", 0.43, "workers", workers);
}

static bool has(const char *page, const char *text) {
    return strstr(page, text) != NULL;
}

// --- tests

START_TEST(a_loading_group_shows_how_far_it_is) {
    json_t *workers = json_pack("[o, o]", worker(0, "w0", "loading"), worker(1, "w1", "lost"));
    char *page = draw(status_of("seedling", workers), 0);
    ck_assert(has(page, "seedling  loading  epoch 3  up 2 h 13 min"));
    ck_assert(has(page, "1 of 2 workers load weights, 43 % done\n"));
    ck_assert(has(page, "[#############.................] 43 % of the weights"));
    ck_assert_msg(
        has(page,
            "   0 w0   node-17.cluster.… load 43% 0.4s 0.0s  123k   512  25% avx512  96  8.0G\n"),
        "%s", page);
    ck_assert(has(page, " lost     0.4s    -     -     -    - -        -     -\n"));
    mem_free(page);
}
END_TEST

START_TEST(one_of_a_thing_is_no_plural) {
    json_t *status = status_of("seedling", json_pack("[o]", worker(0, "w0", "ready")));
    json_object_set_new(
        status, "membership",
        json_pack("{s:i,s:i,s:i,s:i}", "lost", 0, "left", 0, "refused", 0, "formed", 1));
    json_object_set_new(
        status, "totals",
        json_pack("{s:i,s:i,s:i}", "prompt_tokens", 1, "generation_tokens", 0, "steps", 2));
    char *page = draw(status, 0);
    ck_assert_msg(has(page, "refused   1 group formed\n"), "%s", page);
    ck_assert_msg(has(page, " 1 token in   0 out   2 steps   "), "%s", page);
    mem_free(page);
}
END_TEST

START_TEST(hostile_and_foreign_names_keep_the_width) {
    static const char *const names[] = {
        "",
        "plain",
        "a-name-that-is-much-longer-than-any-column-can-be-and-goes-on-and-on-and-on-and-on",
        "\xe5\x90\x8d\xe5\x89\x8d\xe5\x90\x8d\xe5\x89\x8d\xe5\x90\x8d\xe5\x89\x8d\xe5\x90\x8d\xe5"
        "\x89\x8d\xe5\x90\x8d\xe5\x89\x8d", // wide
        "kn\xc3\xb6ten-\xc3\xbc-\xd1\x83\xd0\xb7\xd0\xb5\xd0\xbb",
        "e\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81", // marks on marks
        "\xcc\x81\xcc\x81",                                                  // and on nothing
        "\x1b[2J\x1b]0;owned\x07",
        "new\nline\rreturn\ttab",
        "\xe2\x80\xae"
        "gnp.exe",
        "\xff\xfe broken \xc3",
        "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80",
        "\xc2\x9b"
        "2J",
    };
    size_t n = sizeof names / sizeof *names;
    json_t *workers = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(workers, worker((int)i, names[i], "ready"));
    mem_free(draw(status_of("seedling", workers), 0));
    for (size_t i = 0; i < n; i++) {
        workers = json_pack("[o]", worker(1023, names[i], names[i][0] == 'p' ? "ready" : "joined"));
        json_t *model = json_stringn_nocheck(names[i], strlen(names[i]));
        json_t *status = status_of("", workers);
        json_object_set_nocheck(status, "model", model);
        json_object_set_nocheck(status, "reason", model);
        json_object_set_nocheck(status, "build", model);
        json_object_set_nocheck(status, "state", model);
        json_decref(model);
        json_incref(status);
        mem_free(draw(status, 0));
        struct overview_style places = {.places = true};
        struct buf out;
        buf_init(&out, 0);
        overview_write(&out, status, &places);
        check_picture(&out);
        buf_finish(&out);
        json_decref(status);
    }
}
END_TEST

// Each character once: looking for its end at each of them would take minutes.
START_TEST(a_name_of_a_million_characters_is_cut_at_once) {
    size_t n = 1u << 20;
    char *name = mem_alloc(n + 1);
    memset(name, 'a', n);
    name[n] = '\0';
    char *page = draw(status_of(name, json_pack("[o]", worker(0, name, "ready"))), 0);
    ck_assert_uint_lt(strlen(page), 4000);
    mem_free(page);
    mem_free(name);
}
END_TEST

START_TEST(numbers_of_any_size_keep_the_width) {
    static const double numbers[] = {-1,     0,   0.004, 9.96, 99.96, 999.6,
                                     9999.6, 1e6, 1e12,  1e18, 1e30,  1e300};
    static const char *const keys[] = {
        "rank",          "cores",     "heartbeat_age_s", "engine_age_s", "steps",
        "tokens_per_s",  "kv_blocks", "kv_blocks_used",  "bytes_sent",   "bytes_loaded",
        "bytes_to_load", "stage",     "dp_group",        "tp_index",     "etp_index",
        "first_layer",   "layers",    "first_expert",    "experts"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_t *w = worker(0, "w", "loading");
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            json_object_set_new(w, keys[k], json_real(numbers[i]));
        json_t *status = status_of("seedling", json_pack("[o]", w));
        json_object_set_new(status, "uptime_s", json_real(numbers[i]));
        json_object_set_new(status, "epoch", json_real(numbers[i]));
        json_object_set_new(status, "load_share", json_real(numbers[i]));
        for (int group = 0; group < 4; group++) {
            static const char *const groups[] = {"requests", "kv", "totals", "recent"};
            json_t *o = json_object();
            static const char *const members[] = {"running",
                                                  "waiting",
                                                  "admitted",
                                                  "admitted_max",
                                                  "lost",
                                                  "blocks",
                                                  "blocks_used",
                                                  "block_tokens",
                                                  "snapshots",
                                                  "snapshots_used",
                                                  "prompt_tokens",
                                                  "generation_tokens",
                                                  "steps",
                                                  "seconds",
                                                  "prompt_tokens_per_s",
                                                  "generation_tokens_per_s"};
            for (size_t k = 0; k < sizeof members / sizeof *members; k++)
                json_object_set_new(o, members[k], json_real(numbers[i]));
            json_object_set_new(status, groups[group], o);
        }
        mem_free(draw(status, 0));
    }
}
END_TEST

START_TEST(an_answer_that_lacks_everything_is_still_a_picture) {
    mem_free(draw(json_object(), 0));
    mem_free(draw(json_pack("{s:[i, s, n, {}]}", "workers", 1, "x"), 0));
    mem_free(draw(json_pack("{s:s, s:i}", "workers", "none", "model", 7), 0));
}
END_TEST

static json_t *placed_status(int n) {
    json_t *workers = json_array();
    for (int i = 0; i < n; i++) {
        json_t *w = worker(i, "w", "ready");
        json_object_update_new(w, json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "stage", 1,
                                            "dp_group", i / 2, "tp_index", i % 2, "etp_index",
                                            i % 2, "first_layer", 30, "layers", 31, "first_expert",
                                            i / 2 * 8, "experts", 8));
        json_array_append_new(workers, w);
    }
    json_t *status = status_of("seedling", workers);
    json_object_set_new(
        status, "layout",
        json_pack("{s:i, s:i, s:i, s:i, s:i}", "pp", 2, "dp", 2, "tp", 2, "ep", 2, "etp", 2));
    return status;
}

START_TEST(places_in_a_layout_are_shown_where_workers_are_not_alike) {
    char *page = draw(placed_status(4), 0);
    ck_assert_msg(has(page, "layout     pp 2   dp 2   tp 2   ep 2   etp 2   PLACE is stage") &&
                      has(page, " PLACE ") && has(page, " 1.1.0 "),
                  "%s", page);
    mem_free(page);
    struct overview_style style = {.rows_max = 3, .places = true};
    struct buf out;
    json_t *status = placed_status(4);
    buf_init(&out, 0);
    overview_write(&out, status, &style);
    check_picture(&out);
    buf_add(&out, "", 1);
    ck_assert_msg(
        has(out.data, "   2 ready   avx512     1     1   0 30-60   8-15 1/2    1000B node-17") &&
            has(out.data, "and 1 more (--all)"),
        "%s", out.data);
    buf_finish(&out);
    json_decref(status);
}
END_TEST

START_TEST(of_many_workers_those_in_trouble_are_shown_and_the_rest_counted) {
    json_t *workers = json_array();
    char name[16];
    for (int i = 0; i < 1024; i++) {
        snprintf(name, sizeof name, "worker-%d", i);
        const char *state = i == 700 ? "lost" : i == 900 ? "loading" : i >= 1000 ? "free" : "ready";
        json_array_append_new(workers, worker(i, name, state));
    }
    json_object_set_new(json_array_get(workers, 555), "heartbeat_age_s", json_real(7));
    json_t *status = status_of("seedling", workers);
    json_incref(status);
    char *page = draw(status, 10);
    ck_assert(has(page, " 700 worker-700") && has(page, " 900 worker-900"));
    ck_assert(has(page, " 555 worker-555") && has(page, "   6 worker-6 "));
    ck_assert(!has(page, "worker-7 ") && !has(page, "worker-1001"));
    ck_assert_msg(has(page, "     and 1014 more: 990 ready, 24 free; "), "%s", page);
    mem_free(page);
    page = draw(status, 0);
    ck_assert(has(page, "worker-7 ") && has(page, "1023 worker-1023") && !has(page, "more"));
    mem_free(page);
}
END_TEST

START_TEST(short_numbers_are_short_and_right) {
    char text[CELL_NUMBER_BYTES];
    static const struct {
        void (*write)(char out[CELL_NUMBER_BYTES], double);
        double number;
        const char *text;
    } rows[] = {
        {cell_count, 0, "0"},        {cell_count, 9999, "9999"},   {cell_count, 10000, "10.0k"},
        {cell_count, 99960, "100k"}, {cell_count, 999600, "1.0M"}, {cell_count, -1, "-"},
        {cell_bytes, 0, "0B"},       {cell_bytes, 1023, "1023B"},  {cell_bytes, 1536, "1.5K"},
        {cell_age, 0.44, "0.4s"},    {cell_age, 12.4, "12s"},      {cell_age, 240, "4m"},
        {cell_age, 7200, "2h"},      {cell_age, 9e5, "10d"},       {cell_rate, 0, "0"},
        {cell_rate, 0.25, "0.25"},   {cell_rate, 12.34, "12.3"},   {cell_rate, 512.3, "512"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rows[i].write(text, rows[i].number);
        ck_assert_str_eq(text, rows[i].text);
    }
    for (double n = 0.001; n < 1e22; n *= 1.07) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i += 6) {
            rows[i].write(text, n);
            ck_assert_msg(strlen(text) <= 5, "%g is %s", n, text);
        }
    }
}
END_TEST

int main(void) {
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) return 77;
    json_set_alloc_funcs(mem_alloc, mem_free);
    Suite *suite = suite_create("ctl_overview");
    TCase *t = tcase_create("overview");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_name_of_a_million_characters_is_cut_at_once);
    tcase_add_test(t, a_loading_group_shows_how_far_it_is);
    tcase_add_test(t, one_of_a_thing_is_no_plural);
    tcase_add_test(t, hostile_and_foreign_names_keep_the_width);
    tcase_add_test(t, numbers_of_any_size_keep_the_width);
    tcase_add_test(t, an_answer_that_lacks_everything_is_still_a_picture);
    tcase_add_test(t, places_in_a_layout_are_shown_where_workers_are_not_alike);
    tcase_add_test(t, of_many_workers_those_in_trouble_are_shown_and_the_rest_counted);
    tcase_add_test(t, short_numbers_are_short_and_right);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
