"""test_openai_package.py: every field that the installed openai package knows, one by one: it works, or has no effect as the document of
the API says, or is refused by its name. A field of the package that stands in no table here fails: it has not been decided.

Answers are read by the package's own models, strictly: no type is bent, none of their fields is missing but those listed, and none of ours is there
but those listed.
"""
import json
import typing

import jsonschema_rs
import openai
import pytest
import requests
from openai.types import Completion, Model, completion_create_params
from openai.types.chat import ChatCompletion, ChatCompletionChunk, chat_completion_message_param, completion_create_params as chat_create_params
from openai.types.chat.chat_completion_content_part_param import ChatCompletionContentPartParam
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam

NAIROBI = "The capital of Kenya is Nairobi."
KENYA = [{"role": "user", "content": "What is the capital of Kenya?"}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


class Works:
    """This value is taken, and the answer shows it: shown(answer) is true."""
    def __init__(self, value, shown=lambda answer: answer["choices"][0], **more):
        self.value, self.shown, self.more = value, shown, more


class Idle:
    """The document says that it has no effect, and the answer is the same."""
    def __init__(self, value):
        self.value = value


class Refused:
    """400 with the field's name (or param), and the document does not allow the value."""
    def __init__(self, value, param=None, **more):
        self.value, self.param, self.more = value, param, more


def text(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def finished(reason, tokens):
    return lambda answer: answer["choices"][0]["finish_reason"] == reason and answer["usage"]["completion_tokens"] == tokens


SAMPLING = {
    "model": [Works("seedling", lambda a: a["model"] == "seedling")],
    "frequency_penalty": [Works(2), Refused(2.1)],  # what they do to tokens: test_steering.py
    "presence_penalty": [Works(2), Refused(-2.1)],
    "logit_bias": [Works({"300": 100}, lambda a: text(a) != text(Fields.plain(a))), Refused({"a": 1}), Refused({"1": 101})],
    "max_tokens": [Works(3, finished("length", 3)), Refused(-1), Refused(2048)],
    "n": [Works(3, lambda a: [c["index"] for c in a["choices"]] == [0, 1, 2]), Refused(0), Refused(129)],
    "seed": [Works(-7, lambda a: a["seed"] == -7), Refused("7")],
    "stop": [Works(" a", lambda a: a["choices"][0]["stop_reason"] in (" a", None)), Works([".", "!"]), Refused([""]), Refused(1)],
    "temperature": [Works(2), Refused(2.1)],
    "top_p": [Works(0, lambda a: text(a) == text(Fields.plain(a)), temperature=1), Refused(1.1)],
    "user": [Idle("someone")],
}
CHAT = {
    **SAMPLING,
    "messages": [Works(KENYA, lambda a: text(a) == NAIROBI), Refused([]), Refused("hi")],
    "stream": [Refused("yes")],  # answered in test_streams_are_the_packages
    "stream_options": [Refused({"include_usage": 1}, "stream_options.include_usage", stream=True), Refused({}, stream=False)],
    "audio": [Refused({"voice": "alloy", "format": "wav"})],
    "function_call": [Refused("auto")],
    "functions": [Refused([{"name": "look_up"}])],
    "logprobs": [Works(True, lambda a: a["choices"][0]["logprobs"]["content"]), Refused(1)],
    "max_completion_tokens": [Works(2, finished("length", 2)), Refused(0)],
    "metadata": [Idle({"a": "b"})],
    "modalities": [Works(["text"]), Refused(["text", "audio"])],
    "moderation": [Refused({"model": "omni-moderation-latest"})],
    "parallel_tool_calls": [Works(False), Refused("yes")],
    "prediction": [Idle({"type": "content", "content": "The capital"})],
    "prompt_cache_key": [Idle("a")],
    "prompt_cache_options": [Idle({"mode": "implicit"})],
    "prompt_cache_retention": [Idle("24h")],
    "reasoning_effort": [Refused("low")],
    "response_format": [Works({"type": "text"}), Refused({"type": "json_object"}), Refused(SCHEMA)],
    "safety_identifier": [Idle("someone")],
    "service_tier": [Idle("auto")],
    "store": [Idle(True)],
    "tool_choice": [Works("none"), Refused("required"), Refused({"type": "function", "function": {"name": "look_up"}})],
    "tools": [Works([TOOL], tool_choice="none"), Refused([{"type": "custom", "custom": {"name": "x"}}], "tools[0].type", tool_choice="none")],
    "top_logprobs": [Works(2, lambda a: len(a["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2, logprobs=True), Refused(21, logprobs=True)],
    "verbosity": [Refused("low")],
    "web_search_options": [Refused({"search_context_size": "low"})],
}
COMPLETION = {
    **SAMPLING,
    "prompt": [Works("The capital"), Works(["The", "capital"], lambda a: len(a["choices"]) == 2), Works([5, 6]), Works([[5, 6], [7]]), Refused(5)],
    "stream": [Refused("yes")],
    "stream_options": CHAT["stream_options"],
    "best_of": [Works(1), Refused(2)],
    "echo": [Works(True, lambda a: text(a).startswith("The capital of Kenya is")), Refused(1)],
    "logprobs": [Works(2, lambda a: len(a["choices"][0]["logprobs"]["top_logprobs"][0]) >= 2), Refused(21)],
    "suffix": [Works(""), Refused(" and so on")],
}


def known(*params):
    """The names of the fields of the package's request types."""
    return sorted(set().union(*(p.__annotations__ for p in params)))


CHAT_FIELDS = known(chat_create_params.CompletionCreateParamsNonStreaming, chat_create_params.CompletionCreateParamsStreaming)
COMPLETION_FIELDS = known(completion_create_params.CompletionCreateParamsNonStreaming, completion_create_params.CompletionCreateParamsStreaming)


class Fields:
    """Sends one field at a time to one endpoint."""
    answers = {}  # without the field, by endpoint

    def __init__(self, cluster, document, chat):
        self.cluster, self.chat = cluster, chat
        self.path = "/v1/chat/completions" if chat else "/v1/completions"
        self.schema = document["components"]["schemas"]["ChatRequest" if chat else "CompletionRequest"]
        self.components = document["components"]
        prompt = {"messages": KENYA} if chat else {"prompt": "The capital of Kenya is"}
        self.body = {"model": "seedling", "temperature": 0, "max_tokens": 12, **prompt}
        if self.path not in self.answers:
            self.answers[self.path] = self.post({}).json()

    @classmethod
    def plain(cls, answer):
        return cls.answers["/v1/chat/completions" if "message" in answer["choices"][0] else "/v1/completions"]

    def post(self, fields):
        return self.cluster.post(self.path, {**self.body, **fields})

    def allows(self, field, value):
        schema = {"components": self.components, **self.schema["properties"][field]}
        return jsonschema_rs.validator_for(schema).is_valid(value)

    def check(self, field, case):
        response = self.post({field: case.value, **getattr(case, "more", {})})
        if isinstance(case, Refused):
            error = response.json()["error"]
            assert response.status_code == 400 and error["param"].split("[")[0].split(".")[0] == field, response.text
            assert error["param"] == (case.param or field)
            return
        assert response.status_code == 200, response.text
        assert self.allows(field, case.value)
        if isinstance(case, Idle):
            assert self.schema["properties"][field]["x-moesaic-idle"]
            assert text(response.json()) == text(self.answers[self.path])
        else:
            assert "x-moesaic-idle" not in self.schema["properties"][field]
            assert case.shown(response.json()), response.text


@pytest.fixture(scope="module")
def document(cluster):
    return requests.get(cluster.url + "/openapi.json", timeout=30).json()


@pytest.mark.parametrize("field", CHAT_FIELDS)
def test_every_field_of_a_chat_is_decided(cluster, document, field):
    fields = Fields(cluster, document, True)
    assert field in CHAT and field in fields.schema["properties"], "what the package can send here has to be decided"
    for case in CHAT[field]:
        fields.check(field, case)


@pytest.mark.parametrize("field", COMPLETION_FIELDS)
def test_every_field_of_a_completion_is_decided(cluster, document, field):
    fields = Fields(cluster, document, False)
    assert field in COMPLETION and field in fields.schema["properties"], "what the package can send here has to be decided"
    for case in COMPLETION[field]:
        fields.check(field, case)


def test_what_is_refused_by_name_is_not_in_the_document_either(cluster, document):
    """A value that a field of its own type refuses; rules between fields and between bytes are no schema's."""
    for chat, table in ((True, CHAT), (False, COMPLETION)):
        fields = Fields(cluster, document, chat)
        loose = [(field, case.value) for field, cases in table.items() for case in cases
                 if isinstance(case, Refused) and fields.allows(field, case.value)]
        assert [field for field, _ in loose] == ["stream_options"], loose  # it needs stream


# --- what stands inside of fields

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
# role: {field: a value that works, or Refused}
MESSAGES = {
    "developer": {"content": "Be brief.", "name": "a"},
    "system": {"content": "Be brief.", "name": "a"},
    "user": {"content": "hi", "name": "a"},
    "assistant": {"content": "hi", "name": "a", "tool_calls": [CALL], "refusal": Refused("no"), "audio": Refused({"id": "a"}),
                  "function_call": Refused({"name": "look_up", "arguments": "{}"})},
    "tool": {"content": "5", "tool_call_id": "c1"},
    "function": {"role": Refused("function"), "content": "5", "name": "look_up"},
}
PARTS = {"text": {"type": "text", "text": "hi"}, "image_url": Refused({"type": "image_url", "image_url": {"url": "data:,"}}),
         "input_audio": Refused({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}), "file": Refused({"type": "file", "file": {}})}
STREAM_OPTIONS = {"include_usage": True, "include_obfuscation": True}


def role_of(param):
    return typing.get_args(typing.get_args(typing.get_type_hints(param, include_extras=True)["role"])[0])[0]


@pytest.mark.parametrize("param", typing.get_args(chat_completion_message_param.ChatCompletionMessageParam), ids=lambda p: p.__name__)
def test_every_key_of_a_message_is_decided(client, param):
    role = role_of(param)
    for key in param.__annotations__:
        assert key == "role" or key in MESSAGES[role], f"{role}.{key} has to be decided"
    base = {"role": role, "content": "hi"}
    for key, value in MESSAGES[role].items():
        messages = [*KENYA, {**base, key: getattr(value, "value", value)}]
        if isinstance(value, Refused) or role == "function":
            with pytest.raises(openai.BadRequestError) as caught:
                client.chat.completions.create(model="seedling", messages=messages, max_tokens=1)
            assert caught.value.param == f"messages[1].{'role' if role == 'function' else key}"
        else:
            client.chat.completions.create(model="seedling", messages=messages, max_tokens=1)


@pytest.mark.parametrize("param", typing.get_args(ChatCompletionContentPartParam), ids=lambda p: p.__name__)
def test_every_kind_of_content_is_decided(client, param):
    kind = typing.get_args(typing.get_args(typing.get_type_hints(param, include_extras=True)["type"])[0])[0]
    assert kind in PARTS, f"{kind} has to be decided"
    part = PARTS[kind]
    messages = [{"role": "user", "content": [getattr(part, "value", part)]}]
    if not isinstance(part, Refused):
        client.chat.completions.create(model="seedling", messages=messages, max_tokens=1)
        return
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="seedling", messages=messages, max_tokens=1)
    assert caught.value.param == "messages[0].content[0]"


def test_every_stream_option_is_decided(client, document):
    assert set(ChatCompletionStreamOptionsParam.__annotations__) == set(STREAM_OPTIONS)
    options = document["components"]["schemas"]["ChatRequest"]["properties"]["stream_options"]["properties"]
    assert set(STREAM_OPTIONS) <= set(options) and options["include_obfuscation"]["x-moesaic-idle"]
    for name, value in STREAM_OPTIONS.items():
        assert list(client.chat.completions.create(model="seedling", messages=KENYA, max_tokens=1, stream=True, stream_options={name: value}))


# --- answers

OURS = {"ChatCompletion": {"seed", "prompt_logprobs"}, "ChatCompletionChunk": {"seed"}, "Completion": {"seed"},
        "Choice": {"stop_reason", "digest", "token_ids"}, "CompletionChoice": {"stop_reason", "digest", "token_ids", "prompt_logprobs"},
        "Model": {"root", "parent", "max_model_len", "meta", "permission"}}
# What only other kinds of answers have: tools, audio, searches, moderation, tiers, padding, and counts of tokens that do not occur here.
ABSENT = {"ChatCompletion": {"metadata", "service_tier", "moderation"},
          "ChatCompletionChunk": {"obfuscation", "service_tier", "moderation", "usage"},
          "ChatCompletionMessage": {"annotations", "audio", "function_call", "tool_calls"},
          "ChoiceDelta": {"role", "content", "audio", "function_call", "refusal", "tool_calls"}, "CompletionUsage": {"completion_tokens_details"},
          "PromptTokensDetails": {"audio_tokens", "cache_write_tokens", "image_tokens", "text_tokens"}, "Model": {"shutdown_date"},
          "Completion": {"usage"}}


def differences(value):
    """What a parsed answer has too much or too little, all the way down."""
    if isinstance(value, list):
        return [d for item in value for d in differences(item)]
    if isinstance(value, dict):
        return differences(list(value.values()))
    if not isinstance(value, openai.BaseModel):
        return []
    name = type(value).__name__
    missing = set(type(value).model_fields) - value.model_fields_set - ABSENT.get(name, set())
    extra = set(value.model_extra or {}) - OURS.get(name, set())
    found = [f"{name} lacks {m}" for m in missing] + [f"{name} has {e}" for e in extra]
    return found + differences([getattr(value, f) for f in type(value).model_fields if f in value.model_fields_set])


def read(model, body):
    """The package's own reading, which is else forgiving, made strict."""
    parsed = model.model_validate_json(body if isinstance(body, str) else json.dumps(body), strict=True)
    assert differences(parsed) == []
    return parsed


ASKED = [{}, {"n": 2, "seed": 1}, {"extra": True}]


def bodies(chat, asked):
    more = {"return_token_ids": True, **({"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2})} if "extra" in asked else asked
    prompt = {"messages": KENYA} if chat else {"prompt": "The capital of Kenya is"}
    return ("/v1/chat/completions" if chat else "/v1/completions"), {"max_tokens": 5, **prompt, **more}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("chat, model", [(True, ChatCompletion), (False, Completion)])
def test_answers_are_the_packages(cluster, chat, model, asked):
    path, body = bodies(chat, asked)
    answer = read(model, cluster.post(path, body).text)
    assert len(answer.choices) == asked.get("n", 1) and answer.usage.completion_tokens <= 5 * len(answer.choices)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("chat, model", [(True, ChatCompletionChunk), (False, Completion)])
def test_streams_are_the_packages(cluster, chat, model, asked):
    path, body = bodies(chat, asked)
    lines = cluster.post(path, {**body, "stream": True, "stream_options": {"include_usage": True}}).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    for line in lines[:-2]:
        chunk = json.loads(line.removeprefix("data: "))
        for choice in chunk["choices"]:
            # The package has one type for a completion and its parts, which knows only the last one's reason.
            choice["finish_reason"] = choice["finish_reason"] if chat else choice["finish_reason"] or "stop"
        read(model, chunk)


def test_models_are_the_packages(cluster, client):
    listed = requests.get(cluster.url + "/v1/models", timeout=30).json()
    assert read(Model, listed["data"][0]) == client.models.retrieve("seedling")


def test_errors_are_the_packages(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="seedling", messages=KENYA, n=0)
    error = caught.value
    assert (error.param, error.type, error.code) == ("n", "invalid_request_error", None) and "between 1 and" in error.body["message"]
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="another", messages=KENYA)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
