// foreign_names.c: flags of other engines that are options of our own, under the same name or
// another.
#include "common/conf/foreign.h"

static const struct foreign_row rows[] = {
    {FOREIGN_SAME, "v: max-model-len=", .words = "auto>0 -1>0", .human = true, .plan = true},
    {FOREIGN_SAME, "v: max-num-batched-tokens= max-num-seqs= max-num-queued-reqs=", .human = true},
    {FOREIGN_SAME,
     "vs: data-parallel-size= tensor-parallel-size= pipeline-parallel-size= s: "
     "expert-parallel-size=",
     .says = "data x tensor parallel is expert x expert tensor parallel", .plan = true},
    {FOREIGN_SAME, "vst: dtype=", .words = "half>float16 float>float32 bf16>bfloat16 f32>float32",
     .plan = true},
    {FOREIGN_SAME, "vst: kv-cache-dtype=", .words = "bf16>bfloat16 f32>float32 fp8_e4m3fn>fp8_e4m3",
     .plan = true},
    {FOREIGN_SAME, "v: generation-config=", .words = "vllm>none"},
    {FOREIGN_SAME, "vs: tool-call-parser=",
     .words = "qwen>hermes qwen25>hermes qwen3_xml>qwen3_coder llama3>llama3_json "
              "llama4_json>llama3_json deepseekv3>deepseek_v3 deepseekv31>deepseek_v31 "
              "glm>glm45"},
    {FOREIGN_SAME, "vs: log-level=",
     .words = "warning>warn critical>error WARNING>warn INFO>info DEBUG>debug ERROR>error"},
    {FOREIGN_REFUSED, "t: -V", .says = "use --version"},
    {FOREIGN_REFUSED, "t: env v: model-weights= enable-multimodal-encoder-data-parallel",
     .says = "moe-leader has no such option"},
    {FOREIGN_SAME,
     "vsl: model= host= vs: served-model-name= grpc-port= ssl-certfile= ssl-keyfile= "
     "ssl-ca-certs= config= vstl: port= l: api-key-file= v: ssl-cert-reqs= enable-log-requests "
     "max-log-len= shutdown-timeout= exclude-tools-when-tool-choice-none "
     "enable-auto-tool-choice t: help version -h",
     .to = NULL},
    {FOREIGN_SAME, "vstl: api-key*",
     .says = "from the variable MOESAIC_API_KEY or VLLM_API_KEY, or as --api-key-file; on the "
             "command line it is refused"},
    {FOREIGN_ALIAS, "l: -m= s: model-path= t: model-id=", .to = "model"},
    {FOREIGN_ALIAS, "l: -a= alias=", .to = "served-model-name"},
    {FOREIGN_ALIAS, "t: hostname=", .to = "host"},
    {FOREIGN_ALIAS, "t: -p=", .to = "port"},
    {FOREIGN_ALIAS, "l: -c= ctx-size= s: context-length=", .to = "max-model-len", .plan = true},
    {FOREIGN_ALIAS, "l: -np= parallel=", .to = "max-num-seqs", .fine = "-1"},
    {FOREIGN_ALIAS, "s: max-running-requests= t: max-batch-size=", .to = "max-num-seqs"},
    {FOREIGN_ALIAS, "s: max-queued-requests= t: max-concurrent-requests=",
     .to = "max-num-queued-reqs", .says = "running ones count, too"},
    {FOREIGN_ALIAS, "s: chunked-prefill-size= t: max-batch-prefill-tokens= l: -b= batch-size=",
     .to = "max-num-batched-tokens", .says = "the token budget of a step"},
    {FOREIGN_ALIAS, "s: dp-size= dp= v: -dp=", .to = "data-parallel-size", .plan = true},
    {FOREIGN_ALIAS, "s: tp-size= tp= v: -tp= t: num-shard=", .to = "tensor-parallel-size",
     .plan = true},
    {FOREIGN_ALIAS, "s: pp-size= pp= v: -pp=", .to = "pipeline-parallel-size", .plan = true},
    {FOREIGN_ALIAS, "s: ep-size= ep=", .to = "expert-parallel-size", .plan = true},
    {FOREIGN_ALIAS, "v: kv-cache-memory-bytes=", .to = "kv-cache-memory", .human = true},
    {FOREIGN_ALIAS, "l: ssl-key-file=", .to = "ssl-keyfile"},
    {FOREIGN_ALIAS, "l: ssl-cert-file=", .to = "ssl-certfile"},
    {FOREIGN_ALIAS, "l: -to= timeout=", .to = "http-timeout"},
    {FOREIGN_ALIAS, "t: -g= graceful-termination-timeout=", .to = "shutdown-timeout"},
    {FOREIGN_ALIAS, "t: json-output l: log-jsonl", .to = "log-format",
     .words = "true>json false>text"},
    {FOREIGN_ALIAS, "s: log-requests", .to = "enable-log-requests",
     .says = "ids, counts and times; no text"},
    {FOREIGN_ALIAS, "v: disable-log-requests", .to = "enable-log-requests",
     .words = "true>false false>true"},
    {FOREIGN_ALIAS, "l: -v verbose log-verbose", .to = "log-level",
     .words = "true>debug false>info"},
    {FOREIGN_ALIAS, "l: -lv= verbosity= log-verbosity=", .to = "log-level",
     .words = "0>error 1>error 2>warn 3>info 4>debug 5>trace"},
};

const struct foreign_part foreign_names = {rows, sizeof rows / sizeof rows[0]};
