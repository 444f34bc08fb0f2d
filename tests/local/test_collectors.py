"""Two collector processes: which of them is active, and the worker deaths that it learns of."""

import signal
from typing import Final, cast

import pytest

from ringbatch.engine.process.role_commands import ReadTable, ReclaimWorker, ToCollector
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.collectors import Collectors
from ringbatch.engine.supervisor.managed_process import RESTART_LIMIT_S, ManagedProcess

NOW_NS: Final = 1_000_000_000
LIMIT_NS: Final = NOW_NS + int(RESTART_LIMIT_S * 1e9)


class RecordingChild:
    """Process that only notes the messages that it gets."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def send(self, message: ToCollector) -> None:
        self.lines.append(message)

    def kill(self, number: signal.Signals) -> None:
        self.lines.append(number)


class Pair:
    """Two processes, of which the first is the collector, and processes of workers."""

    def __init__(self) -> None:
        processes = [ManagedProcess("collector", _nobody) for _ in range(2)]
        self.collectors = Collectors(*processes)
        self.workers = [
            ManagedProcess(f"m/{number}", _nobody, worker=number) for number in range(2)
        ]
        self.starts(self.collectors.collector)
        self.ready(self.collectors.collector)
        self.starts(self.collectors.standby)
        self.collectors.stands_by(self.collectors.standby, NOW_NS)

    def starts(self, managed: ManagedProcess) -> RecordingChild:
        messages = RecordingChild()
        managed.child = cast(Child, messages)
        managed.limit_ns = None
        return messages

    def ready(self, managed: ManagedProcess) -> None:
        assert self.collectors.has(managed)
        self.collectors.promote(managed, self.workers)
        managed.ready_ns = 1

    def ends(self, managed: ManagedProcess) -> None:
        managed.child, managed.ready_ns = None, 0

    def messages(self, managed: ManagedProcess) -> list[object]:
        return cast(RecordingChild, managed.child).lines


@pytest.fixture
def pair() -> Pair:
    return Pair()


def _nobody(_again: bool) -> Child:
    raise AssertionError("nothing is started here")


def test_the_standby_is_the_collector_once_it_says_so(pair: Pair) -> None:
    first, second = pair.collectors.collector, pair.collectors.standby
    pair.ends(first)
    assert pair.collectors.collector_before(second) is None, "it was heard out when it ended"
    pair.ready(second)
    assert (pair.collectors.collector, pair.collectors.standby) == (second, first)
    assert (second.title, first.title) == ("collector", "standby")


def test_the_other_collector_follows_one_that_was_first_but_heard_last(pair: Pair) -> None:
    """Both were the collector, one after the other, while nobody listened."""
    first, second = pair.collectors.collector, pair.collectors.standby
    assert pair.collectors.collector_after(first) is None, "it only stands by"
    pair.ready(second)
    assert pair.collectors.collector_after(first) is None, "it goes on"
    pair.ends(second)
    assert pair.collectors.collector_after(second) is first
    pair.collectors.promote(first, pair.workers)
    assert (pair.collectors.collector, pair.collectors.standby) == (first, second)
    assert pair.collectors.collector_after(second) is None


def test_a_worker_is_none_of_the_two(pair: Pair) -> None:
    assert not pair.collectors.has(pair.workers[0])


def test_a_death_goes_to_collector_and_standby_until_it_is_reclaimed(pair: Pair) -> None:
    first, second = pair.collectors.collector, pair.collectors.standby
    for worker, killed in zip(pair.workers, (True, False), strict=True):
        pair.collectors.worker_died(worker, killed=killed)
    deaths = [ReclaimWorker(0, killed=True), ReclaimWorker(1, killed=False)]
    assert pair.messages(first) == [ReadTable(), *deaths]
    pair.workers[0].tie.unreclaimed = None
    pair.ends(first)
    assert pair.messages(second) == []
    pair.ready(second)
    assert pair.messages(second) == [*deaths[1:], ReadTable()]


def test_a_death_without_a_collector_goes_to_the_next(pair: Pair) -> None:
    pair.ends(pair.collectors.collector)
    pair.collectors.worker_died(pair.workers[1], killed=False)
    pair.ready(pair.collectors.standby)
    deaths = [ReclaimWorker(1, killed=False)]
    assert pair.messages(pair.collectors.collector) == [*deaths, ReadTable()]


def test_the_one_before_is_heard_out_where_its_end_was_not_heard_of_yet(pair: Pair) -> None:
    """Else a worker that it has dealt with could be started, and be taken for dead."""
    first, second = pair.collectors.collector, pair.collectors.standby
    assert pair.collectors.collector_before(second) is first
    assert pair.collectors.collector_before(first) is None


def test_a_standby_that_was_started_meanwhile_is_not_waited_for(pair: Pair) -> None:
    first, second = pair.collectors.collector, pair.collectors.standby
    pair.ends(first)
    pair.starts(first)
    assert pair.collectors.collector_before(second) is None


def test_the_place_is_vacant_where_nobody_is_the_collector_or_about_to_be(pair: Pair) -> None:
    vacant = [pair.collectors.vacant]
    pair.ends(pair.collectors.collector)
    vacant.append(pair.collectors.vacant)
    pair.starts(pair.collectors.standby)  # it does not stand by yet
    vacant.append(pair.collectors.vacant)
    pair.ends(pair.collectors.standby)
    vacant.append(pair.collectors.vacant)
    assert vacant == [False, False, True, True]


def test_the_standby_may_wait_for_ever_but_not_take_over_for_ever(pair: Pair) -> None:
    standby = pair.collectors.standby
    pair.collectors.limit_wait(NOW_NS)
    limits = [standby.limit_ns]
    pair.ends(pair.collectors.collector)
    for now_ns in (NOW_NS, NOW_NS + 1):
        pair.collectors.limit_wait(now_ns)
        limits.append(standby.limit_ns)
    assert limits == [None, LIMIT_NS, LIMIT_NS], "it is not put off"
    assert "taking the collector's place took longer than 15 s" in standby.overdue_text


def test_a_collector_that_stands_by_after_all_is_not_ended(pair: Pair) -> None:
    first, second = pair.collectors.collector, pair.collectors.standby
    pair.ends(first)
    pair.starts(first)
    pair.collectors.stands_by(first, NOW_NS)
    assert first.limit_ns == second.limit_ns == LIMIT_NS, "either may get the lock"
    pair.ready(first)
    pair.collectors.limit_wait(NOW_NS)
    assert second.limit_ns is None


def test_a_collector_that_gets_no_messages_is_ended_if_it_is_there(pair: Pair) -> None:
    collector = pair.collectors.collector
    pair.collectors.replace()
    assert pair.messages(collector)[-1] is signal.SIGKILL
    pair.ends(collector)
    pair.collectors.replace()
