"""The registry under every order of loads and stores, and with a registrar killed at each step."""

from collections.abc import Callable

import pytest
from interleave import Actor, Scenario, Violation, Watch, explore
from memories import STRONG, Memory
from tiers import only

from ringbatch.shm.layout import WORD
from ringbatch.shm.region import FIELDS, Region, decode, encode, text_words
from ringbatch.shm.region_registry import Entry, Registry
from ringbatch.shm.region_words import RegionWords, RegistryWords

OLD = Region("a", "/old", 1, 11, 111, 1111)
NEW = Region("b", "/new", 2, 22, 222, 2222)
HEIRS = Region("c", "/too", 3, 33, 333, 3333)


class Records:
    """A registry of one record, in memory that is watched, with OLD in it."""

    def __init__(self, watch: Watch) -> None:
        memory = bytearray(WORD * (RegistryWords.SIZE + RegionWords.SIZE))
        self._words = watch(memoryview(memory).cast("Q"))
        self.old = self.opened().add(OLD)

    def opened(self, kind: type[Registry] = Registry) -> Registry:
        return kind(self._words, 0, lambda: True, lambda: None, 1)

    def expect_whole(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.region in (OLD, NEW, HEIRS), "a mixture"
            assert (entry.stamp == self.old.stamp) == (entry.region == OLD), "mistaken"

    def expect_only(self, region: Region) -> None:
        (entry,) = self.opened().entries()
        assert entry.region == region, "lost"
        assert entry.stamp != self.old.stamp, "mistaken"


def looked_at(registrar_type: type[Registry], reader_type: type[Registry]) -> Scenario:
    """A registrar that puts NEW where OLD was, and a frontend that looks."""

    def make(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        records = Records(watch)
        registrar, reader = records.opened(registrar_type), records.opened(reader_type)

        def replace() -> None:
            registrar.remove(None)
            registrar.add(NEW)

        def look() -> None:
            records.expect_whole(reader.entries())

        actors = [Actor("registrar", replace), Actor("frontend", look)]
        return actors, lambda: records.expect_only(NEW)

    return make


def inherited(registrar_type: type[Registry]) -> Scenario:
    """Scenario: the registrar may die on its way; another looks, and registers in its stead."""

    def make(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        records = Records(watch)
        registrar, heir = records.opened(registrar_type), records.opened()
        registered = [NEW]

        def replace() -> None:
            registrar.remove(None)
            registrar.add(NEW)

        def inherit() -> None:
            registered[:] = [HEIRS]
            records.expect_whole(heir.entries())
            heir.remove(None)
            heir.add(HEIRS)

        return [Actor("registrar", replace, inherit)], lambda: records.expect_only(registered[0])

    return make


@pytest.mark.parametrize("memory", only(STRONG, "buffered"))
def test_a_region_is_seen_whole_or_not_at_all_in_any_order(memory: type[Memory]) -> None:
    explored = explore(looked_at(Registry, Registry), memory=memory)
    print(explored)
    assert explored.schedules > 10_000


@pytest.mark.parametrize("memory", only(STRONG, "buffered"))
def test_a_registrar_killed_at_any_step_leaves_nothing_half_done(memory: type[Memory]) -> None:
    explored = explore(inherited(Registry), memory=memory)
    print(explored)
    assert explored.schedules > 10


class StampFirst(Registry):
    """Defect: publishes a record before it stands there."""

    def _write(self, place: int, region: Region) -> int:
        words, first = self._words, self._first + place * RegionWords.SIZE
        words[self._last_stamp] = stamp = words[self._last_stamp] + 1
        words[first] = stamp
        for number, word in enumerate(encode(region), first + RegionWords.OFFSET):
            words[number] = word
        return int(stamp)


class SameStamp(Registry):
    """Defect: gives every region the same stamp."""

    def _write(self, place: int, region: Region) -> int:
        words, first = self._words, self._first + place * RegionWords.SIZE
        for number, word in enumerate(encode(region), first + RegionWords.OFFSET):
            words[number] = word
        words[first] = 1
        return 1


class OneLook(Registry):
    """Defect: does not look at the stamp again."""

    def _read(self, place: int) -> Entry | None:
        words, first = self._words, self._first + place * RegionWords.SIZE
        stamp = words[first]
        fields = words[first + RegionWords.OFFSET : first + RegionWords.OFFSET + FIELDS].tolist()
        count = text_words(fields) if stamp else 0
        text = words[first + RegionWords.TEXT : first + RegionWords.TEXT + count].tolist()
        region = decode(fields, text) if count else None
        return None if region is None else Entry(place, stamp, region)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(looked_at(StampFirst, Registry), id="stamp first"),
        pytest.param(looked_at(SameStamp, Registry), id="same stamp"),
        pytest.param(looked_at(Registry, OneLook), id="one look"),
        pytest.param(inherited(StampFirst), id="stamp first, killed"),
    ],
)
def test_a_wrong_registry_is_caught(wrong: Scenario) -> None:
    with pytest.raises(Violation, match=r"a mixture|mistaken"):
        explore(wrong)
