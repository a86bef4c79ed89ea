// api_house.c: see api_house.h.
#include "tests/harness/api_house.h"

#include <check.h>

void house_open(struct house *h) {
    struct err_text e = {""};
    struct api_config config = {
        .serving = h->toy.serving, .host = "127.0.0.1", .connections_max = 256, .timeout_s = 75};
    ck_assert_msg(api_start(&h->api, &config, &h->port, &e) == 0, "%s", e.text);
}

void house_stop(struct house *h) {
    api_stop(h->api);
    toy_engine_stop(h->toy.toy);
    api_destroy(h->api);
    toy_house_stop(&h->toy);
}
