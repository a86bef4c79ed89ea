// world.h: the simulator: production code in one process, deterministic, replayable from a seed.
//
// Every simulated process is a thread with an env of its own. One baton lets one thread run at a
// time; it is passed only inside waker_wait (polls included) and at a thread's start and end, to a
// runnable thread drawn from the seed. The clock is virtual: it stands still while anything can
// run, then jumps to the earliest deadline or timed wake. Random numbers of env_random come from
// the seed. Therefore code under the simulator must wait only through wakers, and must not spin.
// The memory fabric and the memory channel of a world belong to it; their messages take virtual
// time.
//
// The thread that calls sim_run is the script: it holds the baton whenever sim_run is not running,
// so it may look at everything, spawn, kill and send between two runs.
#ifndef MOESAIC_TESTS_SIM_WORLD_H
#define MOESAIC_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"

struct sim;
struct sim_process;

struct sim_config {
    uint64_t seed;
    int64_t fabric_delay_ns_max;  // a fabric message takes 0..max, in order for each pair
    int64_t channel_delay_ns_max; // likewise a channel message
    int64_t detect_ns_max;        // after a kill its peers learn of it within 0..max
    uint32_t end_lost_percent; // of 100 clean ends of an epoch, how many its peers take for a loss
    uint32_t full_percent;     // of 100 pieces on the fabric, how many find no room (fabric_mem.h)
    int64_t full_ns_max;
    uint64_t steps_max; // baton passes until the run counts as a livelock; 0 = 50 million
    bool verbose;       // print each pass: who, when
};

// Seed and delays of a friendly network: 200 us fabric, 2 ms channel, 50 ms detection, every second
// end of an epoch taken for a loss.
struct sim_config sim_config_default(uint64_t seed);

// The seed of a test: the environment variable SEED when set, else fallback; printed, so that a
// failure can be replayed.
uint64_t sim_seed(uint64_t fallback);

struct sim *sim_create(const struct sim_config *config);
// Kills what still runs, waits for every thread to end, frees the world.
void sim_destroy(struct sim *s);

struct fabric_mem_hub *sim_fabric_hub(struct sim *s);
struct channel_mem_hub *sim_channel_hub(struct sim *s);

// Starts a simulated process. From the script or from a simulated process. The name is copied; arg
// is not owned. main_fn must return soon after env_stopped(env) became true: waits then return at
// once.
struct sim_process *sim_spawn(struct sim *s, const char *name,
                              void (*main_fn)(struct env *env, void *arg), void *arg);
// A second thread of a living process; it shares its env and dies with it.
void sim_spawn_thread(struct sim_process *p, const char *name,
                      void (*fn)(struct env *env, void *arg), void *arg);
struct env *sim_env(struct sim_process *p);
// An env for the script itself, for channels and wakers that it owns. Its waits run the world;
// false also when the run ended.
struct env *sim_script_env(struct sim *s);

// Like kill -9: env_stopped becomes true, every wait of the process returns at once, what it sends
// from now on goes nowhere, and its peers on fabric and channel see it as lost after a while. From
// the script or from another process.
void sim_kill(struct sim *s, struct sim_process *p);
// Like SIGSTOP for a span of virtual time: its threads are not chosen.
void sim_pause(struct sim *s, struct sim_process *p, int64_t span_ns);
bool sim_done(const struct sim_process *p); // all its threads returned

enum sim_end {
    SIM_DONE,     // every process returned
    SIM_TIME,     // the virtual clock reached the limit; sim_run may be called again
    SIM_UNTIL,    // the predicate became true; sim_run may be called again
    SIM_DEADLOCK, // no time limit was given and nobody can ever run again; who waits for what was
                  // printed
    SIM_STEPS     // steps_max passes without an end: a livelock; printed likewise
};

// Runs until all processes returned or the virtual clock reached until_ns (absolute; NO_DEADLINE =
// no limit).
enum sim_end sim_run(struct sim *s, int64_t until_ns);
// Likewise, and until done(arg) is true; it is asked at every baton pass, so it must be cheap and
// only look.
enum sim_end sim_run_until(struct sim *s, int64_t until_ns, bool (*done)(void *arg), void *arg);

// Prints who waits for what.
void sim_dump(const struct sim *s, const char *why);
int64_t sim_now_ns(const struct sim *s);
uint64_t sim_steps(const struct sim *s);
// A hash over every baton pass (who, when) and every sim_note: equal seeds give equal hashes.
uint64_t sim_trace_hash(const struct sim *s);
// Mixes a value into the trace hash, so that a divergence inside a process is seen where it begins.
void sim_note(struct sim *s, uint64_t value);
// A random number below n (n > 0) of the world's own stream, for scripts.
uint64_t sim_random(struct sim *s, uint64_t n);

// Wakes w at the virtual time due_ns (for things that take time: deliveries).
void sim_wake_at(struct waker *w, int64_t due_ns);

#endif
