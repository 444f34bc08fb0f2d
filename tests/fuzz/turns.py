"""The turns of an event loop by their CPU time, which tells how long one client keeps others
waiting.

Beside other processes a thread takes several times its CPU time, as they share caches and cores. So
a long turn is followed by a piece of work whose time on a quiet core is known, and counts as many
times less as that now takes longer.
"""

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import orjson
from fuzz.limits import Endless

MOST_S: Final = 0.02
"""Bound on one turn, on a quiet core."""
_WORTH_S: Final = 0.005
"""A shorter turn is not looked into."""
_QUIET_S: Final = 0.0003
"""CPU time of the known work on a quiet core, as CI has them; a slower core has more time."""
_PATIENCE_S: Final = 30.0
_MANY: Final = 100_000
"""Most turns before nothing counts as due."""
_TEXT: Final = orjson.dumps([{"a": [number, number + 0.5], "b": "word"} for number in range(1000)])
_COPIED: Final = bytes(1 << 20)


class Turns:
    """A new event loop, which is led from one turn to the next.

    Attributes:
        loop: the event loop.
        longest_s: time of the longest turn on a quiet core.
        total_s: CPU time of all turns.
    """

    def __init__(self) -> None:
        self.loop: Any = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._note)
        self.longest_s = self.total_s = 0.0
        self._failures: list[dict[str, Any]] = []

    def close(self) -> None:
        """End the loop."""
        self.settle()
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the next turn."""
        self.loop.call_soon(function, *arguments)
        self.turn()

    def turn(self) -> None:
        """Go on by one turn."""
        self.loop.call_soon(self.loop.stop)
        self.timed(self.loop.run_forever)
        if self._failures:
            failure = self._failures.pop()
            raise failure.get("exception") or AssertionError(failure["message"])

    def settle(self) -> None:
        """Go on until nothing is due."""
        for _ in range(_MANY):
            if not self.loop._ready:
                return
            self.turn()
        raise Endless("there is no end to it")

    def until(self, done: Callable[[], object]) -> None:
        """Go on until something holds, which may depend on another process."""
        ends_s = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < ends_s, "nothing more happens"
            self.turn()
            time.sleep(0.0005)

    def timed(self, function: Callable[..., object], *arguments: Any) -> None:
        """Time a call as a turn."""
        began_s = time.thread_time()
        try:
            function(*arguments)
        finally:
            took_s = time.thread_time() - began_s
            self.total_s += took_s
            if took_s > max(self.longest_s, _WORTH_S):
                self.longest_s = max(self.longest_s, took_s / pace())

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(context)


def pace() -> float:
    """Return how many times longer the known work takes now than on a quiet core; 1 at least."""
    return max(median(_known_work_s() for _ in range(5)) / _QUIET_S, 1.0)


def _known_work_s() -> float:
    """Do what decoders do: read a text, go through objects, copy bytes."""
    began_s = time.thread_time()
    found = orjson.loads(_TEXT)
    rows = [row["a"][0] for row in found if row["b"] == "word"]
    buffer = bytearray()
    for row in rows:
        buffer += b"%d," % row
    bytes(memoryview(_COPIED)[: len(buffer) << 6])
    return time.thread_time() - began_s
