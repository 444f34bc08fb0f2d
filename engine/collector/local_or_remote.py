"""Local or remote workers: decides whether a batch waits for a local one. Pure.

Only models that have both have `LocalRemoteTimes`. A batch goes to an idle local worker if there is
one. Otherwise it goes to an idle remote worker, unless a local worker is about to end its batch and
would answer sooner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringbatch.engine.collector.batch_time_average import Departures


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
            elsewhere: True if a remote worker ran it.
        """
        if remote:
            departures, average_ns = self.remote_departures, self.remote_ns
            self.remote_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)
        else:
            departures, average_ns = self.local_departures, self.local_ns
            self.local_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)


def hold_until(now_ns: int, began_ns: Iterable[int], sides: LocalRemoteTimes) -> int | None:
    """Until when a batch waits for a worker here rather than go elsewhere; None where it does not.

    Remote its answer comes after `remote_ns`, here after what is left of the batch that runs
    and `local_ns` more. So it waits where no more is left than the two differ by. A batch that runs
    longer than others may go on for ever, so there an end is to it as well: it is waited for no
    longer beyond its time than the two differ by.

    Args:
        now_ns: the time.
        began_ns: when workers here began what they run.
        sides: what batches take.
    """
    gain_ns = sides.remote_ns - sides.local_ns
    if gain_ns <= 0 or not sides.local_ns:
        return None
    ends_ns = [began + sides.local_ns for began in began_ns]
    near_ns = [end_ns for end_ns in ends_ns if abs(end_ns - now_ns) < gain_ns]
    return max(near_ns) + gain_ns if near_ns else None
