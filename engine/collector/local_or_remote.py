"""Local or remote workers: decides whether a batch waits for a local one. Pure.

Only models that have both have `LocalRemoteTimes`. A batch goes to an idle local worker if there is
one. Otherwise it goes to an idle remote worker, unless a local worker is about to end its batch and
would answer sooner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringbatch.engine.collector.batch_time_average import Departures
from ringbatch.shm.model_spec import ModelSpec


@dataclass(slots=True)
class LocalRemoteTimes:
    """Recent times of batches from dispatch to report; 0 if unknown.

    Attributes:
        local_ns: by local workers.
        remote_ns: by remote ones.
        local_departures, remote_departures: of their batches.
    """

    local_ns: int = 0
    remote_ns: int = 0
    local_departures: Departures = field(default_factory=Departures)
    remote_departures: Departures = field(default_factory=Departures)

    def ran(self, cycle_ns: int, began_ns: int, now_ns: int, *, remote: bool) -> None:
        """Record a batch that has run.

        Args:
            cycle_ns: its time.
            began_ns: when it began.
            now_ns: when it ended.
            remote: True if a remote worker ran it.
        """
        if remote:
            departures, average_ns = self.remote_departures, self.remote_ns
            self.remote_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)
        else:
            departures, average_ns = self.local_departures, self.local_ns
            self.local_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)


def has_both(spec: ModelSpec) -> bool:
    """Return whether a model has local and remote workers."""
    return 0 < len(spec.remote) < len(spec.workers)


def hold_until(now_ns: int, began_ns: Iterable[int], times: LocalRemoteTimes) -> int | None:
    """Return until when a batch waits for a local worker; None if it goes to a remote one at once.

    A remote worker answers after `remote_ns`. A local one first ends the batch that it runs, and
    answers `local_ns` later. So the batch waits if that end is nearer than the difference of the
    two times. The batch that runs may never end, so the wait ends that difference after its usual
    time.

    Args:
        now_ns: the time.
        began_ns: when local workers began their current batches.
        times: recent times of batches.
    """
    gain_ns = times.remote_ns - times.local_ns
    if gain_ns <= 0 or not times.local_ns:
        return None
    ends_ns = [began + times.local_ns for began in began_ns]
    near_ns = [end_ns for end_ns in ends_ns if abs(end_ns - now_ns) < gain_ns]
    return max(near_ns) + gain_ns if near_ns else None
