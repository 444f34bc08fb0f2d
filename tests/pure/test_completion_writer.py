"""Answers of completions, whole and in events, from tokens that are letters here.

Tests frontend/generation/choice_text.py.
"""

import json
from typing import Any

import pytest

from ringbatch.frontend.generation.choice_text import ChoiceText
from ringbatch.frontend.generation.completion_bodies import Completion
from ringbatch.frontend.generation.completion_writer import DONE, CompletionWriter
from ringbatch.frontend.generation.incremental_decoder import IncrementalDecoder

END = 0
PROMPT_TOKENS = 3


def writer(
    *,
    chat: bool = False,
    stream: bool = False,
    usage: bool = False,
    stops: tuple[str, ...] = (),
    most: int = 100,
    choices: int = 1,
) -> CompletionWriter:
    asked = Completion(chat, "", [], 1, [], stream, usage, 0, [*stops], {})
    texts = [
        ChoiceText(most, [END], IncrementalDecoder(lambda ids: "".join(map(chr, ids)), ()), stops)
        for _ in range(choices)
    ]
    return CompletionWriter(asked, "m", PROMPT_TOKENS, texts, number="1", created_s=9)


def decoded(events: list[bytes]) -> list[Any]:
    return [json.loads(one) if one != DONE else one for one in events]


def written(writer: CompletionWriter, text: str, ends: bool = True) -> list[Any]:
    """The events, or the answer alone, after the letters of a text as tokens, one a part."""
    found = []
    for token in [*map(ord, text), *[END] * ends]:
        found += writer.take(0, [token])
        if writer.has_enough(0):
            break
    found += writer.end()
    return decoded(found)


def test_a_completion_has_openai_s_form() -> None:
    (answer,) = written(writer(), "abc")
    assert answer == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 9,
        "model": "m",
        "choices": [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def test_a_chat_completion_has_openai_s_form() -> None:
    (answer,) = written(writer(chat=True), "abc")
    assert (answer["id"], answer["object"]) == ("chatcmpl-1", "chat.completion")
    message = {"role": "assistant", "content": "abc", "refusal": None}
    (choice,) = answer["choices"]
    assert choice == {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}


def test_events_of_a_completion() -> None:
    *events, done = written(writer(stream=True), "ab")
    assert done == DONE
    assert {event["object"] for event in events} == {"text_completion"}
    assert all("usage" not in event for event in events)
    choices = [event["choices"][0] for event in events]
    assert [choice["text"] for choice in choices] == ["a", "b", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]


def test_events_of_a_chat_have_the_role_first_and_the_usage_last() -> None:
    *events, usage, done = written(writer(chat=True, stream=True, usage=True), "ab")
    assert done == DONE
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert {event["usage"] for event in events} == {None}
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3


def test_a_chat_without_a_text_has_its_role_all_the_same() -> None:
    first, last, _ = written(writer(chat=True, stream=True), "")
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "options", "answer", "reason", "count"),
    [
        ("abcdef", {"most": 3}, "abc", "length", 3),
        ("abc", {"most": 3}, "abc", "length", 3),
        ("ab", {"most": 3}, "ab", "stop", 3),
        ("abcdef", {"stops": ("cd",)}, "ab", "stop", 4),
        ("abcdef", {"stops": ("cx",), "most": 3}, "abc", "length", 3),
        ("abc", {"stops": ("cx",)}, "abc", "stop", 4),
    ],
)
def test_an_answer_ends_for_a_reason(
    text: str, options: Any, answer: str, reason: str, count: int, *, stream: bool
) -> None:
    found = [
        one for one in written(writer(stream=stream, usage=True, **options), text) if one != DONE
    ]
    choices = [choice for one in found for choice in one["choices"]]
    assert "".join(choice["text"] for choice in choices) == answer
    assert choices[-1]["finish_reason"] == reason
    assert found[-1]["usage"]["completion_tokens"] == count


def test_tokens_behind_the_end_of_a_part_are_not_counted() -> None:
    made = writer(stops=("b",))
    made.take(0, [ord(letter) for letter in "abcd"])
    (answer,) = map(json.loads, made.end())
    assert answer["choices"][0]["text"] == "a"
    assert answer["usage"]["completion_tokens"] == 2


def test_a_model_that_ends_an_answer_itself_has_stopped() -> None:
    (answer,) = written(writer(), "abc", ends=False)
    assert answer["choices"][0]["finish_reason"] == "stop"


def take(made: CompletionWriter, index: int, text: str) -> list[Any]:
    return decoded(made.take(index, map(ord, text)))


@pytest.mark.parametrize("chat", [False, True])
def test_choices_stand_in_their_order_however_their_parts_come(*, chat: bool) -> None:
    made = writer(choices=3, chat=chat)
    for index, text in [(2, "x"), (0, "a"), (2, "y"), (0, "b"), (1, "")]:
        assert take(made, index, text) == []
    assert made.end_choice(2) == []
    assert not made.has_enough(0)
    (answer,) = decoded(made.end())
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    texts = [one["message"]["content"] if chat else one["text"] for one in choices]
    assert texts == ["ab", "", "xy"]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_events_of_choices_tell_their_index_and_each_ends_once() -> None:
    made = writer(choices=2, chat=True, stream=True, usage=True, stops=("q",))
    events = [*take(made, 1, "x"), *take(made, 0, "a"), *take(made, 1, "yq")]
    assert (made.has_enough(0), made.has_enough(1)) == (False, True)
    events += [*decoded(made.end_choice(1)), *take(made, 0, "b"), *decoded(made.end())]
    assert events.pop() == DONE
    usage = events.pop()
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 5)
    found = [event["choices"][0] for event in events]
    role = {"role": "assistant", "content": ""}
    assert [(one["index"], one["delta"], one["finish_reason"]) for one in found] == [
        (1, role, None),
        (1, {"content": "x"}, None),
        (0, role, None),
        (0, {"content": "a"}, None),
        (1, {"content": "y"}, None),
        (1, {}, "stop"),
        (0, {"content": "b"}, None),
        (0, {}, "stop"),
    ]
