"""Slots and memory of a lane are divided among models: none takes all, and nothing is lost."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringbatch.shm.division import UNDIVIDED, Division, division
from ringbatch.shm.layout import ALIGNMENT, PAGE, Layout
from ringbatch.shm.slot_memory import SlotMemory

SLOTS, LANE_BYTES = 8, 8 * PAGE
MOST_MODELS = 6
STATIC = 64
"""Bytes of a request that finds room wherever any is."""
OTHER, ANOTHER = 11, 12


def accounts(models: int) -> dict[int, int]:
    return {reference: reference for reference in range(models)}


def lane(slots: int = SLOTS, models: int = 2) -> SlotMemory:
    layout = Layout(
        lanes=1,
        slots=slots,
        lane_bytes=LANE_BYTES,
        workers=1,
        models=1,
        model_table_bytes=PAGE,
    )
    memory = SlotMemory(layout, 0)
    memory._free.extend(range(slots))
    memory.divide(accounts(models))
    return memory


def claimed(memory: SlotMemory, model: int, size: int = STATIC) -> list[int]:
    """Slots for as many requests of a model as find room."""
    found: list[int] = []
    while (slot := memory.claim(size, 0, model)) is not None:
        found.append(slot)
    return found


@pytest.mark.parametrize(
    ("slots", "models", "wanted"),
    [
        (64, 0, UNDIVIDED),
        (64, 1, UNDIVIDED),
        (1, 2, UNDIVIDED),
        (64, 2, Division(32, 16, 4096, 2048)),
        (1024, 2, Division(512, 256, 4096, 2048)),
        (64, 3, Division(30, 10, 4032, 1344)),
        (64, 20, Division(20, 1, 3840, 192)),
        (64, 32, Division(32, 1, 4096, 128)),
        (64, 33, Division(32, 1, 4096, 128)),
        (64, 1000, Division(32, 1, 4096, 128)),
        (2, 2, Division(1, 1, 4096, 4096)),
    ],
)
def test_half_of_the_slots_and_an_eighth_of_the_memory_are_set_aside(
    slots: int, models: int, wanted: Division
) -> None:
    assert division(slots, LANE_BYTES, models) == wanted


@given(st.integers(0, 14).map(lambda bits: 1 << bits), st.integers(2, 1 << 16))
def test_a_model_has_its_own_unless_there_are_more_models_than_half_of_the_slots(
    slots: int, models: int
) -> None:
    found = division(slots, LANE_BYTES, models)
    assert found.slots <= slots // 2
    assert found.memory_bytes <= LANE_BYTES // 8
    assert found.memory_bytes % ALIGNMENT == 0
    if models <= slots // 2:
        assert found.slots == models * found.own_slots
        assert found.memory_bytes == models * found.own_bytes
        assert found.own_slots >= 1


def test_a_waiting_model_leaves_the_others_their_own_slots() -> None:
    memory = lane()
    waiting = claimed(memory, OTHER)
    assert len(waiting) == memory.most_of_one == 6
    assert (memory.has_slots, memory.spare_slots) == (False, 2)
    (_, second) = claimed(memory, ANOTHER)
    assert memory.spare_slots == 0
    memory.release(second)
    assert memory.claim(STATIC, 0, OTHER) is None
    assert claimed(memory, ANOTHER) == [second]
    memory.release(waiting[0])
    assert claimed(memory, ANOTHER) == [waiting[0]], "what is for all is for it too"
    assert memory.in_flight == SLOTS


def test_a_model_alone_has_everything_and_a_second_one_gets_its_own_as_slots_come_back() -> None:
    memory = lane(models=1)
    waiting = claimed(memory, OTHER)
    assert len(waiting) == SLOTS
    memory.divide(accounts(2))
    assert memory.claim(STATIC, 0, ANOTHER) is None
    for slot in waiting[:3]:
        memory.release(slot)
    assert len(claimed(memory, OTHER)) == 2, "its own, beside which there is none for all"
    assert len(claimed(memory, ANOTHER)) == 1
    memory.release(waiting[3])
    assert len(claimed(memory, ANOTHER)) == 1
    memory.release(waiting[4])
    assert len(claimed(memory, OTHER)) == 1


def test_memory_that_one_model_fills_is_not_all() -> None:
    memory = lane(64)
    size = LANE_BYTES // 32
    assert len(claimed(memory, OTHER, size)) == 28 + 2
    assert memory.spare_slots == 32, "it is not slots that are short"
    assert memory.has_slots
    assert len(claimed(memory, ANOTHER, size)) == 2


def test_a_request_that_fills_the_memory_is_taken_when_nothing_else_is_there() -> None:
    memory = lane()
    largest = LANE_BYTES - LANE_BYTES // 64
    assert memory.could_hold([(largest, 0)])
    slot = memory.claim(largest, 0, OTHER)
    assert slot is not None
    memory.release(slot)
    parts = [(LANE_BYTES * 7 // 8 // 6 // ALIGNMENT * ALIGNMENT, 0)] * memory.most_of_one
    assert memory.could_hold(parts)
    assert None not in [memory.claim(*part, OTHER) for part in parts]
    assert not memory.could_hold([*parts, (LANE_BYTES // 8, 0)])


class Held(NamedTuple):
    """Part of the lane that a request holds."""

    model: int
    size: int


class Claims(RuleBasedStateMachine):
    """`held` is the model: what every request has, by slot."""

    @initialize(slots=st.sampled_from([2, 4, 8, 16]), models=st.integers(1, MOST_MODELS))
    def begin(self, slots: int, models: int) -> None:
        self.slots, self.models = slots, models
        self.memory = lane(slots, models)
        self.held: dict[int, Held] = {}
        self.settled = True
        """True if every request in flight is younger than the division."""

    @rule(model=st.integers(1, MOST_MODELS), size=st.sampled_from([1, 64, 100, 1000, 5000]))
    def claim(self, model: int, size: int) -> None:
        model = 1 + model % self.models
        own = self.has_own_left(model)
        slot = self.memory.claim(size, 0, model)
        if slot is None:
            assert not (own and size <= ALIGNMENT), "its own slots are another's"
            return
        assert slot not in self.held
        self.held[slot] = Held(model, size)

    def has_own_left(self, model: int) -> bool:
        """Return whether a model has own slots and memory left, and no model holds another's."""
        divided = division(self.slots, LANE_BYTES, self.models)
        own = [held.size for held in self.held.values() if held.model == model]
        size = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in own) + ALIGNMENT
        enough = len(own) < divided.own_slots and size <= divided.own_bytes
        return enough and self.settled and self.models <= self.slots // 2

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        self.memory.release(slot)
        del self.held[slot]
        self.settled = self.settled or not self.held

    @rule(models=st.integers(1, MOST_MODELS))
    def divide(self, models: int) -> None:
        self.settled = not self.held or (self.settled and models == self.models)
        self.models = models
        self.memory.divide(accounts(models))

    @invariant()
    def extents_are_apart(self) -> None:
        end = 0
        for start, size in sorted(
            (self.memory.request_offset[slot], held.size) for slot, held in self.held.items()
        ):
            assert start >= end
            end = start + size

    @invariant()
    def nothing_is_lost(self) -> None:
        memory = self.memory
        assert memory.in_flight == len(self.held)
        assert memory._extents.used >= sum(held.size for held in self.held.values())
        assert memory._lent.keys() <= self.held.keys()
        lent = memory._lent_to.values()
        assert sum(slots for slots, _ in lent) == memory._lent_slots
        assert sum(used for _, used in lent) == memory._extents._used_by_own

    def teardown(self) -> None:
        for slot in self.held:
            self.memory.release(slot)
        assert (self.memory._lent, self.memory._lent_to) == ({}, {})
        divided = division(self.slots, LANE_BYTES, self.models)
        everybodys = claimed(self.memory, 1)
        assert len(everybodys) == self.memory.most_of_one
        for model in range(2, self.models + 1):
            everybodys += claimed(self.memory, model)
        assert len(everybodys) == min(
            self.slots, self.memory.most_of_one + (self.models - 1) * divided.own_slots
        )
        assert sorted(everybodys) == list(range(self.slots))


TestClaims = Claims.TestCase
