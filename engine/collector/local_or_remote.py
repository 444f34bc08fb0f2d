"""Local or remote workers: decides whether a batch waits for a local one. Pure.

Only models that have both have a `Sides`. A batch for which a worker here is idle goes there. One
for which only a worker elsewhere is idle goes there too, unless the answer would come sooner from a
worker here that is about to end what it runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringbatch.engine.collector.batch_time_average import Departures


@dataclass(slots=True)
class Sides:
    """Recent times of batches from dispatch to report; 0 if unknown.

    Attributes:
        here_ns: by local workers.
        elsewhere_ns: by remote ones.
        departures_here, departures_elsewhere: of their batches.
    """

    here_ns: int = 0
    elsewhere_ns: int = 0
    departures_here: Departures = field(default_factory=Departures)
    departures_elsewhere: Departures = field(default_factory=Departures)

    def ran(self, cycle_ns: int, began_ns: int, now_ns: int, *, elsewhere: bool) -> None:
        """Record a batch that has run.

        Args:
            cycle_ns: its time.
            began_ns: when it began.
            now_ns: when it ended.
            elsewhere: True if a remote worker ran it.
        """
        if elsewhere:
            departures, average_ns = self.departures_elsewhere, self.elsewhere_ns
            self.elsewhere_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)
        else:
            departures, average_ns = self.departures_here, self.here_ns
            self.here_ns = departures.followed(average_ns, cycle_ns, began_ns, now_ns)


def kept_until(now_ns: int, began_ns: Iterable[int], sides: Sides) -> int | None:
    """Until when a batch waits for a worker here rather than go elsewhere; None where it does not.

    Elsewhere its answer comes after `elsewhere_ns`, here after what is left of the batch that runs
    and `here_ns` more. So it waits where no more is left than the two differ by. A batch that runs
    longer than others may go on for ever, so there an end is to it as well: it is waited for no
    longer beyond its time than the two differ by.

    Args:
        now_ns: the time.
        began_ns: when workers here began what they run.
        sides: what batches take.
    """
    gain_ns = sides.elsewhere_ns - sides.here_ns
    if gain_ns <= 0 or not sides.here_ns:
        return None
    ends_ns = [began + sides.here_ns for began in began_ns]
    near_ns = [end_ns for end_ns in ends_ns if abs(end_ns - now_ns) < gain_ns]
    return max(near_ns) + gain_ns if near_ns else None
