"""Stops: texts behind which an answer ends, found however the answer is cut into pieces. Pure."""

from collections.abc import Sequence


class StopMatcher:
    """Finds the first of some stops in a text that comes in pieces.

    Text is held back while its end may become a stop. Of several stops, the one that is complete
    first counts, and of those that end together the longest. So the pieces make no difference.

    Attributes:
        matched: True once a stop was found.

    Args:
        stops: none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.matched = False

    def feed(self, piece: str) -> str:
        """Return the text that may be sent: what is before a stop, without what is held back."""
        if self.matched:
            return ""
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.matched = True
            self._held = ""
            return text[: min(ends)[1]]
        held = max((_begun(text, stop) for stop in self._stops), default=0)
        sent = len(text) - held
        self._held = text[sent:]
        return text[:sent]

    def rest(self) -> str:
        """Return the text that was held back, as no more comes."""
        rest, self._held = self._held, ""
        return rest


def _begun(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop."""
    most = min(len(stop) - 1, len(text))
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)
