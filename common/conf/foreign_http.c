// foreign_http.c: flags of other engines about the HTTP side, logs and measurements.
#include "common/conf/foreign.h"

static const struct foreign_row rows[] = {
    {FOREIGN_REFUSED,
     "v: allowed-origins* allowed-methods* allowed-headers* allow-credentials l: cors-origins= "
     "cors-methods= cors-headers= cors-credentials t: cors-allow-origin=",
     .says = "there are no CORS headers; put a proxy in front"},
    {FOREIGN_REFUSED, "v: root-path= s: fastapi-root-path= l: api-prefix=",
     .says = "paths begin at /v1; put a proxy in front"},
    {FOREIGN_REFUSED, "v: uds= t: shard-uds-path=", .says = "HTTP is served on --host and --port"},
    {FOREIGN_REFUSED, "l: path= ui-config= webui-config= ui-config-file= webui-config-file=",
     .says = "no web pages are served"},
    {FOREIGN_IDLE, "l: ui webui v: disable-fastapi-docs enable-offline-docs",
     .says = "no web pages are served"},
    {FOREIGN_REFUSED, "v: middleware*", .says = "code of others is not run; put a proxy in front"},
    {FOREIGN_REFUSED,
     "t: ngrok ngrok-authtoken= ngrok-edge=", .says = "there is no tunnel; put a proxy in front"},
    {FOREIGN_REFUSED, "v: grpc s: grpc-mode smg-grpc-mode",
     .says = "gRPC is served on --grpc-port beside HTTP; docs/grpc.md has the service"},
    {FOREIGN_IDLE,
     "s: grpc-response-timeout-secs= grpc-http-sidecar-port= smg-http-sidecar-port= enable-http2 "
     "http2-initial-connection-window-size= http2-max-concurrent-streams= "
     "enable-http-worker-reuseport skip-server-warmup warmups= "
     "uvicorn-access-log-exclude-prefixes* log-level-http= l: reuse-port warmup v: "
     "disable-uvicorn-access-log disable-access-log-for-endpoints= uvicorn-log-level= "
     "h11-max-header-count= h11-max-incomplete-event-size= log-error-stack "
     "fail-on-environ-validation t: payload-limit= usage-stats=",
     .says = "the HTTP and gRPC servers are built in, with limits of their own (docs/api.md)"},
    {FOREIGN_REFUSED, "s: sidecar= sidecar-args=", .says = "nothing else is started"},
    {FOREIGN_IMPLIED, "vs: enable-ssl-refresh", .says = "certificates that change are read again"},
    {FOREIGN_REFUSED,
     "s: ssl-keyfile-password=", .says = "the key's file must have no password; restrict its mode"},
    {FOREIGN_REFUSED, "v: ssl-ciphers=", .says = "TLS 1.2 and 1.3 with the library's ciphers"},
    {FOREIGN_IDLE, "v: ssl-check-hostname", .says = "servers do not check names of clients"},
    {FOREIGN_REFUSED,
     "s: admin-api-key=", .says = "there is no admin API; --api-key-file FILE has the keys of /v1"},
    {FOREIGN_IMPLIED, "l: metrics s: enable-metrics enable-metrics-for-all-schedulers",
     .says = "/metrics is always there"},
    {FOREIGN_REFUSED, "t: prometheus-port=", .says = "/metrics is on --port"},
    {FOREIGN_REFUSED, "v: disable-log-stats",
     .says = "/metrics is always there; lines of the log are chosen by --log-level"},
    {FOREIGN_IDLE,
     "v: enable-log-outputs enable-log-deltas enable-logging-iteration-details log-config-file= "
     "logging-config= s: log-requests-level= log-requests-format= log-requests-target* "
     "decode-log-interval= enable-request-time-stats-logging show-time-cost crash-dump-folder= l: "
     "log-prompts-dir= log-prefix log-timestamps log-colors? perf",
     .says = "see --enable-log-requests, --log-prompts and --log-format for what is logged"},
    {FOREIGN_REFUSED, "l: log-disable log-file=",
     .says = "the log is standard error; redirect it, or use --log-level error"},
    {FOREIGN_IDLE,
     "vs: otlp-traces-endpoint= enable-mfu-metrics t: otlp-endpoint= st: otlp-service-name= v: "
     "collect-detailed-traces* custom-histogram-buckets= show-hidden-metrics-for-version= "
     "cudagraph-metrics kv-cache-metrics kv-cache-metrics-sample= "
     "per-request-spec-decode-metrics= enable-per-request-metrics enable-server-load-tracking s: "
     "enable-trace trace-modules= load-publish-endpoint= load-snapshot-publish-interval= "
     "export-metrics-to-file export-metrics-to-file-dir= extra-metric-labels= "
     "bucket-e2e-request-latency* bucket-inter-token-latency* bucket-time-to-first-token* "
     "prompt-tokens-buckets* generation-tokens-buckets* tokenizer-metrics-allowed-custom-labels* "
     "tokenizer-metrics-custom-labels-header= enable-forward-pass-metrics "
     "forward-pass-metrics-ipc-name= forward-pass-metrics-worker-id= collect-tokens-histogram",
     .says = "what is measured is at /metrics"},
    {FOREIGN_IMPLIED, "v: enable-request-id-headers", .says = "answers have X-Request-Id"},
    {FOREIGN_IDLE,
     "v: enable-prompt-tokens-details fingerprint-mode= "
     "fingerprint-value= s: enable-cache-report weight-version= l: tags=",
     .says = "answers say what docs/api.md lists"},
    {FOREIGN_REFUSED, "v: enable-force-include-usage s: stream-response-default-include-usage",
     .says = "use stream_options.include_usage of the request"},
    {FOREIGN_REFUSED, "vs: stream-interval= s: incremental-streaming-output", .fine = "1",
     .says = "every token is sent as it comes"},
    {FOREIGN_REFUSED, "v: sse-keep-alive-interval=", .fine = "0",
     .says = "streams have no keep-alive comments"},
    {FOREIGN_IDLE, "l: sse-ping-interval=", .says = "streams have no pings"},
    {FOREIGN_REFUSED,
     "v: enable-tokenizer-info-endpoint enable-scale-out l: props slot-save-path= s: "
     "file-storage-path= enable-response-store enable-streaming-session",
     .says = "that path is not served; docs/api.md lists those that are"},
    {FOREIGN_IDLE, "l: slots", .says = "/status shows what runs"},
    {FOREIGN_REFUSED, "t: enable-prefill-logprobs", .says = "prompts get no log-probabilities"},
    {FOREIGN_REFUSED, "l: models-dir= models-preset= models-max= models-autoload",
     .says = "one leader serves one model"},
    {FOREIGN_REFUSED,
     "l: -sysf= system-prompt-file=", .says = "use a system message of the request"},
    {FOREIGN_REFUSED, "l: completion-bash list-devices", .says = "moe-leader has no such command"},
    {FOREIGN_REFUSED,
     "v: scheduler-cls= worker-cls= worker-extension-cls= additional-config= s: forward-hooks=",
     .says = "code of others is not run"},
};

const struct foreign_part foreign_http = {rows, sizeof rows / sizeof rows[0]};
