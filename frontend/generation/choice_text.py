"""Text of one choice of a completion, from its tokens as they come. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ringbatch.frontend.generation.incremental_decoder import IncrementalDecoder
from ringbatch.frontend.generation.stops import StopMatcher

_STOP: Final = "stop"
_LENGTH: Final = "length"


class ChoiceText:
    """The text of one choice.

    Attributes:
        finish_reason: why no more tokens are wanted; empty while more are.
        count: tokens so far.
        has_ended: True once there is no more text.

    Args:
        max_tokens: the most tokens of the choice.
        ends: tokens that end it.
        decoder: of its tokens.
        stops: texts that end it.
    """

    __slots__ = (
        "_decoder",
        "_ends",
        "_max_tokens",
        "_stops",
        "count",
        "finish_reason",
        "has_ended",
    )

    def __init__(
        self,
        max_tokens: int,
        ends: Collection[int],
        decoder: IncrementalDecoder,
        stops: Sequence[str],
    ) -> None:
        self.finish_reason = ""
        self.count = 0
        self.has_ended = False
        self._max_tokens = max_tokens
        self._ends = ends
        self._decoder = decoder
        self._stops = StopMatcher(stops)

    def take(self, tokens: Iterable[int]) -> str:
        """Take tokens; return the text that they add."""
        text = ""
        for token in tokens:
            self.count += 1
            if token in self._ends:
                self.finish_reason = _STOP
            else:
                text += self._stops.feed(self._decoder.add(token))
                if self._stops.matched:
                    self.finish_reason = _STOP
                elif self.count >= self._max_tokens:
                    self.finish_reason = _LENGTH
            if self.finish_reason:
                break
        return text

    def end(self) -> str:
        """Return the text that was held back, as no more tokens come."""
        self.has_ended = True
        text = self._stops.feed(self._decoder.rest()) + self._stops.rest()
        if self._stops.matched or not self.finish_reason:
            self.finish_reason = _STOP
        return text
