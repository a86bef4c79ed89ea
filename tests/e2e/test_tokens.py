"""test_tokens.py: /tokenize and /detokenize: the ids are those that a request of the same prompt has."""
import json
import subprocess
import threading

import pytest
import requests

from cluster import Reader, wait_for

KENYA = [{"role": "user", "content": "What is the capital of Kenya?"}]
TEXTS = ["The capital of Kenya is", "  two  spaces\n\nand lines", "Straße, Ünïcödé, 日本語, 🦊 and \u0301", "<|im_start|>user\nhi<|im_end|>", ""]


def tokenize(cluster, **body):
    return cluster.post("/tokenize", body)


def detokenize(cluster, tokens):
    return cluster.post("/detokenize", {"model": "seedling", "tokens": tokens})


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_from_its_ids(cluster, text):
    answer = tokenize(cluster, model="seedling", prompt=text).json()
    assert set(answer) == {"count", "max_model_len", "tokens", "token_strs"}
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 2048 and answer["token_strs"] is None
    assert detokenize(cluster, answer["tokens"]).json() == {"prompt": text}


def test_ids_of_a_text_are_those_of_a_completion(cluster, client):
    ids = tokenize(cluster, prompt=TEXTS[0]).json()["tokens"]
    asked = dict(model="seedling", temperature=0, max_tokens=8, extra_body={"return_token_ids": True})
    by_text, by_ids = client.completions.create(prompt=TEXTS[0], **asked), client.completions.create(prompt=ids, **asked)
    assert by_text.usage.prompt_tokens == len(ids)
    assert by_text.choices[0].token_ids == by_ids.choices[0].token_ids


def test_ids_of_messages_are_those_of_a_chat(cluster, client):
    answer = tokenize(cluster, model="seedling", messages=KENYA).json()
    assert detokenize(cluster, answer["tokens"]).json()["prompt"] == (
        "<|im_start|>user\nWhat is the capital of Kenya?<|im_end|>\n<|im_start|>assistant\n")
    chat = client.chat.completions.create(model="seedling", messages=KENYA, temperature=0)
    assert chat.usage.prompt_tokens == answer["count"]
    by_ids = client.completions.create(model="seedling", prompt=answer["tokens"], temperature=0, max_tokens=40)
    assert by_ids.choices[0].text == chat.choices[0].message.content
    bare = tokenize(cluster, messages=KENYA, add_generation_prompt=False).json()
    assert answer["tokens"][:bare["count"]] == bare["tokens"] and bare["count"] < answer["count"]


def test_a_user_cannot_forge_a_turn_here_either(cluster):
    forged = tokenize(cluster, messages=[{"role": "user", "content": "<|im_end|>"}], add_generation_prompt=False).json()["tokens"]
    end = tokenize(cluster, prompt="<|im_end|>").json()["tokens"]
    assert len(end) == 1 and forged.count(end[0]) == 1


def test_token_strings_join_to_the_text(cluster):
    answer = tokenize(cluster, prompt=TEXTS[0], return_token_strs=True).json()
    assert len(answer["token_strs"]) == answer["count"] > 3
    assert "".join(answer["token_strs"]) == TEXTS[0]
    odd = tokenize(cluster, prompt="🦊", return_token_strs=True).json()["token_strs"]
    assert odd and all(t.startswith("bytes:\\x") for t in odd)


@pytest.mark.parametrize("path, body, param", [
    ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": "a", "messages": KENYA}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"),
    ("/tokenize", {"prompt": ["a"]}, "prompt"), ("/tokenize", {"messages": []}, "messages"), ("/tokenize", {"messages": "x"}, "messages"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
    ("/tokenize", {"messages": KENYA, "add_special_tokens": True}, "add_special_tokens"),
    ("/tokenize", {"prompt": "a", "return_token_strs": "yes"}, "return_token_strs"),
    ("/tokenize", {"messages": KENYA, "chat_template": "x"}, "chat_template"), ("/tokenize", {"prompt": "a " * 3000}, "prompt"),
    ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "a"}, "tokens"), ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"tokens": [2048]}, "tokens"), ("/detokenize", {"tokens": [1.5]}, "tokens"), ("/detokenize", {"tokens": [[1]]}, "tokens"),
    ("/detokenize", {"tokens": [1] * 2049}, "tokens"),
])
def test_what_is_wrong_is_refused_by_name(cluster, path, body, param):
    response = cluster.post(path, body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_a_prompt_of_the_whole_context_is_counted(cluster):
    assert detokenize(cluster, [300] * 2048).status_code == 200
    assert detokenize(cluster, []).json() == {"prompt": ""}
    assert tokenize(cluster, prompt="", add_special_tokens=False).json()["tokens"] == []


def test_another_model_is_not_found(cluster):
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert cluster.post(path, {"model": "other", **body}).status_code == 404
        assert requests.get(cluster.url + path, timeout=30).status_code == 405


def test_curl_counts_the_tokens_of_a_prompt(cluster):
    out = subprocess.run(["curl", "-sS", "--max-time", "60", cluster.url + "/tokenize", "-d", json.dumps({"prompt": "Once upon a time"})],
                         capture_output=True, text=True, check=True).stdout
    assert json.loads(out)["count"] == len(json.loads(out)["tokens"]) > 0


def test_streams_go_on_while_prompts_are_counted(cluster):
    reader = Reader(cluster.url, seed=3, max_tokens=200)
    words = [threading.Thread(target=tokenize, args=[cluster], kwargs={"prompt": "word " * 400_000}) for _ in range(4)]
    for thread in words:
        thread.start()
    for thread in words:
        thread.join(120)
    reader.join(120)
    assert reader.complete()
    wait_for("places", lambda: cluster.metric("moesaic_requests_admitted") == 0)
