"""The owner of a lane that writes whatever it likes into what is its own."""

import random
from contextlib import suppress
from typing import Final

from ringbatch.shm.descriptors import RingWords, SlotWords
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, WANTED, reference

_WORD_MASK: Final = (1 << 64) - 1
_SPOILT_BYTES: Final = 512


class HostileLane:
    """Lane of a hostile client.

    Args:
        segment: segment of the lane.
        words: the segment's.
        lane: number of the lane.
        chance: random numbers that decide.
    """

    def __init__(
        self, segment: Segment, words: memoryview, lane: int, chance: random.Random
    ) -> None:
        self._segment = segment
        self._words = words
        self._lane = lane
        self._chance = chance
        self._generations = [0] * segment.layout.slots

    def act(self, now_ns: int) -> None:
        """Spoil a slot, submit it, and now and then spoil a ring."""
        words, layout, chance = self._words, self._segment.layout, self._chance
        choose = chance.choice
        slot = chance.randrange(layout.slots)
        number = self._lane * layout.slots + slot
        first = layout.slot(number)
        odd = [0, 1, 2, 64, 4096, 1 << 20, 1 << 44, 1 << 63, _WORD_MASK, chance.getrandbits(64)]
        for field in (
            SlotWords.ROWS,
            SlotWords.MODEL,
            SlotWords.REQUEST_BYTES,
            SlotWords.KEY_BYTES,
            SlotWords.RESULT_CAPACITY,
        ):
            words[first + field] = choose([0, 1, 1, 1, 2, 8, 64, choose(odd)])
        start = layout.lane_payload_byte(self._lane)
        inside = start + 64 * chance.randrange(100)
        edge = start + layout.lane_bytes - 64
        for field in (SlotWords.REQUEST_OFFSET, SlotWords.RESULT_OFFSET):
            words[first + field] = choose([inside, inside, edge, choose(odd)])
        for field in (SlotWords.ACCEPTED_NS, SlotWords.DEADLINE_NS):
            words[first + field] = choose([now_ns, now_ns + (1 << 30), choose(odd)])
        words[first + SlotWords.ACCOUNT] = choose([0, 0, choose(odd)])
        self._segment.memory[start : start + _SPOILT_BYTES] = chance.randbytes(_SPOILT_BYTES)
        self._generations[slot] += choose([0, 1, 1])
        generation = self._generations[slot]
        words[first + SlotWords.CONTROL] = generation << FLAG_BITS | choose(
            [WANTED, WANTED, chance.randrange(256)]
        )
        ring = layout.submission_ring(self._lane)
        producer = Producer(words, ring, layout.slots)
        submitted = reference(generation, number)
        with suppress(ValueError):  # its own position may be at the end of all numbers
            producer.offer([submitted, choose([submitted, choose(odd)])])
        if chance.random() < 0.1:
            words[ring + RingWords.TAIL] = choose(odd)
        if chance.random() < 0.1:
            other = layout.completion_ring(self._lane, chance.randrange(layout.workers + 1))
            words[other + RingWords.HEAD] = choose(odd)
