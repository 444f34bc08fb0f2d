"""A drawn request on its way through an ASGI application, for the payload log."""

from collections.abc import Iterable
from typing import Final

from ringbatch.frontend.payloads.recorder import Answered, Kept, PayloadRecorder
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.tallies import Protocol

_JSON_LENGTH: Final = b"inference-header-content-length"
_TYPE: Final = b"content-type"
_CODING: Final = b"content-encoding"


class _Body:
    """A body in pieces, of which the first bytes are kept."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Add a piece."""
        self.size += len(piece)
        if self._left and piece:
            kept = bytes(piece[: self._left])
            self._pieces.append(kept)
            self._left -= len(kept)

    def kept(self) -> bytes:
        """Return what is kept."""
        return b"".join(self._pieces)


class KeptExchange:
    """A request and its answer, in the pieces that ASGI has.

    Args:
        payloads: takes it at its end.
        headers: of the request, as ASGI has them.
    """

    def __init__(self, payloads: PayloadRecorder, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._payloads = payloads
        self._headers = _by_name(headers)
        self._answer_headers: dict[bytes, bytes] = {}
        self._request = _Body(payloads.most_bytes)
        self._answer = _Body(payloads.most_bytes)

    def asks(self, piece: bytes) -> None:
        """Keep a piece of the request."""
        self._request.add(piece)

    def begins(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep the head of the answer."""
        self._answer_headers = _by_name(headers)

    def answers(self, piece: bytes) -> None:
        """Keep a piece of the answer."""
        self._answer.add(piece)

    def ended(self, ending: RequestOutcome, request_id: bytes) -> None:
        """Pass it on, if it was an inference."""
        if ending.tally.protocol is Protocol.HTTP:
            return
        request, answer, headers = self._request, self._answer, self._answer_headers
        kept = Kept(self._headers, request.kept(), request.size, _length(self._headers))
        answered = Answered(
            answer.kept(),
            answer.size,
            _length(headers),
            headers.get(_TYPE, b"").decode("latin-1"),
            headers.get(_CODING, b"").decode("latin-1"),
        )
        self._payloads.ended(kept, ending, request_id, answered)


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in headers}


def _length(headers: dict[bytes, bytes]) -> int | None:
    text = headers.get(_JSON_LENGTH, b"")
    return int(text) if text.isdigit() and len(text) < 19 else None
