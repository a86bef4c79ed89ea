#!/bin/bash
# Prints what `make bench` promises, as CSV blocks: tokens/s over HTTP for 1, 2 and 4 workers at 1, 8 and 64 requests at once,
# where a step's time goes, and the kernels and the forward pass alone. Nothing here is a test: numbers are for reading.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=build/release
logs=build/bench
mkdir -p "$logs"
export UCX_HANDLE_ERRORS=${UCX_HANDLE_ERRORS:-none}
model=${MODEL:-models/seedling}
pids=()
stop() { [ ${#pids[@]} -eq 0 ] || { kill "${pids[@]}" 2>/dev/null; wait "${pids[@]}" 2>/dev/null; } || true; pids=(); }
trap stop EXIT

port_of() { sed -n "s/.* $1 [^ ]*:\([0-9]*\).*/\1/p" "$logs/leader.log" | head -n 1; }
await() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; tail -n 20 "$logs"/*.log >&2; exit 1; }

group() { # workers
    $bin/moe-leader --model "$model" --port 0 --control-port 0 --grpc-port 0 --data-parallel-size "$1" 2>"$logs/leader.log" &
    pids+=($!)
    await grep -q "http listening" "$logs/leader.log"
    url=http://127.0.0.1:$(port_of "http listening")
    for i in $(seq "$1"); do
        $bin/moe-worker --leader "127.0.0.1:$(port_of "control listening")" 2>"$logs/worker-$i.log" &
        pids+=($!)
    done
    await $bin/moectl ready --url "$url"
}

echo "# $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
header=yes
for workers in 1 2 4; do
    group "$workers"
    $bin/moectl bench --url "$url" | if [ $header = yes ]; then sed "1s/^/workers,/; 2,\$s/^/$workers,/"; else sed "1d; s/^/$workers,/"; fi
    header=no
    curl -s "$url/metrics" >"$logs/metrics-$workers"
    stop
done

printf '\nworkers,phase,seconds,share_percent\n'
for workers in 1 2 4; do
    sed -n 's/^moesaic_step_phase_seconds_total{.*phase="\([a-z_]*\)".*} \(.*\)$/\1 \2/p' "$logs/metrics-$workers" |
        awk -v w="$workers" '{ t[$1] += $2; all += $2 } END { for (p in t) printf "%s,%s,%.3f,%.1f\n", w, p, t[p], all ? 100 * t[p] / all : 0 }' | sort -t, -k3 -nr
done

for bench in "$bin"/bench_*; do
    [ -x "$bench" ] || continue
    printf '\n# %s\n' "$(basename "$bench")"
    "$bench"
done
