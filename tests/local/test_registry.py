"""The registry of clients' memory in one process: registered, found, unregistered, full."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import local_segment, spec

from ringbatch.shm.errors import Overloaded, RegionTaken
from ringbatch.shm.layout import MAX_REGIONS, WORD
from ringbatch.shm.region import Region
from ringbatch.shm.region_registry import Registry, RegistryBusy
from ringbatch.shm.region_words import RegionWords, RegistryWords

A = Region("a", "/app_a", 0, 64, 26, 7)
B = Region("b", "/app_b", 8, 16, 26, 8)


@pytest.fixture
def registry() -> Registry:
    return Registry.attach(local_segment(spec()))


def small(capacity: int, words: memoryview | None = None) -> Registry:
    memory = bytearray(WORD * (RegistryWords.SIZE + capacity * RegionWords.SIZE))
    words = memoryview(memory).cast("Q") if words is None else words
    return Registry(words, 0, lambda: True, lambda: None, capacity)


def test_a_registered_region_is_found_until_it_is_removed(registry: Registry) -> None:
    assert registry.entries() == []
    entry = registry.add(A)
    assert registry.find("a") == entry
    assert entry.region == A
    assert registry.stamp(entry.place) == entry.stamp != 0
    registry.remove("a")
    assert registry.find("a") is None
    assert registry.stamp(entry.place) == 0
    registry.remove("a")


def test_a_later_region_in_the_same_place_has_another_stamp(registry: Registry) -> None:
    first = registry.add(A)
    registry.remove("a")
    second = registry.add(A)
    assert (second.place, second.region) == (first.place, A)
    assert second.stamp != first.stamp


def test_a_name_is_taken_once(registry: Registry) -> None:
    registry.add(B)
    registry.add(A)
    registry.remove("b")  # so that a place before it is free
    with pytest.raises(RegionTaken, match='"a" is registered already'):
        registry.add(A._replace(key="/app_other"))
    assert [entry.region for entry in registry.entries()] == [A]


def test_all_go_at_once(registry: Registry) -> None:
    for number in range(5):
        registry.add(A._replace(name=str(number)))
    registry.remove(None)
    assert registry.entries() == []


def test_a_full_registry_says_so_and_has_room_again(registry: Registry) -> None:
    for number in range(MAX_REGIONS):
        registry.add(A._replace(name=str(number)))
    with pytest.raises(Overloaded, match=f"{MAX_REGIONS} shared memory regions are registered"):
        registry.add(A)
    registry.remove("3")
    registry.add(A)
    assert len(registry.entries()) == MAX_REGIONS


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30))
def test_it_is_a_dictionary_of_few_places(steps: list[tuple[str, bool]]) -> None:
    registry = small(3)
    expected: dict[str, Region] = {}
    for number, (name, adds) in enumerate(steps):
        region = Region(name, f"/app_{number}", number, 1, 2, 3)
        if not adds:
            registry.remove(name)
            expected.pop(name, None)
        elif name in expected:
            with pytest.raises(RegionTaken):
                registry.add(region)
        elif len(expected) == 3:
            with pytest.raises(Overloaded):
                registry.add(region)
        else:
            registry.add(region)
            expected[name] = region
        assert {entry.region.name: entry.region for entry in registry.entries()} == expected
        for known in "abcd":
            entry = registry.find(known)
            assert (entry and entry.region) == expected.get(known)


def test_a_record_that_makes_no_sense_is_none_and_is_written_over() -> None:
    words = memoryview(bytearray(WORD * (RegistryWords.SIZE + RegionWords.SIZE))).cast("Q")
    registry = small(1, words)
    registry.add(A)
    words[RegistryWords.SIZE + RegionWords.NAME_BYTES] = 1 << 60
    assert registry.entries() == []
    entry = registry.add(B)
    assert registry.find("b") == entry


def test_where_another_process_has_the_lock_nothing_is_changed() -> None:
    words = memoryview(bytearray(WORD * (RegistryWords.SIZE + RegionWords.SIZE))).cast("Q")
    registry = Registry(words, 0, lambda: False, lambda: pytest.fail("not held"), 1)
    with pytest.raises(RegistryBusy):
        registry.add(A)
    with pytest.raises(RegistryBusy):
        registry.remove(None)
    assert not any(words)


def test_the_lock_is_given_back_after_any_error() -> None:
    held: list[int] = []

    def lock() -> bool:
        held.append(1)
        return True

    words = memoryview(bytearray(WORD * (RegistryWords.SIZE + RegionWords.SIZE))).cast("Q")
    registry = Registry(words, 0, lock, lambda: held.clear(), 1)
    registry.add(A)
    assert held == []
    with pytest.raises(RegionTaken):
        registry.add(A)
    assert held == []
    registry.remove("a")
    assert held == []


def test_two_threads_of_one_process_do_not_register_at_once() -> None:
    inside, leave = threading.Event(), threading.Event()

    def lock() -> bool:
        inside.set()
        leave.wait()
        return True

    words = memoryview(bytearray(WORD * (RegistryWords.SIZE + RegionWords.SIZE))).cast("Q")
    registry = Registry(words, 0, lock, lambda: None, 1)
    other = threading.Thread(target=registry.add, args=(A,))
    other.start()
    inside.wait()
    with pytest.raises(RegistryBusy):
        registry.add(B)
    leave.set()
    other.join()
    assert [entry.region for entry in registry.entries()] == [A]
