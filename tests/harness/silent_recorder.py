"""Recorder for connections whose requests are not counted."""

from types import SimpleNamespace
from typing import Any, cast

from ringbatch.frontend.access.line_writer import Writer
from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.host.log_lines import LineFormatter
from ringbatch.shm.tallies import PartTimes, Protocol, Tally


class _NoEndings:
    """Stand-in for the outcomes of a service that makes no answers itself."""

    must_log = False
    deadline_ns = 0
    traced = None
    lane = SimpleNamespace(words=memoryview(b""), finished_words=())

    def __init__(self) -> None:
        words = memoryview(bytearray(1 << 12)).cast("Q")
        self._nobody = Tally(words, 0, 0, "", "", Protocol.HTTP, PartTimes(words, 0))

    def last(self) -> RequestOutcome:
        return RequestOutcome(self._nobody, 200, 0, 0, 0, None)

    def log_slower_than(self, _took_ns: int) -> None:
        """Do nothing, as no request takes any time."""

    def may_be_slowest(self, _took_ns: int, _now_ns: int) -> bool:
        return False


def silent_recorder() -> Recorder:
    return recorder_to(Writer(LineFormatter("frontend"), lambda _line: None), AccessSettings())


def recorder_to(writer: Writer, settings: AccessSettings) -> Recorder:
    """Return a recorder whose lines go to this writer."""
    return Recorder(settings, cast(Any, _NoEndings()), BatchIds(0), writer)
