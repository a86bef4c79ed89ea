// foreign_text.c: flags of other engines about models, prompts, sampling and answers.
#include "common/conf/foreign.h"

static const struct foreign_row rows[] = {
    {FOREIGN_REFUSED,
     "v: gpu-memory-utilization= device-memory-utilization= s: mem-fraction-static= t: "
     "cuda-memory-fraction=",
     .says = "there is no GPU; the KV cache is --kv-cache-memory SIZE or PERCENT% of each "
             "worker's memory (10% unless given), the weights come on top"},
    {FOREIGN_IDLE, "s: max-prefill-tokens= v: max-num-scheduled-tokens=",
     .says = "the token budget of a step is --max-num-batched-tokens"},
    {FOREIGN_REFUSED, "v: num-gpu-blocks-override= t: max-batch-total-tokens=",
     .says = "the KV cache is sized by --kv-cache-memory SIZE or PERCENT%"},
    {FOREIGN_ALIAS, "st: max-total-tokens=", .to = "max-model-len",
     .says = "as in TGI; for the size of the KV cache, which it means in SGLang, use "
             "--kv-cache-memory"},
    {FOREIGN_IDLE, "t: max-input-tokens= max-input-length=",
     .says = "a prompt has no limit of its own; --max-model-len bounds prompt plus output"},
    {FOREIGN_REFUSED, "vl: -n=", .fine = "1 -1",
     .says = "means the number of nodes in vLLM (start a moe-worker on each) and the length of "
             "answers in llama-server (max_tokens of the request)"},
    {FOREIGN_REFUSED, "vl: -r=", .fine = "0",
     .says = "means the rank of a node in vLLM (moe-worker --rank) and a stop string in "
             "llama-server (stop of the request)"},
    {FOREIGN_REFUSED, "l: predict= n-predict=", .fine = "-1",
     .says = "the length of an answer is max_tokens of the request"},
    {FOREIGN_REFUSED,
     "l: reverse-prompt=", .says = "stop strings are the field stop of the request"},
    {FOREIGN_REFUSED, "l: -ctk= cache-type-k= -ctv= cache-type-v=", .fine = "auto",
     .says = "keys and values have one type: use --kv-cache-dtype"},
    {FOREIGN_REFUSED, "l: -t= threads=", .fine = "-1",
     .says = "workers compute: use moe-worker --threads N"},
    {FOREIGN_REFUSED, "l: -tb= threads-batch=", .fine = "-1",
     .says = "workers use the same threads for prompts: moe-worker --threads N"},
    {FOREIGN_REFUSED,
     "l: -C= cpu-mask= -Cr= cpu-range= cpu-strict= -Cb= cpu-mask-batch= -Crb= cpu-range-batch= "
     "cpu-strict-batch= numa= prio= prio-batch= v: numa-bind numa-bind-cpus* numa-bind-nodes* s: "
     "numa-node*",
     .fine = "0", .says = "workers compute: start them under taskset, numactl or nice"},
    {FOREIGN_IDLE,
     "l: poll= poll-batch= threads-http= v: api-server-count= -asc= renderer-num-workers= "
     "disable-frontend-multiprocessing tokenizer-pool-size= tokenizer-pool-type= "
     "tokenizer-pool-extra-config= aggregate-engine-logging enable-shm-tensor-arena s: "
     "tokenizer-worker-num= detokenizer-worker-num= enable-dynamic-batch-tokenizer "
     "dynamic-batch-tokenizer-batch-size= dynamic-batch-tokenizer-batch-timeout= "
     "enable-tokenizer-batch-encode disable-tokenizer-batch-decode batch-notify-size= "
     "gc-threshold* gc-warning-threshold-secs= scheduler-recv-interval= sleep-on-idle "
     "tokenizer-backend= t: validation-workers=",
     .says = "the leader is one process with threads of its own"},
    {FOREIGN_REFUSED, "l: hf-repo= -hf= -hfr= -hff= hf-file= -mu= model-url= -dr= docker-repo=",
     .says = "models are not downloaded and GGUF is not read: hf download ORG/NAME --local-dir "
             "NAME (a safetensors repository), then --model NAME"},
    {FOREIGN_REFUSED,
     "l: embd-gemma-default fim-qwen-1.5b-default fim-qwen-14b-spec fim-qwen-30b-default "
     "fim-qwen-3b-default fim-qwen-7b-default fim-qwen-7b-spec gpt-oss-120b-default "
     "gpt-oss-20b-default vision-gemma-12b-default vision-gemma-4b-default",
     .says = "models are not downloaded: hf download ORG/NAME --local-dir NAME (a safetensors "
             "repository), then --model NAME"},
    {FOREIGN_REFUSED, "vst: revision= v: code-revision= tokenizer-revision=", .fine = "main",
     .says = "nothing is downloaded: hf download ORG/NAME --revision REVISION --local-dir NAME, "
             "then --model NAME"},
    {FOREIGN_IDLE,
     "l: -hft= offline -cl cache-list vl: hf-token= vs: download-dir= t: huggingface-hub-cache= "
     "v: ignore-patterns= use-tqdm-on-load",
     .says = "models are not downloaded; --model is a folder"},
    {FOREIGN_REFUSED,
     "t: weights-cache-override= s: custom-weight-loader* decrypted-config-file= "
     "decrypted-draft-config-file= remote-instance-weight-loader-backend= "
     "remote-instance-weight-loader-seed-instance-ip= "
     "remote-instance-weight-loader-seed-instance-service-port= "
     "remote-instance-weight-loader-send-weights-group-ports= "
     "remote-instance-weight-loader-start-seed-via-transfer-engine modelexpress-config= "
     "checkpoint-engine-wait-weights-before-ready weight-cache-mode= weight-cache-socket= "
     "weight-cache-timeout= delete-ckpt-after-loading model-checksum? engine-info-bootstrap-port= "
     "startup-weight-load-mode= v: weight-transfer-config= pt-load-map-location=",
     .fine = "none off", .says = "weights come from the files in the folder of --model"},
    {FOREIGN_REFUSED, "vs: load-format=", .fine = "auto safetensors hf",
     .says = "safetensors only"},
    {FOREIGN_REFUSED, "v: config-format= s: model-config-parser=", .fine = "auto hf",
     .says = "the folder of --model is in Hugging Face layout"},
    {FOREIGN_REFUSED, "vs: model-impl=", .fine = "auto vllm sglang",
     .says = "the families are built in"},
    {FOREIGN_IMPLIED, "vst: trust-remote-code",
     .says = "no code of a model is ever run; served families are built in"},
    {FOREIGN_REFUSED,
     "v: hf-config-path= hf-overrides= model-class-overrides= s: json-model-override-args= "
     "context-bucket= l: override-kv=",
     .says = "edit config.json in the folder of --model"},
    {FOREIGN_REFUSED, "v: tokenizer= s: tokenizer-path= t: tokenizer-config-path=",
     .says = "the tokenizer is the tokenizer.json in the folder of --model"},
    {FOREIGN_REFUSED, "vs: tokenizer-mode=", .fine = "auto fast hf slow",
     .says = "the tokenizer is the tokenizer.json in the folder of --model"},
    {FOREIGN_REFUSED, "vs: skip-tokenizer-init v: tokens-only",
     .says = "the tokenizer is always loaded; /v1/completions takes token ids as well"},
    {FOREIGN_REFUSED, "vs: model-loader-extra-config=", .fine = "{}",
     .says = "weights are read from safetensors"},
    {FOREIGN_IDLE,
     "v: safetensors-load-strategy= safetensors-prefetch-block-size= "
     "safetensors-prefetch-num-threads= max-parallel-loading-workers= s: "
     "weight-loader-disable-mmap weight-loader-prefetch-checkpoints "
     "weight-loader-prefetch-num-threads= weight-loader-drop-cache-after-load l: -lm= load-mode= "
     "-lzm= lazy-mode= mlock mmap direct-io -dio check-tensors repack -nr no-host",
     .says = "workers read weights in a way of their own"},
    {FOREIGN_REFUSED,
     "v: task= convert= runner= pooler-config= override-pooler-config= io-processor-plugin= "
     "enable-flash-late-interaction s: is-embedding encoder-only l: pooling= embd-normalize= "
     "embedding embeddings rerank reranking",
     .fine = "auto generate none", .says = "text generation is the only task"},
    {FOREIGN_REFUSED,
     "vtl: rope-scaling= v: rope-theta= t: rope-factor= l: rope-scale= rope-freq-base= "
     "rope-freq-scale= yarn-orig-ctx= yarn-ext-factor= yarn-attn-factor= yarn-beta-slow= "
     "yarn-beta-fast= -gan= grp-attn-n= -gaw= grp-attn-w=",
     .fine = "none null 0 -1 1",
     .says = "positions are as config.json says; RoPE scaling is not there yet"},
    {FOREIGN_REFUSED, "vl: seed= l: -s= s: random-seed=", .fine = "-1 none",
     .says = "a request without a seed gets one that is drawn and returned; to repeat an answer "
             "give seed in the request"},
    {FOREIGN_REFUSED,
     "l: temp= temperature= top-k= top-p= min-p= top-nsigma= top-n-sigma= xtc-probability= "
     "xtc-threshold= typical= typical-p= repeat-last-n= repeat-penalty= presence-penalty= "
     "frequency-penalty= dry-allowed-length= dry-base= dry-multiplier= dry-penalty-last-n= "
     "dry-sequence-breaker= adaptive-target= adaptive-decay= dynatemp-range= dynatemp-exp= "
     "mirostat= mirostat-lr= mirostat-ent= -l= logit-bias= samplers= sampler-seq= sampling-seq= "
     "ignore-eos v: override-generation-config= use-fp64-gumbel logprobs-mode= s: "
     "preferred-sampling-params=",
     .fine = "{} raw_logprobs",
     .says = "sampling is set by fields of the request; defaults are in the model's "
             "generation_config.json (--generation-config)"},
    {FOREIGN_REFUSED,
     "s: sampling-defaults=", .says = "use --generation-config auto (model) or none (openai)"},
    {FOREIGN_REFUSED,
     "l: grammar= grammar-file= -j= json-schema= -jf= json-schema-file= v: "
     "structured-outputs-config= guided-decoding-backend= "
     "guided-decoding-disable-additional-properties guided-decoding-disable-any-whitespace "
     "guided-decoding-disable-fallback s: grammar-backend= "
     "constrained-json-disable-any-whitespace constrained-json-max-whitespace-cnt= "
     "constrained-json-whitespace-pattern= disable-outlines-disk-cache",
     .fine = "auto none {}", .says = "output bound to a grammar is not there yet"},
    {FOREIGN_IMPLIED, "t: disable-grammar-support s: disable-regex-jump-forward",
     .says = "output bound to a grammar is not there"},
    {FOREIGN_REFUSED,
     "v: logits-processors* logits-processor-pattern= s: enable-custom-logit-processor",
     .says = "code of others is not run; the request has logit_bias, allowed_token_ids and "
             "bad_words"},
    {FOREIGN_IDLE,
     "v: max-logprobs= t: max-top-n-tokens= max-best-of= max-stop-sequences= "
     "max-client-batch-size=",
     .says = "the limits are fixed: 20 alternatives a token, 128 choices, 16 stop strings, 1,024 "
             "prompts"},
    {FOREIGN_REFUSED,
     "vsl: chat-template= l: chat-template-file= s: hf-chat-template-name= completion-template= "
     "v: chat-template-content-format= cohere-format= cohere-is-reasoning-model",
     .fine = "auto",
     .says = "put the template into the folder of --model: chat_template.jinja, or chat_template "
             "of tokenizer_config.json"},
    {FOREIGN_REFUSED, "vs: trust-request-chat-template",
     .says = "a request's own template is always refused"},
    {FOREIGN_REFUSED,
     "vs: default-chat-template-kwargs= l: chat-template-kwargs= reasoning-effort= v: "
     "reasoning-effort-map= anthropic-disabled-thinking-effort=",
     .fine = "{} default auto", .says = "use chat_template_kwargs of the request"},
    {FOREIGN_IMPLIED, "l: jinja", .says = "chat templates are always Jinja"},
    {FOREIGN_REFUSED, "v: response-role=", .fine = "assistant",
     .says = "answers have the role assistant"},
    {FOREIGN_REFUSED,
     "v: tool-parser-plugin= tool-strict-level= vs: tool-server= l: tools= tools-runtime= "
     "mcp-servers-config= mcp-servers-json= -ag agent "
     "ui-mcp-proxy webui-mcp-proxy",
     .fine = "none",
     .says = "calls are read by --tool-call-parser, and the server makes none itself"},
    {FOREIGN_IMPLIED, "l: -no-ag", .says = "the server calls no tools itself"},
    {FOREIGN_REFUSED,
     "v: enable-reasoning reasoning-parser-plugin= reasoning-config= vs: reasoning-parser= l: "
     "reasoning-format= reasoning? reasoning-budget= reasoning-budget-message= -rea? s: "
     "enable-strict-thinking strip-thinking-cache",
     .fine = "none auto -1", .says = "thinking is not cut out of the text; it stays in content"},
    {FOREIGN_IDLE, "l: reasoning-preserve",
     .says = "the chat template decides what of earlier thinking stays"},
    {FOREIGN_IMPLIED, "l: skip-chat-parsing", .says = "text is returned as the model wrote it"},
    {FOREIGN_REFUSED, "l: prefill-assistant", .says = "use continue_final_message of the request"},
    {FOREIGN_REFUSED,
     "l: -sp special v: return-tokens-as-token-ids s: return-input-ids return-output-ids",
     .says = "use skip_special_tokens and return_token_ids of the request"},
    {FOREIGN_REFUSED, "l: spm-infill", .says = "infill prompts are not there"},
    {FOREIGN_REFUSED, "tl: -e",
     .says = "means printing the environment in TGI and escapes in prompts in llama-server; "
             "neither is there"},
    {FOREIGN_IDLE, "l: escape keep=", .says = "it is about prompts on the command line"},
    {FOREIGN_REFUSED, "l: context-shift",
     .says = "an answer ends where the context does; see --max-model-len"},
    {FOREIGN_REFUSED, "s: allow-auto-truncate",
     .says = "use truncate_prompt_tokens of the request"},
    {FOREIGN_REFUSED,
     "l: lora= lora-scaled= lora-init-without-apply v: default-mm-loras= enable-lora-bias "
     "enable-mixed-moe-lora-format enable-moe-shared-loras enable-tower-connector-lora "
     "fully-sharded-loras long-lora-scaling-factors= lora-dtype= lora-extra-vocab-size= "
     "lora-modules* max-cpu-loras= max-lora-cls-labels= max-loras= qlora-adapter-name-or-path= "
     "specialize-active-lora vs: enable-lora lora-target-modules* max-lora-rank= s: "
     "enable-lora-overlap-loading experts-shared-outer-loras lora-backend= "
     "lora-drain-wait-threshold= lora-eviction-policy= lora-paths= lora-strict-loading "
     "lora-use-virtual-experts max-loaded-loras= max-lora-chunk-size= max-loras-per-batch= "
     "uno-lora-path= t: lora-adapters=",
     .fine = "auto", .says = "LoRA adapters are not there"},
    {FOREIGN_REFUSED,
     "l: control-vector= control-vector-scaled= control-vector-layer-range* v: "
     "enable-prompt-adapter max-prompt-adapters= max-prompt-adapter-token= enable-prompt-embeds",
     .says = "prompts are text or ids, and weights are the folder's"},
    {FOREIGN_REFUSED,
     "l: -mm= mmproj= -mmu= mmproj-url= media-path= s: enable-multimodal trust-mm-content-hashes "
     "language-only encoder-urls* encoder-register-urls* encoder-bootstrap-port= "
     "encoder-transfer-backend= enable-adaptive-dispatch-to-encoder v: allowed-local-media-path= "
     "enable-mm-embeds trust-request-mm-kwargs mm-encoder-only vs: allowed-media-domains*",
     .says = "models read text only"},
    {FOREIGN_IMPLIED, "l: no-mmproj vs: language-model-only", .says = "models read text only"},
    {FOREIGN_IDLE,
     "l: mmproj-auto mmproj-offload -mmdev= mmproj-device= image-max-tokens= image-min-tokens= "
     "mtmd-batch-max-tokens= video-ffmpeg-dir= video-fps= video-timestamp-interval= s: "
     "image-processor-backend= mm-attention-backend= mm-enable-dp-encoder mm-feature-transport= "
     "mm-global-cache-backend= mm-io-worker-num= mm-preprocess-cache-size-mb= mm-process-config= "
     "mm-processor-worker-num= enable-broadcast-mm-inputs-process enable-mm-global-cache "
     "enable-prefix-mm-cache limit-mm-data-per-request= media-url-max-file-size-mb= "
     "disable-fast-image-processor asr-max-buffer-seconds= asr-max-concurrent-sessions= v: "
     "video-pruning-method= video-pruning-rate= mm-device-do-normalize mm-encoder-attn-backend= "
     "mm-encoder-attn-dtype= mm-encoder-fp8-scale-path= mm-encoder-fp8-scale-save-margin= "
     "mm-encoder-fp8-scale-save-path= mm-encoder-tp-mode= mm-hasher-algorithm= "
     "mm-ipc-gpu-memory-gb= mm-processor-cache-gb= mm-processor-cache-type= mm-processor-device= "
     "mm-processor-kwargs= mm-shm-cache-max-object-size-mb= mm-tensor-ipc= "
     "disable-chunked-mm-input disable-mm-preprocessor-cache interleave-mm-strings "
     "limit-mm-per-prompt= skip-mm-profiling media-io-kwargs=",
     .says = "models read text only"},
};

const struct foreign_part foreign_text = {rows, sizeof rows / sizeof rows[0]};
