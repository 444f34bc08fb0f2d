"""Several generators, as processes, which make one load together."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import orjson

from ringbatch.bench.load.arrivals import Arrivals
from ringbatch.bench.load.child import Child
from ringbatch.bench.load.outcome import Outcome, together
from ringbatch.bench.load.target import Target, Wire

_ROLE: Final = "ringbatch.bench.load.role"
_CLIENT_ROLE: Final = "ringbatch.bench.client.role"
"""Module of the process that asks through a `Client`. It is named, not imported: a room never
imports rooms above it, nor the code that it measures."""
_LEAD_S: Final = 0.25
"""Time from the order to the begin of a run, in which connections are made."""


class Fleet:
    """Generators that wait for orders; a context manager that ends them.

    Args:
        count: number of generators.
        target: where requests go.
        messages: whole requests; for a Client, bodies of V2 in JSON.
        references: bodies of the right answers to them, of V2 except over HTTP, where answers are
            compared.
        call_head: over gRPC, the header block of each call.
        compares: False to hold answers in events to the number of parts of their references alone.
    """

    def __init__(
        self,
        count: int,
        target: Target,
        messages: Sequence[bytes],
        references: Sequence[bytes] = (),
        call_head: bytes = b"",
        *,
        compares: bool = True,
    ) -> None:
        self._target, self._messages, self._references = target, messages, references
        self._call_head, self._compares = call_head, compares
        role = _CLIENT_ROLE if target.wire is Wire.CLIENT else _ROLE
        self._children = [Child(role) for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        """The generators."""
        return [child.pid for child in self._children]

    def run(self, arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
        """Make a load and wait for its end.

        Args:
            arrivals: when requests are due, of all generators together.
            connections: of all of them; of a closed loop exactly so many.
            grace_s: how long answers are waited for after the last request was due.

        Raises:
            GeneratorDied: one has.
        """
        parts = len(self._children)
        begin_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
        for part, child in enumerate(self._children):
            share = connections // parts + (part < connections % parts)
            order = {
                "target": self._target.as_object(),
                "arrivals": arrivals.as_object(),
                "part": part,
                "parts": parts,
                "connections": share,
                "begin_ns": begin_ns,
                "grace_s": grace_s,
                "messages": len(self._messages),
                "compares": self._compares,
            }
            plain = [orjson.dumps(order), self._call_head]
            child.send([*plain, *self._messages, *self._references])
        return together([Outcome.unpacked(child.receive()) for child in self._children])

    def __enter__(self) -> Self:
        try:
            for child in self._children:
                child.receive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        for child in self._children:
            child.end()
