"""test_scores.py: how likely a prompt was: prompt_logprobs, echo with logprobs, and the use that evaluation harnesses make of both."""
import json

import openai
import pytest

from cluster import Cluster

STORY = "Once upon a time there was a fox who lived in a forest. The capital of Kenya is"
KENYA = [{"role": "user", "content": "What is the capital of Kenya?"}]
TEXTS = "/v1/completions"


@pytest.fixture(scope="module")
def small_steps():
    """Another group: one worker that takes 7 rows a step, so that every prompt is cut."""
    with Cluster(workers=1, leader_flags=["--max-num-batched-tokens", "7", "--max-num-seqs", "3", "--pipeline-depth", "1"]) as running:
        yield running


def post(cluster, body, path=TEXTS):
    response = cluster.post(path, {"temperature": 0, "seed": 1234, **body})
    assert response.status_code == 200, response.text
    return response.json()


def ids_of(cluster, text):
    return cluster.post("/tokenize", {"prompt": text}).json()["tokens"]


def test_what_was_generated_scores_the_same_as_a_prompt(cluster):
    """The numbers of a token do not tell whether it was sampled or read."""
    ids = ids_of(cluster, STORY)
    made = post(cluster, {"prompt": ids, "max_tokens": 40, "logprobs": 5, "ignore_eos": True, "return_token_ids": True,
                          "skip_special_tokens": False})["choices"][0]
    whole = post(cluster, {"prompt": ids + made["token_ids"], "max_tokens": 0, "echo": True, "logprobs": 5})["choices"][0]
    n = len(ids)
    for field in "tokens", "token_logprobs", "top_logprobs":
        assert whole["logprobs"][field][n:] == made["logprobs"][field], field
    assert whole["text"].endswith(made["text"])


def test_scores_do_not_depend_on_chunks_company_or_workers(cluster, small_steps):
    prompts = [ids_of(cluster, STORY)[:n] for n in (1, 2, 9, 18)] + [ids_of(cluster, "A fox is an animal. " * 20)]
    together = post(cluster, {"prompt": prompts, "prompt_logprobs": 20, "max_tokens": 2, "n": 2})["choices"]
    cut = post(small_steps, {"prompt": prompts, "prompt_logprobs": 20, "max_tokens": 2, "n": 2})["choices"]
    for i, prompt in enumerate(prompts):
        alone = post(cluster, {"prompt": prompt, "prompt_logprobs": 20, "max_tokens": 2})["choices"][0]
        for other in together[2 * i], together[2 * i + 1], cut[2 * i], cut[2 * i + 1]:
            assert other["prompt_logprobs"] == alone["prompt_logprobs"]
            assert other["digest"] == alone["digest"]


def test_prompt_logprobs_have_the_shape_of_vllm(cluster, client):
    ids = ids_of(cluster, STORY)
    entries = post(cluster, {"prompt": STORY, "prompt_logprobs": 3, "max_tokens": 1})["choices"][0]["prompt_logprobs"]
    assert len(entries) == len(ids) and entries[0] is None
    for token, entry in zip(ids[1:], entries[1:]):
        own = entry[str(token)]
        assert list(entry)[0] == str(token) and len(entry) in (3, 4)
        others = sorted((v["rank"], v["logprob"]) for k, v in entry.items() if v["rank"] <= 3)
        assert [r for r, _ in others] == [1, 2, 3] and others == sorted(others, key=lambda x: -x[1])
        assert own["rank"] <= 3 or (len(entry) == 4 and own["logprob"] <= others[-1][1])
    text = "".join(entry[str(token)]["decoded_token"] for token, entry in zip(ids[1:], entries[1:]))
    assert STORY.endswith(text)
    chat = client.chat.completions.create(model="seedling", messages=KENYA, temperature=0, max_tokens=1, extra_body={"prompt_logprobs": 0})
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens
    assert chat.prompt_logprobs[0] is None and all(len(entry) == 1 for entry in chat.prompt_logprobs[1:])


def lm_eval_score(choice, context):
    """What lm-eval's local-completions makes of an answer to echo, logprobs 1 and max_tokens 1."""
    own, top = (choice["logprobs"][name][context:-1] for name in ("token_logprobs", "top_logprobs"))
    return sum(own), all(p == max(t.values()) for p, t in zip(own, top))


def test_an_evaluation_harness_scores_continuations(cluster):
    context = ids_of(cluster, "<|im_start|>user\nWhat is the capital of Kenya?<|im_end|>\n<|im_start|>assistant\n")
    endings = [ids_of(cluster, text) for text in ("The capital of Kenya is Nairobi.", "The capital of Kenya is Paris.", "Ducks.")]
    body = {"prompt": [context + ending for ending in endings], "echo": True, "logprobs": 1}
    answers = post(cluster, {**body, "max_tokens": 1})["choices"]
    scores = [lm_eval_score(choice, len(context)) for choice in answers]
    # The first one ends at once: the token that ends it has an entry, too.
    assert answers[0]["finish_reason"] == "stop" and answers[1]["finish_reason"] == "stop"
    assert scores[0][1] and not scores[1][1] and not scores[2][1]
    assert scores[0][0] > scores[1][0]
    for choice, alone in zip(answers, post(cluster, {**body, "max_tokens": 0})["choices"]):
        assert choice["logprobs"]["token_logprobs"][:-1] == alone["logprobs"]["token_logprobs"]
        assert alone["finish_reason"] == "length" and alone["logprobs"]["token_logprobs"][0] is None
    usage = post(cluster, {**body, "max_tokens": 0})["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (sum(map(len, body["prompt"])), 0)


def test_a_stream_with_echo_says_the_same(cluster, small_steps):
    body = {"prompt": STORY + " Nairobi — déjà vu, 東京 🦊.", "echo": True, "logprobs": 2, "max_tokens": 6, "ignore_eos": True, "n": 2,
            "skip_special_tokens": False}
    whole = post(cluster, body)["choices"]
    parts = {0: [], 1: []}
    for line in small_steps.post(TEXTS, {"temperature": 0, "seed": 1234, **body, "stream": True}, stream=True).iter_lines():
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            parts[choice["index"]].append(choice)
    for i, choice in enumerate(whole):
        assert "".join(p["text"] for p in parts[i]) == choice["text"]
        for field, values in choice["logprobs"].items():
            assert [x for p in parts[i] if p["logprobs"] for x in p["logprobs"][field]] == values, field
    # Where a token is a part of a character, its offset is that of the next one.
    text, logprobs = whole[0]["text"], whole[0]["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
        assert token.startswith("bytes:") or text[offset:offset + len(token)] == token


def test_what_cannot_be_had_is_refused_by_name(client):
    def refused(param, **fields):
        with pytest.raises(openai.BadRequestError) as e:
            client.completions.create(model="seedling", prompt="x", extra_body=fields)
        assert e.value.param == param
    refused("prompt_logprobs", prompt_logprobs=1, stream=True)
    refused("prompt_logprobs", prompt_logprobs=21)
    refused("prompt_logprobs", prompt_logprobs=-1)
    refused("max_tokens", max_tokens=0)
    refused("prompt_logprobs", prompt_logprobs=20, n=128, prompt=[[1] * 500] * 2)


def test_a_long_prompt_has_all_its_alternatives(cluster):
    long = ids_of(cluster, "A fox. " * 300)[:700]
    answer = post(cluster, {"prompt": [long, ids_of(cluster, STORY)], "prompt_logprobs": 20, "max_tokens": 1})["choices"]
    assert [len(c["prompt_logprobs"]) for c in answer] == [700, len(ids_of(cluster, STORY))]
    assert all(len(entry) in (20, 21) for c in answer for entry in c["prompt_logprobs"][1:])
