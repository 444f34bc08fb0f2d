"""Recorder of ended requests: id, response headers, log line, slowest and traced requests.

The writer of an answer asks here, in the call that brought it. The end that `RequestOutcomes` saw
last belongs to that request then. Most requests need none of it.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ringbatch.frontend.access.line_writer import Writer
from ringbatch.frontend.access.log_entry import Entry
from ringbatch.frontend.access.response_metadata import ResponseMetadata
from ringbatch.frontend.access.sampling import (
    LOGGED,
    TRACED,
    AccessSettings,
    Choice,
    Draw,
    Samples,
)
from ringbatch.frontend.codec.request_ids import RequestIds, parent_id, trace_id
from ringbatch.frontend.load.load_reports import LoadReports
from ringbatch.frontend.request.outcomes import RequestOutcome, RequestOutcomes
from ringbatch.frontend.request.task import Engine
from ringbatch.shm.account import class_name
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.host.log_handler import writing_to
from ringbatch.shm.host.log_lines import formatter
from ringbatch.shm.host.process import STDERR
from ringbatch.shm.latency_breakdown import Breakdown, breakdown
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol

PROTOCOL_NAMES: Final = tuple(protocol.name.lower() for protocol in Protocol)


class Exchanged(NamedTuple):
    """Facts of an ended request from its connection.

    Attributes:
        began_ns: when its first byte came; 0 if all of it came at once.
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
    """Recorder of ended requests, for headers, logs, slowest and traced requests.

    Attributes:
        ids: makes those that clients have not chosen.
        outcomes: of the process; requests for which `must_log` is true are recorded.
        metadata: of answers, beside the id.
        account_name: returns the name of the account in a word.
        samples: asked about each request, once: in which samples it is, and so whether it is
            recorded; None if there are none.

    Args:
        settings: settings of logs, headers and traces.
        outcomes: of the process.
        batch_ids: of the engine.
        writer: of the lines.
        reports: of the engine's load; None if nobody gets any.
        clock: monotonic nanoseconds.
        wall_s: seconds since 1970.
        chance: random numbers, from 0 up to 1.
    """

    account_name: Callable[[int], str]

    def __init__(
        self,
        settings: AccessSettings,
        outcomes: RequestOutcomes,
        batch_ids: BatchIds,
        writer: Writer,
        reports: LoadReports | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.ids = RequestIds(random.getrandbits(64))
        self.clock = clock
        self.account_name = nameless
        self._choice = Choice(settings, clock())
        self.metadata = ResponseMetadata(settings, outcomes, batch_ids, reports)
        samples = settings.scope == "all" and settings.sample > 0
        logged = Draw(settings.sample, chance) if samples else None
        traced = Draw(settings.trace_sample, chance) if outcomes.traced is not None else None
        self.samples = Samples(logged, traced) if logged or traced else None
        if settings.scope != "off" and self._choice.slow_ns > 0:
            outcomes.log_slower_than(self._choice.slow_ns)
        self.outcomes = outcomes
        self._batch_ids = batch_ids
        self._writer = writer
        self._wall_s = wall_s

    def drawn(self, trace: bytes) -> int:
        """Return the samples that the request with this ``traceparent`` is in; see `Samples.of`."""
        return 0 if self.samples is None else self.samples.of(trace)

    def batch_id(self, ending: RequestOutcome) -> str:
        """Return the id of the batch that a request was in; empty if it was in none."""
        found = breakdown(0, ending.accepted_ns, ending.stamps, ending.ended_ns)
        return self._batch_ids.text(found.batch) if found.batch_rows else ""

    def record(
        self,
        ending: RequestOutcome,
        exchanged: Exchanged,
        take_ns: int = 0,
        *,
        drawn: int,
        is_probe: bool = False,
    ) -> None:
        """Log a request, keep and trace it, if it is one of those.

        Args:
            ending: how it ended.
            exchanged: what its connection knows.
            drawn: of which samples it is.
            take_ns: how long its client let the answer wait.
            is_probe: whether it only asks for health; the slowest requests leave probes out.
        """
        ended_ns = ending.ended_ns + take_ns
        took_ns = ended_ns - (exchanged.began_ns or ending.accepted_ns)
        recent = None
        # Probes of health are no requests that anybody would look for.
        of_interest = exchanged.trace or ending.tally.protocol is not Protocol.HTTP
        if self.outcomes.traced is not None and drawn & TRACED and of_interest:
            recent = _traced(_recent(ending, exchanged, take_ns))
            self.outcomes.traced.put(recent)
        if not is_probe and self.outcomes.may_be_slowest(took_ns, ended_ns):
            self.outcomes.keep(recent or _recent(ending, exchanged, take_ns))
        logged = bool(drawn & LOGGED)
        median_ns = ending.tally.median_ns
        takes = self._choice.takes(ending.code, took_ns, ended_ns, median_ns, drawn=logged)
        if takes is None:
            self._writer.leave_out()
        elif takes:
            self._writer.put(self._entry(ending, exchanged, take_ns))

    def _entry(self, ending: RequestOutcome, exchanged: Exchanged, take_ns: int) -> Entry:
        tally = ending.tally
        found = _found(ending, exchanged, take_ns)
        return Entry(
            self._wall_s(),
            exchanged.request_id.decode(),
            exchanged.trace.decode(),
            "" if tally.name else exchanged.target,
            tally.name,
            tally.version,
            PROTOCOL_NAMES[tally.protocol],
            ending.code,
            found,
            ending.instances,
            self._batch_ids.text(found.batch) if found.batch_rows else "",
            exchanged.bytes_in,
            exchanged.bytes_out,
            exchanged.client,
            self.account_name(ending.account),
            class_name(ending.account),
        )


def nameless(account: int) -> str:
    """Return the name of every account in a process that knows none: empty."""
    del account
    return ""


def _found(ending: RequestOutcome, exchanged: Exchanged, take_ns: int) -> Breakdown:
    began_ns = exchanged.began_ns
    return breakdown(began_ns, ending.accepted_ns, ending.stamps, ending.ended_ns, take_ns)


def _recent(ending: RequestOutcome, exchanged: Exchanged, take_ns: int) -> RequestRecord:
    return RequestRecord(
        ending.ended_ns + take_ns,
        ending.tally.account,
        ending.tally.protocol,
        ending.code,
        ending.instances,
        _found(ending, exchanged, take_ns),
        trace_id(exchanged.trace).decode(),
        exchanged.request_id.decode(),
        parent_id(exchanged.trace).decode(),
    )


def _traced(request: RequestRecord) -> RequestRecord:
    """Return the request with a span of its own, in its client's trace or a new one."""
    # Neither may be 0, to W3C.
    trace = request.trace or f"{random.getrandbits(128) | 1:032x}"
    return request._replace(trace=trace, span=f"{random.getrandbits(64) | 1:016x}")


def recording(
    settings: AccessSettings, engine: Engine, role: str, reports: LoadReports | None = None
) -> tuple[Recorder, Writer]:
    """Return a frontend's recorder, and its writer to standard error, which is to be closed.

    Args:
        settings: of logs and traces.
        engine: of the process, which forks no more.
        role: of the process, in its lines.
        reports: of the engine's load; None if no client gets any.
    """
    writer = Writer(formatter(role, os.environ, STDERR), writing_to(STDERR))
    if settings.scope != "off":
        writer.start()
    return Recorder(settings, engine.outcomes, engine.batch_ids, writer, reports), writer
