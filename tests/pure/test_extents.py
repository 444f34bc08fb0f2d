"""The allocator of payload memory: nothing is handed out twice, nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from ringbatch.shm.extents import LARGE_SHARE, LONE_SHARE, RESERVE_SHARE, Extents
from ringbatch.shm.layout import ALIGNMENT, PAGE, aligned

SIZE = 4 * PAGE
LARGE = SIZE // LARGE_SHARE
RESERVE = SIZE // RESERVE_SHARE
LONE_RESERVE = SIZE // LONE_SHARE

Held = tuple[int, int]
"""Offset and size, as they were asked for."""

sizes = st.one_of(
    st.sampled_from(
        [0, 1, 63, 64, 65, LARGE, LARGE + 1, SIZE - RESERVE, SIZE - LONE_RESERVE, SIZE]
    ),
    st.integers(0, SIZE + PAGE),
    st.integers(0, 512),
)


def taken(size: int) -> int:
    """Bytes that an extent of `size` takes."""
    return max(aligned(size), ALIGNMENT)


class Allocations(RuleBasedStateMachine):
    """`held` is the model: every extent that is out, and nothing else is known."""

    extents: Bundle[Held] = Bundle("extents")

    def __init__(self) -> None:
        super().__init__()
        self.memory = Extents(SIZE)
        self.held: list[Held] = []

    def overlapping(self, offset: int, size: int) -> bool:
        return any(
            offset < other + taken(length) and other < offset + taken(size)
            for other, length in self.held
        )

    @rule(target=extents, size=sizes)
    def allocate(self, size: int) -> Held:
        used = self.memory.used
        offset = self.memory.allocate(size)
        if offset is None:
            assert self.memory.used == used
            return multiple()  # type: ignore[return-value]
        assert not self.overlapping(offset, size)
        assert 0 <= offset <= SIZE - taken(size)
        assert offset % ALIGNMENT == 0
        if taken(size) > LARGE:
            large = sum(taken(held) for _, held in self.held if taken(held) > LARGE)
            assert large + taken(size) <= SIZE - (RESERVE if large else LONE_RESERVE)
        self.held.append((offset, size))
        return offset, size

    @rule(extent=consumes(extents))
    def free(self, extent: Held) -> None:
        self.held.remove(extent)
        self.memory.free(*extent)

    @rule(
        target=extents,
        offset=st.integers(-1, SIZE // ALIGNMENT).map(lambda step: step * ALIGNMENT),
        size=sizes,
    )
    def reserve(self, offset: int, size: int) -> Held:
        used = self.memory.used
        possible = 0 <= offset <= SIZE - taken(size) and not self.overlapping(offset, size)
        assert self.memory.reserve(offset, size) == possible
        if not possible:
            assert self.memory.used == used
            return multiple()  # type: ignore[return-value]
        self.held.append((offset, size))
        return offset, size

    @invariant()
    def the_bytes_in_use_are_counted(self) -> None:
        assert self.memory.used == sum(taken(size) for _, size in self.held)

    def teardown(self) -> None:
        for extent in self.held:
            self.memory.free(*extent)
        assert self.memory.used == 0
        assert self.memory.reserve(0, SIZE)


Allocations.TestCase.settings = settings(stateful_step_count=60)
TestAllocations = Allocations.TestCase


def test_small_extents_come_from_the_low_end_and_large_ones_from_the_high_end() -> None:
    memory = Extents(SIZE)
    assert [memory.allocate(64), memory.allocate(LARGE)] == [0, 64]
    assert memory.allocate(LARGE + 1) == SIZE - taken(LARGE + 1)


def test_a_freed_extent_is_the_next_of_its_size() -> None:
    memory = Extents(SIZE)
    first, second, _ = (memory.allocate(100) for _ in range(3))
    assert first is not None
    assert second is not None
    memory.free(first, 100)
    memory.free(second, 100)
    assert memory.allocate(128) == second
    assert memory.allocate(65) == first


@given(st.lists(st.integers(LARGE + 1, SIZE - RESERVE), max_size=30), st.integers(0, LARGE))
def test_large_extents_never_keep_a_small_one_out(large: list[int], small: int) -> None:
    memory = Extents(SIZE)
    for size in large:
        memory.allocate(size)
    assert memory.used <= SIZE - RESERVE
    assert memory.allocate(small) is not None


def test_the_whole_reserve_is_there_for_small_extents() -> None:
    memory = Extents(SIZE)
    assert memory.allocate(SIZE - RESERVE) is not None
    assert memory.allocate(LARGE + ALIGNMENT) is None
    assert [memory.allocate(64) for _ in range(RESERVE // 64)] == list(range(0, RESERVE, 64))
    assert memory.allocate(64) is None


def test_neighbours_that_were_freed_apart_make_room_for_a_larger_one() -> None:
    memory = Extents(SIZE)
    count = SIZE // 256
    offsets = [memory.allocate(256) for _ in range(count)]
    assert offsets == [number * 256 for number in range(count)]
    assert memory.allocate(1) is None
    for offset in offsets[::2]:
        assert offset is not None
        memory.free(offset, 256)
    assert memory.allocate(512) is None, "the free bytes are apart"
    for offset in offsets[1::2]:
        assert offset is not None
        memory.free(offset, 256)
    assert memory.allocate(SIZE - RESERVE) == RESERVE


def test_a_size_that_comes_again_and_again_needs_no_merging() -> None:
    memory = Extents(SIZE)
    kept = memory.allocate(1000)
    for _ in range(1000):
        offset = memory.allocate(300)
        assert offset == taken(1000)
        memory.free(offset, 300)
    assert kept == 0
    assert memory.used == taken(1000)


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        (1, 64),
        (32, 64),
        (0, SIZE + 1),
        (SIZE, 64),
        (SIZE - 64, 65),
        (-64, 64),
        (-64, 128),
        (128, -64),
        (SIZE, -SIZE),
        (1 << 63, 64),
        (0, 1 << 64),
    ],
)
def test_bytes_that_no_allocation_can_have_given_are_not_reserved(offset: int, size: int) -> None:
    memory = Extents(SIZE)
    assert not memory.reserve(offset, size)
    assert memory.used == 0
    assert memory.reserve(0, SIZE)


def test_an_extent_is_reserved_once() -> None:
    memory = Extents(SIZE)
    assert memory.reserve(128, 100)
    assert not memory.reserve(128, 100)
    assert not memory.reserve(64, 128)
    assert not memory.reserve(192, 64)
    assert memory.reserve(0, 128)
    assert memory.reserve(256, SIZE - 256)
    assert memory.allocate(1) is None


def test_an_extent_that_was_reserved_can_be_freed_like_any_other() -> None:
    memory = Extents(SIZE)
    assert memory.reserve(1024, 100)
    memory.free(1024, 100)
    assert memory.allocate(100) == 1024


@given(st.lists(sizes, min_size=1, max_size=6))
def test_could_hold_equals_allocating_in_an_empty_memory(wanted: list[int]) -> None:
    memory = Extents(SIZE)
    assert memory.could_hold(wanted) == all(memory.allocate(n) is not None for n in wanted)


@given(st.lists(sizes, min_size=1, max_size=6))
def test_could_hold_counts_the_memory_that_is_set_aside(wanted: list[int]) -> None:
    memory = Extents(SIZE)
    memory.aside_bytes = RESERVE
    if memory.could_hold(wanted):
        assert all(memory.allocate(n) is not None for n in wanted)
    if memory.used <= SIZE - RESERVE:
        own = [memory.allocate(LARGE, own=True) for _ in range(RESERVE // LARGE)]
        assert None not in own, "large ones leave what is set aside"


@given(sizes, st.integers(0, LONE_RESERVE - ALIGNMENT))
def test_beside_a_large_one_alone_there_is_room_for_a_small_one(large: int, small: int) -> None:
    memory = Extents(SIZE)
    memory.allocate(large)
    assert memory.allocate(small) is not None
