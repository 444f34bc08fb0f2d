"""Answers of OpenAI's completions, whole or in events, from tokens as they come. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from ringbatch.frontend.generation.choice_text import ChoiceText
from ringbatch.frontend.generation.completion_bodies import Completion

DONE: Final = b"[DONE]"
"""The data of the last event."""


class CompletionWriter:
    """Writer of the answer to one request.

    Attributes:
        streams: True if the answer is in events.

    Args:
        asked: the request.
        model: its name in the answer.
        prompt_tokens: the number of tokens of all prompts.
        choices: the texts of the answer, in its order.
        number: of the answer, in its id.
        created_s: in seconds since 1970.
    """

    def __init__(
        self,
        asked: Completion,
        model: str,
        prompt_tokens: int,
        choices: Sequence[ChoiceText],
        *,
        number: str,
        created_s: int,
    ) -> None:
        self.streams = asked.stream
        self._chat = asked.chat
        self._include_usage = asked.stream and asked.include_usage
        self._prompt_tokens = prompt_tokens
        self._choices = choices
        self._texts: list[list[str]] = [[] for _ in choices]
        """Pieces of each text, if the answer is whole."""
        self._begun: set[int] = set()
        """Choices of a chat of which events are out."""
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

    def take(self, index: int, tokens: Iterable[int]) -> list[bytes]:
        """Take tokens of a choice; return the events that they make, if the answer is in events."""
        return self._events(index, self._choices[index].take(tokens))

    def has_enough(self, index: int) -> bool:
        """Return whether a choice wants no more tokens."""
        return bool(self._choices[index].finish_reason)

    def end_choice(self, index: int) -> list[bytes]:
        """Return the last events of a choice, if the answer is in events."""
        choice = self._choices[index]
        events = self._events(index, choice.end())
        if not self.streams:
            return []
        if self._chat:
            last = _chat_choice(index, {"delta": {}}, choice.finish_reason)
        else:
            last = self._piece(index, "", choice.finish_reason)
        return [*events, *self._role(index), self._written([last])]

    def end(self) -> list[bytes]:
        """Return the last events, or the whole answer alone."""
        events = []
        for index, choice in enumerate(self._choices):
            if not choice.has_ended:
                events += self.end_choice(index)
        if not self.streams:
            choices = [self._whole(index) for index in range(len(self._choices))]
            return [orjson.dumps(self._head | {"choices": choices, "usage": self._usage()})]
        if self._include_usage:
            events.append(self._written([], usage=True))
        return [*events, DONE]

    def _events(self, index: int, text: str) -> list[bytes]:
        if not self.streams:
            self._texts[index].append(text)
            return []
        if not text:
            return []
        return [*self._role(index), self._written([self._piece(index, text, None)])]

    def _role(self, index: int) -> list[bytes]:
        """Return the first event of a choice of a chat, the first time."""
        if not self._chat or index in self._begun:
            return []
        self._begun.add(index)
        delta = {"role": "assistant", "content": ""}
        return [self._written([_chat_choice(index, {"delta": delta}, None)])]

    def _piece(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        if self._chat:
            return _chat_choice(index, {"delta": {"content": text}}, finish_reason)
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}

    def _written(self, choices: list[dict[str, Any]], *, usage: bool = False) -> bytes:
        answer = self._head | {"choices": choices}
        if self._include_usage:
            answer["usage"] = self._usage() if usage else None
        return orjson.dumps(answer)

    def _whole(self, index: int) -> dict[str, Any]:
        text, reason = "".join(self._texts[index]), self._choices[index].finish_reason
        if self._chat:
            message = {"role": "assistant", "content": text, "refusal": None}
            return _chat_choice(index, {"message": message}, reason)
        return self._piece(index, text, reason)

    def _usage(self) -> dict[str, int]:
        made = sum(choice.count for choice in self._choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self._prompt_tokens + made,
        }


def _chat_choice(index: int, said: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, **said, "logprobs": None, "finish_reason": finish_reason}
