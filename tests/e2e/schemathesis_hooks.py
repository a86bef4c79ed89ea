"""schemathesis_hooks.py: what schemathesis cannot make of /openapi.json by itself.

Loaded by test_openapi.py through SCHEMATHESIS_HOOKS. Only bodies that are meant to be accepted are touched: what fields need of each other
(if and then) is more than its generator takes at once, so bodies are made without and put right here; and no schema says that prompt and
answer share the context.
"""
import json

import jsonschema_rs
import schemathesis
from hypothesis import strategies

GENERATIONS = ("/v1/chat/completions", "/v1/completions")
TOKENS = 3  # of an answer: this is a test of bodies, not of the model
LETTERS = 100  # of a text, and entries of a list, in prompts

schemathesis.openapi.format("json-object", strategies.dictionaries(strategies.sampled_from("abc"), strategies.integers(0, 9)).map(json.dumps))
rules = []


@schemathesis.hook
def before_load_schema(context, raw_schema):
    for schema in raw_schema["components"]["schemas"].values():
        for rule in schema.pop("allOf", []):
            rules.append((rule["if"]["required"][0], jsonschema_rs.validator_for(rule["if"]), jsonschema_rs.validator_for(rule["then"])))


def keep_rules(body):
    for field, condition, needed in rules:
        if condition.is_valid(body) and not needed.is_valid(body):
            del body[field]


def shortened(value):
    """A prompt that fits the context of a small model, whatever its letters."""
    if isinstance(value, str):
        return value[:LETTERS]
    if isinstance(value, list):
        return [shortened(item) for item in value[:LETTERS]]
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def bound(body):
    for name in ("prompt", "messages", "documents"):
        if name in body:
            body[name] = shortened(body[name])
    if body.get("bad_words"):  # 200 tokens in all, and a word is two, with and without a space before it
        body["bad_words"] = [word.lstrip(" ")[:10] for word in body["bad_words"][:2]]
    for name in ("max_tokens", "max_completion_tokens"):
        if is_number(body.get(name)):
            body[name] = min(body[name], TOKENS)
    if not any(is_number(body.get(name)) for name in ("max_tokens", "max_completion_tokens")):
        body["max_tokens"] = TOKENS
    if is_number(body.get("min_tokens")):
        body["min_tokens"] = min(body["min_tokens"], 1)
    prompt_alone = body.get("echo") is True or is_number(body.get("prompt_logprobs"))
    if body.get("max_tokens") == 0 and (not prompt_alone or body.get("min_tokens")):
        body["max_tokens"] = 1


@schemathesis.hook
def before_call(context, case, kwargs):
    generation = case.meta and case.meta.generation
    if not isinstance(case.body, dict) or generation is None or not generation.mode.is_positive:
        return
    keep_rules(case.body)
    if case.path in GENERATIONS:
        bound(case.body)
