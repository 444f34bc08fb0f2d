"""Header ``Server-Timing`` with the phases of a request's time. Pure.

The form is W3C's Server Timing, section 3.
"""

from typing import Final

from ringbatch.shm.latency_breakdown import TIMES, Breakdown, reason_name

MILLISECONDS: Final = tuple(b"%.3f" % (us / 1000) for us in range(10_000))
"""Milliseconds as text, by microseconds: a look-up takes a twentieth of the time of formatting."""
_IN_TABLE: Final = len(MILLISECONDS)
BEFORE_ID: Final = b', batch;desc="'
"""Text between the time of `write` and the id of the batch."""


def header(found: Breakdown, batch_id: str) -> str:
    """Return the value of ``Server-Timing``, in milliseconds, as known when the head is written.

    Args:
        found: of the request.
        batch_id: of the batch, as its client sees it; empty if it was in none.
    """
    times = zip(TIMES, found.times, strict=True)
    entries = [f"{name};dur={ns / 1e6:.3f}, " for name, ns in times if ns]
    about = _about(found.batch_rows, found.reason, found.attempts)
    batch = batch_id and f'batch;desc="{batch_id}{about}", '
    return f"{''.join(entries)}{batch}total;dur={found.total / 1e6:.3f}"


def copied(copy_us: int) -> bytes:
    """Return the text for the time of a device's copies; empty if it is below a microsecond."""
    return b", copy;dur=" + milliseconds(copy_us) if copy_us else b""


def in_worker(gather_us: int, copy: bytes, run_us: int, scatter_us: int) -> bytes:
    """Return the text between the times of `queue` and of `write`, from the comma on.

    A phase below a microsecond is left out. `copy` is the text of `copied`.
    """
    return b"".join(
        (
            b", gather;dur=" if gather_us else b"",
            milliseconds(gather_us) if gather_us else b"",
            copy,
            b", run;dur=" if run_us else b"",
            milliseconds(run_us) if run_us else b"",
            b", scatter;dur=" if scatter_us else b"",
            milliseconds(scatter_us) if scatter_us else b"",
            b", write;dur=",
        )
    )


def behind_id(rows: int, reason: int, attempts: int) -> bytes:
    """Return the text between the id of the batch and the time of `total`.

    Args:
        rows: instances in the batch.
        reason: the `Reason` it was closed for.
        attempts: how many times it was run.
    """
    return f'{_about(rows, reason_name(reason), attempts)}", total;dur='.encode()


class PartIntervals:
    """Times to the first part of an answer, and between two parts."""

    def __init__(self) -> None:
        self._first_ns = self._last_ns = 0
        self._gaps = self._longest_ns = 0

    def note(self, now_ns: int) -> None:
        """Note a part that has come, on the monotonic clock."""
        if not self._first_ns:
            self._first_ns = now_ns
        else:
            self._gaps += 1
            self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns

    def entries(self, accepted_ns: int) -> str:
        """Return the text behind that of `header`; empty without a part."""
        if not self._first_ns:
            return ""
        found = f", first_part;dur={(self._first_ns - accepted_ns) / 1e6:.3f}"
        if self._gaps:
            mean_ns = (self._last_ns - self._first_ns) / self._gaps
            found += f', part_gap;dur={mean_ns / 1e6:.3f};desc="mean of {self._gaps}"'
            found += f", longest_part_gap;dur={self._longest_ns / 1e6:.3f}"
        return found


def milliseconds(us: int) -> bytes:
    """Return microseconds as the header's milliseconds."""
    return MILLISECONDS[us] if us < _IN_TABLE else b"%d.%03d" % divmod(us, 1000)


def _about(rows: int, reason: str, attempts: int) -> str:
    """Return the text behind the id of a batch."""
    times = f", {attempts} attempts" if attempts > 1 else ""
    return f", {rows} instances, closed for {reason}{times}"
