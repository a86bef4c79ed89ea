"""test_grpc_fields.py: what proto/generate.proto says beyond sampling: each field does what its HTTP twin does, by ids and digests; scores of
prompts; Tokenize and Detokenize; refusals that name the field."""
import json

import grpc
import pytest

KENYA = "What is the capital of Kenya?"
STORY = "Once upon a time there was a fox"
BEGUN = [{"role": "user", "content": KENYA}, {"role": "assistant", "content": "The capital of Kenya"}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Looks out of the window.",
                                            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CALLED = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "How is it in Nairobi?", "name": "ann"},
          {"role": "assistant", "content": None, "reasoning_content": "I must look.",
           "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Nairobi"}'}}]},
          {"role": "tool", "content": "sunny", "tool_call_id": "a1"}]
Code = grpc.StatusCode


def to_rpc(pb, messages):
    def call(c):
        return pb.ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
    return [pb.ChatMessage(**{**m, "content": m["content"] or "", "tool_calls": [call(c) for c in m.get("tool_calls", [])]}) for m in messages]


def both(rpc, cluster, path, common, http_fields=None, rpc_fields=None):
    """The same request over HTTP and over gRPC; the gRPC answer and HTTP's choice, which are equal."""
    body = {"temperature": 0, "seed": 3, "max_tokens": 12, **common, "return_token_ids": True, **(http_fields or {})}
    response = cluster.post(path, body)
    assert response.status_code == 200, response.text
    whole = response.json()
    a = rpc.ask(**{"temperature": 0, "seed": 3, "max_tokens": 12, **common, **(rpc_fields or {})})
    choice = whole["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    assert (a.ids, a.text, f"{a.digest:016x}") == (choice["token_ids"], text, choice["digest"])
    assert a.n_prompt == whole["usage"]["prompt_tokens"]
    return a, choice


def chat(rpc, cluster, messages, http_fields, rpc_fields):
    return both(rpc, cluster, "/v1/chat/completions", {}, {"messages": messages, **http_fields},
                {"messages": to_rpc(rpc.pb, messages), **rpc_fields})


def text(rpc, cluster, http_fields, rpc_fields=None, prompt=STORY):
    return both(rpc, cluster, "/v1/completions", {}, {"prompt": prompt, **http_fields}, {"text": prompt, **(rpc_fields or http_fields)})


# --- fields


def test_the_end_is_shown_as_over_http(rpc, cluster):
    stop = rpc.ask(text=STORY, temperature=0, max_tokens=12).text[6:9]
    a, _ = text(rpc, cluster, {"stop": [stop], "include_stop_str_in_output": True})
    assert a.text.endswith(stop) and a.stop_reason == stop


@pytest.mark.parametrize("fields", [{"truncate_prompt_tokens": 3}, {"truncate_prompt_tokens": -1}, {"echo": True},
                                    {"add_special_tokens": False}, {"cache_salt": "mine"}], ids=lambda f: next(iter(f)))
def test_fields_about_a_text(rpc, cluster, fields):
    a, _ = text(rpc, cluster, fields)
    assert a.text.startswith(STORY) == ("echo" in fields)


def test_a_final_message_is_continued(rpc, cluster):
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    a, _ = chat(rpc, cluster, BEGUN, fields, fields)
    assert a.text == " is Nairobi."


def test_variables_tools_and_documents_reach_the_template(rpc, cluster):
    variables, documents = {"enable_thinking": False, "mood": ["a", {"b": 1.5}]}, [{"title": "a", "text": "b"}]
    common = {"tool_choice": "none"}
    chat(rpc, cluster, BEGUN[:1], {**common, "chat_template_kwargs": variables, "tools": [WEATHER], "documents": documents},
         {**common, "chat_template_kwargs": json.dumps(variables), "tools": json.dumps([WEATHER]), "documents": json.dumps(documents)})


def test_calls_results_and_thoughts_of_earlier_turns_reach_the_template(rpc, cluster):
    chat(rpc, cluster, CALLED, {}, {})


# --- scores


def expect_scores(mine, over_http):
    assert len(mine) == len(over_http) and over_http[0] is None and mine[0].rank == 0 and not mine[0].top
    for k, entry in zip(mine[1:], over_http[1:]):
        own = entry[str(k.token_id)]
        assert (k.logprob, k.rank) == (pytest.approx(own["logprob"], rel=1e-8), own["rank"])
        assert own["decoded_token"] == k.token.decode(errors="replace") or "\ufffd" in own["decoded_token"]  # a part of a character
        others = {str(t.token_id): t.logprob for t in k.top}
        assert {**others, str(k.token_id): k.logprob} == {i: pytest.approx(e["logprob"], rel=1e-8) for i, e in entry.items()}


@pytest.mark.parametrize("n", [0, 1, 20])
def test_prompt_logprobs_are_those_of_http(rpc, cluster, n):
    prompt = "A fox — déjà vu, 東京 🦊. " * 8
    a, choice = text(rpc, cluster, {"prompt_logprobs": n}, prompt=prompt)
    expect_scores(a.prompt_logprobs, choice["prompt_logprobs"])
    assert b"".join(k.token for k in a.prompt_logprobs).decode() == prompt
    assert {len(k.top) for k in a.prompt_logprobs[1:]} == {n}


def test_choices_have_their_prompts_scores_once(rpc):
    first, second = rpc.choices(text=STORY, n=2, max_tokens=3, prompt_logprobs=2)
    assert len(first.prompt_logprobs) == first.n_prompt and not second.prompt_logprobs
    whole = [p for p in first.parts if p.token_ids][0]
    assert first.parts.index(whole) >= first.parts.index([p for p in first.parts if p.prompt_logprobs][-1])


def test_a_prompt_can_be_read_without_an_answer(rpc):
    a = rpc.ask(text=STORY, prompt_only=True, prompt_logprobs=1)
    assert (a.text, a.ids, a.finish, len(a.prompt_logprobs)) == ("", [], "length", a.n_prompt)
    assert rpc.ask(text=STORY, prompt_only=True, echo=True).text == STORY


def test_an_echo_with_logprobs_has_those_of_the_prompt(rpc):
    asked = rpc.ask(text=STORY, prompt_logprobs=2, max_tokens=3)
    a = rpc.ask(text=STORY, echo=True, logprobs=2, max_tokens=3, temperature=0)
    assert a.text.startswith(STORY) and len(a.logprobs) == 3
    assert [(k.token_id, k.logprob, len(k.top)) for k in a.prompt_logprobs] == [(k.token_id, k.logprob, len(k.top)) for k in asked.prompt_logprobs]
    assert len(a.prompt_logprobs) == a.n_prompt
    assert len(rpc.ask(text=STORY, echo=True, logprobs=2, prompt_logprobs=0, max_tokens=1).prompt_logprobs[1].top) == 0
    assert not rpc.ask(text=STORY, echo=True, max_tokens=1).prompt_logprobs


# --- Tokenize, Detokenize


def tokenize(rpc, **fields):
    return rpc.stub.Tokenize(rpc.pb.TokenizeRequest(**fields), timeout=60)


def test_tokens_are_those_of_http(rpc, cluster):
    over_http = cluster.post("/tokenize", {"prompt": STORY + " 🦊", "return_token_strs": True}).json()
    mine = tokenize(rpc, text=STORY + " 🦊", return_tokens=True)
    assert (mine.token_ids, mine.max_model_len) == (over_http["tokens"], over_http["max_model_len"])
    assert b"".join(mine.tokens).decode() == STORY + " 🦊"
    assert tokenize(rpc, text=STORY, truncate_prompt_tokens=2).token_ids == tokenize(rpc, text=STORY).token_ids[-2:]
    assert not tokenize(rpc, text=STORY).tokens and not tokenize(rpc).token_ids
    chat_ids = cluster.post("/tokenize", {"messages": CALLED, "tools": [WEATHER]}).json()["tokens"]
    assert tokenize(rpc, messages=to_rpc(rpc.pb, CALLED), tools=json.dumps([WEATHER])).token_ids == chat_ids
    begun = {"continue_final_message": True, "add_generation_prompt": False}
    chat_ids = cluster.post("/tokenize", {"messages": BEGUN, **begun}).json()["tokens"]
    assert tokenize(rpc, messages=to_rpc(rpc.pb, BEGUN), **begun).token_ids == chat_ids
    said = rpc.stub.Detokenize(rpc.pb.DetokenizeRequest(token_ids=chat_ids), timeout=60).text
    assert said == cluster.post("/detokenize", {"tokens": chat_ids}).json()["prompt"] and said.startswith("<|im_start|>")
    assert rpc.stub.Detokenize(rpc.pb.DetokenizeRequest(), timeout=60).text == ""


def test_a_long_text_is_tokenized_beside_a_stream(rpc):
    parts = iter(rpc.call(text=STORY, max_tokens=200, ignore_eos=True))
    next(parts)
    with pytest.raises(grpc.RpcError) as caught:
        tokenize(rpc, text="word " * 1_000_000)
    assert caught.value.code() == Code.INVALID_ARGUMENT and "context length" in caught.value.details()
    assert [p for p in parts][-1].finish_reason == "length"


@pytest.mark.parametrize("fields, word", [
    ({"text": "x", "messages": [{"role": "user", "content": "y"}]}, "text"), ({"text": "x", "model": "nope"}, "nope"),
    ({"text": "x", "tools": "[]"}, "tools"), ({"text": "x", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
])
def test_wrong_requests_for_tokens_are_refused_by_name(rpc, fields, word):
    with pytest.raises(grpc.RpcError) as caught:
        tokenize(rpc, **fields)
    assert caught.value.code() in (Code.INVALID_ARGUMENT, Code.NOT_FOUND) and word in caught.value.details()
    with pytest.raises(grpc.RpcError) as caught:
        rpc.stub.Detokenize(rpc.pb.DetokenizeRequest(token_ids=[1, 2048]), timeout=60)
    assert "token_ids[1]" in caught.value.details()


# --- refusals


@pytest.mark.parametrize("fields, word", [
    ({"prompt_logprobs": 21}, "prompt_logprobs"), ({"prompt_only": True}, "prompt_only"), ({"prompt_only": True, "echo": True, "max_tokens": 2}, "max_tokens"),
    ({"prompt_only": True, "echo": True, "min_tokens": 2}, "min_tokens"), ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 4096}, "truncate_prompt_tokens"), ({"chat_template_kwargs": "{}"}, "chat_template_kwargs"),
    ({"tools": "[]"}, "tools"), ({"documents": "[]"}, "documents"), ({"tool_choice": "none"}, "tool_choice"),
    ({"continue_final_message": True}, "continue_final_message"), ({"add_generation_prompt": True}, "add_generation_prompt"),
], ids=str)
def test_wrong_fields_of_a_text_are_refused_by_name(rpc, fields, word):
    code, details = rpc.error(text=STORY, **fields)
    assert code == Code.INVALID_ARGUMENT and word in details


@pytest.mark.parametrize("fields, word", [
    ({"chat_template_kwargs": "{"}, "'chat_template_kwargs' is not valid JSON"), ({"chat_template_kwargs": "[]"}, "chat_template_kwargs"),
    ({"chat_template_kwargs": '{"x_token": 1}'}, "x_token"), ({"chat_template_kwargs": '{"a":1,"a":2}'}, "chat_template_kwargs"),
    ({"chat_template_kwargs": '{"a":' + "[" * 40 + "]" * 40 + "}"}, "nested"), ({"tools": "{}"}, "tools"), ({"tools": '[{"type":"x"}]'}, "tools[0]"),
    ({"tool_choice": "required"}, "tool_choice"), ({"documents": "[1]"}, "documents"), ({"echo": True}, "echo"),
    ({"add_special_tokens": True}, "add_special_tokens"), ({"continue_final_message": True}, "add_generation_prompt"),
], ids=str)
def test_wrong_fields_of_a_chat_are_refused_by_name(rpc, fields, word):
    code, details = rpc.error(chat=KENYA, **fields)
    assert code == Code.INVALID_ARGUMENT and word in details


def test_inner_messages_are_checked_by_name(rpc):
    pb = rpc.pb
    call = pb.ToolCall(id="a", name="f", arguments="no JSON")
    messages = [pb.ChatMessage(role="user", content="x"), pb.ChatMessage(role="assistant", tool_calls=[call])]
    assert "messages[1].tool_calls[0]" in rpc.error(messages=messages)[1]
    call.arguments = "{}\0"
    messages[1].tool_calls[0].CopyFrom(call)
    assert "'messages[1].tool_calls[0].arguments' must not contain a zero byte" in rpc.error(messages=messages)[1]
    raw = pb.GenerateRequest(messages=[pb.ChatMessage(role="user", content="x")]).SerializeToString()
    tool = b"\x2a\x02\x50\x01"  # tool_calls { a field 10 }
    raw += b"\x1a" + bytes([len(tool)]) + tool
    method = rpc.channel.unary_stream("/moesaic.v1.Generate/Generate", request_serializer=lambda b: b, response_deserializer=pb.GenerateResponse.FromString)
    with pytest.raises(grpc.RpcError) as caught:
        list(method(raw, timeout=60))
    assert caught.value.code() == Code.INVALID_ARGUMENT
    assert "'messages[1].tool_calls[0]' has a field 10, which is not supported" in caught.value.details()
