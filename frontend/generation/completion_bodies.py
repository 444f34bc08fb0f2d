"""Bodies of OpenAI's completions and chat completions. Pure.

    POST /v1/completions        {"model": ..., "prompt": a text, a list of one text, or tokens,
                                 "max_tokens": 16, "temperature": 0.7, "top_p": 0.9, "seed": 1,
                                 "stop": a text or up to 4, "stream": true}
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
MOST_STOPS: Final = 4
LONGEST_STOP: Final = 256
_INT64: Final = 1 << 63
RANGES: Final = dict(zip(SAMPLING, ((0.0, 2.0), (0.0, 1.0), (-2.0, 2.0), (-2.0, 2.0)), strict=True))
"""Options of sampling, and their smallest and largest values."""
DEFAULTS: Final = dict(zip(SAMPLING, (1.0, 1.0, 0.0, 0.0), strict=True))
"""OpenAI's defaults of these, which a model that has no such option may be asked for."""
_COMMON: Final = (
    *("model", "max_tokens", "stop", "stream", "stream_options", SEED, *RANGES),
    # These change no answer.
    *("user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    *("prompt_cache_options", "safety_identifier", "prediction", "parallel_tool_calls"),
)
_OF_BOTH: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
}
"""Members that are not supported, and the values that ask for nothing."""
_NOT_HAD_IN_COMPLETIONS: Final[dict[str, tuple[Any, ...]]] = _OF_BOTH | {
    "best_of": (1,),
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
IN_COMPLETIONS: Final = (*_COMMON, "prompt", *_NOT_HAD_IN_COMPLETIONS)
"""Members of a completion."""
IN_CHATS: Final = (*_COMMON, "messages", "max_completion_tokens", *_NOT_HAD_IN_CHATS)
"""Members of a chat."""
_NOT_IN_MESSAGES: Final = ("tool_calls", "tool_call_id", "function_call")
_PROMPT_FORMS: Final = "it must be a text, a list of one text, or a list of tokens"
_CONTENT_FORMS: Final = "it must be a text, or a list of parts that are texts"


@dataclass(frozen=True, slots=True)
class Completion:
    """A request for a text.

    Attributes:
        chat: True for a chat completion.
        model: its name; empty if the body has none.
        prompt: a text, or tokens; None in a chat.
        messages: of a chat: each with its role, its content as a text, and perhaps a name.
        stream: True if the answer is to come in events.
        include_usage: True if one of these is to have the number of tokens.
        max_tokens: the most tokens of the answer; 0 if the body does not say.
        stops: texts that end the answer.
        options: the options of sampling that the body has, by name.
    """

    chat: bool
    model: str
    prompt: str | list[int] | None
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
    expect_members(found, IN_CHATS if chat else IN_COMPLETIONS)
    for name, values in (_NOT_HAD_IN_CHATS if chat else _NOT_HAD_IN_COMPLETIONS).items():
        _expect_nothing(found, name, values)
    stream_options = optional(found, "stream_options", dict, "an object") or {}
    most = optional_count(found, "max_completion_tokens") or optional_count(found, "max_tokens")
    return Completion(
        chat=chat,
        model=optional(found, "model", str, "the name of a model") or "",
        prompt=None if chat else _prompt(found.get("prompt")),
        messages=_messages(found.get("messages")) if chat else [],
        stream=bool(optional(found, "stream", bool, "true or false")),
        include_usage=bool(optional(stream_options, "include_usage", bool, "true or false")),
        max_tokens=most,
        stops=_stops(found.get("stop")),
        options=_options(found),
    )


def _expect_nothing(found: dict[str, Any], name: str, values: tuple[Any, ...]) -> None:
    """Return where a member that is not supported asks for nothing.

    Raises:
        InvalidRequest: it asks for something.
    """
    value = found.get(name)
    # To Python, true is 1.
    if value is None or any(type(value) is type(one) and value == one for one in values):
        return
    raise InvalidRequest(f'"{name}" is {shown(value)}, which is not supported; leave it out')


def _prompt(value: Any) -> str | list[int]:
    if value is None:
        raise InvalidRequest(f'"prompt" is missing; {_PROMPT_FORMS}')
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return value
        if len(value) == 1 and isinstance(value[0], str | list):
            return _prompt(value[0])
        if all(isinstance(item, str | list) for item in value):
            raise InvalidRequest(f'"prompt" has {len(value)} prompts; send a request for each')
    raise InvalidRequest(f'"prompt" is {shown(value)}; {_PROMPT_FORMS}')


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
    who = optional(value, "name", str, "a text")
    return message if who is None else message | {"name": who}


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
