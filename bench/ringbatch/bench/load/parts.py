"""Times of the parts of answers, as a generator notes them and as a result. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ringbatch.bench.statistics.histogram import Histogram


class AnswerParts:
    """The parts of one answer.

    Attributes:
        first_ns: when the first one came; 0 before.
        last_ns: when the last one so far came; 0 before.
        longest_ns: the longest gap between two.
        count: how many came.
        ended: whether no more come.
        short: whether the answer ended with fewer parts than the first answer to its request.
    """

    __slots__ = ("count", "ended", "first_ns", "last_ns", "longest_ns", "short")

    def __init__(self) -> None:
        self.first_ns = self.last_ns = self.longest_ns = self.count = 0
        self.ended = self.short = False


@dataclass(frozen=True)
class Parts:
    """Parts of the answers of a run; the arrays are in the order of its requests.

    Attributes:
        first_ns: [count] int64, from the instant a request was due to its first part; if none came,
            to the end of the run.
        longest_ns: [count] int64, the longest gap between two parts of the answer.
        counts: [count] int32, the parts that came.
        gaps: of all answers, as far as they began in the run.
        in_run: parts that came before the run's end; those that come later are none of it.
        short: answers that ended with fewer parts than the first answer to their request.
        busy: share of a CPU that the generator used, the most of all generators.
    """

    first_ns: NDArray[np.int64]
    longest_ns: NDArray[np.int64]
    counts: NDArray[np.int32]
    gaps: Histogram
    in_run: int
    short: int
    busy: float = 0.0

    def packed(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the parts as an object for JSON, and frames."""
        plain = {
            "gaps": self.gaps.as_object(),
            "in_run": self.in_run,
            "short": self.short,
            "busy": self.busy,
        }
        return plain, [one.tobytes() for one in (self.first_ns, self.longest_ns, self.counts)]

    @classmethod
    def unpacked(cls, plain: dict[str, Any], frames: Sequence[bytes]) -> Self:
        """Return the parts of `packed`."""
        first, longest = (np.frombuffer(frame, np.int64) for frame in frames[:2])
        gaps = Histogram.from_object(plain.pop("gaps"))
        return cls(first, longest, np.frombuffer(frames[2], np.int32), gaps, **plain)


def parts_together(parts: Sequence[Parts], order: NDArray[np.int64]) -> Parts:
    """Return the parts of several generators as those of one.

    Args:
        parts: parts of each generator.
        order: of all requests, as indices into those of one generator after the other.
    """
    return Parts(
        np.concatenate([one.first_ns for one in parts])[order],
        np.concatenate([one.longest_ns for one in parts])[order],
        np.concatenate([one.counts for one in parts])[order],
        sum((one.gaps for one in parts[1:]), start=parts[0].gaps),
        sum(one.in_run for one in parts),
        sum(one.short for one in parts),
        max(one.busy for one in parts),
    )


class PartTimes:
    """Takes note of the parts of all answers of a generator.

    Args:
        clock_ns: monotonic.
        end_ns: of the run, by that clock.
    """

    def __init__(self, clock_ns: Callable[[], int], end_ns: int) -> None:
        self._clock_ns, self._end_ns = clock_ns, end_ns
        self._answers: dict[int, AnswerParts] = {}
        self._gaps_ns: list[int] = []
        self._in_run = 0

    def begin(self, number: int) -> AnswerParts:
        """Return the parts of a request's answer, of which none has come."""
        made = self._answers[number] = AnswerParts()
        return made

    def came(self, answer: AnswerParts, count: int) -> None:
        """Note that parts of an answer came now, together."""
        now = self._clock_ns()
        last = answer.last_ns
        in_run = now <= self._end_ns
        if last:
            gap = now - last
            if gap > answer.longest_ns:
                answer.longest_ns = gap
            if last <= self._end_ns:
                self._gaps_ns.append(gap)
        else:
            answer.first_ns = now
        answer.last_ns = now
        answer.count += count
        if in_run:
            self._in_run += count
            if count > 1:
                self._gaps_ns.extend([0] * (count - 1))

    def result(self, numbers: Sequence[int], due_ns: Sequence[int], begin_ns: int) -> Parts:
        """Return the parts of the requests with these numbers, at the end of the run.

        A gap counts as long as it has lasted if the answer goes on, and so does the wait for a
        first part.

        Args:
            numbers: of the requests.
            due_ns: when each of them was due, from the begin of the run.
            begin_ns: of the run, by the clock.
        """
        now, none = self._clock_ns(), AnswerParts()
        answers = [self._answers.get(number, none) for number in numbers]
        for answer in answers:
            if answer.count and not answer.ended:
                self.came(answer, 0)
        first = [answer.first_ns or now for answer in answers]
        due = np.asarray(due_ns, np.int64)
        return Parts(
            np.asarray(first, np.int64) - begin_ns - due,
            np.asarray([answer.longest_ns for answer in answers], np.int64),
            np.asarray([answer.count for answer in answers], np.int32),
            Histogram.of(np.asarray(self._gaps_ns, np.int64)),
            self._in_run,
            sum(answer.short for answer in answers),
        )
