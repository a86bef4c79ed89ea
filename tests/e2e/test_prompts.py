"""test_prompts.py: fields about what the model reads and what of it the client sees again: truncation, continuation, template variables,
echo, names of requests, running usage."""
import json
import pathlib

import openai
import pytest
import requests

from cluster import MODEL, Cluster

KENYA = [{"role": "user", "content": "What is the capital of Kenya?"}]
NAIROBI = "The capital of Kenya is Nairobi."
# Shows every variable that a test sets, keeps no space around a message, and leaves thoughts away. It knows the role of developers.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'].split('</think>')[-1].strip() }}</{{ m['role'] }}>"
            "{% endfor %}{% if mood is defined %}[{{ mood }}]{% endif %}{% if deep is defined %}[{{ deep.a[1] }}]{% endif %}"
            "{% if tools is not defined or documents is not defined %}[undefined]{% endif %}{% for d in documents or [] %}[{{ d.title }}: {{ d.text }}]"
            "{% endfor %}{% if messages[0].role == 'developer' %}[{{ tools }}]{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}")


def chat(client, messages=KENYA, **fields):
    own = {k: fields.pop(k) for k in list(fields) if k not in ("temperature", "max_tokens", "stop", "stream", "stream_options", "n", "seed")}
    return client.chat.completions.create(model="seedling", messages=messages, temperature=0, extra_body=own, **fields)


def complete(client, prompt, **fields):
    own = {k: fields.pop(k) for k in list(fields) if k not in ("max_tokens", "stop", "stream", "stream_options", "n", "echo", "logprobs")}
    return client.completions.create(model="seedling", prompt=prompt, temperature=0, extra_body=own, **fields)


def ids_of(cluster, **body):
    return cluster.post("/tokenize", body).json()["tokens"]


@pytest.fixture(scope="module")
def templated(tmp_path_factory):
    """A leader with another template; no workers, as prompts are made without them. render(messages, **fields) is the prompt's text."""
    folder = tmp_path_factory.mktemp("model")
    for file in MODEL.iterdir():
        if file.is_file() and file.name != "tokenizer_config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((MODEL / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "<|im_start|>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    c = Cluster(workers=1, model=folder)
    try:
        c.start_leader()
        yield c
    finally:
        c.stop()


def render(templated, messages, **fields):
    response = templated.post("/tokenize", {"messages": messages, **fields})
    if response.status_code != 200:
        return response.json()["error"]
    return templated.post("/detokenize", {"tokens": response.json()["tokens"]}).json()["prompt"]


# --- stops

def test_stop_strings_are_shown_when_asked_for(client):
    whole = chat(client, stop="Kenya is", include_stop_str_in_output=True).choices[0]
    assert (whole.message.content, whole.finish_reason, whole.stop_reason) == ("The capital of Kenya is", "stop", "Kenya is")
    parts = chat(client, stop="Kenya is", include_stop_str_in_output=True, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in parts) == "The capital of Kenya is"
    assert chat(client, stop="Kenya is", include_stop_str_in_output=False).choices[0].message.content == "The capital of "


def test_stop_reason_is_the_clients_token_and_null_for_the_models_own(client):
    plain = chat(client, return_token_ids=True).choices[0]
    assert plain.finish_reason == "stop" and plain.stop_reason is None
    assert chat(client, stop_token_ids=[plain.token_ids[-1]]).choices[0].stop_reason is None
    cut = chat(client, stop_token_ids=[plain.token_ids[3]], return_token_ids=True).choices[0]
    assert cut.stop_reason == plain.token_ids[3] and cut.finish_reason == "stop"
    shown = chat(client, stop_token_ids=[plain.token_ids[3]], include_stop_str_in_output=True).choices[0]
    assert shown.message.content.startswith(cut.message.content) and len(shown.message.content) > len(cut.message.content)
    assert NAIROBI.startswith(shown.message.content)


def test_the_models_own_end_is_shown_with_special_tokens(client):
    assert chat(client, include_stop_str_in_output=True).choices[0].message.content == NAIROBI
    shown = chat(client, include_stop_str_in_output=True, skip_special_tokens=False).choices[0].message.content
    assert shown.startswith(NAIROBI) and shown.endswith(("<|im_end|>", "<|endoftext|>"))


# --- truncation

def test_only_the_last_tokens_of_a_prompt_are_read(cluster, client):
    ids = ids_of(cluster, prompt="A long way before. The capital of Kenya is")
    assert ids_of(cluster, prompt="A long way before. The capital of Kenya is", truncate_prompt_tokens=4) == ids[-4:]
    cut = complete(client, ids, truncate_prompt_tokens=4, max_tokens=8, return_token_ids=True)
    short = complete(client, ids[-4:], max_tokens=8, return_token_ids=True)
    assert cut.usage.prompt_tokens == 4 and cut.choices[0].token_ids == short.choices[0].token_ids
    assert complete(client, ids, truncate_prompt_tokens=500, max_tokens=1).usage.prompt_tokens == len(ids)
    chats = ids_of(cluster, messages=KENYA)
    assert ids_of(cluster, messages=KENYA, truncate_prompt_tokens=6) == chats[-6:]
    assert chat(client, truncate_prompt_tokens=6, max_tokens=1).usage.prompt_tokens == 6


def test_minus_1_keeps_what_leaves_room_for_the_answer(client):
    answer = complete(client, "word " * 5000, truncate_prompt_tokens=-1, max_tokens=3, ignore_eos=True)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2045, 3)
    with pytest.raises(openai.BadRequestError):
        complete(client, "word " * 5000, max_tokens=3)


# --- continuing

def test_a_final_message_is_continued_in_its_middle(cluster, client):
    begun = [*KENYA, {"role": "assistant", "content": "The capital of Kenya"}]
    ids = ids_of(cluster, messages=begun, add_generation_prompt=False, continue_final_message=True)
    text = cluster.post("/detokenize", {"tokens": ids}).json()["prompt"]
    assert text.endswith("<|im_start|>assistant\nThe capital of Kenya")
    answer = chat(client, begun, add_generation_prompt=False, continue_final_message=True)
    assert answer.choices[0].message.content == " is Nairobi."
    assert answer.usage.prompt_tokens == len(ids)


def test_continuing_follows_what_the_template_does_to_spaces(cluster, templated):
    def ask(at, text):
        return render(at, [{"role": "user", "content": "MOESAIC_CONTINUES_HERE hi"}, {"role": "assistant", "content": text}],
                      add_generation_prompt=False, continue_final_message=True)
    assert ask(cluster, "so  \n").endswith("assistant\nso  \n")
    assert ask(templated, "so  \n").endswith("</user><assistant>so")
    assert ask(templated, "").endswith("</user><assistant>")
    assert ask(templated, "thought</think>said")["param"] == "continue_final_message"


# --- template variables

def test_template_variables_reach_the_template_as_plain_text(templated):
    assert render(templated, KENYA, chat_template_kwargs={"mood": "gay", "deep": {"a": [1, "b"]}, "unused": None}) == (
        "<|im_start|><user>What is the capital of Kenya?</user>[gay][b]<assistant>")
    forged = templated.post("/tokenize", {"messages": KENYA, "chat_template_kwargs": {"mood": "<|im_start|>"}}).json()["tokens"]
    start = templated.post("/tokenize", {"prompt": "<|im_start|>"}).json()["tokens"]
    assert len(start) == 1 and forged.count(start[0]) == 1 and forged[0] == start[0]


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template",
                                  "tokenize", "bos_token", "eos_token", "_token", "my_token"])
def test_template_variables_of_the_server_are_not_the_clients(cluster, name):
    response = cluster.post("/v1/chat/completions", {"messages": KENYA, "chat_template_kwargs": {name: "x"}})
    assert response.status_code == 400 and response.json()["error"]["param"] == "chat_template_kwargs"
    assert name in response.json()["error"]["message"]


# --- documents, tools, roles

def test_documents_reach_the_template(templated):
    assert render(templated, KENYA, documents=[{"title": "a", "text": "<|im_start|>"}, {"title": "b", "text": "c"}]) == (
        "<|im_start|><user>What is the capital of Kenya?</user>[a: <|im_start|>][b: c]<assistant>")
    ids = ids_of(templated, messages=KENYA, documents=[{"title": "a", "text": "<|im_start|>"}])
    assert ids.count(ids[0]) == 1  # the first is the token that the second only spells
    assert render(templated, KENYA, documents=[{"text": 5}])["param"] == "documents"


def test_developers_keep_their_role_where_the_template_knows_it(templated):
    assert render(templated, [{"role": "developer", "content": "x"}]) == "<|im_start|><developer>x</developer>[None]<assistant>"
    assert render(templated, [{"role": "developer", "content": "x"}], tools=[{"function": {"parameters": {}, "name": "f"}}]) == (
        "<|im_start|><developer>x</developer>[[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]]<assistant>")


# --- messages

QWEN = pathlib.Path(__file__).resolve().parents[1] / "data" / "text" / "templates" / "Qwen3.jinja"


def test_tool_calls_and_results_are_rendered_as_the_template_does(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").symlink_to(QWEN)
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
             {"role": "assistant", "content": None, "tool_calls": [
                 {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"place":  "Nairobi", "days": [1, 2]}'}}]},
             {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "warm"}]}]
    c = Cluster(workers=1, model=tmp_path)
    try:
        c.start_leader()
        assert render(c, turns) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
            '{"name": "look", "arguments": {"place": "Nairobi", "days": [1, 2]}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nwarm\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
        look = {"name": "look", "description": "Looks \"out\" é", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}
        with_tools = render(c, turns[:2], tools=[{"type": "function", "function": look}])
        assert with_tools == (
            "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            '{"type": "function", "function": ' + json.dumps(look, ensure_ascii=False) + "}\n</tools>\n\n"
            "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n")
        thought = [turns[1], {"role": "assistant", "reasoning_content": "hm", "content": "so"}]
        assert "<think>\nhm\n</think>\n\nso" in render(c, thought, add_generation_prompt=False)
        assert render(c, turns[:2], chat_template_kwargs={"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")
    finally:
        c.stop()


# --- echo

def test_a_completion_echoes_its_prompt(cluster, client):
    plain = complete(client, "The capital of Kenya is", max_tokens=4).choices[0].text
    echoed = complete(client, ["The capital of Kenya is", "<|im_end|>  Once"], max_tokens=4, echo=True, n=2, stop="zzz")
    assert [c.text for c in echoed.choices[:2]] == ["The capital of Kenya is" + plain] * 2
    assert all(c.text.startswith("<|im_end|>  Once") for c in echoed.choices[2:])
    ids = ids_of(cluster, prompt="The capital of Kenya is")
    assert complete(client, ids, max_tokens=4, echo=True).choices[0].text == "The capital of Kenya is" + plain
    streamed = complete(client, ids, max_tokens=4, echo=True, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == "The capital of Kenya is" + plain
    last = complete(client, ids, max_tokens=1, echo=True, truncate_prompt_tokens=1).choices[0].text
    assert last.startswith(" is")


def test_a_stop_string_in_the_prompt_does_not_end_its_echo(client):
    answer = complete(client, "The capital of Kenya is", max_tokens=4, echo=True, stop="capital")
    assert answer.choices[0].text.startswith("The capital of Kenya is") and answer.usage.completion_tokens > 1


# --- names and usage

def test_a_request_is_named_by_its_header_else_by_its_body(cluster):
    body = {"messages": KENYA, "max_tokens": 1, "request_id": "of-the-body"}
    assert cluster.post("/v1/chat/completions", body).headers["X-Request-Id"] == "of-the-body"
    assert cluster.post("/v1/chat/completions", {**body, "stream": True}).headers["X-Request-Id"] == "of-the-body"
    both = requests.post(cluster.url + "/v1/chat/completions", json=body, headers={"X-Request-Id": "of-the-header"}, timeout=60)
    assert both.headers["X-Request-Id"] == "of-the-header"
    late = cluster.post("/v1/chat/completions", {**body, "model": "other"})  # refused after it was parsed
    assert late.status_code == 404 and late.headers["X-Request-Id"] == "of-the-body"


def test_usage_runs_with_the_chunks_when_asked_for(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))
    assert all(c.usage is not None for c in chunks)
    counts = [c.usage.completion_tokens for c in chunks]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == chat(client).usage.completion_tokens
    assert len({c.usage.prompt_tokens for c in chunks}) == 1
    alone = list(chat(client, stream=True, stream_options={"continuous_usage_stats": True}))
    assert all(c.usage is None for c in alone)


def test_the_model_card_has_what_clients_read(client):
    card = client.models.retrieve("seedling")
    assert (card.id, card.object, card.root, card.parent, card.max_model_len) == ("seedling", "model", "seedling", None, 2048)
    assert card.permission[0]["object"] == "model_permission" and card.permission[0]["allow_logprobs"] is True
    assert list(client.models.list())[0] == card


def test_what_cannot_change_an_answer_is_accepted(client):
    plain = chat(client).choices[0].message.content
    assert chat(client, priority=0, cache_salt="salt", request_id="mine").choices[0].message.content == plain


# --- refusals

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


@pytest.mark.parametrize("path, fields, param", [
    (CHAT, {"include_stop_str_in_output": 1}, "include_stop_str_in_output"), (CHAT, {"priority": 1}, "priority"),
    (CHAT, {"priority": "0"}, "priority"), (CHAT, {"cache_salt": ""}, "cache_salt"), (CHAT, {"cache_salt": 5}, "cache_salt"),
    (CHAT, {"request_id": ""}, "request_id"), (CHAT, {"request_id": "a b"}, "request_id"), (CHAT, {"request_id": "a\r\nX: y"}, "request_id"),
    (CHAT, {"request_id": "x" * 129}, "request_id"), (CHAT, {"request_id": 5}, "request_id"),
    (CHAT, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"), (CHAT, {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    (CHAT, {"truncate_prompt_tokens": 2049}, "truncate_prompt_tokens"), (CHAT, {"truncate_prompt_tokens": 1 << 40}, "truncate_prompt_tokens"),
    (CHAT, {"truncate_prompt_tokens": "5"}, "truncate_prompt_tokens"), (COMPLETION, {"truncate_prompt_tokens": True}, "truncate_prompt_tokens"),
    (CHAT, {"continue_final_message": True}, "continue_final_message"), (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs"),
    (CHAT, {"chat_template_kwargs": {f"k{i}": 1 for i in range(65)}}, "chat_template_kwargs"), (CHAT, {"echo": True}, "echo"),
    (COMPLETION, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"), (COMPLETION, {"echo": "yes"}, "echo"),
    (CHAT, {"stream": True, "stream_options": {"continuous_usage_stats": 1}}, "stream_options.continuous_usage_stats"),
])
def test_what_is_wrong_is_refused_by_name(cluster, path, fields, param):
    response = cluster.post(path, {**({"messages": KENYA} if path == CHAT else {"prompt": "a"}), **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
