"""Requests that may have killed a worker, and those that are known to.

A death blames every request of the batch; only a request that was alone is guilty. A worker that
crashed, or hung and was ended, did so because of what it ran. An operator, or a kernel short of
memory, kills a worker from outside. The request may or may not be the cause, so such a death weighs
half as much.
"""

import zlib
from collections.abc import Sequence
from hashlib import blake2b
from math import isqrt
from typing import Final, TypeVar

from ringbatch.shm.engine_slots import Request

CRASHED: Final = 2
"""The weight of a death by the worker's own doing."""
KILLED: Final = 1
"""The weight of a death from outside."""
REPLACED_NS: Final = 2_000_000_000
"""About how long it takes until another worker is there, once one has died a second time."""
REMEMBERED_NS: Final = 60_000_000_000
"""Time for which an equal request is refused."""
MAX_QUARANTINED: Final = 256
_START_BYTES: Final = 256

T = TypeVar("T")


def regroup(requests: Sequence[T], *, first: bool, run_ns: int, death_ns: int) -> list[list[T]]:
    """Return the groups in which the requests of a dead worker's batch are run again.

    Each alone, the request that workers die of takes one more of them, but the others wait for as
    many runs as they are. In groups of about the square root of their number, they wait for two
    times the root, and that request takes one worker more.

    Args:
        requests: not answered yet.
        first: True if no worker had died of them before.
        run_ns: recent time of a run.
        death_ns: how long it takes to notice another death and to replace the worker.
    """
    size = isqrt(len(requests))
    saved_runs = len(requests) - 2 * (size + 1)
    if not first or saved_runs * run_ns <= death_ns:
        return [[request] for request in requests]
    return [list(requests[at : at + size]) for at in range(0, len(requests), size)]


class Quarantine:
    """Latest requests that killed a worker, each for `REMEMBERED_NS`.

    A new request is looked at closely only if its model, its size and its first bytes are those
    of one of these, so that large requests cost nothing.

    Attributes:
        count: number of these requests; the time of some may be over.

    Args:
        memory: where the payloads lie.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._until_ns: dict[tuple[int, int, int], dict[bytes, int]] = {}
        self.count = 0
        self._last_until_ns = 0

    def remember(self, request: Request, now_ns: int) -> None:
        """Remember a request that killed a worker."""
        if self.count >= MAX_QUARANTINED:
            self.forget(now_ns)
        if self.count >= MAX_QUARANTINED:
            return
        payload = self._payload(request)
        known = self._until_ns.setdefault(_start(request.model, payload), {})
        digest = _digest(payload)
        self.count += digest not in known
        known[digest] = self._last_until_ns = now_ns + REMEMBERED_NS

    def knows(self, request: Request, now_ns: int) -> bool:
        """Return whether an equal request killed a worker a while ago."""
        payload = self._payload(request)
        known = self._until_ns.get(_start(request.model, payload))
        return known is not None and known.get(_digest(payload), 0) > now_ns

    def tick(self, now_ns: int) -> None:
        """Forget all of these requests once the time of the last one is over.

        While there are some, the collector looks at every new request by itself.
        """
        if now_ns >= self._last_until_ns:
            self.forget(now_ns)

    def forget(self, now_ns: int) -> None:
        """Forget requests whose time is over."""
        for start, known in list(self._until_ns.items()):
            for digest in [digest for digest, until_ns in known.items() if until_ns <= now_ns]:
                del known[digest]
                self.count -= 1
            if not known:
                del self._until_ns[start]

    def _payload(self, request: Request) -> memoryview:
        start = request.request_offset
        return self._memory[start : start + request.request_bytes]


def _start(model: int, payload: memoryview) -> tuple[int, int, int]:
    return model, len(payload), zlib.crc32(payload[:_START_BYTES])


def _digest(payload: memoryview) -> bytes:
    return blake2b(payload, digest_size=16).digest()
