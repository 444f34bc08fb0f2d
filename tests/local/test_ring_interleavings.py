"""A ring under every order of its two ends' loads and stores, and wrong rings that are caught."""

from collections.abc import Sequence

import pytest
from interleave import Actor, Explored, Scenario, Violation, Watch, explore, fence
from memories import MEMORIES, Memory, TotalStoreOrder
from tiers import only

from ringbatch.shm import ring as ring_module
from ringbatch.shm.descriptors import RingWords
from ringbatch.shm.layout import WORD, ring_size
from ringbatch.shm.ring import Consumer, Producer

CAPACITY = 2
UNPUBLISHED = 0xDEAD


def ring(
    producer_type: type[Producer],
    consumer_type: type[Consumer],
    offers: Sequence[Sequence[int]],
    takes: int,
) -> Scenario:
    """A producer that makes each offer once, a consumer that looks `takes` times."""

    def scenario(watch: Watch) -> tuple[list[Actor], "Check"]:
        words = watch(memoryview(bytearray(WORD * ring_size(CAPACITY))).cast("Q"))
        for number in range(CAPACITY):
            words[RingWords.ITEMS + number] = UNPUBLISHED
        producer = producer_type(words, 0, CAPACITY)
        consumer = consumer_type(words, 0, CAPACITY)
        accepted: list[int] = []
        taken: list[int] = []

        def produce() -> None:
            for items in offers:
                if producer.offer(items):
                    accepted.extend(items)

        def consume() -> None:
            for _ in range(takes):
                items = consumer.take()
                assert UNPUBLISHED not in items, "read before it was published"
                taken.extend(items)

        actors = [Actor("producer", produce), Actor("consumer", consume)]
        return actors, Check(accepted, taken, consumer)

    return scenario


class Check:
    """Check after both actors end: accepted items came out, once and in order."""

    def __init__(self, accepted: list[int], taken: list[int], consumer: Consumer) -> None:
        self.accepted = accepted
        self.taken = taken
        self.consumer = consumer

    def __call__(self) -> None:
        found = self.taken + self.consumer.take()
        assert len(found) >= len(self.accepted), "lost"
        assert len(found) <= len(self.accepted), "doubled"
        assert found == self.accepted, "out of order or overwritten"


TWICE = [[11], [12]]
THREE_TIMES = [[11], [12], [13]]
PAIRS = [[11, 12], [13, 14]]


@pytest.mark.parametrize("run", [0, 8], ids=["together", "one by one"])
@pytest.mark.parametrize("memory", only(MEMORIES, "weak"))
@pytest.mark.parametrize(
    ("offers", "takes"),
    [
        (TWICE, 2),
        (THREE_TIMES, 3),
        (PAIRS, 2),
        ([[11], [12, 13], [14]], 2),
        ([*TWICE, [13], [14]], 2),
    ],
)
def test_nothing_is_lost_doubled_reordered_or_read_early_in_any_order(
    offers: list[list[int]],
    takes: int,
    memory: type[Memory],
    run: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_module, "_RUN", run)
    explored = explore(ring(Producer, Consumer, offers, takes), memory=memory)
    print(explored)
    assert explored.schedules > 30


class TailFirst(Producer):
    """Defect: publishes a word before it stands there."""

    def offer(self, items: Sequence[int]) -> bool:
        words, position = self._words, self.position
        end = position + len(items)
        if end - words[self._head] > self._capacity:
            return False
        self.position = words[self._tail] = end
        for number, item in enumerate(items, position):
            words[self._first + number % self._capacity] = item
        return True


class Reckless(Producer):
    """Defect: does not ask whether there is room."""

    def offer(self, items: Sequence[int]) -> bool:
        for number, item in enumerate(items, self.position):
            self._words[self._first + number % self._capacity] = item
        self.position = self._words[self._tail] = self.position + len(items)
        return True


class Stale(Producer):
    """Defect: asks where the consumer was before its own last offer, one word too far."""

    def offer(self, items: Sequence[int]) -> bool:
        words = self._words
        if self.position + len(items) - words[self._head] > self._capacity + 1:
            return False
        for number, item in enumerate(items, self.position):
            words[self._first + number % self._capacity] = item
        self.position = words[self._tail] = self.position + len(items)
        return True


class Guessing(Producer):
    """Defect: takes its own position for the consumer's where it has to look for room."""

    def offer(self, items: Sequence[int]) -> bool:
        if self.position + len(items) > self._limit:
            self._limit = self.position + self._capacity
        return super().offer(items)


class HeadFirst(Consumer):
    """Defect: gives the places back before it has copied what stands in them."""

    def take(self) -> list[int]:
        words, position = self._words, self.position
        end = words[self._tail]
        self.position = words[self._head] = end
        return [words[self._first + number % self._capacity] for number in range(position, end)]


class Forgetful(Consumer):
    """Defect: reads where the producer is a second time, and passes over what came between."""

    def take(self) -> list[int]:
        words, position = self._words, self.position
        end = words[self._tail]
        items = [words[self._first + number % self._capacity] for number in range(position, end)]
        self.position = words[self._head] = words[self._tail]
        return items


@pytest.mark.parametrize(
    ("producer", "consumer", "offers", "message"),
    [
        pytest.param(TailFirst, Consumer, TWICE, "before it was published", id="TAIL first"),
        pytest.param(Producer, HeadFirst, THREE_TIMES, "overwritten", id="HEAD first"),
        pytest.param(Reckless, Consumer, THREE_TIMES, "CorruptRingError", id="HEAD ignored"),
        pytest.param(Guessing, Consumer, THREE_TIMES, "CorruptRingError", id="HEAD guessed"),
        pytest.param(Stale, Consumer, THREE_TIMES, "CorruptRingError", id="one too many"),
        pytest.param(Producer, Forgetful, TWICE, "lost", id="TAIL read twice"),
    ],
)
def test_a_wrong_ring_is_caught(
    producer: type[Producer],
    consumer: type[Consumer],
    offers: list[list[int]],
    message: str,
) -> None:
    with pytest.raises(Violation, match=message):
        explore(ring(producer, consumer, offers, 3))


# The explorer itself


def crossed(watch: Watch) -> tuple[list[Actor], "Crossed"]:
    """Scenario of two actors, of which each announces itself and then looks for the other."""
    words = watch(memoryview(bytearray(16)).cast("Q"))
    seen: dict[int, int] = {}

    def look(own: int, other: int) -> None:
        words[own] = 1
        seen[own] = words[other]

    actors = [Actor("left", lambda: look(0, 1)), Actor("right", lambda: look(1, 0))]
    return actors, Crossed(seen)


class Crossed:
    def __init__(self, seen: dict[int, int]) -> None:
        self.seen = seen

    def __call__(self) -> None:
        assert any(self.seen.values()), "neither saw the other"


def test_every_order_of_two_times_two_steps_is_counted() -> None:
    assert explore(crossed) == Explored(schedules=6, states=13)


def test_stores_that_wait_in_buffers_are_seen_late_as_on_x86() -> None:
    """A load overtakes an earlier store: total store order allows more than taking turns."""
    with pytest.raises(Violation, match="neither saw the other"):
        explore(crossed, memory=TotalStoreOrder)


def test_a_full_fence_lets_at_least_one_of_two_see_the_other() -> None:
    def scenario(watch: Watch) -> tuple[list[Actor], "Crossed"]:
        words = watch(memoryview(bytearray(16)).cast("Q"))
        seen: dict[int, int] = {}

        def look(own: int, other: int) -> None:
            words[own] = 1
            fence()
            seen[own] = words[other]

        actors = [Actor("left", lambda: look(0, 1)), Actor("right", lambda: look(1, 0))]
        return actors, Crossed(seen)

    assert explore(scenario, memory=TotalStoreOrder).schedules > 20


def test_a_violation_tells_the_steps_that_led_to_it() -> None:
    with pytest.raises(Violation) as caught:
        explore(ring(TailFirst, Consumer, TWICE, 1))
    steps = str(caught.value).splitlines()
    assert steps[0].startswith("AssertionError: read before it was published")
    assert f"  producer stores 0x1 at {RingWords.TAIL}" in steps
    assert steps[-1].startswith("  consumer stores")
    assert f" at {RingWords.HEAD}" in steps[-1]


def test_an_actor_is_killed_before_each_of_its_steps_and_its_heir_goes_on() -> None:
    found: set[tuple[int, ...]] = set()

    def scenario(watch: Watch) -> tuple[list[Actor], "Note"]:
        words = watch(memoryview(bytearray(32)).cast("Q"))

        def first() -> None:
            words[0] = words[1] = 1

        def heir() -> None:
            words[2] = 1

        return [Actor("first", first, heir)], Note(words, found)

    explore(scenario)
    assert found == {(0, 0, 1), (1, 0, 1), (1, 1, 0)}


class Note:
    def __init__(self, words: memoryview, found: set[tuple[int, ...]]) -> None:
        self.words = words
        self.found = found

    def __call__(self) -> None:
        self.found.add(tuple(self.words[number] for number in range(3)))
