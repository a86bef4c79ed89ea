// client.c: see client.h.
#include "ctl/client.h"

#include <curl/curl.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "ctl/cell.h"

#define BODY_BYTES_MAX ((size_t)64 << 20)
#define SHOWN_COLUMNS 400
#define SHOWN_BYTES 401

// A growing byte buffer that is always NUL-terminated.
struct bytes {
    char *data;
    size_t n, capacity;
};

static bool bytes_append(struct bytes *b, const char *data, size_t n) {
    if (n > BODY_BYTES_MAX - b->n) return false;
    if (b->n + n + 1 > b->capacity) {
        size_t capacity = (b->n + n + 1) * 2;
        char *grown = mem_resize(b->data, capacity);
        if (grown == NULL) return false;
        b->data = grown;
        b->capacity = capacity;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
    b->data[b->n] = '\0';
    return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *context) {
    return bytes_append(context, data, size * n) ? size * n : 0;
}

static struct curl_slist *headers_of(const struct ctl *c, const char *first) {
    struct curl_slist *headers = curl_slist_append(NULL, first);
    return c->authorization != NULL ? curl_slist_append(headers, c->authorization) : headers;
}

// What to try; details are libcurl's words about the failure.
static const char *hint_of(const struct ctl *c, CURLcode code, const char *details) {
    bool tls = strncmp(c->options.url, "https:", 6) == 0;
    if (code == CURLE_COULDNT_CONNECT) return "; is the leader running there?";
    if (code == CURLE_GOT_NOTHING && !tls) return "; does it speak TLS? then it is https://";
    if (code == CURLE_PEER_FAILED_VERIFICATION && strstr(details, "host name") == NULL)
        return "; --ca-file names who is trusted";
    bool cut = code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
    if (cut && tls && c->options.cert_file == NULL)
        return "; does it ask for a certificate? then --cert-file and --key-file are needed";
    return "";
}

// What went wrong on the way, with the address that was tried.
static void say_unreached(const struct ctl *c, CURLcode code, const char *details,
                          char text[ERR_TEXT_MAX]) {
    const char *what = details[0] != '\0' ? details : curl_easy_strerror(code);
    snprintf(text, ERR_TEXT_MAX, "--url %.200s: %.200s%s", c->options.url, what,
             hint_of(c, code, details));
}

// A server's words as a person may see them: none of them drives a terminal. Cut to SHOWN_COLUMNS.
static void show(char *out, size_t cap, const char *text) {
    struct buf shown = {0};
    cell_text(&shown, text, cell_width(text) > SHOWN_COLUMNS ? SHOWN_COLUMNS : 0);
    snprintf(out, cap, "%.*s", shown.failed ? 0 : (int)shown.bytes,
             shown.bytes > 0 ? shown.data : "");
    buf_finish(&shown);
}

// The message inside an error body. One without is another program's: a proxy's page, often.
static void say_refused(long status, const char *body, char *text, size_t cap) {
    json_t *parsed = body != NULL ? json_loads(body, 0, NULL) : NULL;
    const char *message =
        json_string_value(json_object_get(json_object_get(parsed, "error"), "message"));
    if (message == NULL) message = json_string_value(json_object_get(parsed, "state"));
    if (message == NULL) message = "not the answer of a leader; is --url right?";
    char shown[SHOWN_BYTES];
    show(shown, sizeof shown, message);
    snprintf(text, cap, "%s (HTTP status %ld)", shown, status);
    json_decref(parsed);
}

static void set_tls(CURL *curl, const struct ctl_options *o) {
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (o->ca_file != NULL) curl_easy_setopt(curl, CURLOPT_CAINFO, o->ca_file);
    if (o->cert_file != NULL) curl_easy_setopt(curl, CURLOPT_SSLCERT, o->cert_file);
    if (o->key_file != NULL) curl_easy_setopt(curl, CURLOPT_SSLKEY, o->key_file);
}

int client_check_url(const char *url, struct err_text *e) {
    const char *mark = strstr(url, "://");
    size_t n = mark != NULL ? (size_t)(mark - url) : 0;
    bool spoken = (n == 4 || n == 5) && strncasecmp(url, "https", n) == 0;
    if (url[0] != '\0' && (mark == NULL || spoken)) return 0; // without a scheme it is HTTP
    return err_set(e, ERR_FATAL_CONFIG,
                   "--url \"%.200s\": a leader is at http://HOST:PORT or https://HOST:PORT", url);
}

static void set_url(CURL *curl, const struct ctl *c, const char *path) {
    char url[2048];
    size_t n = strlen(c->options.url);
    while (n > 0 && c->options.url[n - 1] == '/')
        n--;
    snprintf(url, sizeof url, "%.*s%s", (int)n, c->options.url, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    set_tls(curl, &c->options);
}

// Performs the request; `curl` has all but where its own words about a failure go.
static int get_result(const struct ctl *c, CURL *curl, const struct bytes *body,
                      struct err_text *e) {
    char details[CURL_ERROR_SIZE] = "";
    long status = 0;
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status == 200 && body->data != NULL) return 0;
    if (code != CURLE_OK)
        say_unreached(c, code, details, e->text);
    else
        say_refused(status, body->data, e->text, sizeof e->text);
    return ERR_FATAL_IO;
}

int client_get(struct ctl *c, const char *path, char **body, struct err_text *e) {
    struct bytes got = {0};
    CURL *curl = curl_easy_init();
    if (curl == NULL) return err_set(e, ERR_FATAL_NOMEM, "out of memory");
    struct curl_slist *headers = headers_of(c, "Accept: */*");
    set_url(curl, c, path);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &got);
    int err = get_result(c, curl, &got, e);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (err == 0)
        *body = got.data;
    else
        mem_free(got.data);
    return err;
}

int client_check_text(const char *what, const char *text, struct err_text *e) {
    size_t n = strlen(text), at = 0, bytes;
    while (at < n && (bytes = utf8_char_bytes(text + at, n - at)) != 0)
        at += bytes;
    if (at == n) return 0;
    return err_set(e, ERR_REQ_INVALID, "%s is not UTF-8 (byte %zu)", what, at);
}

int client_find_model(struct ctl *c, struct err_text *e) {
    if (c->options.model != NULL) {
        int rc = client_check_text("--model", c->options.model, e);
        if (rc != 0) return rc;
        snprintf(c->model, sizeof c->model, "%s", c->options.model);
        return 0;
    }
    char *body;
    int err = client_get(c, "/v1/models", &body, e);
    if (err != 0) return err;
    json_t *list = json_loads(body, 0, NULL);
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    if (id != NULL)
        snprintf(c->model, sizeof c->model, "%s", id);
    else
        err = err_set(e, ERR_FATAL_IO, "/v1/models lists no model");
    json_decref(list);
    mem_free(body);
    return err;
}

int client_find_vocab(struct ctl *c, uint32_t *vocab, struct err_text *e) {
    char *body;
    int err = client_get(c, "/v1/models", &body, e);
    if (err != 0) return err;
    json_t *list = json_loads(body, 0, NULL);
    const json_t *models = json_object_get(list, "data");
    json_int_t n = 0;
    for (size_t i = 0; n == 0 && i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i);
        const char *id = json_string_value(json_object_get(model, "id"));
        if (id != NULL && strcmp(id, c->model) == 0)
            n = json_integer_value(json_object_get(json_object_get(model, "meta"), "n_vocab"));
    }
    json_decref(list);
    mem_free(body);
    char shown[SHOWN_BYTES];
    show(shown, sizeof shown, c->model);
    if (n < 1)
        return err_set(e, ERR_FATAL_CONFIG,
                       "/v1/models does not say how many ids %s has; --vocab-size does", shown);
    if (n > VOCAB_MAX)
        return err_set(e, ERR_FATAL_CONFIG,
                       "/v1/models: %s has %" JSON_INTEGER_FORMAT
                       " ids, more than %d; --vocab-size says from how many of them to draw",
                       shown, n, VOCAB_MAX);
    *vocab = (uint32_t)n;
    return 0;
}

// --- streams

struct stream {
    struct ctl *ctl;
    struct answer *answer; // NULL: free
    CURL *curl;
    struct curl_slist *headers;
    char *request;
    struct bytes line; // of the event stream, until its newline
    char details[CURL_ERROR_SIZE];
};

static void take_choice(struct stream *s, const json_t *choice) {
    struct answer *a = s->answer;
    const json_t *said = a->drawn != NULL
                             ? json_object_get(choice, "text")
                             : json_object_get(json_object_get(choice, "delta"), "content");
    const char *text = json_string_value(said);
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    if (reason != NULL) snprintf(a->finish_reason, sizeof a->finish_reason, "%s", reason);
    if (text == NULL || *text == '\0') return;
    a->last_ns = env_now_ns(s->ctl->env);
    if (a->first_ns == 0) a->first_ns = a->last_ns;
    if (a->on_text != NULL) a->on_text(text);
}

static void take_event(struct stream *s, const char *data) {
    if (strcmp(data, "[DONE]") == 0) return;
    struct answer *a = s->answer;
    json_t *event = json_loads(data, 0, NULL);
    const json_t *error = json_object_get(event, "error");
    const json_t *usage = json_object_get(event, "usage");
    if (error != NULL) {
        const char *message = json_string_value(json_object_get(error, "message"));
        show(a->error, sizeof a->error, message != NULL ? message : data);
    }
    if (json_is_object(usage)) {
        a->prompt_tokens = (uint32_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
        a->completion_tokens =
            (uint32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    take_choice(s, json_array_get(json_object_get(event, "choices"), 0));
    json_decref(event);
}

static void take_line(struct stream *s) {
    char *line = s->line.data;
    if (s->line.n > 0 && line[s->line.n - 1] == '\r') line[s->line.n - 1] = '\0';
    if (strncmp(line, "data:", 5) == 0) take_event(s, line + 5 + (line[5] == ' '));
    s->line.n = 0;
}

static size_t on_stream(char *data, size_t size, size_t n, void *context) {
    struct stream *s = context;
    size_t total = size * n;
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return bytes_append(&s->line, data, total) ? total : 0; // an error body, not a stream
    for (size_t at = 0; at < total;) {
        const char *end = memchr(data + at, '\n', total - at);
        size_t part = end != NULL ? (size_t)(end - data) - at : total - at;
        if (!bytes_append(&s->line, data + at, part)) return 0;
        if (end != NULL) take_line(s);
        at += part + (end != NULL);
    }
    return total;
}

static char *request_body(const struct ctl *c, const struct answer *a) {
    json_t *request = json_pack("{s:s, s:b, s:{s:b}, s:f, s:I, s:i}", "model", c->model, "stream",
                                1, "stream_options", "include_usage", 1, "temperature",
                                (double)c->options.temperature, "seed", (json_int_t)a->seed,
                                "max_tokens", (int)a->max_tokens);
    json_t *prompt = a->drawn != NULL
                         ? drawn_ids(a->drawn, a->number)
                         : json_pack("[{s:s, s:s}]", "role", "user", "content", a->prompt);
    int rc = json_object_set_new(request, a->drawn != NULL ? "prompt" : "messages", prompt);
    // Not OpenAI's: a strict server refuses the name, whatever its value.
    if (rc == 0 && c->options.ignore_eos)
        rc = json_object_set_new(request, "ignore_eos", json_true());
    char *text = rc == 0 ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    return text;
}

static bool stream_start(struct stream *s, struct ctl *c, struct answer *a, CURLM *multi) {
    s->ctl = c;
    s->answer = a;
    s->line.n = 0;
    s->request = request_body(c, a);
    s->curl = curl_easy_init();
    s->headers = headers_of(c, "Content-Type: application/json");
    if (s->request == NULL || s->curl == NULL || s->headers == NULL) return false;
    set_url(s->curl, c, a->drawn != NULL ? "/v1/completions" : "/v1/chat/completions");
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, s->request);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_stream);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_PRIVATE, s);
    s->details[0] = '\0';
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, s->details);
    a->start_ns = env_now_ns(c->env);
    return curl_multi_add_handle(multi, s->curl) == CURLM_OK;
}

static void stream_finish(struct stream *s, CURLM *multi, CURLcode code) {
    struct answer *a = s->answer;
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    a->end_ns = env_now_ns(s->ctl->env);
    a->status = status;
    if (code != CURLE_OK)
        say_unreached(s->ctl, code, s->details, a->error);
    else if (status != 200)
        say_refused(status, s->line.data, a->error, sizeof a->error);
    else if (a->error[0] == '\0' && a->finish_reason[0] == '\0')
        snprintf(a->error, sizeof a->error, "the answer broke off");
    curl_multi_remove_handle(multi, s->curl);
    curl_easy_cleanup(s->curl);
    curl_slist_free_all(s->headers);
    mem_free(s->request);
    s->answer = NULL;
}

static void collect(CURLM *multi, uint32_t *running) {
    int left;
    for (CURLMsg *m = curl_multi_info_read(multi, &left); m != NULL;
         m = curl_multi_info_read(multi, &left)) {
        struct stream *s;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        stream_finish(s, multi, code);
        --*running;
    }
}

static struct stream *free_stream(struct stream *streams, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (streams[i].answer == NULL) return &streams[i];
    }
    return NULL;
}

// When the next answer is to be asked for; NO_DEADLINE: not before one of those that run ends.
static int64_t next_due(const struct answer *answers, uint32_t next, uint32_t n, bool full) {
    return next == n || full ? NO_DEADLINE : answers[next].due_ns;
}

static void poll_streams(struct ctl *c, CURLM *multi, int64_t due_ns) {
    int64_t now_ns = env_now_ns(c->env);
    if (due_ns <= now_ns) return;
    int64_t ms = due_ns > now_ns + NS_PER_S ? 1000 : (due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    curl_multi_poll(multi, NULL, 0, (int)ms, NULL);
}

// Keeps `concurrency` streams running, or those that are due, until all answers are there.
static bool run_streams(struct ctl *c, struct stream *streams, uint32_t concurrency,
                        struct answer *answers, uint32_t n) {
    CURLM *multi = curl_multi_init();
    bool ok = multi != NULL;
    for (uint32_t next = 0, running = 0; ok && (next < n || running > 0);) {
        for (; ok && next_due(answers, next, n, running == concurrency) <= env_now_ns(c->env);
             next++, running++)
            ok = stream_start(free_stream(streams, concurrency), c, &answers[next], multi);
        int active;
        curl_multi_perform(multi, &active);
        collect(multi, &running);
        if (next == n && running == 0) break; // nothing is left that a wait could bring
        poll_streams(c, multi, next_due(answers, next, n, running == concurrency));
    }
    curl_multi_cleanup(multi);
    return ok;
}

int client_stream(struct ctl *c, struct answer *answers, uint32_t n, uint32_t concurrency,
                  struct err_text *e) {
    struct stream *streams = mem_array(concurrency, sizeof *streams);
    bool ok = streams != NULL && run_streams(c, streams, concurrency, answers, n);
    for (uint32_t i = 0; streams != NULL && i < concurrency; i++)
        mem_free(streams[i].line.data);
    mem_free(streams);
    return ok ? 0 : err_set(e, ERR_FATAL_NOMEM, "out of memory");
}
