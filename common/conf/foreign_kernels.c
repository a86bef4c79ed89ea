// foreign_kernels.c: flags of other engines about speculation, number formats and kernels.
#include "common/conf/foreign.h"

static const struct foreign_row rows[] = {
    {FOREIGN_REFUSED,
     "l: -hfd= -hfrd= -td= -tbd= -Cd= -Crd= -Cbd= -otd= -cmoed -ncmoed= -devd= -ngld= -md= -ctkd= "
     "-ctvd= -lcs= lookup-cache-static= -lcd= lookup-cache-dynamic= spec-default "
     "spec-draft-backend-sampling spec-draft-cpu-mask= spec-draft-cpu-mask-batch= "
     "spec-draft-cpu-moe spec-draft-cpu-range= spec-draft-cpu-strict= "
     "spec-draft-cpu-strict-batch= spec-draft-device= spec-draft-hf= spec-draft-model= "
     "spec-draft-n-cpu-moe= spec-draft-n-max= spec-draft-n-min= spec-draft-ncmoe= spec-draft-ngl= "
     "spec-draft-override-tensor= spec-draft-p-min= spec-draft-p-split= spec-draft-poll= "
     "spec-draft-poll-batch= spec-draft-prio= spec-draft-prio-batch= spec-draft-sampling= "
     "spec-draft-threads= spec-draft-threads-batch= spec-draft-type-k= spec-draft-type-v= "
     "spec-ngram-map-k-min-hits= spec-ngram-map-k-size-m= spec-ngram-map-k-size-n= "
     "spec-ngram-map-k4v-min-hits= spec-ngram-map-k4v-size-m= spec-ngram-map-k4v-size-n= "
     "spec-ngram-min-hits= spec-ngram-mod-n-match= spec-ngram-mod-n-max= spec-ngram-mod-n-min= "
     "spec-ngram-simple-min-hits= spec-ngram-simple-size-m= spec-ngram-simple-size-n= "
     "spec-ngram-size-m= spec-ngram-size-n= spec-synth-len= spec-synth-rates= spec-type= "
     "cache-type-k-draft= cache-type-v-draft= cpu-mask-batch-draft= cpu-mask-draft= cpu-moe-draft "
     "cpu-range-draft= cpu-strict-batch-draft= cpu-strict-draft= device-draft= gpu-layers-draft= "
     "hf-repo-draft= model-draft= n-cpu-moe-draft= n-gpu-layers-draft= override-tensor-draft= "
     "poll-batch-draft= poll-draft= prio-batch-draft= prio-draft= threads-batch-draft= "
     "threads-draft= draft= draft-max= draft-min= draft-n= draft-n-min= draft-p-min= "
     "draft-p-split= v: -sc= spec-decoding-acceptance-method= spec-method= spec-model= "
     "spec-tokens= num-speculative-tokens= speculative-config= speculative-disable-by-batch-size= "
     "speculative-disable-mqa-scorer speculative-draft-tensor-parallel-size= "
     "speculative-max-model-len= speculative-model= speculative-model-quantization= "
     "ngram-prompt-lookup-max= ngram-prompt-lookup-min= "
     "typical-acceptance-sampler-posterior-alpha= typical-acceptance-sampler-posterior-threshold= "
     "disable-logprobs-during-spec-decoding enable-trace-replay diffusion-config= -dc= t: "
     "speculate= s: spec-trace-dir= speculative-accept-threshold-acc= "
     "speculative-accept-threshold-single= speculative-adaptive speculative-adaptive-config= "
     "speculative-algorithm= speculative-attention-mode= speculative-dflash-block-size= "
     "speculative-domino-candidate-pool-size= speculative-draft-attention-backend= "
     "speculative-draft-kv-cache-dtype= speculative-draft-load-format= speculative-draft-model= "
     "speculative-draft-model-path= speculative-draft-model-quantization= "
     "speculative-draft-model-revision= speculative-draft-sink-size= "
     "speculative-draft-window-size= speculative-dsa-topk-backend= "
     "speculative-dspark-align-verify-tokens-to-graph-tier speculative-dspark-block-size= "
     "speculative-dspark-confidence-sts-path= speculative-dspark-sps-table-path= "
     "speculative-eagle-topk= speculative-enable-w4a4-mxfp4-megamoe speculative-moe-a2a-backend= "
     "speculative-moe-runner-backend= speculative-ngram-capacity= "
     "speculative-ngram-external-corpus-max-tokens= speculative-ngram-external-corpus-path= "
     "speculative-ngram-external-sam-budget= speculative-ngram-match-type= "
     "speculative-ngram-max-bfs-breadth= speculative-ngram-max-trie-depth= "
     "speculative-ngram-min-bfs-breadth= speculative-num-draft-tokens= speculative-num-steps= "
     "speculative-token-map= speculative-use-block-verification "
     "speculative-use-rejection-sampling decoupled-spec-bind-endpoint= "
     "decoupled-spec-connect-endpoints= decoupled-spec-rank= decoupled-spec-role= "
     "enable-multi-layer-eagle dllm-algorithm= dllm-algorithm-config= dllm-fdfo",
     .fine = "none 0", .says = "speculative decoding is not there"},
    {FOREIGN_REFUSED,
     "v: -q= quantization-config= allow-deprecated-quantization override-neuron-config= vs: "
     "quantization= quantization-param-path= t: quantize= s: modelopt-checkpoint-restore-path= "
     "modelopt-checkpoint-save-path= modelopt-export-path= modelopt-quant= quantize-and-serve "
     "torchao-config= rl-quant-profile= enable-quant-communications enable-double-sparsity "
     "ds-channel-config-path= ds-heavy-channel-num= ds-heavy-channel-type= ds-heavy-token-num= "
     "ds-sparse-decode-threshold=",
     .fine = "none null auto {}", .says = "weights are float32, float16 or bfloat16 (--dtype)"},
    {FOREIGN_REFUSED,
     "s: disaggregation-bootstrap-port= disaggregation-decode-allocation-policy= "
     "disaggregation-decode-enable-offload-kvcache disaggregation-decode-enable-radix-cache "
     "disaggregation-decode-extra-slots= disaggregation-decode-host-receive-threshold= "
     "disaggregation-decode-polling-interval= disaggregation-decode-retraction-backup= "
     "disaggregation-enable-kv-checksum disaggregation-ib-device= disaggregation-mode= "
     "disaggregation-transfer-backend= enable-pd-role-switch enable-pdmux pdmux-config-path= "
     "sm-group-num= optimistic-prefill-attempts= mooncake-ib-device= v: kv-transfer-config= "
     "ec-transfer-config= ec-manager-config= vs: kv-events-config=",
     .fine = "null none",
     .says = "prompts and decodes run on the same workers, and KV stays there"},
    {FOREIGN_REFUSED,
     "s: enable-watermark watermark-key= watermark-key-b= vs: watermark-config= t: "
     "watermark-delta= watermark-gamma=",
     .says = "watermarks are not there"},
    {FOREIGN_REFUSED,
     "vs: enable-return-routed-experts s: enable-return-hidden-states "
     "enable-return-aux-hidden-states enable-return-indexer-topk return-hidden-states-mode= "
     "return-aux-hidden-state-layer-ids* sampling-mask-max-tokens= debug-tensor-dump-input-file= "
     "debug-tensor-dump-layers* debug-tensor-dump-output-folder= msprobe-dump-config= v: "
     "aux-output-config= return-sampling-mask",
     .says = "the inside of the model is not returned; --digest compares runs bit for bit"},
    {FOREIGN_REFUSED, "v: enable-fault-tolerance fault-tolerance-config=",
     .says = "a lost worker's group forms again by itself"},
    {FOREIGN_REFUSED,
     "v: profiler-config= enable-layerwise-nvtx-tracing s: enable-layerwise-nvtx-marker",
     .says = "there is no profiler"},
    {FOREIGN_IDLE,
     "v: engram-config= s: kv-canary= kv-canary-real-data= kv-canary-sweep-interval= "
     "enable-nan-detection",
     .says = "it is about models and checks that are not here"},
    {FOREIGN_IMPLIED,
     "v: enforce-eager s: disable-cuda-graph disable-prefill-cuda-graph disable-decode-cuda-graph "
     "disable-piecewise-cuda-graph t: disable-custom-kernels vs: disable-custom-all-reduce",
     .says = "there are no CUDA graphs and no GPU kernels"},
    {FOREIGN_IDLE,
     "l: -fa? flash-attn? -bs backend-sampling v: -cc= -O? -ac= cuda-graph-sizes* "
     "cudagraph-capture-sizes* max-cudagraph-capture-size= attention-config= compilation-config= "
     "optimization-level= kernel-config= all2all-backend= gdn-prefill-backend= "
     "kda-decode-backend= kda-prefill-backend= linear-backend= moe-backend= "
     "sparse-indexer-topk-backend= enable-nccl-comm-suspend enable-flashinfer-autotune "
     "max-seq-len-to-capture= max-context-len-to-capture= enable-mamba-shared-prefix-checkpoint "
     "mamba-block-size= mamba-cache-dtype= mamba-cache-mode= mamba-ssm-cache-dtype= "
     "mamba-ssu-algorithm= replayssm-buffer-len= use-replayssm dbo-decode-token-threshold= "
     "dbo-prefill-token-threshold= enable-dbo enable-microbatching monokernel s: "
     "cuda-graph-backend-decode= cuda-graph-backend-prefill= cuda-graph-bs* cuda-graph-bs-decode* "
     "cuda-graph-bs-prefill* cuda-graph-config= cuda-graph-max-bs= cuda-graph-max-bs-decode= "
     "cuda-graph-max-bs-prefill= cuda-graph-max-seq-len-prefill= cuda-graph-prefill-max-context= "
     "debug-cuda-graph disable-cuda-graph-padding enable-cudagraph-gc enable-piecewise-cuda-graph "
     "enable-profile-cuda-graph decode-attention-backend= prefill-attention-backend= "
     "bf16-gemm-backend= dsa-decode-backend= dsa-paged-mqa-logits-backend= dsa-prefill-backend= "
     "dsa-topk-backend= dsv4-attn-backend= dsv4-prefill-backend= "
     "flashinfer-allreduce-fusion-backend= fp4-gemm-backend= fp8-gemm-backend= "
     "linear-attn-backend= linear-attn-decode-backend= linear-attn-prefill-backend= "
     "linear-attn-verify-backend= moe-a2a-backend= moe-runner-backend= monokernel-backend= "
     "nsa-decode-backend= nsa-prefill-backend= sampling-backend= "
     "disable-aiter-allreduce-fusion-in-decode disable-aiter-allreduce-fusion-in-prefill "
     "enable-aiter-allreduce-fusion enable-flashinfer-allreduce-fusion "
     "enforce-disable-flashinfer-allreduce-fusion enable-fused-moe-sum-all-reduce "
     "enable-nccl-nvls pre-warm-nccl enable-symm-mem enable-torch-symm-mem enable-mscclpp "
     "enable-flashinfer-cutlass-moe enable-flashinfer-mla enable-flashinfer-trtllm-moe "
     "enable-flashmla disable-flashinfer-autotune disable-flashinfer-cutlass-moe-fp4-allgather "
     "flashinfer-a2a-dispatch-type= flashinfer-autotune-skip-ops* flashinfer-mla-disable-ragged "
     "flashinfer-mxfp4-moe-precision= triton-attention-num-kv-splits= "
     "triton-attention-reduce-in-fp32 triton-attention-split-tile-size= enable-torch-compile "
     "enable-torch-compile-debug-mode torch-compile-max-bs= enable-int8-mamba-checkpoint "
     "int8-mamba-ckpt-size= mamba-max-states-per-path= "
     "mamba-radix-cache-strategy= mamba-ssm-dtype= mamba-track-interval= "
     "enable-linear-replayssm enable-linear-replayssm-spec linear-replayssm-cache-len= "
     "dsa-triton-union= enable-dsa-cache-layer-split enable-dsa-fused-indexer nsa-prefill= "
     "deepep-config= deepep-dispatcher-output-dtype= deepep-mode= deepep-v2-mode= "
     "enable-megamoe-for-layernorm-sp enable-w4a4-mxfp4-megamoe disable-mla "
     "enable-single-batch-overlap enable-two-batch-overlap tbo-token-distribution-threshold= "
     "disable-shared-experts-fusion enable-shared-experts-attn-tp enforce-shared-experts-fusion "
     "enable-amd-monokernel enable-nvidia-megakernel t: cuda-graphs= vs: attention-backend= "
     "mamba-backend= enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds=",
     .says = "GPU kernels are not there; the CPU's are chosen by moe-worker --kernels"},
    {FOREIGN_IDLE,
     "s: fuseep-mode= enable-layernorm-sp enable-lean-attention enable-tf32-matmul "
     "enable-fp32-lm-head enable-fused-qk-norm-rope enable-precise-embedding-interpolation "
     "enable-tp-lm-head-all-to-all enable-attn-tp-input-scattered disable-attn-tp-gather "
     "enable-dense-mlp-attn-tp enable-p2p-check enable-scattered-sconv boundary-reduction= "
     "enable-hisparse hisparse-config= hierarchical-sparse-attention-extra-config= "
     "prefill-kv-cache-dequant-dtype= qsa-indexer-dtype= enable-deepseek-v4-fp4-indexer "
     "mlx-enable-sampling enable-mis v: enable-hc-sp disable-cascade-attn ir-op-priority= "
     "enable-batch-sharded-sampling",
     .says = "GPU kernels are not there; the CPU's are chosen by moe-worker --kernels"},
};

const struct foreign_part foreign_kernels = {rows, sizeof rows / sizeof rows[0]};
