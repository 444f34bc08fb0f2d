"""Notices in completion rings that a part of an answer is out.

A completion ring has room for two answers to each slot and for one notice. While it holds a word
for each slot, further notices wait: for room, or for the answer, with which a frontend reads what
is left. So an answer always finds room.
"""

from collections.abc import Callable, Sequence

from ringbatch.shm.ring import Producer
from ringbatch.shm.slot import as_part


class PartNotices:
    """Notices of one producer of answers.

    Args:
        completions: its completion ring in each lane.
        slots: of a lane.
        open_ones: returns those of references whose requests have no answer yet.
        wake_lane: rings the doorbell of a lane.

    Attributes:
        waiting: by lane, the references whose notices are not posted.
    """

    __slots__ = ("_completions", "_open_ones", "_slots", "_wake_lane", "waiting")

    def __init__(
        self,
        completions: Sequence[Producer],
        slots: int,
        open_ones: Callable[[Sequence[int]], list[int]],
        wake_lane: Callable[[int], None],
    ) -> None:
        self._completions = completions
        self._slots = slots
        self._open_ones = open_ones
        self._wake_lane = wake_lane
        self.waiting: dict[int, dict[int, None]] = {}

    def add(self, lane: int, ref: int) -> None:
        """Have `post` tell a lane that a part of a request's answer is out."""
        self.waiting.setdefault(lane, {})[ref] = None

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values())) if self.waiting else 0

    def post(self) -> None:
        """Post the notices that have room, with one wake-up for each lane."""
        waiting, self.waiting = self.waiting, {}
        for lane, references in waiting.items():
            ring = self._completions[lane]
            wanted = self._open_ones([*references])
            room = max(self._slots - ring.backlog, 0)
            now, later = wanted[:room], wanted[room:]
            if now and not ring.offer([as_part(ref) for ref in now]):
                now, later = [], wanted
            if later:
                self.waiting[lane] = dict.fromkeys(later)
            if now:
                self._wake_lane(lane)
