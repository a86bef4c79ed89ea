// limits.h: every limit of the program, with the relations between them.
//
// A size from outside is compared with one of these before it is used. A limit is a refusal with a
// clear message, so each is well above what real models and clients need.
#ifndef MOESAIC_COMMON_BASE_LIMITS_H
#define MOESAIC_COMMON_BASE_LIMITS_H

#include <assert.h>

// Model shapes. Released models reach 128 layers, 18,432 hidden, 256 k vocabulary, 512 experts.
#define LAYERS_MAX 256
#define HIDDEN_MAX 65536
#define INNER_MAX 1048576
#define HEADS_MAX 1024
#define HEAD_DIM_MAX 512
#define LATENT_DIM_MAX 4096 // of latent attention: compressed queries, keys and values
#define CONV_KERNEL_MAX 16  // of a convolution before a recurrence
#define HYPER_STREAMS_MAX 8 // of a residual with hyper-connections
#define SINKHORN_ROUNDS_MAX 1000
#define COMPRESS_RATE_MAX 256 // tokens that one compressed entry stands for
#define EXPERTS_MAX 1024
#define TOP_K_MAX 32
#define VOCAB_MAX 1048576
#define POSITIONS_MAX 4194304
#define STOP_IDS_MAX 16

// Model files.
#define CONFIG_BYTES_MAX (4u << 20)
#define SAFETENSORS_HEADER_BYTES_MAX (100u << 20)
#define TENSORS_MAX 1000000
#define TENSOR_NAME_MAX 256
#define SHARDS_MAX 4096
#define TOKENIZER_BYTES_MAX (64u << 20)
#define TEMPLATE_BYTES_MAX (1u << 20)
#define PATH_BYTES_MAX 4096

// Rendering a chat template: instructions and bytes touched, and memory for values.
#define TEMPLATE_STEPS_MAX 20000000
#define TEMPLATE_RENDER_BYTES_MAX (256u << 20)

// Cluster. One message header carries a rank in 16 bits.
#define RANKS_MAX 1024
#define FABRIC_ADDRESS_MAX 1024
#define CONTROL_MESSAGE_BYTES_MAX (1u << 20)
#define EXPERT_ALIGN 4096

// Scheduling.
#define KV_BLOCK_TOKENS 16        // tokens a KV page; also the attention kernel's key block
#define ATTN_PARTITION_TOKENS 512 // keys merged inside one partition before partitions are merged
#define SEQS_MAX 4096             // sequence slots a rank
#define BATCHED_TOKENS_MAX 65536  // rows a rank and step
#define PIPELINE_DEPTH_MAX 2
#define KV_BLOCKS_MAX (1u << 24) // pages a rank: 268 million tokens
// Copies of a slot's state: taken where so many tokens end, and at a prompt's last block. One that
// is less than this share of them behind the one before is not worth the step that ends there.
#define SNAPSHOT_TOKENS 1024
#define SNAPSHOT_SHARE 8
#define SNAPSHOTS_MAX (1u << 16) // a rank
#define REQUESTS_LIVE_MAX 16384  // waiting or running in one leader
#define PLAN_NAMES_MAX 65536     // of shared KV blocks in a plan, beside one for each of the rank's
#define REPLAYS_IN_VAIN_MAX 5    // groups that may be lost under a request without a token between
#define OVERTAKEN_MAX 32         // later requests that may pass one that waits for KV blocks
#define SEGMENTS_MAX 8           // S of a row-parallel product (docs/arithmetic.md)

// Requests.
#define REQUEST_BYTES_MAX (64u << 20)
#define BODIES_BYTES_MAX (512u << 20) // of all requests that are held
#define HEAD_BYTES_MAX 32768          // of an HTTP request: its line and fields
#define HEADERS_MAX 128
#define JSON_DEPTH_MAX 32 // real bodies need 5; jansson recurses, so a deeper one is refused before
// A parsed value takes ten times the bytes of its text: the longest prompt as ids, and the rest.
#define JSON_VALUES_MAX (POSITIONS_MAX + 65536)
// A list or an object takes a hundred times the bytes of its text, of which two are enough. Real
// bodies have a few for each message.
#define JSON_CONTAINERS_MAX (1u << 18)
#define TOP_LOGPROBS_MAX 20
#define STOP_STRINGS_MAX 16
#define STOP_STRING_BYTES_MAX 1024
#define CHOICES_MAX 128
// Log-probabilities of prompts, in one rank's result of one step: a row takes one for its own token
// and one for each alternative. Bounds that message, and what of it one client gets at once.
#define SCORES_STEP_ITEMS_MAX 8192
#define SCORES_ANSWER_BYTES_MAX (128u << 20) // of one answer that is not streamed, about
#define LOGIT_BIAS_MAX 300
#define ALLOWED_IDS_MAX 1024
#define BAD_WORDS_MAX 64
#define BAD_WORD_TOKENS_MAX 200
#define STEERING_ITEMS_MAX                                                                         \
    2048 // ids and numbers in the lists of one request's steering (proto/step.proto)
#define STEERING_STEP_ITEMS_MAX 8192 // of all requests that a rank takes in within one step
#define MESSAGES_MAX 8192
#define TOOL_CALLS_MAX 128 // of one message
#define TOOLS_MAX 128
#define TOOLS_BYTES_MAX (1u << 20) // as JSON; the largest sets in use have a tenth
#define DOCUMENTS_MAX 1024
#define TEMPLATE_KWARGS_MAX 64
#define CONTENT_PARTS_MAX 1024 // of one message
#define PROMPTS_MAX 1024
#define STREAM_BUFFER_BYTES_MAX (1u << 20)

static_assert(SNAPSHOT_TOKENS % KV_BLOCK_TOKENS == 0, "a snapshot stands where a block ends");
static_assert(ATTN_PARTITION_TOKENS % KV_BLOCK_TOKENS == 0, "a partition holds whole blocks");
static_assert(2 * LOGIT_BIAS_MAX + ALLOWED_IDS_MAX + 2 * BAD_WORDS_MAX + BAD_WORD_TOKENS_MAX +
                      STOP_IDS_MAX <=
                  STEERING_ITEMS_MAX,
              "every request's lists fit");
static_assert(STEERING_ITEMS_MAX <= STEERING_STEP_ITEMS_MAX, "every request fits a step");
static_assert(TOP_LOGPROBS_MAX < SCORES_STEP_ITEMS_MAX, "a row of any prompt fits a step");
static_assert(TOP_K_MAX <= EXPERTS_MAX, "top-k chooses among the experts");
static_assert(RANKS_MAX <= 65535, "a rank and the leader fit 16 bits");

#endif
