"""Load reports of a process, from the difference between two samples of the engine's counters.

The process looks at the segment only if a client asks, ten times a second at most. Between two
looks all clients get the same bytes.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ringbatch.frontend.load.load_reader import LoadReader
from ringbatch.frontend.load.orca_report import Form, Report, encoded, message
from ringbatch.frontend.load.rolling_window import Window
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_spec import SERVING
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import CODE_LABELS, ends_of

LOOK_NS: Final = 100_000_000
"""Greatest age of a report."""
WINDOW_NS: Final = 1_000_000_000
"""Shortest time that rates are taken over, once clients have asked for so long."""
_FAILURES: Final = [1 + at for at, label in enumerate(CODE_LABELS) if label.startswith("5")]
"""Places in `Ends.codes`."""


class Counts(NamedTuple):
    """Counts until an instant.

    Attributes:
        at_ns: when.
        requests: that have ended.
        failures: those of them with a status of 500 or more.
        instances: in those that were answered with 200, by account.
    """

    at_ns: int
    requests: int
    failures: int
    instances: dict[int, int]


class Rates(NamedTuple):
    """Counts divided by the time that passed.

    Attributes:
        requests_per_s, failures_per_s: that ended.
        utilization: the share of their time that workers need for the instances in full batches.
    """

    requests_per_s: float
    failures_per_s: float
    utilization: float


def rates(before: Counts, now: Counts, row_ns: dict[int, int]) -> Rates:
    """Return the rates between two instants. Pure.

    Args:
        before, now: the counts at each.
        row_ns: by account, how long all workers together need for an instance in a full batch.
    """
    passed_ns = now.at_ns - before.at_ns
    if passed_ns <= 0:
        return Rates(0.0, 0.0, 0.0)
    # A model that was loaded anew may have begun to count anew.
    work_ns = sum(
        max(count - before.instances.get(account, count), 0) * row_ns.get(account, 0)
        for account, count in now.instances.items()
    )
    return Rates(
        max(now.requests - before.requests, 0) * 1e9 / passed_ns,
        max(now.failures - before.failures, 0) * 1e9 / passed_ns,
        work_ns / passed_ns,
    )


class LoadReports:
    """Load reports of one process, remade ten times a second at most.

    Args:
        segment: attached.
        clock: monotonic nanoseconds.
    """

    def __init__(self, segment: Segment, clock: Callable[[], int]) -> None:
        self._segment = segment
        self._clock = clock
        self._reader = LoadReader(segment)
        self._window: Window[Counts] = Window(WINDOW_NS)
        self._looked_ns = -LOOK_NS
        self._report = Report(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
        self._encoded: dict[Form, bytes] = {}

    def value(self, form: Form) -> bytes:
        """Return the value of the load header of an answer over HTTP, in this form."""
        self._look()
        found = self._encoded.get(form)
        if found is None:
            found = self._encoded[form] = encoded(self._report, form)
        return found

    def message(self) -> bytes:
        """Return the message that goes into the trailers of an answer over gRPC."""
        self._look()
        return message(self._report)

    def _look(self) -> None:
        now_ns = self._clock()
        if now_ns - self._looked_ns < LOOK_NS:
            return
        self._looked_ns = now_ns
        load = self._reader.look(now_ns)
        found = rates(*self._counted(now_ns))
        self._report = Report(
            round(found.utilization, 4),
            round(found.requests_per_s, 2),
            round(found.failures_per_s, 2),
            round(load.wait_ns / 1e9, 6),
            float(load.percent),
            round(load.slowdown, 2),
        )
        self._encoded.clear()

    def _counted(self, now_ns: int) -> tuple[Counts, Counts, dict[int, int]]:
        segment = self._segment
        specs = [spec for spec in segment.models if spec.state == SERVING]
        ends = ends_of(segment, {spec.account for spec in specs})
        failures = (codes[at] for own in ends.values() for codes in own.codes for at in _FAILURES)
        now = Counts(
            now_ns,
            sum(own.answered + own.ended for own in ends.values()),
            sum(failures),
            {account: own.instances for account, own in ends.items()},
        )
        before = self._window.look(now_ns, now)
        first = (segment.layout.model(spec.index) + ModelWords.ROW_NS for spec in specs)
        row_ns = {spec.account: segment.words[at] for spec, at in zip(specs, first, strict=True)}
        return before, now, row_ns
