"""Bodies of OpenAI's completions and chat completions. Pure.

    POST /v1/completions        {"model": ..., "prompt": a text or tokens, or a list of these,
                                 "max_tokens": 16, "temperature": 0.7, "top_p": 0.9, "seed": 1,
                                 "stop": a text or up to 4, "n": 2, "stream": true}
    POST /v1/chat/completions   {"model": ..., "messages": [{"role": "user", "content": "Hi"}],
                                 "max_completion_tokens": 16, ...}

A member that would change the answer, and that ringbatch does not have, is refused. One that would
not is ignored.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.texts.bodies import expect_members, optional, optional_count, parsed
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.texts import SAMPLING, SEED

DEFAULT_TOKENS: Final = 16
"""The most tokens of a completion that names no number, as OpenAI has it; a chat has no such
limit."""
MOST_CHOICES: Final = 128
"""Choices of one answer, of all prompts together; each takes a place of the model."""
MOST_STOPS: Final = 4
LONGEST_STOP: Final = 256
_INT64: Final = 1 << 63
RANGES: Final = dict(zip(SAMPLING, ((0.0, 2.0), (0.0, 1.0), (-2.0, 2.0), (-2.0, 2.0)), strict=True))
"""Options of sampling, and their smallest and largest values."""
DEFAULTS: Final = dict(zip(SAMPLING, (1.0, 1.0, 0.0, 0.0), strict=True))
"""OpenAI's defaults of these, which a model that has no such option may be asked for."""
_COMMON: Final = (
    *("model", "max_tokens", "stop", "stream", "stream_options", "n", SEED, *RANGES),
    # These change no answer.
    *("user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *("prompt_cache_options", "safety_identifier", "prediction", "parallel_tool_calls"),
)
_OF_BOTH: Final[dict[str, tuple[Any, ...]]] = {
    "logit_bias": ({},),
    "logprobs": (False,),
}
"""Members that are not supported, and the values that ask for nothing."""
_NOT_HAD_IN_COMPLETIONS: Final[dict[str, tuple[Any, ...]]] = _OF_BOTH | {
    "echo": (False,),
    "suffix": ("",),
}
_NOT_HAD_IN_CHATS: Final[dict[str, tuple[Any, ...]]] = _OF_BOTH | {
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
NOT_HAD: Final = _NOT_HAD_IN_COMPLETIONS | _NOT_HAD_IN_CHATS
"""All of these."""
_WHY: Final = dict.fromkeys(("logprobs", "top_logprobs"), ", as models give no probabilities")
"""Why some of them are not supported."""
IN_COMPLETIONS: Final = (*_COMMON, "prompt", "best_of", *_NOT_HAD_IN_COMPLETIONS)
"""Members of a completion."""
IN_CHATS: Final = (*_COMMON, "messages", "max_completion_tokens", *_NOT_HAD_IN_CHATS)
"""Members of a chat."""
_NOT_IN_MESSAGES: Final = ("tool_calls", "tool_call_id", "function_call")
_PROMPT_FORMS: Final = "it must be a text, a list of tokens, or a list of texts or such lists"
_CONTENT_FORMS: Final = "it must be a text, or a list of parts that are texts"


Prompt = str | list[int]
"""A text, or tokens."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A request for a text.

    Attributes:
        chat: True for a chat completion.
        model: its name; empty if the body has none.
        prompts: texts, or tokens of each; none in a chat.
        n: the number of choices for each prompt.
        messages: of a chat: each with its role, its content as a text, and perhaps a name.
        stream: True if the answer is to come in events.
        include_usage: True if one of these is to have the number of tokens.
        max_tokens: the most tokens of the answer; 0 if the body does not say.
        stops: texts that end the answer.
        options: the options of sampling that the body has, by name.
    """

    chat: bool
    model: str
    prompts: list[Prompt]
    n: int
    messages: list[dict[str, str]]
    stream: bool
    include_usage: bool
    max_tokens: int
    stops: list[str]
    options: dict[str, float]


def read(body: bytes | bytearray, *, chat: bool) -> Completion:
    """Return the request in a body.

    Raises:
        InvalidRequest: with the value found and the right form.
    """
    found = parsed(body)
    _expect_form(found, chat=chat)
    expect_members(found, IN_CHATS if chat else IN_COMPLETIONS)
    for name, values in (_NOT_HAD_IN_CHATS if chat else _NOT_HAD_IN_COMPLETIONS).items():
        _expect_nothing(found, name, values)
    stream_options = optional(found, "stream_options", dict, "an object") or {}
    most = optional_count(found, "max_completion_tokens") or optional_count(found, "max_tokens")
    n = optional_count(found, "n") or 1
    prompts = [] if chat else _prompts(found.get("prompt"))
    _expect_few_choices(n, len(prompts))
    _expect_nothing(found, "best_of", (1, n))
    return Completion(
        chat=chat,
        model=optional(found, "model", str, "the name of a model") or "",
        prompts=prompts,
        n=n,
        messages=_messages(found.get("messages")) if chat else [],
        stream=bool(optional(found, "stream", bool, "true or false")),
        include_usage=bool(optional(stream_options, "include_usage", bool, "true or false")),
        max_tokens=most,
        stops=_stops(found.get("stop")),
        options=_options(found),
    )


def seed_of(seed: int, choice: int) -> int:
    """Return the seed of one of several choices for a prompt; the first has that of the request.

    A negative one stays negative, because models may take that for none.
    """
    return (seed + choice) % _INT64 if seed >= 0 else ~((~seed + choice) % _INT64)


def _expect_nothing(found: dict[str, Any], name: str, values: tuple[Any, ...]) -> None:
    """Return if a member that is not supported asks for nothing.

    Raises:
        InvalidRequest: it asks for something.
    """
    value = found.get(name)
    # To Python, true is 1.
    if value is None or any(type(value) is type(one) and value == one for one in values):
        return
    why = _WHY.get(name, "")
    raise InvalidRequest(f'"{name}" is {shown(value)}, which is not supported{why}; leave it out')


def _expect_few_choices(n: int, prompts: int) -> None:
    """Return if a request asks for no more choices than one may have.

    Raises:
        InvalidRequest: it asks for more.
    """
    if n * max(prompts, 1) > MOST_CHOICES:
        each = f' for each of the {prompts} texts in "prompt"' if prompts > 1 else ""
        raise InvalidRequest(
            f'"n" is {n}{each}; an answer may have up to {MOST_CHOICES} choices in all'
        )


def _expect_form(found: dict[str, Any], *, chat: bool) -> None:
    """Name the right path of a body that has the form of the other one."""
    other = "prompt" if chat else "messages"
    if other in found and ("messages" if chat else "prompt") not in found:
        path = "/v1/completions" if chat else "/v1/chat/completions"
        raise InvalidRequest(f'"{other}" is for {path}, and not for this path')


def _prompts(value: Any) -> list[Prompt]:
    if value is None:
        raise InvalidRequest(f'"prompt" is missing; {_PROMPT_FORMS}')
    if isinstance(value, list) and value and not _is_prompt(value) and all(map(_is_prompt, value)):
        return value
    if not _is_prompt(value):
        raise InvalidRequest(f'"prompt" is {_shown_prompt(value)}; {_PROMPT_FORMS}')
    return [value]


def _shown_prompt(value: Any) -> str:
    """Return a value that is no prompt in words; of a list, the first item that is none."""
    if not isinstance(value, list):
        return shown(value)
    wrong = [item for item in value if not _is_prompt(item)]
    if not wrong:
        return "an empty list"
    return f"a list with {'an empty list' if wrong[0] == [] else shown(wrong[0])}"


def _is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        # To Python, true is a number.
        return bool(value) and all(type(item) is int for item in value)
    return isinstance(value, str)


def _messages(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest('"messages" must be a list of at least one message')
    return [_message(item, number) for number, item in enumerate(value)]


def _message(value: Any, number: int) -> dict[str, str]:
    """Return a message with its content as one text."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise InvalidRequest(f"message {number} is no object with a role")
    for name in _NOT_IN_MESSAGES:
        if value.get(name):
            raise InvalidRequest(f'message {number} has "{name}", which is not supported')
    content: Any = value.get("content")
    if isinstance(content, list):
        content = "".join(_part(part, number) for part in content)
    if not isinstance(content, str):
        raise InvalidRequest(
            f"the content of message {number} is {shown(content)}; {_CONTENT_FORMS}"
        )
    message: dict[str, str] = {"role": value["role"], "content": content}
    author = optional(value, "name", str, "a text")
    return message if author is None else message | {"name": author}


def _part(part: Any, number: int) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise InvalidRequest(
            f"the content of message {number} has a part of type {shown(kind)}; {_CONTENT_FORMS}"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"a part of message {number} has no text; {_CONTENT_FORMS}")
    return text


def _stops(value: Any) -> list[str]:
    stops = [] if value is None else value if isinstance(value, list) else [value]
    for stop in stops:
        if not isinstance(stop, str) or not 0 < len(stop) <= LONGEST_STOP:
            raise InvalidRequest(
                f'"stop" has {shown(stop)}; each must be a text of 1 to {LONGEST_STOP} characters'
            )
    if len(stops) > MOST_STOPS:
        raise InvalidRequest(f'"stop" has {len(stops)} texts; it may have up to {MOST_STOPS}')
    return list(stops)


def _options(found: dict[str, Any]) -> dict[str, float]:
    options: dict[str, float] = {}
    for name, (least, most) in RANGES.items():
        value = found.get(name)
        if value is None:
            continue
        words = f'"{name}" is {shown(value)}; it must be a number from {least:g} to {most:g}'
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidRequest(words)
        if not math.isfinite(value) or not least <= value <= most:
            raise InvalidRequest(words)
        options[name] = float(value)
    seed = optional(found, SEED, int, "a whole number")
    if seed is not None:
        if not -_INT64 <= seed < _INT64:
            raise InvalidRequest(f'"{SEED}" is {seed}; it must be a whole number of 64 bits')
        options[SEED] = seed
    return options
