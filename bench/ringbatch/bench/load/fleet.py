"""Several generators, as processes, which make one load together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import orjson

from ringbatch.bench.load.arrivals import Arrivals
from ringbatch.bench.load.outcome import Outcome, together
from ringbatch.bench.load.role import read_frames, write_frames
from ringbatch.bench.load.target import Target, Wire

_ROLE: Final = "ringbatch.bench.load.role"
_CLIENT_ROLE: Final = "ringbatch.bench.client.role"
"""Of a room above this one, and a process of its own: here nobody imports what it measures."""
_LEAD_S: Final = 0.25
"""From the order to the begin of a run, in which connections are made."""


class GeneratorDied(RuntimeError):
    """A generator ended while it was needed."""


class Fleet:
    """Generators that wait for orders; a context manager that ends them.

    Args:
        count: how many.
        target: where requests go.
        messages: whole requests; for a Client, bodies of V2 in JSON.
        references: bodies of the right answers to them, of V2 except over HTTP, where answers are
            compared.
        call_head: over gRPC, the header block of each call.
    """

    def __init__(
        self,
        count: int,
        target: Target,
        messages: Sequence[bytes],
        references: Sequence[bytes] = (),
        call_head: bytes = b"",
    ) -> None:
        self._target, self._messages, self._references = target, messages, references
        self._call_head = call_head
        role = _CLIENT_ROLE if target.wire is Wire.CLIENT else _ROLE
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C is for the command, which then ends them.
                process_group=0,
            )
            for _ in range(count)
        ]

    @property
    def pids(self) -> list[int]:
        """The generators."""
        return [process.pid for process in self._processes]

    def run(self, arrivals: Arrivals, connections: int, grace_s: float) -> Outcome:
        """Make a load and wait for its end.

        Args:
            arrivals: when requests are due, of all generators together.
            connections: of all of them; of a closed loop exactly so many.
            grace_s: how long answers are waited for after the last request was due.

        Raises:
            GeneratorDied: one has.
        """
        parts = len(self._processes)
        begin_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
        try:
            for part, process in enumerate(self._processes):
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
                }
                assert process.stdin is not None
                plain = [orjson.dumps(order), self._call_head]
                write_frames(process.stdin, [*plain, *self._messages, *self._references])
            return together([Outcome.unpacked(self._frames(p)) for p in self._processes])
        except BrokenPipeError:
            raise GeneratorDied("a process that generates load has ended") from None

    def _frames(self, process: "subprocess.Popen[bytes]") -> list[bytes]:
        """What a generator says next."""
        assert process.stdout is not None
        frames = read_frames(process.stdout)
        if not frames:
            status = process.wait()
            raise GeneratorDied(f"a process that generates load has ended with status {status}")
        return frames

    def __enter__(self) -> Self:
        try:
            for process in self._processes:
                self._frames(process)
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
        for process in self._processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                # A frame that was not taken may still lie in it.
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
