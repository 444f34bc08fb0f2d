"""What the connections of a process do with the end of a request: its id, what its client is told
of its time, and its line in the log.

Whoever writes an answer asks here, in the call that brought it: the end that `Endings` saw last is
that request's then. Where nothing is to be said, that costs one comparison.
"""

import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from ringbatch.frontend.access.choice import AccessSettings, Choice, Draw
from ringbatch.frontend.access.entry import Entry
from ringbatch.frontend.access.writer import Writer, writing_to
from ringbatch.frontend.codec.breakdown import about_batch, breakdown, header, in_worker
from ringbatch.frontend.codec.request_ids import RequestIds
from ringbatch.frontend.request.endings import Ending, Endings
from ringbatch.frontend.request.task import Engine
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.host.log_lines import formatter
from ringbatch.shm.host.process import STDERR


class Exchanged(NamedTuple):
    """What a connection knows of a request that has ended.

    Attributes:
        began_ns: when its first byte came; 0 where all of it came at once.
        request_id, trace, target, client, bytes_in, bytes_out: as in `Entry`.
    """

    began_ns: int
    request_id: bytes
    trace: bytes
    target: str
    client: str
    bytes_in: int
    bytes_out: int


class Recorder:
    """See the module.

    Attributes:
        ids: makes those that clients have not chosen.
        server_timing: whether every client is told.
        watches: whether anything may be said of requests that were answered with 200 and did not
            ask; others are looked at anyway.
        looks_for_slow: whether each of these is to be looked at.
        draws: to be called for each request, once: whether it is of the sample.

    Args:
        settings: what is wanted.
        endings: of the process.
        batch_ids: of the engine.
        writer: of the lines.
        clock: monotonic nanoseconds.
        wall_s: seconds since 1970.
        chance: random numbers, from 0 up to 1.
    """

    def __init__(
        self,
        settings: AccessSettings,
        endings: Endings,
        batch_ids: BatchIds,
        writer: Writer,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.ids = RequestIds(random.getrandbits(64))
        self.clock = clock
        self._choice = Choice(settings, clock())
        self.server_timing = settings.server_timing
        all_of_them = settings.scope == "all"
        self.looks_for_slow = settings.scope != "off" and settings.slower_than_ms > 0
        self.watches = all_of_them or self.looks_for_slow or settings.server_timing
        self.draws = Draw(settings.sample if all_of_them else 0.0, chance).hits
        self._known = (0, 0)
        """The batch, and the end of its run, that the two texts below are about."""
        self._in_worker = self._about_batch = b""
        self._endings = endings
        self._batch_ids = batch_ids
        self._writer = writer
        self._wall_s = wall_s

    def last(self) -> Ending:
        """How the request ended whose answer was brought just now."""
        return self._endings.last()

    def failed(self) -> bool:
        """Whether `last` was answered with another status than 200."""
        return self._endings.last_code() != 200

    def usual_timing(self, began_ns: int) -> bytes:
        """`timing` of `last`; what it has in common with others of its batch is made once."""
        accepted_ns, ended_ns, batch, taken_ns, finished_ns = self._endings.last_instants()
        if began_ns or not accepted_ns <= taken_ns <= finished_ns <= ended_ns:
            return self.timing(self.last(), began_ns)
        if (batch, finished_ns) != self._known:
            found = breakdown(0, accepted_ns, self.last().stamps, ended_ns)
            self._known = batch, finished_ns
            self._in_worker = in_worker(found).encode()
            self._about_batch = about_batch(found, self._batch_ids.text(batch)).encode()
        return b"queue;dur=%.3f, %bwrite;dur=%.3f, %btotal;dur=%.3f" % (
            (taken_ns - accepted_ns) / 1e6,
            self._in_worker,
            (ended_ns - finished_ns) / 1e6,
            self._about_batch,
            (ended_ns - accepted_ns) / 1e6,
        )

    def timing(self, ending: Ending, began_ns: int) -> bytes:
        """The value of the header ``Server-Timing``; arguments as of `record`."""
        found = breakdown(began_ns, ending.accepted_ns, ending.stamps, ending.ended_ns)
        return header(found, self._batch_id(found.batch_rows, found.batch)).encode()

    def record(
        self, ending: Ending, exchanged: Exchanged, take_ns: int = 0, *, drawn: bool
    ) -> None:
        """Log a request, if it is one of those.

        Args:
            ending: how it ended.
            exchanged: what its connection knows.
            drawn: whether it is of the sample.
            take_ns: how long its client let the answer wait.
        """
        ended_ns = ending.ended_ns + take_ns
        took_ns = ended_ns - (exchanged.began_ns or ending.accepted_ns)
        takes = self._choice.takes(ending.code, took_ns, ended_ns, drawn=drawn)
        if takes is None:
            self._writer.leave_out()
        elif takes:
            self._writer.put(self._entry(ending, exchanged, take_ns))

    def _entry(self, ending: Ending, exchanged: Exchanged, take_ns: int) -> Entry:
        tally = ending.tally
        began_ns = exchanged.began_ns
        found = breakdown(began_ns, ending.accepted_ns, ending.stamps, ending.ended_ns)
        return Entry(
            self._wall_s(),
            exchanged.request_id.decode(),
            exchanged.trace.decode(),
            "" if tally.name else exchanged.target,
            tally.name,
            tally.version,
            tally.protocol.name.lower(),
            ending.code,
            found._replace(take=take_ns),
            ending.instances,
            self._batch_id(found.batch_rows, found.batch),
            exchanged.bytes_in,
            exchanged.bytes_out,
            exchanged.client,
        )

    def _batch_id(self, rows: int, batch: int) -> str:
        return self._batch_ids.text(batch) if rows else ""


def recording(settings: AccessSettings, engine: Engine, role: str) -> tuple[Recorder, Writer]:
    """What a frontend needs for it, writing to standard error; the writer is to be closed.

    Args:
        settings: what is wanted.
        engine: of the process, which forks no more.
        role: of the process, in its lines.
    """
    writer = Writer(formatter(role, os.environ, STDERR), writing_to(STDERR))
    if settings.scope != "off":
        writer.start()
    return Recorder(settings, engine.endings, engine.batch_ids, writer), writer
