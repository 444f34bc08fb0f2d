"""The request's context for `predict`, if it takes `request`: an entry for each row."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

_NEVER: Final = (1 << 63) - 1


def _still_wanted() -> bool:
    return True


class Request:
    """Context of a row's request, beside its inputs.

    Rows of one request share an entry; a row that fills a batch up, or was made up, has an empty
    one.

    Attributes:
        id: that the client has given it; empty if it has none.
        parameters: V2's and gRPC's `parameters`, or the further members of a V1 body.
        headers: those of the setting `headers` that came with it, by their names in lower case.
        deadline_ns: on the monotonic clock; after that no client waits for the answer.
    """

    __slots__ = ("_is_wanted", "deadline_ns", "headers", "id", "parameters")

    def __init__(
        self,
        id: str = "",
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_ns: int = _NEVER,
        is_wanted: Callable[[], bool] = _still_wanted,
    ) -> None:
        self.id = id
        self.parameters: Mapping[str, Any] = parameters or {}
        self.headers: Mapping[str, str] = headers or {}
        self.deadline_ns = deadline_ns
        self._is_wanted = is_wanted

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; below 0 if it has passed."""
        return (self.deadline_ns - time.monotonic_ns()) / 1e9

    @property
    def cancelled(self) -> bool:
        """True if no client waits any more, at this instant."""
        return not self._is_wanted()

    def __repr__(self) -> str:
        return f"Request(id={self.id!r}, parameters={self.parameters!r}, headers={self.headers!r})"
