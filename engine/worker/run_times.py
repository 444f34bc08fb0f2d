"""Start, duration and number of a batch's runs, as its answers report them."""

from ringbatch.shm.attempts import RUN_MASK, with_copy
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.slot import Reason
from ringbatch.shm.tuples import unchecked_tuple


class Runs:
    """Run times of the batch that a worker holds. It reads no clock; its caller does.

    A worker of a model on a device begins a batch while the one before is under way. Its times are
    those that it would have without that. It is begun and gathered when the device is free for it.
    So what it stood behind the other counts as time before the worker took it up.
    """

    __slots__ = ("_attempts", "_began_ns", "_gathered_ns", "_ran_ns", "padded_rows")

    def __init__(self) -> None:
        self._began_ns = self._gathered_ns = self._ran_ns = 0
        self._attempts = 0
        """As the word ATTEMPTS of a slot, see `ringbatch.shm.attempts`."""
        self.padded_rows = 0
        """Rows that padding added to the batch."""

    def begin(self, mark: BatchMark, now_ns: int) -> None:
        """Begin a batch; one that runs again after a worker died was run once before."""
        self._began_ns = now_ns
        self._gathered_ns = self._ran_ns = self.padded_rows = 0
        self._attempts = int(mark.reason is Reason.RETRY)

    def stood_behind(self, until_ns: int) -> None:
        """Record that the device had another batch until then."""
        self._began_ns = max(self._began_ns, until_ns)

    def ran(self, started_ns: int, ended_ns: int) -> None:
        """Record a run of the model, which has returned or raised."""
        if not self._gathered_ns:
            self._gathered_ns = started_ns
        self._ran_ns = ended_ns
        self._attempts += 1

    def copied(self, took_ns: int) -> None:
        """Record how long the device's copies of a run took."""
        self._attempts = with_copy(self._attempts, took_ns)

    def went_on(self, started_ns: int, ended_ns: int) -> None:
        """Record one more part of the run: a yield of the model, or its end."""
        if not self._gathered_ns:
            self.ran(started_ns, ended_ns)
        self._ran_ns = ended_ns

    def spent(self, infer_ns: int, now_ns: int) -> Spent:
        """Return the time of the batch, now that it is answered.

        Args:
            infer_ns: inside the model.
            now_ns: the time.
        """
        if not self._ran_ns:
            return NOTHING
        return unchecked_tuple(
            Spent,
            (
                self._gathered_ns - self._began_ns,
                infer_ns,
                now_ns - self._ran_ns,
                self.padded_rows,
                (self._attempts & RUN_MASK) - 1,
            ),
        )

    def stamped(self, mark: BatchMark) -> BatchMark:
        """Return the batch's mark for an answer given now."""
        batch, rows, reason, dispatched_ns = mark[:4]
        # Calling the class takes twice as long.
        return unchecked_tuple(
            BatchMark,
            (
                batch,
                rows,
                reason,
                dispatched_ns,
                self._began_ns,
                self._gathered_ns,
                self._ran_ns,
                self._attempts,
            ),
        )
