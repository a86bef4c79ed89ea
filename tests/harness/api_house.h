// api_house.h: the HTTP API over a toy house, for its tests.
#ifndef MOESAIC_TESTS_HARNESS_API_HOUSE_H
#define MOESAIC_TESTS_HARNESS_API_HOUSE_H

#include "leader/api.h"
#include "tests/harness/toy_house.h"

struct house {
    struct toy_house toy;
    struct api *api;
    uint16_t port;
};

// Over h->toy, which has started: from here on other threads read what it serves. Fails the running
// Check test when the API cannot start.
void house_open(struct house *h);
void house_stop(struct house *h); // and the toy house

#endif
