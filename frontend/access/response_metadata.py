"""Response headers with timing and load: `Server-Timing` and ORCA.

Their common part is made once for each batch.
"""

from typing import Final

from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.codec.request_ids import TIMING_HEADER
from ringbatch.frontend.codec.server_timing import (
    BEFORE_ID,
    MILLISECONDS,
    behind_id,
    copied,
    header,
    in_worker,
    milliseconds,
)
from ringbatch.frontend.load.load_reports import LoadReports
from ringbatch.frontend.load.orca_report import HEADER as LOAD_HEADER
from ringbatch.frontend.load.orca_report import Form
from ringbatch.frontend.request.outcomes import RequestOutcome, RequestOutcomes
from ringbatch.shm.attempts import copy_ns_in, runs_in
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.latency_breakdown import breakdown

_IN_TABLE: Final = len(MILLISECONDS)
_TIMING_LINE: Final = b"\r\n%b: " % TIMING_HEADER.encode()
_LOAD_LINE: Final = b"\r\n%b: " % LOAD_HEADER.encode()
_QUEUE_LINE: Final = _TIMING_LINE + b"queue;dur="
_FOREVER_US: Final = 1 << 62
"""Longer than any request takes."""


class ResponseMetadata:
    """Writer of the headers ``Server-Timing`` and ORCA's load report.

    Attributes:
        server_timing, load_report: True if every answer says where the time went, and how busy the
            engine is.
        anything: one or the other.

    Args:
        settings: settings of logs, headers and traces.
        outcomes: of the process.
        batch_ids: of the engine.
        reports: of the engine's load; None if nobody gets any.
    """

    __slots__ = (
        "_attempts",
        "_batch_id",
        "_batch_ids",
        "_before_total",
        "_before_write",
        "_behind_id",
        "_copied",
        "_finished_ns",
        "_finished_words",
        "_lane",
        "_outcomes",
        "_reason",
        "_reports",
        "_rows",
        "_words",
        "_worker_us",
        "anything",
        "load_report",
        "server_timing",
    )

    def __init__(
        self,
        settings: AccessSettings,
        outcomes: RequestOutcomes,
        batch_ids: BatchIds,
        reports: LoadReports | None,
    ) -> None:
        self.server_timing = settings.server_timing
        self.anything = settings.server_timing or settings.load_report
        self.load_report = settings.load_report
        self._reports = reports
        self._outcomes = outcomes
        self._lane = lane = outcomes.lane
        self._words = lane.words
        self._finished_words = lane.finished_words
        self._batch_ids = batch_ids
        self._batch_id, self._finished_ns = "", -1
        """The batch, and when its answers stood in their slots, that the others are about."""
        self._worker_us = _FOREVER_US
        self._before_write = self._before_total = b""
        self._rows = self._reason = self._attempts = -1
        """Facts of the latest batch, told by `_behind_id` and `_copied`; most are like the one
        before."""
        self._behind_id = self._copied = b""

    def load_line(self, asked: Form) -> bytes:
        """Return the header line with the engine's load; empty if there is none.

        Args:
            asked: the form that the client wants.
        """
        report = self.load_value(asked)
        return _LOAD_LINE + report if report else b""

    def load_value(self, asked: Form) -> bytes:
        """Return the value of the header ``endpoint-load-metrics``; empty without one."""
        if self._reports is None or not (asked or self.load_report):
            return b""
        return self._reports.value(asked or "text")

    def load_message(self, asked: Form) -> bytes:
        """Return the value of the metadata ``endpoint-load-metrics-bin``."""
        if self._reports is None or not (asked or self.load_report):
            return b""
        return self._reports.message()

    def timing(self, ending: RequestOutcome, began_ns: int) -> bytes:
        """Return the value of the header ``Server-Timing``.

        Args:
            ending: of the request.
            began_ns: when its first byte came; 0 if all of it came at once.
        """
        found = breakdown(began_ns, ending.accepted_ns, ending.stamps, ending.ended_ns)
        batch_id = self._batch_ids.text(found.batch) if found.batch_rows else ""
        return header(found, batch_id).encode()

    def timing_line(self, began_ns: int) -> bytes:
        """Return the header line with the timing of the request that ended last."""
        return _TIMING_LINE + self.timing(self._outcomes.last(), began_ns)

    def with_timing(
        self, head: bytes, request_id: bytes, behind: bytes = b"", body: bytes = b""
    ) -> bytes:
        """Return an answer of these pieces, with `timing_line` behind the second.

        The request needs no logging, and came at once.
        """
        outcomes = self._outcomes
        finished_ns: int = self._words[self._finished_words[outcomes.slot]]
        # A batch has its id from `BatchIds`, which keeps the text while neighbours are answered.
        if finished_ns != self._finished_ns or outcomes.batch_id is not self._batch_id:
            self._learn(finished_ns)
        total_us = outcomes.took_ns // 1000
        write_us = (outcomes.ended_ns - finished_ns) // 1000
        # So they add up to the whole.
        queue_us = total_us - write_us - self._worker_us
        if queue_us < 0:
            return b"".join((head, request_id, self.timing_line(0), behind, body))
        if total_us < _IN_TABLE:
            texts = MILLISECONDS
            queue, write, total = texts[queue_us], texts[write_us], texts[total_us]
        else:
            queue, write = milliseconds(queue_us), milliseconds(write_us)
            total = milliseconds(total_us)
        # In one step: one by one, most of them would be copied several times.
        return b"".join(
            (
                head,
                request_id,
                _QUEUE_LINE,
                queue,
                self._before_write,
                write,
                self._before_total,
                total,
                behind,
                body,
            )
        )

    def _learn(self, finished_ns: int) -> None:
        """Remember the common part of a batch from its first request."""
        outcomes = self._outcomes
        batch_id = outcomes.batch_id
        rows, reason, _, began_ns, gathered_ns, ran_ns, attempts, _ = self._lane.stamps(
            outcomes.slot
        )
        self._batch_id, self._finished_ns, self._worker_us = batch_id, finished_ns, _FOREVER_US
        # Of what ends later all that is in order too, so there only the acceptance is looked at.
        in_order = 0 < began_ns <= gathered_ns <= ran_ns <= finished_ns <= outcomes.ended_ns
        if rows and in_order:
            gather_us = (gathered_ns - began_ns) // 1000
            run_us = (ran_ns - gathered_ns) // 1000
            scatter_us = (finished_ns - ran_ns) // 1000
            self._worker_us = gather_us + run_us + scatter_us
            if rows != self._rows or reason != self._reason or attempts != self._attempts:
                self._rows, self._reason, self._attempts = rows, reason, attempts
                self._behind_id = behind_id(rows, reason, runs_in(attempts))
                self._copied = copied(copy_ns_in(attempts) // 1000)
            self._before_write = in_worker(gather_us, self._copied, run_us, scatter_us)
            self._before_total = BEFORE_ID + batch_id.encode() + self._behind_id
