"""Lane of a client, with the waiter of each slot. Used by one thread at a time."""

from collections.abc import Callable, Hashable, Iterable

from ringbatch.frontend.client.waiter import Together, Waiter
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec, defaults
from ringbatch.shm.parts import PartReader
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import Protocol, Tallies, Tally


class Slots:
    """Slots of a client's lane, with the waiter of each.

    Attributes:
        lane: the lane.
        parts: reads parts of answers.
        segment: the segment of the lane.
        tallies: where the ends of its requests are counted.
        groups: groups of waiters whose parts come together, by anything that they share.

    Args:
        segment: attached.
        lane: of that segment, held by this process.
        wake_collector: rings the collector's doorbell.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        segment: Segment,
        lane: Lane,
        wake_collector: Callable[[], None],
        clock: Callable[[], int],
    ) -> None:
        self.segment = segment
        self.lane = lane
        self.parts = PartReader(lane)
        self.tallies = Tallies(segment, lane.index)
        self.groups: dict[Hashable, Together] = {}
        self._wake_collector = wake_collector
        self._clock = clock
        self._memory = segment.memory
        self._waiting: list[Waiter | None] = [None] * lane.capacity
        self.divide()

    def divide(self) -> None:
        """Divide the lane among the models that the segment's table had when it was last read."""
        models = defaults(self.segment.models).values()
        self.lane.divide({spec.reference: spec.account for spec in models})

    def send(
        self,
        waiter: Waiter,
        model: int,
        rows: int,
        payload: bytes | memoryview,
        key_bytes: int,
        result_bytes: int,
    ) -> int | None:
        """Put one request of a waiter's into a slot; None where there is no room now.

        Args:
            waiter: gets the answer.
            model: its reference.
            rows: instances in the request.
            payload: as it is to stand in the slot.
            key_bytes: how many at its start must be equal within a batch.
            result_bytes: room for the answer.
        """
        lane, size = self.lane, len(payload)
        slot = lane.claim(size, result_bytes, model)
        if slot is None:
            return None
        start = lane.request_offset[slot]
        self._memory[start : start + size] = payload
        deadline_ns, account = waiter.deadline_ns, waiter.account
        if waiter.in_parts:
            self.parts.open(slot)
            deadline_ns = waiter.until_ns
        lane.publish(slot, model, rows, self._clock(), deadline_ns, size, key_bytes, account)
        self._waiting[slot] = waiter
        return slot

    def tally(self, spec: ModelSpec | None) -> Tally:
        """Return the counter of ends of requests to a model, or of those to none."""
        if spec is None:
            return self.tallies.nobody[Protocol.CLIENT]
        return self.tallies.of(spec.account, spec.name, spec.version)[Protocol.CLIENT]

    def fits(self, request_bytes: int, result_bytes: int) -> bool:
        """Return whether a request and its answer fit into an empty lane."""
        return self.lane.could_hold([(request_bytes, result_bytes)])

    def expect(self, waiter: Waiter, slots: Iterable[int]) -> None:
        """Register a waiter for slots that it has published itself."""
        waiting = self._waiting
        for slot in slots:
            waiting[slot] = waiter

    def cancel(self, slots: Iterable[int]) -> None:
        """Cancel the answers in a waiter's slots, and notify the collector.

        An answer that is being handed out still arrives.
        """
        for slot in slots:
            if self._waiting[slot] is not None:
                self._waiting[slot] = None
                self.lane.cancel(slot)
        self.lane.submit()

    def collect(self) -> None:
        """Hand out every answer that has come, and every part of one."""
        found = self.lane.collect()
        if self.lane.parted:
            self._hand_out_parts()
        if not found:
            return
        waiting = self._waiting
        waiters = [waiting[slot] for slot in found]
        # Before the first call, because a waiter may cancel what another slot holds.
        for slot in found:
            waiting[slot] = None
        for slot, waiter in zip(found, waiters, strict=True):
            assert waiter is not None, "what nobody waits for was cancelled, and is not found"
            waiter.answered(slot)
        self.lane.submit()

    def _hand_out_parts(self) -> None:
        slots = [*self.lane.parted]
        self.lane.parted.clear()
        waiting = self._waiting
        alone: list[int] = []
        groups: dict[Together, dict[int, Waiter]] = {}
        latest: Together | None = None
        own: dict[int, Waiter] = {}
        for slot in slots:
            waiter = waiting[slot]
            if waiter is None:
                continue
            together = waiter.together
            if together is None:
                alone.append(slot)
                continue
            # Mostly all slots of a step are of one group.
            if together is not latest:
                latest, own = together, groups.setdefault(together, {})
            own[slot] = waiter
        for together, waiters in groups.items():
            alone += together.hand_out(waiters, self.lane, self._clock())
        for slot in alone:
            # One that another waiter has cancelled has none.
            if (waiter := waiting[slot]) is not None:
                waiter.has_parts(slot)

    def take_over(self) -> None:
        """Begin anew as the lane's next owner would: what is in flight is cancelled."""
        self._waiting = [None] * self.lane.capacity
        self.lane = Lane(self.segment, self.lane.index, self._wake_collector)
        self.parts = PartReader(self.lane)
        self.divide()
