"""Answers of OpenAI's completions, whole or in events, from tokens as they come. Pure."""

from collections.abc import Collection, Iterable
from typing import Any, Final

import orjson

from ringbatch.frontend.generation.completion_bodies import Completion
from ringbatch.frontend.generation.incremental_decoder import IncrementalDecoder
from ringbatch.frontend.generation.stops import StopMatcher

DONE: Final = b"[DONE]"
"""The data of the last event."""
_STOP: Final = "stop"
_LENGTH: Final = "length"


class CompletionWriter:
    """Writer of the answer to one request.

    Attributes:
        finish_reason: why no more tokens are wanted; empty while more are.
        streams: True if the answer is in events.

    Args:
        asked: the request.
        model: its name in the answer.
        prompt_tokens: the number of tokens of the prompt.
        max_tokens: the most tokens of the answer.
        ends: tokens that end the answer.
        decoder: of the answer's tokens.
        number: of the answer, in its id.
        created_s: in seconds since 1970.
    """

    def __init__(
        self,
        asked: Completion,
        model: str,
        prompt_tokens: int,
        max_tokens: int,
        ends: Collection[int],
        decoder: IncrementalDecoder,
        *,
        number: str,
        created_s: int,
    ) -> None:
        self.finish_reason = ""
        self.streams = asked.stream
        self._chat = asked.chat
        self._include_usage = asked.stream and asked.include_usage
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._ends = ends
        self._decoder = decoder
        self._stops = StopMatcher(asked.stops)
        self._count = 0
        self._texts: list[str] = []
        self._begun = False
        whole, part = (
            ("chat.completion", "chat.completion.chunk")
            if asked.chat
            else ("text_completion", "text_completion")
        )
        self._head = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{number}",
            "object": part if asked.stream else whole,
            "created": created_s,
            "model": model,
        }

    def take(self, tokens: Iterable[int]) -> list[bytes]:
        """Take tokens; return the events that they make, if the answer is in events."""
        text = ""
        for token in tokens:
            self._count += 1
            if token in self._ends:
                self.finish_reason = _STOP
            else:
                text += self._stops.feed(self._decoder.add(token))
                if self._stops.matched:
                    self.finish_reason = _STOP
                elif self._count >= self._max_tokens:
                    self.finish_reason = _LENGTH
            if self.finish_reason:
                break
        return self._events(text)

    def end(self) -> list[bytes]:
        """Return the last events, or the whole answer alone."""
        text = self._stops.feed(self._decoder.rest()) + self._stops.rest()
        if self._stops.matched or not self.finish_reason:
            self.finish_reason = _STOP
        events = self._events(text)
        if not self.streams:
            return [self._whole()]
        if self._chat:
            last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self.finish_reason}
        else:
            last = self._choice("", self.finish_reason)
        events += [*self._role(), self._written([last])]
        if self._include_usage:
            events.append(self._written([], usage=True))
        return [*events, DONE]

    def _events(self, text: str) -> list[bytes]:
        if not self.streams:
            self._texts.append(text)
            return []
        if not text:
            return []
        return [*self._role(), self._written([self._choice(text, None)])]

    def _role(self) -> list[bytes]:
        """Return the first event of a chat, the first time."""
        if self._begun or not self._chat:
            return []
        self._begun = True
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return [self._written([choice])]

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        said = {"delta": {"content": text}} if self._chat else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}

    def _written(self, choices: list[dict[str, Any]], *, usage: bool = False) -> bytes:
        answer = self._head | {"choices": choices}
        if self._include_usage:
            answer["usage"] = self._usage() if usage else None
        return orjson.dumps(answer)

    def _whole(self) -> bytes:
        text = "".join(self._texts)
        if self._chat:
            message = {"role": "assistant", "content": text, "refusal": None}
            choice: dict[str, Any] = {"index": 0, "message": message}
            choice |= {"logprobs": None, "finish_reason": self.finish_reason}
        else:
            choice = self._choice(text, self.finish_reason)
        return orjson.dumps(self._head | {"choices": [choice], "usage": self._usage()})

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._count,
            "total_tokens": self._prompt_tokens + self._count,
        }
