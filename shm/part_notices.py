"""Notices in completion rings that a part of an answer is out.

A completion ring has room for two answers to each slot and for one notice. While it holds a word
for each slot, further notices wait: for room, or for the answer, with which a frontend reads what
is left. So an answer always finds room.
"""

from collections.abc import Callable, Mapping, Sequence

from ringbatch.shm.ring import Producer
from ringbatch.shm.slot import as_part


class PartNotices:
    """Notices of one producer of answers.

    Args:
        completions: its completion ring in each lane.
        slots: of a lane.
        wake_lane: rings the doorbell of a lane.

    Attributes:
        waiting: by lane, the references whose notices are not posted.
    """

    __slots__ = ("_completions", "_slots", "_wake_lane", "waiting")

    def __init__(
        self,
        completions: Sequence[Producer],
        slots: int,
        wake_lane: Callable[[int], None],
    ) -> None:
        self._completions = completions
        self._slots = slots
        self._wake_lane = wake_lane
        self.waiting: dict[int, dict[int, None]] = {}

    def add(self, lane: int, ref: int) -> None:
        """Have `post` tell a lane that a part of a request's answer is out."""
        own = self.waiting.get(lane)
        if own is None:
            own = self.waiting[lane] = {}
        own[ref] = None

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values())) if self.waiting else 0

    def post(self, answered: Mapping[int, Sequence[int]]) -> None:
        """Post the notices that have room, with one wake-up for each lane.

        Args:
            answered: by lane, the requests whose answers follow. They need no notice any more.
        """
        waiting, self.waiting = self.waiting, {}
        for lane, references in waiting.items():
            for ref in answered.get(lane, ()):
                references.pop(ref, None)
            ring = self._completions[lane]
            wanted = [*references]
            room = max(self._slots - ring.backlog, 0)
            now, later = wanted[:room], wanted[room:]
            if now and not ring.offer([as_part(ref) for ref in now]):
                now, later = [], wanted
            if later:
                self.waiting[lane] = dict.fromkeys(later)
            if now:
                self._wake_lane(lane)
