// foreign_cluster.c: flags of other engines about workers, memory and scheduling.
#include "common/conf/foreign.h"

static const struct foreign_row rows[] = {
    {FOREIGN_IDLE, "s: moe-dense-tp-size= shared-experts-tp-size=",
     .says = "dense layers are split as attention is, where no sum would change; shared experts "
             "are whole on each worker"},
    {FOREIGN_REFUSED, "t: sharded=", .fine = "false",
     .says = "use --tensor-parallel-size N, or --workers N"},
    {FOREIGN_IDLE, "s: pp-max-micro-batch-size= max-micro-batch-size= pp-async-batch-depth=",
     .says =
         "the requests that run are spread over as many steps as there are stages, and over one "
         "more at --pipeline-depth 2"},
    {FOREIGN_REFUSED, "s: enable-dp-attention",
     .says = "attention is always each data parallel group's own, but with this flag SGLang's "
             "tensor parallel size counts all workers: leave it out and divide that size by the "
             "data parallel one"},
    {FOREIGN_REFUSED,
     "vs: decode-context-parallel-size= dcp-comm-backend= v: -dcp= prefill-context-parallel-size= "
     "-pcp= dcp-q-replicate dcp-kv-cache-interleave-size= cp-kv-cache-interleave-size= s: "
     "dcp-size= attn-cp-size= attention-context-parallel-size= attn-dp-size= "
     "attention-data-parallel-size= moe-dp-size= moe-data-parallel-size= dwdp-size= "
     "enable-prefill-cp cp-strategy= enable-cp-decode-attn-tp dcp-replicate-q-proj "
     "enable-kv-cache-sharding",
     .fine = "1", .says = "a sequence's keys and values are not split by position"},
    {FOREIGN_IMPLIED,
     "v: enable-expert-parallel -ep s: enable-ep-moe enable-deepep-moe enable-dp-lm-head",
     .says = "experts are spread over all workers of a stage, as far as "
             "--expert-tensor-parallel-size does not say otherwise",
     .plan = true},
    {FOREIGN_REFUSED,
     "v: data-parallel-size-local= -dpl= data-parallel-address= -dpa= data-parallel-rpc-port= "
     "-dpp= data-parallel-rank= -dpn= data-parallel-start-rank= -dpr= data-parallel-external-lb "
     "-dpe data-parallel-hybrid-lb -dph data-parallel-multi-port-external-lb -dpm "
     "data-parallel-supervisor-port= dp-supervisor-probe-failure-threshold= "
     "dp-supervisor-probe-interval-s= dp-supervisor-probe-timeout-s= headless worker-use-ray "
     "engine-use-ray vt: master-addr= master-port= s: dist-init-addr= nccl-init-addr= use-ray "
     "gated-launch-port= l: rpc=",
     .says = "workers join the leader: moe-worker --leader HOST:8500 on each host"},
    {FOREIGN_REFUSED, "vs: nnodes=", .fine = "1",
     .says = "start moe-worker --leader HOST:8500 on each host"},
    {FOREIGN_REFUSED, "vs: node-rank=", .fine = "0",
     .says = "start moe-worker --leader HOST:8500 on each host"},
    {FOREIGN_IDLE,
     "v: data-parallel-backend= -dpb= distributed-executor-backend= ray-workers-use-nsight "
     "distributed-timeout-seconds= cpu-distributed-timeout-seconds= dp-sync-interval= "
     "disable-nccl-for-dp-synchronization s: dist-timeout= nccl-port= load-balance-method= "
     "enable-dp-attention-local-control-broadcast",
     .says = "workers are processes that talk gRPC and UCX (docs/network.md)"},
    {FOREIGN_REFUSED,
     "vs: enable-eplb v: eplb-config= num-redundant-experts= eplb-log-balancedness "
     "eplb-log-balancedness-interval= eplb-step-interval= eplb-window-size= enable-elastic-ep "
     "elastic-ep-max-dp-size= expert-placement-strategy= enable-ep-weight-filter s: "
     "ep-num-redundant-experts= eplb-algorithm= eplb-min-rebalancing-utilization-threshold= "
     "eplb-rebalance-layers-per-chunk= eplb-rebalance-num-iterations= elastic-ep-backend= "
     "elastic-ep-initial-size= elastic-ep-join-mode= elastic-ep-join-rank-offset= "
     "elastic-ep-scale-timeout= max-ep-size= enable-elastic-expert-backup enable-waterfill "
     "init-expert-location= ep-dispatch-algorithm=",
     .fine = "0 trivial linear", .says = "experts are spread evenly and do not move"},
    {FOREIGN_IDLE,
     "s: expert-distribution-recorder-mode= expert-distribution-recorder-buffer-size= "
     "expert-balancedness-report-mode=",
     .says = "moectl experts shows the load of experts"},
    {FOREIGN_REFUSED,
     "o: moe-gpu-prefetch= enable-expert-prefetch moe-expert-gap= s: enable-paged-experts "
     "paged-experts-num-resident= l: moe-cache-mib=",
     .fine = "0", .says = "every worker holds its experts in memory; nothing is fetched ahead"},
    {FOREIGN_IMPLIED,
     "l: -cmoe cpu-moe -cb cont-batching s: enable-mixed-chunk v: enable-chunked-prefill",
     .says = "always so: the CPU computes, batches are continuous and prompts run in chunks"},
    {FOREIGN_IDLE,
     "l: -ncmoe= n-cpu-moe= -ncffn= n-cpu-ffn= -ngl= gpu-layers= n-gpu-layers= -sm= split-mode= "
     "-ts= tensor-split= -mg= main-gpu= -fit? fit? -fitt= fit-target= -fitc= fit-ctx= op-offload "
     "-kvo kv-offload -nkvo -ot= override-tensor= s: kt-cpuinfer= "
     "kt-max-deferred-experts-per-token= kt-method= kt-num-gpu-experts= kt-threadpool-count= "
     "kt-weight-path= base-gpu-id= gpu-id-step= v: device-ids*",
     .says = "there is no GPU; all is in the memory of the workers"},
    {FOREIGN_REFUSED, "vsl: device= l: -dev=", .fine = "cpu auto none",
     .says = "the CPU back end is the only one"},
    {FOREIGN_IDLE,
     "vs: cpu-offload-gb= offload-group-size= offload-num-in-group= offload-prefetch-step= v: "
     "cpu-offload-params* offload-backend= offload-params* swap-space= kv-offloading-backend= "
     "kv-offloading-size= enable-cumem-allocator s: offload-mode= ple-offload-backend= "
     "ple-offload-dir= ple-offload-embedding enable-unified-memory",
     .says = "weights and KV are in host memory already"},
    {FOREIGN_IDLE,
     "v: prefix-caching-hash-algo= prefix-cache-retention-interval= "
     "prefix-match-unit= l: cache-prompt cache-reuse= -cram= cache-ram= cache-idle-slots -sps= "
     "slot-prompt-similarity= s: radix-eviction-policy= radix-eviction-policy-config= "
     "radix-cache-backend= enable-session-radix-cache enable-hicache "
     "hicache-host-memory-fraction= hicache-host-memory-mode= hicache-io-backend= "
     "hicache-mem-layout= hicache-ratio= hicache-size= hicache-storage-backend= "
     "hicache-storage-backend-extra-config= hicache-storage-prefetch-policy= "
     "hicache-storage-prefetch-retry-max-attempts= hicache-storage-prefetch-retry-poll-interval= "
     "hicache-write-policy= enable-hierarchical-cache enable-flexkv flexkv-config-file= "
     "enable-lmcache lmcache-config-file= enable-unified-cache-external-linker "
     "unified-cache-external-linker-backend= unified-cache-external-linker-config= "
     "enable-linker-mla-dedup",
     .says = "the prefix cache has no settings but --enable-prefix-caching; answers are the same "
             "without"},
    {FOREIGN_IDLE,
     "l: -ctxcp= ctx-checkpoints= swa-checkpoints= -cms= checkpoint-min-step= s: "
     "max-mamba-cache-size= mamba-full-memory-ratio=",
     .says = "copies of states are kept at fixed places, as many as fit --state-cache-memory"},
    {FOREIGN_IDLE, "s: disable-radix-cache disable-chunked-prefix-cache",
     .says = "answers are the same with the prefix cache; --no-enable-prefix-caching is without"},
    {FOREIGN_IDLE,
     "v: block-size= s: page-size= c128-page-size=", .says = "KV blocks have 16 tokens"},
    {FOREIGN_IDLE,
     "l: -kvu kv-unified -no-kvu kv-unified-per-slot= -dt= defrag-thold= swa-full s: "
     "swa-full-tokens-ratio= swa-prefix-tails= enable-decoder-swa-bounded-replay "
     "enable-encoder-swa-bounded-replay disable-hybrid-swa-memory enable-page-major-kv-layout "
     "prefill-only-disable-kv-cache v: swa-bounded-replay disable-hybrid-kv-cache-manager "
     "kv-sharing-fast-prefill calculate-kv-scales kv-cache-dtype-skip-layers*",
     .says = "the KV cache is in pages of each worker"},
    {FOREIGN_REFUSED, "v: disable-sliding-window",
     .says = "a sliding window is kept where config.json has one; use --max-model-len for a "
             "shorter context"},
    {FOREIGN_REFUSED, "l: -nocb",
     .says = "batches are always continuous; --max-num-seqs 1 runs one sequence at a time"},
    {FOREIGN_IDLE,
     "l: -ub= vl: ubatch-size= v: max-num-partial-prefills= max-long-partial-prefills= "
     "long-prefill-token-threshold= long-prefill-token-threshold-adaptive "
     "prefill-schedule-interval= scheduler-delay-factor= scheduler-reserve-full-isl watermark= "
     "async-scheduling num-scheduler-steps= multi-step-stream-outputs num-lookahead-slots= "
     "use-v2-block-manager disable-async-output-proc preemption-mode= max-num-active-seqs= "
     "max-paddings= intial-incremental-detokenization-offset= performance-mode= s: "
     "enable-dynamic-chunking prefill-max-requests= prefill-decode-interval= "
     "prefill-decode-interval-min-bs= enable-prefill-delayer "
     "prefill-delayer-forward-passes-buckets* prefill-delayer-max-delay-ms= "
     "prefill-delayer-max-delay-passes= prefill-delayer-queue-min-ratio= "
     "prefill-delayer-token-usage-low-watermark= prefill-delayer-wait-seconds-buckets* "
     "min-free-slots-delay= num-reserved-decode-tokens= schedule-conservativeness= "
     "disable-overlap-schedule num-continuous-decode-steps= retraction-policy= "
     "schedule-heuristic= t: waiting-served-ratio= max-waiting-tokens=",
     .says = "scheduling is fixed: decodes first, prompts in chunks, up to --pipeline-depth steps "
             "ahead; answers do not depend on it"},
    {FOREIGN_REFUSED, "v: max-num-queued-tokens=", .says = "use --max-num-queued-reqs"},
    {FOREIGN_REFUSED, "s: schedule-policy=", .fine = "fcfs lpm", .says = "use --scheduling-policy"},
    {FOREIGN_REFUSED,
     "s: abort-on-priority-when-disabled default-priority-value= disable-priority-preemption "
     "enable-priority-scheduling priority-scheduling-preemption-threshold= "
     "schedule-low-priority-values-first",
     .says = "use --scheduling-policy priority: lower values are served first"},
    {FOREIGN_IMPLIED, "s: enable-deterministic-inference",
     .says = "a request has one answer, whatever else is in the batch"},
    {FOREIGN_REFUSED, "s: rl-on-policy-target=", .says = "training is not served"},
    {FOREIGN_IDLE,
     "s: watchdog-timeout= soft-watchdog-timeout= v: watchdog-config= jit-monitor-mode= "
     "jit-monitor-verbose",
     .says = "see --step-timeout"},
    {FOREIGN_REFUSED,
     "v: enable-sleep-mode sleep-mode-backend= sleep-mode-offload-cudagraph "
     "sleep-preserve-parameter-names* l: sleep-idle-seconds= s: enable-memory-saver "
     "enable-weights-cpu-backup enable-draft-weights-cpu-backup",
     .fine = "-1", .says = "a leader does not sleep; stop and start it"},
};

const struct foreign_part foreign_cluster = {rows, sizeof rows / sizeof rows[0]};
