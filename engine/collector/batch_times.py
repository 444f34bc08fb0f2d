"""Recent times of a model's batches, from dispatch to report. Pure."""

from dataclasses import dataclass, field

from ringbatch.engine.collector.batch_time_average import FAR, SHARE, Departures
from ringbatch.engine.collector.local_or_remote import LocalRemoteTimes, has_both
from ringbatch.engine.collector.run_reserve import RunReserve
from ringbatch.engine.collector.size_times import SizeTimes
from ringbatch.shm.model_spec import ModelSpec


@dataclass(slots=True, eq=False)
class BatchTimes:
    """Recent times of the batches of one model.

    Attributes:
        cycle_ns: average time; before the first report, the time of warm-up; 0 if none is known.
        service_ns: the time that a batch leaves for its run before a deadline; before the first
            report, what warm-up took.
        departures: of its batches from `cycle_ns`.
        reserve: gives `service_ns`.
        by_place: times by local and remote workers; None if the model does not have both.
        by_size: times by number of rows; None if no worker wants its next batch before the end of
            one.
    """

    cycle_ns: int = 0
    service_ns: int = 0
    departures: Departures = field(default_factory=Departures)
    reserve: RunReserve = field(default_factory=RunReserve)
    by_place: LocalRemoteTimes | None = None
    by_size: SizeTimes | None = None

    def adjust(self, spec: ModelSpec) -> None:
        """Begin or end times by place, as the model's entry has its workers now."""
        if has_both(spec) != (self.by_place is not None):
            self.by_place = LocalRemoteTimes() if has_both(spec) else None

    def learn(self, warm_up_ns: int, lead_ns: int) -> None:
        """Take over what a worker reports once it is ready.

        Args:
            warm_up_ns: how long a full batch took in its warm-up; 0 if none ran. It counts until
                a batch is measured.
            lead_ns: how long before the end of a batch it wants the next one; 0 if at the end.
        """
        if lead_ns and self.by_size is None:
            self.by_size = SizeTimes()
        self.cycle_ns = self.cycle_ns or warm_up_ns
        self.service_ns = self.service_ns or self.cycle_ns

    def ran(self, took_ns: int, began_ns: int, now_ns: int, workers: int, remote: bool) -> None:
        """Record a batch, apart from `by_size`.

        Args:
            took_ns: how long it took.
            began_ns: when it began.
            now_ns: when it ended.
            workers: how many run batches.
            remote: True if a remote worker ran it.
        """
        average_ns = self.cycle_ns
        far = took_ns > FAR * average_ns or FAR * took_ns < average_ns
        if far or self.departures.doubtful:
            average_ns = self.departures.followed(average_ns, took_ns, began_ns, now_ns)
        else:
            average_ns += (took_ns - average_ns) // SHARE
        self.cycle_ns = average_ns
        self.service_ns = self.reserve.ran(took_ns, average_ns, now_ns, workers)
        if (by_place := self.by_place) is not None:
            by_place.ran(took_ns, began_ns, now_ns, remote=remote)
