"""test_steering.py: penalties, biases, bans: the choice of each token is worked out again from the raw log-probabilities."""
from collections import Counter

import openai
import pytest

STORY = [{"role": "user", "content": "Tell me a story about a fox."}]


def ask(client, messages=STORY, **fields):
    own = {k: fields.pop(k) for k in list(fields)
           if k in ("repetition_penalty", "min_tokens", "allowed_token_ids", "bad_words", "ignore_eos", "stop_token_ids", "top_k")}
    answer = client.chat.completions.create(model="seedling", messages=messages, temperature=fields.pop("temperature", 0),
                                            extra_body={**own, "return_token_ids": True}, **fields)
    return answer.choices[0]


def steps(choice):
    """For each step the token that was chosen and the raw log-probabilities of the likeliest ones, by their bytes."""
    for item in choice.logprobs.content:
        yield bytes(item.bytes), {bytes(t.bytes): t.logprob for t in item.top_logprobs}


def test_penalties_choose_what_the_raw_probabilities_and_the_counts_say(client):
    choice = ask(client, presence_penalty=0.8, frequency_penalty=0.6, logprobs=True, top_logprobs=20, max_tokens=60)
    seen, bent = Counter(), 0
    for token, likely in steps(choice):
        adjusted = {t: p - 0.8 * (seen[t] > 0) - 0.6 * seen[t] for t, p in likely.items()}
        best = max(adjusted, key=adjusted.get)
        # What is not listed is at most as likely as the last that is, and can only have lost.
        if adjusted[best] > min(likely.values()) + 1e-5:
            assert token == best
            bent += token != max(likely, key=likely.get)
        seen[token] += 1
    assert bent > 0


def test_repetition_penalty_changes_the_answer_and_1_does_not(client):
    plain = ask(client, max_tokens=60)
    assert ask(client, max_tokens=60, repetition_penalty=1.0).token_ids == plain.token_ids
    steered = ask(client, max_tokens=60, repetition_penalty=1.5)
    assert len(set(steered.token_ids)) / len(steered.token_ids) > len(set(plain.token_ids)) / len(plain.token_ids)


def test_a_bias_of_100_forces_a_token_and_minus_100_keeps_it_away(client):
    first = ask(client, max_tokens=1).token_ids[0]
    assert ask(client, max_tokens=5, logit_bias={"300": 100}).token_ids == [300] * 5
    assert first not in ask(client, max_tokens=30, logit_bias={str(first): -100}).token_ids


def test_only_allowed_ids_come_also_when_sampled(client):
    choice = ask(client, allowed_token_ids=[300, 301, 302], temperature=1.5, seed=3, max_tokens=40)
    assert set(choice.token_ids) == {300, 301, 302}


def test_bad_words_do_not_come(client):
    plain = ask(client, max_tokens=80).message.content
    word = max((w.strip(".,") for w in plain.split()), key=lambda w: (plain.split().count(w), len(w)))
    assert f" {word} " in plain
    banned = ask(client, max_tokens=80, bad_words=[word])
    assert word not in banned.message.content.replace(".", " ").replace(",", " ").split()


def test_min_tokens_hold_the_end_back(client):
    kenya = [{"role": "user", "content": "What is the capital of Kenya?"}]
    short = ask(client, kenya)
    assert short.finish_reason == "stop"
    longer = ask(client, kenya, min_tokens=len(short.token_ids) + 10, max_tokens=100)
    assert len(longer.token_ids) >= len(short.token_ids) + 10
    assert longer.token_ids[:len(short.token_ids) - 1] == short.token_ids[:-1]


def test_min_tokens_hold_stop_strings_back(client):
    word = ask(client, max_tokens=60).message.content.split()[3]
    assert word not in ask(client, max_tokens=60, stop=[word]).message.content
    late = ask(client, max_tokens=60, stop=[word], min_tokens=30)
    assert word in late.message.content and len(late.token_ids) >= 30


def test_steering_of_one_request_leaves_the_next_in_its_place_alone(client):
    plain = ask(client, max_tokens=30).token_ids
    ask(client, max_tokens=30, logit_bias={"300": 100})
    assert ask(client, max_tokens=30).token_ids == plain


@pytest.mark.parametrize("field, value", [
    ("presence_penalty", 2.5), ("presence_penalty", "1"), ("frequency_penalty", -3), ("repetition_penalty", 0),
    ("repetition_penalty", -1), ("min_tokens", -1), ("min_tokens", 4000000000), ("logit_bias", {"-1": 1}),
    ("logit_bias", {"99999999": 1}), ("logit_bias", {"5": 101}), ("logit_bias", {"5": "1"}), ("logit_bias", {"05": 1}),
    ("logit_bias", [5]), ("logit_bias", {str(i): 1 for i in range(301)}), ("allowed_token_ids", []),
    ("allowed_token_ids", [-1]), ("allowed_token_ids", [1 << 40]), ("allowed_token_ids", list(range(1025))),
    ("bad_words", [""]), ("bad_words", "fox"), ("bad_words", ["x"] * 65), ("bad_words", ["a b c d e f g h " * 60]),
])
def test_wrong_steering_is_refused_by_name(client, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="seedling", messages=STORY, max_tokens=20, extra_body={field: value})
    assert caught.value.param == field


END = 2047  # ends seedling's answers, as 2045 does


@pytest.mark.parametrize("fields, named", [
    ({"allowed_token_ids": [END], "min_tokens": 1}, ["min_tokens"]),
    ({"allowed_token_ids": [END, 300], "min_tokens": 2, "stop_token_ids": [300]}, ["min_tokens", "stop_token_ids"]),
    ({"allowed_token_ids": [64], "bad_words": ["a"]}, ["bad_words"]),
    ({"allowed_token_ids": [64, END], "bad_words": ["a"], "min_tokens": 1}, ["bad_words", "min_tokens"]),
])
def test_what_contradicts_itself_is_refused_with_the_fields_names(client, fields, named):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="seedling", messages=STORY, max_tokens=20, extra_body=fields)
    assert caught.value.param == "allowed_token_ids"
    assert all(f"'{field}'" in caught.value.message for field in named)


def test_what_could_be_kept_is_not_refused(client):
    assert ask(client, allowed_token_ids=[END], max_tokens=5).finish_reason == "stop"
    assert set(ask(client, allowed_token_ids=[64, 300], bad_words=["a"], max_tokens=5).token_ids) == {300}
    # Only after 300 is nothing left, where a banned word does not count.
    assert ask(client, allowed_token_ids=[300], bad_words=["a b"], max_tokens=5).token_ids == [300] * 5
