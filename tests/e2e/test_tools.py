"""test_tools.py: tool calls with real processes and the openai package. The model is the embedded one with two tokens renamed, so that what
it has always answered about Kenya reads as a call, and then as half of one."""
import json
import subprocess

import openai
import pytest

from cluster import BUILD, MODEL, Cluster

KENYA = [{"role": "user", "content": "What is the capital of Kenya?"}]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]
CALL = '\n<tool_call>\n{"name": "look", "arguments": {"at": "the sea"}}\n</tool_call>\n'
HALF = '<tool_call>{"name": '
TEXT = f" capital of Kenya is{HALF}airobi."  # behind the call


def rename(vocabulary, old, text):
    """Gives a token of the vocabulary another text; nothing merges to it or with it any more."""
    model = vocabulary["model"]
    spelt = text.replace(" ", "\u0120").replace("\n", "\u010a")
    model["vocab"] = {spelt if token == old else token: number for token, number in model["vocab"].items()}
    model["merges"] = [(a, b) for a, b in model["merges"] if old not in (a, b, a + b)]


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caller")
    for file in MODEL.iterdir():
        if file.is_file() and file.name != "tokenizer.json":
            (folder / file.name).symlink_to(file)
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text())
    rename(vocabulary, "The", CALL)
    rename(vocabulary, "\u0120N", HALF)
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    with Cluster(workers=1, model=folder, leader_flags=["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]) as c:
        with openai.OpenAI(base_url=c.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            yield client


def ask(client, **fields):
    model = client.models.list().data[0].id
    return client.chat.completions.create(model=model, messages=KENYA, tools=TOOLS, temperature=0, **fields)


def test_a_call_is_an_object_and_half_of_one_is_text(caller):
    choice = ask(caller).choices[0]
    call, = choice.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "look", {"at": "the sea"})
    assert call.id.startswith("call_") and choice.finish_reason == "tool_calls"
    assert choice.message.content == "\n" + TEXT
    plain = ask(caller, tool_choice="none").choices[0]
    assert (plain.message.content, plain.message.tool_calls, plain.finish_reason) == (CALL + TEXT, None, "stop")
    cut = ask(caller, max_tokens=1).choices[0]
    assert (cut.message.content, len(cut.message.tool_calls), cut.finish_reason) == (None, 1, "length")


def test_a_streamed_call_adds_up_to_the_same(caller):
    whole = ask(caller).choices[0]
    content, calls, finish = "", [], None
    for chunk in ask(caller, stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        calls += delta.tool_calls or []
        finish = chunk.choices[0].finish_reason or finish
    assert (content, finish) == (whole.message.content, "tool_calls")
    assert [(c.index, c.function.name, c.function.arguments) for c in calls] == [(0, "look", '{"at": "the sea"}')]
    model = caller.models.list().data[0].id
    with caller.chat.completions.stream(model=model, messages=KENYA, tools=TOOLS, temperature=0) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.tool_calls[0].function.arguments == whole.message.tool_calls[0].function.arguments
    assert final.finish_reason == "tool_calls"


def test_the_answer_can_be_sent_back_with_its_result(caller):
    message = ask(caller).choices[0].message
    turns = [*KENYA, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "blue"}]
    model = caller.models.list().data[0].id
    assert caller.chat.completions.create(model=model, messages=turns, tools=TOOLS, max_tokens=4).usage.prompt_tokens > 20


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_a_call_that_must_happen_is_refused(caller, choice):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(caller, tool_choice=choice)
    assert caught.value.param == "tool_choice" and caught.value.code == "unsupported_parameter"


def test_flags_about_calls_are_checked_at_the_start():
    def start(*flags):
        return subprocess.run([BUILD / "moe-leader", "--model", MODEL, *flags], capture_output=True, text=True, timeout=30)
    alone = start("--enable-auto-tool-choice")
    assert alone.returncode != 0 and "--tool-call-parser" in alone.stderr
    unknown = start("--enable-auto-tool-choice", "--tool-call-parser", "pythonic")
    assert unknown.returncode != 0 and "hermes" in unknown.stderr
