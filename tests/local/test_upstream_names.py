"""Names of model servers: their addresses, and resolvers that fail."""

import threading
import time
from collections.abc import Sequence

import pytest
from upstream_pool_harness import FAR_NS, Clock, failure, hosts

from ringbatch.engine.runtimes.upstreams.connection import Address, Unreached
from ringbatch.engine.runtimes.upstreams.names import AGAIN_NS, Names, grouped
from ringbatch.engine.runtimes.upstreams.pool import Manner, Pool
from ringbatch.shm.slot import Status


class Resolver:
    """Resolver of names, whose addresses a test changes."""

    def __init__(self, *found: str) -> None:
        self.found: Sequence[str] | OSError = found
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, _host: str, _engine_slots: int) -> Sequence[str]:
        self.gate.wait()
        if isinstance(self.found, OSError):
            raise self.found
        return self.found


def named(resolver: Resolver, clock: Clock | None = None) -> Names:
    return Names("m", [Address("models", 8501, "")], resolver, clock or Clock())


def test_every_address_of_a_name_is_a_server() -> None:
    clock, resolver = Clock(), Resolver("10.0.0.2", "10.0.0.1")
    names = named(resolver, clock)
    found = names.found(clock() + FAR_NS)
    assert hosts(names) == [("10.0.0.1",), ("10.0.0.2",)]
    assert [one.name for one in found] == [
        "http://models:8501 (10.0.0.1)",
        "http://models:8501 (10.0.0.2)",
    ]
    resolver.found = ["10.0.0.3", "10.0.0.1"]
    assert not names.due()
    clock.ahead_ns = AGAIN_NS + 1
    assert names.due()
    names.refresh(clock() + FAR_NS)
    assert hosts(names) == [("10.0.0.1",), ("10.0.0.3",)]
    assert names.endpoints[0].tag == found[0].tag
    assert len({one.tag for one in (*found, *names.endpoints)}) == 3


def test_a_name_keeps_its_addresses_where_none_are_found() -> None:
    resolver = Resolver("10.0.0.1")
    names = named(resolver)
    names.refresh(time.monotonic_ns() + FAR_NS)
    resolver.found = OSError(5, "No answer")
    names.refresh(time.monotonic_ns() + FAR_NS)
    resolver.found = ()
    names.refresh(time.monotonic_ns() + FAR_NS)
    assert hosts(names) == [("10.0.0.1",)]


def test_a_name_that_is_nobodys_is_down() -> None:
    resolver = Resolver()
    resolver.found = OSError(-2, "Name or service not known")
    pool = Pool(named(resolver), Manner("m", "/"))
    error = failure(pool)
    assert error.status is Status.SERVER_DOWN
    assert str(error) == "the model server cannot be reached: name or service not known"


def test_a_resolver_that_says_nothing_is_not_waited_for_beyond_the_deadline() -> None:
    resolver = Resolver("10.0.0.1")
    resolver.gate.clear()
    names, before = named(resolver), threading.enumerate()
    try:
        with pytest.raises(Unreached, match="the name models was not found in time"):
            names.found(time.monotonic_ns() + 20_000_000)
        with pytest.raises(Unreached):
            names.found(time.monotonic_ns() + 20_000_000)
        asking = {*threading.enumerate()} - {*before}
        assert len(asking) == 1, "it is asked once at a time"
    finally:
        resolver.gate.set()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["::1", "127.0.0.1"], [("::1", "127.0.0.1")]),
        (["127.0.0.1", "127.0.0.1"], [("127.0.0.1",)]),
        (["10.0.0.2", "10.0.0.1", "fd::1"], [("10.0.0.1",), ("10.0.0.2",)]),
        (["10.0.0.1", "fd::2", "fd::1"], [("fd::1",), ("fd::2",)]),
        (["10.0.0.2", "10.0.0.1", "fd::2", "fd::1"], [("10.0.0.1",), ("10.0.0.2",)]),
        ([], []),
    ],
)
def test_two_families_are_two_ways_to_the_same_servers(
    found: list[str], expected: list[tuple[str, ...]]
) -> None:
    assert grouped(found) == expected


def test_an_address_needs_no_resolver() -> None:
    def never(_host: str, _engine_slots: int) -> list[str]:
        raise AssertionError("there is nothing to look up")

    names = Names("m", [Address("127.0.0.1", 1, ""), Address("::1", 1, "")], never)
    assert names.settled
    names.found(0)
    assert hosts(names) == [("127.0.0.1",), ("::1",)]
