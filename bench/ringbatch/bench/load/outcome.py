"""Outcome of the requests of a run, from one generator or from several together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.bench.load.parts import Parts, parts_together
from ringbatch.bench.statistics.histogram import Histogram

UNANSWERED: Final = -1
"""No answer came until the run was over."""
BROKEN: Final = 0
"""The connection was refused, or ended before the answer was whole."""
WRONG: Final = -2
"""Status 200, with another answer than the right one."""
CUT_OFF: Final = -4
"""An answer in events ended with an error."""
EMPTY: Final = -5
"""An answer in events ended without a part."""
GRPC: Final = 1000
"""Offset of gRPC statuses other than OK; OK is 200."""
_SUCCESS: Final = 200
_WORDS: Final = {
    BROKEN: "the connection broke",
    UNANSWERED: "no answer until the run was over",
    WRONG: "another answer than the right one",
    CUT_OFF: "an error event ended the answer",
    EMPTY: "an answer without a part",
}


def words_of(status: int) -> str:
    """Return the name of a status."""
    if status > GRPC:
        return f"status {status - GRPC} of gRPC"
    return _WORDS.get(status, f"status {status}")


@dataclass(frozen=True)
class Outcome:
    """Outcome of each request, in the order in which they were due.

    Attributes:
        due_ns: [count] int64, from the begin of the run.
        took_ns: [count] int64, from the instant it was due to its end; if none came, to the end
            of the run.
        lag_ns: [count] int64, how late the generator itself came to it.
        statuses: [count] int16, of HTTP, of gRPC, or one of the constants above.
        seconds: how long requests were due; of a closed loop, how long it ran.
        held_back: requests that waited for a connection, because no more may be opened.
        connections: that were open at most.
        problems: faults of connections, in words, and how often each came.
        parts: of the answers; None where answers come whole.
    """

    due_ns: NDArray[np.int64]
    took_ns: NDArray[np.int64]
    lag_ns: NDArray[np.int64]
    statuses: NDArray[np.int16]
    seconds: float
    held_back: int
    connections: int
    problems: dict[str, int]
    parts: Parts | None = None

    @property
    def count(self) -> int:
        """Number of requests that were due."""
        return len(self.due_ns)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """[count], which of them got status 200 and the right answer."""
        found: NDArray[np.bool_] = self.statuses == _SUCCESS
        return found

    def times(self) -> Histogram:
        """Return the latencies of requests that were not refused.

        A request without an answer counts with the time that its answer was waited for.
        """
        return Histogram.of(self.took_ns[self.answered | (self.statuses == UNANSWERED)])

    def counts(self) -> dict[int, int]:
        """Return how many requests ended with each status."""
        found, counts = np.unique(self.statuses, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))

    def rate_per_s(self) -> float:
        """Return the rate of right answers within the run; later ones do not count."""
        end_ns = self.seconds * 1e9
        return float((self.answered & (self.due_ns + self.took_ns <= end_ns)).sum()) / self.seconds

    def goodput_per_s(self, limit_ms: float) -> float:
        """Return the rate of requests that were answered within the limit."""
        end_ns = self.seconds * 1e9
        good = self.answered & (self.took_ns <= limit_ms * 1e6)
        return float((good & (self.due_ns + self.took_ns <= end_ns)).sum()) / self.seconds

    def streams_per_s(self, first_part_ms: float, gap_ms: float) -> float:
        """Return the rate of answers whose first part and longest gap were within the limits."""
        if self.parts is None:
            return 0.0
        end_ns = self.seconds * 1e9
        good = self.answered & (self.parts.first_ns <= first_part_ms * 1e6)
        good &= self.parts.longest_ns <= gap_ms * 1e6
        return float((good & (self.due_ns + self.took_ns <= end_ns)).sum()) / self.seconds

    def first_parts(self) -> Histogram:
        """Return the times to the first parts of answers.

        An answer that never began counts with the time that it was waited for.
        """
        if self.parts is None:
            return Histogram()
        begun = self.parts.counts > 0
        return Histogram.of(self.parts.first_ns[begun | (self.statuses == UNANSWERED)])

    def gaps(self) -> Histogram:
        """Return the gaps between two parts."""
        return Histogram() if self.parts is None else self.parts.gaps

    def cut_off(self) -> int:
        """Return the number of answers that broke off behind a part."""
        if self.parts is None:
            return 0
        ended = (self.statuses == CUT_OFF) | (self.statuses == BROKEN)
        return int((ended & (self.parts.counts > 0)).sum())

    def lag_ms(self, share: float) -> float:
        """Return a percentile of the generator's own lag; 0 if no request was due."""
        return float(np.quantile(self.lag_ns, share)) / 1e6 if len(self.lag_ns) else 0.0

    def windows(self, count: int) -> list[float]:
        """Return the median time in ms of each non-empty of `count` equal parts of the run."""
        parts = (self.due_ns * count // max(int(self.seconds * 1e9), 1)).clip(0, count - 1)
        ended = self.answered | (self.statuses == UNANSWERED)
        found = [self.took_ns[ended & (parts == part)] for part in range(count)]
        return [float(np.median(times)) / 1e6 for times in found if len(times)]

    def packed(self) -> list[bytes]:
        """Return the outcome as frames, for another process."""
        plain = {
            "seconds": self.seconds,
            "held_back": self.held_back,
            "connections": self.connections,
            "problems": self.problems,
        }
        arrays = (self.due_ns, self.took_ns, self.lag_ns, self.statuses)
        frames = [array.tobytes() for array in arrays]
        if self.parts is not None:
            plain["parts"], more = self.parts.packed()
            frames += more
        return [orjson.dumps(plain), *frames]

    @classmethod
    def unpacked(cls, frames: Sequence[bytes]) -> "Outcome":
        """Return the outcome of `packed`."""
        plain: dict[str, Any] = orjson.loads(frames[0])
        due, took, lag = (np.frombuffer(frame, np.int64) for frame in frames[1:4])
        if "parts" in plain:
            plain["parts"] = Parts.unpacked(plain["parts"], frames[5:])
        return cls(due, took, lag, np.frombuffer(frames[4], np.int16), **plain)


def together(parts: Sequence[Outcome]) -> Outcome:
    """Return the outcomes of several generators as those of one."""
    due = np.concatenate([part.due_ns for part in parts])
    order = np.argsort(due, kind="stable")
    in_parts = [part.parts for part in parts if part.parts is not None]
    problems: dict[str, int] = {}
    for part in parts:
        for words, count in part.problems.items():
            problems[words] = problems.get(words, 0) + count
    return Outcome(
        due[order],
        np.concatenate([part.took_ns for part in parts])[order],
        np.concatenate([part.lag_ns for part in parts])[order],
        np.concatenate([part.statuses for part in parts])[order],
        max(part.seconds for part in parts),
        sum(part.held_back for part in parts),
        sum(part.connections for part in parts),
        problems,
        parts_together(in_parts, order) if in_parts else None,
    )
