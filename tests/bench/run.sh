#!/bin/bash
# Prints what `make bench` promises, as CSV blocks: tokens/s over HTTP for 1, 2 and 4 workers at 1, 8 and 64 requests at once,
# where a step's time goes, the kernels and the forward pass alone, and the same beside llama-server where PEER_LLAMA_SERVER names one. Numbers are for reading; one thing is checked: answers with the
# prefix cache have the digests of those without.
set -euo pipefail
cd "$(dirname "$0")/../.."

python3 tests/bench/peer.py --check # what is missing for the last part is said before the first
bin=build/release
logs=build/bench
mkdir -p "$logs"
export UCX_HANDLE_ERRORS=${UCX_HANDLE_ERRORS:-none}
model=${MODEL:-models/seedling}
pids=()
stop() { [ ${#pids[@]} -eq 0 ] || { kill "${pids[@]}" 2>/dev/null; wait "${pids[@]}" 2>/dev/null; } || true; pids=(); }
trap stop EXIT

port_of() { sed -n "s/.* $1 address [^ ]*:\([0-9]*\).*/\1/p" "$logs/leader.log" | head -n 1; }
await() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; tail -n 20 "$logs"/*.log >&2; exit 1; }

group() { # workers, flags of the leader
    rm -f "$logs/leader.log" # await must not find an earlier one's lines
    $bin/moe-leader --model "$model" --port 0 --control-port 0 --grpc-port 0 --data-parallel-size "$@" >"$logs/layout" 2>"$logs/leader.log" &
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

# 64 requests at once with 1,024 tokens in common and 64 of their own, 64 tokens each: what the prefix cache is worth. One worker; the
# first request of each group is another one, so that neither pays for its start. Ends with an error where a digest differs.
body() { # number: tokens in common, own ones
    local common own
    common=$(seq -s, 1 1024)
    own=$(awk -v n="$1" 'BEGIN { for (k = 0; k < 64; k++) printf ",%d", (n * 131 + k * 17) % 2000 }')
    printf '{"model": "seedling", "prompt": [%s%s], "max_tokens": 64, "ignore_eos": true, "temperature": 0}' "$common" "$own" >"$logs/body-$1"
}
prefix_seconds() { # flag, where its digests go
    local start
    rm -f "$logs"/answer-*
    group 1 --max-num-seqs 64 --served-model-name seedling --digest "$1"
    curl -sS -o /dev/null -H 'Content-Type: application/json' -d '{"model": "seedling", "prompt": [5], "max_tokens": 4}' "$url/v1/completions"
    for i in $(seq 64); do # one process sends all: 64 would take more time than what is measured
        printf 'next\nurl = "%s/v1/completions"\ndata = "@%s/body-%s"\nheader = "Content-Type: application/json"\noutput = "%s/answer-%s"\n' "$url" "$logs" "$i" "$logs" "$i"
    done | sed 1d >"$logs/requests"
    start=$(date +%s%N)
    curl -sS --no-progress-meter --parallel --parallel-immediate --parallel-max 64 --config "$logs/requests"
    seconds=$(awk -v ns=$(($(date +%s%N) - start)) 'BEGIN { printf "%.3f", ns / 1e9 }')
    stop
    for i in $(seq 64); do
        printf '%s %s\n' "$i" "$(grep -o '"digest": *"[^"]*"' "$logs/answer-$i" || echo "no digest: $(head -c 200 "$logs/answer-$i")")"
    done >"$2"
    if grep -m 1 'no digest' "$2" >&2; then exit 1; fi
}
for i in $(seq 64); do body "$i"; done
printf '\nprefix_cache,seconds,output_tokens_per_s\n'
prefix_seconds --no-enable-prefix-caching "$logs/digests-off"
without=$seconds
prefix_seconds --enable-prefix-caching "$logs/digests-on"
awk -v a="$without" -v b="$seconds" 'BEGIN { printf "off,%s,%.0f\non,%s,%.0f\nratio,%.2f,\n", a, 4096 / a, b, 4096 / b, a / b }'
diff "$logs/digests-off" "$logs/digests-on" >&2 || { echo "bench: the prefix cache changed answers" >&2; exit 1; }

for bench in "$bin"/bench_*; do
    [ -x "$bench" ] || continue
    printf '\n# %s\n' "$(basename "$bench")"
    "$bench"
done

printf '\n# beside llama-server\n'
python3 tests/bench/peer.py
