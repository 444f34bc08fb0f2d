"""Bodies of completions and of chats, as OpenAI's clients send them and as others do."""

from typing import Any

import orjson
import pytest

from ringbatch.frontend.generation.completion_bodies import (
    MOST_CHOICES,
    Completion,
    read,
    seed_of,
)
from ringbatch.shm.errors import InvalidRequest

USER = {"role": "user", "content": "Hi"}


def completion(**members: Any) -> Completion:
    return read(orjson.dumps({"prompt": "a", **members}), chat=False)


def chat(**members: Any) -> Completion:
    return read(orjson.dumps({"messages": [USER], **members}), chat=True)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("a b", ["a b"]),
        ("", [""]),
        (["a b"], ["a b"]),
        (["a", "", "c"], ["a", "", "c"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2, 3]], [[1, 2, 3]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [2, 3]], ["a", [2, 3]]),
    ],
)
def test_prompts_are_texts_or_tokens(given: Any, prompts: Any) -> None:
    assert completion(prompt=given).prompts == prompts


def test_each_prompt_has_several_choices() -> None:
    assert (completion(n=3).n, chat(n=MOST_CHOICES).n) == (3, MOST_CHOICES)
    assert completion(n=2, best_of=2) == completion(n=2)
    half = MOST_CHOICES // 2
    assert completion(n=2, prompt=["a"] * half).n == 2


@pytest.mark.parametrize(("seed", "seeds"), [(5, [5, 6, 7]), (-1, [-1, -2, -3])])
def test_seeds_of_choices_follow_that_of_the_request(seed: int, seeds: list[int]) -> None:
    assert [seed_of(seed, choice) for choice in range(3)] == seeds


def test_seeds_of_choices_stay_in_their_64_bits() -> None:
    most = (1 << 63) - 1
    assert [seed_of(most, choice) for choice in range(3)] == [most, 0, 1]
    assert [seed_of(-most - 1, choice) for choice in range(3)] == [-most - 1, -1, -2]


def test_absent_members_ask_for_nothing() -> None:
    nulls = dict.fromkeys(
        ("n", "stop", "stream", "stream_options", "seed", "top_p", "logprobs", "echo", "suffix")
    )
    plain = Completion(False, "", ["a"], 1, [], False, False, 0, [], {})
    assert completion() == plain
    assert completion(**nulls) == plain


def test_members_are_read() -> None:
    asked = completion(
        model="m",
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        seed=-3,
        stop="x",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    options = {"temperature": 0.0, "top_p": 0.5, "seed": -3}
    assert asked == Completion(False, "m", ["a"], 1, [], True, True, 5, ["x"], options)
    assert chat(max_completion_tokens=7, max_tokens=3).max_tokens == 7
    assert chat(max_tokens=3).max_tokens == 3
    assert chat(stop=["a", "b"]).stops == ["a", "b"]


def test_messages_have_their_content_as_one_text() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    # As OpenAI's package writes an answer that goes back into a chat.
    answer = {"role": "assistant", "content": "yes", "refusal": None, "tool_calls": None}
    asked = chat(messages=[{"role": "user", "content": parts, "name": "ann"}, answer])
    assert asked.messages == [
        {"role": "user", "content": "one two", "name": "ann"},
        {"role": "assistant", "content": "yes"},
    ]


HARMLESS = {
    "user": "u",
    "metadata": {"a": "b"},
    "store": False,
    "service_tier": "auto",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "n": 1,
    "logit_bias": {},
    "logprobs": False,
}


def test_a_field_that_changes_no_answer_is_ignored() -> None:
    assert completion(**HARMLESS, best_of=1, echo=False, suffix="") == completion()
    response_format = {"type": "text"}
    harmless = HARMLESS | {"parallel_tool_calls": True, "tools": [], "tool_choice": "auto"}
    assert chat(**harmless, response_format=response_format, modalities=["text"]) == chat()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"prompt": None}, '"prompt" is missing'),
        ({"prompt": []}, '"prompt" is an empty list; it must be a text'),
        ({"prompt": [[]]}, '"prompt" is a list with an empty list; it must'),
        ({"prompt": ["a", 1]}, '"prompt" is a list with 1; it must'),
        ({"prompt": [["a"]]}, '"prompt" is a list with a list; it must'),
        ({"prompt": 3}, '"prompt" is 3; it must be'),
        ({"prompt": [True]}, '"prompt" is a list with true; it must'),
        ({"n": 0}, '"n" is 0; it must be a whole number from 1'),
        ({"n": True}, '"n" is true; it must be a whole number from 1'),
        ({"n": 129}, '"n" is 129; an answer may have up to 128 choices in all'),
        ({"n": 43, "prompt": ["a"] * 3}, '"n" is 43 for each of the 3 texts in "prompt"; an'),
        ({"prompt": [[1]] * 129}, '"n" is 1 for each of the 129 texts in "prompt"; an answer may'),
        ({"n": 3, "best_of": 2}, '"best_of" is 2'),
        ({"best_of": 2}, '"best_of" is 2'),
        ({"echo": True}, '"echo" is true'),
        ({"logprobs": 0}, '"logprobs" is 0, which is not supported, as models give no prob'),
        ({"suffix": "z"}, '"suffix" is "z"'),
        ({"logit_bias": {"1": 2}}, '"logit_bias" is an object'),
        ({"tools": []}, 'unknown member "tools"'),
        ({"max_tokens": 0}, '"max_tokens" is 0; it must be a whole number from 1'),
        ({"max_tokens": 1.5}, '"max_tokens" is 1.5'),
        ({"temperature": 2.5}, '"temperature" is 2.5; it must be a number from 0 to 2'),
        ({"temperature": "hot"}, '"temperature" is "hot"'),
        ({"top_p": True}, '"top_p" is true'),
        ({"seed": 1 << 63}, "a whole number of 64 bits"),
        ({"seed": 0.5}, '"seed" is 0.5'),
        ({"stop": [""]}, "a text of 1 to 256 characters"),
        ({"stop": 4}, '"stop" has 4'),
        ({"stop": ["a"] * 5}, "it may have up to 4"),
        ({"stream": "yes"}, '"stream" is "yes"'),
        ({"stream_options": 1}, '"stream_options" is 1'),
        ({"model": 4}, '"model" is 4'),
        ({"modle": "m"}, 'unknown member "modle"'),
    ],
)
def test_completions_that_cannot_be_answered_are_refused(
    members: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        completion(**members)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"messages": []}, "a list of at least one message"),
        ({"messages": "Hi"}, "a list of at least one message"),
        ({"messages": [{"content": "Hi"}]}, "message 0 is no object with a role"),
        ({"messages": [USER, {"role": "user"}]}, "the content of message 1 is null"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            'a part of type "image_url"',
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has no text"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, 'a part of type "a"'),
        ({"messages": [USER | {"name": 3}]}, '"name" is 3'),
        ({"messages": [USER | {"tool_calls": [{}]}]}, '"tool_calls", which is not supported'),
        ({"tools": [{}]}, '"tools" is a list'),
        ({"tool_choice": "required"}, '"tool_choice" is "required"'),
        ({"response_format": {"type": "json_object"}}, '"response_format" is an object'),
        ({"logprobs": True}, '"logprobs" is true, which is not supported, as models give no prob'),
        ({"top_logprobs": 2}, '"top_logprobs" is 2, which is not supported, as models give no'),
        ({"audio": {}}, '"audio" is an object, which is not supported; leave it out'),
        ({"reasoning_effort": "low"}, '"reasoning_effort" is "low"'),
        ({"prompt": "a"}, 'unknown member "prompt"'),
    ],
)
def test_chats_that_cannot_be_answered_are_refused(members: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(**members)
    assert words in str(refused.value)


@pytest.mark.parametrize("chat", [False, True])
def test_a_body_of_the_other_form_gets_the_path_for_it(chat: bool) -> None:
    own, other = (
        ({"messages": [USER]}, {"prompt": "a"}) if chat else ({"prompt": "a"}, {"messages": [USER]})
    )
    path = "/v1/completions" if chat else "/v1/chat/completions"
    with pytest.raises(InvalidRequest, match=f"is for {path}, and not for this path"):
        read(orjson.dumps(other), chat=chat)
    with pytest.raises(InvalidRequest, match="unknown member"):
        read(orjson.dumps(own | other), chat=chat)
