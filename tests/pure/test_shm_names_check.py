"""Check of the names in /dev/shm: an engine without them ends, as no client can attach to it."""

import pytest

from ringbatch.engine.supervisor.shm_names_check import (
    LOOK_EVERY_NS,
    NamesLost,
    ShmNamesCheck,
    words,
)
from ringbatch.shm.shm_objects import Identity, lost_paths

A, B = (1, 10), (1, 11)
ANOTHER_DEVICE = (2, 10)

LOOKS = {
    "all-is-there": ({"a": A, "b": B}, {"a": A, "b": B}, []),
    "one-is-gone": ({"a": A, "b": B}, {"a": A, "b": None}, ["b"]),
    "all-are-gone": ({"b": B, "a": A}, {"b": None, "a": None}, ["a", "b"]),
    "one-is-another": ({"a": A}, {"a": B}, ["a"]),
    "one-lies-elsewhere": ({"a": A}, {"a": ANOTHER_DEVICE}, ["a"]),
    "two-are-exchanged": ({"a": A, "b": B}, {"a": B, "b": A}, ["a", "b"]),
    "one-cannot-be-known": ({"a": A, "b": B}, {"b": B}, []),
    "it-was-gone-as-soon-as-it-was-made": ({"a": None}, {"a": None}, ["a"]),
    "nothing-was-made": ({}, {}, []),
}


@pytest.mark.parametrize(("made", "now", "expected"), LOOKS.values(), ids=LOOKS)
def test_a_path_that_names_another_object_is_lost(
    made: dict[str, Identity | None], now: dict[str, Identity | None], expected: list[str]
) -> None:
    assert lost_paths(made, now) == expected


def test_the_words_have_the_removed_paths_the_effect_and_the_cure() -> None:
    one = words(["/dev/shm/ringbatch.prod.7.0a"])
    assert one.startswith(
        "somebody removed what this engine needs in /dev/shm: /dev/shm/ringbatch.prod.7.0a. Clients"
    )
    assert "and 2 more. Clients" in words(["a", "b", "c"])
    for cure in ("RemoveIPC=no", "a system user", "start it again", "sem.ringbatch.*"):
        assert cure in one


def test_it_looks_every_two_seconds_and_ends_at_the_first_look_that_finds_something() -> None:
    now_ns = 5
    gone: list[str] = []
    looks: list[int] = []

    def found() -> list[str]:
        looks.append(now_ns)
        return gone

    watch = ShmNamesCheck(found, lambda: now_ns)
    while now_ns < 3 * LOOK_EVERY_NS:
        watch.step()
        assert watch.next_ns > now_ns, "or it would be asked for ever"
        watch.step()
        now_ns = watch.next_ns - 1
        watch.step()
        now_ns = watch.next_ns
    assert looks == [5, 5 + LOOK_EVERY_NS, 5 + 2 * LOOK_EVERY_NS]
    gone.append("/dev/shm/a")
    with pytest.raises(NamesLost, match="/dev/shm/a"):
        watch.step()
