"""Queries on their way from LoadGen's thread to the one that sends them."""

import select
import threading
from collections.abc import Iterator

import pytest

from ringbatch.bench.loadgen.handover import Handover


@pytest.fixture
def handover() -> Iterator[Handover]:
    made = Handover()
    yield made
    made.close()


def is_readable(handover: Handover) -> bool:
    return bool(select.select([handover.fd], (), (), 0)[0])


def test_only_who_sleeps_is_woken(handover: Handover) -> None:
    handover.issue([1], [10])
    assert not is_readable(handover)
    assert not handover.may_sleep()
    ((_, ids, samples),) = handover.take()
    assert (ids, samples) == ([1], [10])
    assert handover.may_sleep()
    handover.issue([2, 3], [20, 30])
    handover.issue([4], [40])
    assert is_readable(handover)
    handover.awake()
    handover.drain()
    handover.drain()
    assert [issued.ids for issued in handover.take()] == [[2, 3], [4]]
    handover.issue([5], [50])
    assert not is_readable(handover)


def test_the_end_is_always_told(handover: Handover) -> None:
    handover.flush()
    assert is_readable(handover)
    handover.drain()
    assert handover.flushed_ns is not None
    handover.end()
    assert handover.over
    assert is_readable(handover)


def test_no_query_is_overlooked_by_who_sleeps(handover: Handover) -> None:
    count = 20_000

    def issue() -> None:
        for query in range(count):
            handover.issue([query], [0])
        handover.end()

    thread = threading.Thread(target=issue)
    thread.start()
    found: list[int] = []
    while len(found) < count:
        found += [issued.ids[0] for issued in handover.take()]
        if len(found) < count and handover.may_sleep():
            # What was overlooked would be waited for in vain.
            assert select.select([handover.fd], (), (), 60)[0]
            handover.drain()
        handover.awake()
    thread.join()
    assert found == list(range(count))
