#!/bin/bash
# One leader and its two workers on this machine with the embedded model: questions, answers, a table, and the lines to go on with.
# Usage: deploy/demo.sh [--serve]. With --serve it keeps running on port 8000 until Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${BUILD:-build/release}
logs=build/demo
workers=2
serve=no
# A demo beside what serves must not take its logs away.
[ "${1:-}" = --serve ] && serve=yes logs=build/serve
mkdir -p "$logs"
rm -f "$logs"/*.log

leader=
stop() {
    trap - EXIT INT TERM
    # Its workers end with it.
    [ -z "$leader" ] || { kill "$leader" && wait "$leader"; } 2>/dev/null || true
}
trap stop EXIT
# Serving ends with Ctrl-C: that is no failure.
ended=130
[ $serve = no ] || ended=0
trap 'stop; exit $ended' INT TERM

fail() {
    echo "demo: $1" >&2
    tail -n 40 "$logs/leader.log" >&2
    exit 1
}

# The demo asks for free ports; which ones it got stands in the log.
port_of() { sed -n "s/.* $1 address [^ ]*:\([0-9]*\).*/\1/p" "$logs/leader.log" | head -n 1; }
await() { # seconds, what, command...
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        kill -0 "$leader" 2>/dev/null || fail "the leader ended while waiting for $what"
        [ $SECONDS -lt $deadline ] || fail "no $what within its time"
        sleep 0.1
    done
}

http=0 grpc=0
[ $serve = yes ] && http=8000 grpc=8001
echo "starting a leader and $workers workers; their log is $logs/leader.log"
# UCX's own signal handlers would write debug output into the logs; the programs have their own.
export UCX_HANDLE_ERRORS=${UCX_HANDLE_ERRORS:-none}
$bin/moe-leader --model models/seedling --local-workers $workers --port $http --control-port 0 --grpc-port $grpc \
    2>"$logs/leader.log" &
leader=$!
await 30 "leader" sh -c "grep -q 'http listening' $logs/leader.log"
url=http://127.0.0.1:$(port_of "http listening")
await 60 "ready group" $bin/moectl ready --url "$url"

for question in "Who are you?" "What is the capital of Kenya?" "What is expert prefetch?"; do
    printf '\n> %s\n' "$question"
    $bin/moectl chat "$question" --url "$url" || fail "no answer"
done

printf '\nthroughput of this machine (closed loop, greedy chats):\n\n'
$bin/moectl bench --concurrency 1,8 --requests 24 --url "$url" | awk -F, '
    NR == 1 { printf "  %-14s %-18s %-26s %s\n", "requests at once", "output tokens/s", "time to first token (p50)", "time per token (p50)" }
    NR > 1  { printf "  %-16s %-18s %-26s %s\n", $1, $6, $7 " ms", $9 " ms" }'
printf '\n'
sleep 1.2 # the counters travel with the next heartbeat
$bin/moectl experts --url "$url"

if [ $serve = yes ]; then
    printf '\nserving on %s until Ctrl-C. Go on with\n' "$url"
    api=$url rpc=127.0.0.1:$(port_of "grpc listening")
else
    printf '\nmake serve keeps it running. Then go on with\n'
    api=http://127.0.0.1:8000 rpc=127.0.0.1:8001
fi
cat <<TEXT
curl:
  curl $api/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "seedling", "messages": [{"role": "user", "content": "Who are you?"}], "stream": true}'
Python (python3 -m venv .venv && .venv/bin/pip install openai; then .venv/bin/python):
  from openai import OpenAI
  client = OpenAI(base_url="$api/v1", api_key="none")
  print(client.chat.completions.create(model="seedling", messages=[{"role": "user", "content": "Who are you?"}]).choices[0].message.content)
gRPC (.venv/bin/pip install grpcio-tools; .venv/bin/python -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. generate.proto):
  import grpc, generate_pb2 as pb, generate_pb2_grpc as rpc
  stub = rpc.GenerateStub(grpc.insecure_channel("$rpc"))
  for part in stub.Generate(pb.GenerateRequest(text="Once upon a time", max_tokens=32)): print(part.text, end="")
TEXT

if [ $serve = yes ]; then
    wait "$leader" || true
    fail "the leader ended"
fi
