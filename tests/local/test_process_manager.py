"""Places whose processes are played by hand: started, refused, ended when they take too long."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ringbatch.engine.process import respawn
from ringbatch.engine.process.memory_kills import MemoryKills
from ringbatch.engine.process.role_events import FromRole
from ringbatch.engine.supervisor.child_process import CannotStart, Child, Death
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.managed_process import (
    RESTART_LIMIT_S,
    Limit,
    Limits,
    ManagedProcess,
)
from ringbatch.engine.supervisor.process_manager import ProcessManager
from ringbatch.shm.counters import RestartCase
from ringbatch.shm.host.messages import Failed, MalformedMessage, Ready

S = 1_000_000_000
REFUSED = (errno.EMFILE, errno.EAGAIN, errno.ENOMEM)


class Played:
    """A process that says and does what the test writes into it."""

    def __init__(self, pid: int) -> None:
        self.title, self.pid = "it", pid
        self.pidfd = os.eventfd(0)
        self.channel = os.eventfd(0)
        self.signals: list[signal.Signals] = []
        self.queued: list[FromRole] | MalformedMessage = []

    def queue_messages(self, message: list[FromRole] | MalformedMessage) -> None:
        self.queued = message
        os.eventfd_write(self.channel, 1)

    def end(self) -> None:
        os.eventfd_write(self.pidfd, 1)

    def receive(self) -> list[FromRole]:
        os.eventfd_read(self.channel)
        return self.unread_messages()

    def unread_messages(self) -> list[FromRole]:
        message, self.queued = self.queued, []
        if isinstance(message, MalformedMessage):
            raise message
        return message

    def kill(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def reap(self, why_killed: Callable[[], str] = str) -> Death:
        os.close(self.pidfd)
        os.close(self.channel)
        return Death(self.pid, f"ended{why_killed()}", killed=False)


class Sleepless(Loop):
    """A loop in which time passes where it would sleep."""

    def __init__(self, site: "Site") -> None:
        super().__init__()
        self._site = site

    def turn(self, timeout_s: float | None) -> None:
        assert timeout_s is not None, "it would sleep for ever"
        super().turn(0)
        self._site.now_ns += int(timeout_s * S)


class Site:
    """An owner of one managed process.

    Attributes:
        now_ns: the time.
        is_watched: whether its process must show that it moves.
        case: why its process ended.
        refuse: the reason for which no process can be started now; 0 where one can.
        happened: calls of the owner.
    """

    def __init__(self) -> None:
        self.now_ns = 10 * S
        self.refuse = 0
        self.is_watched = False
        self.happened: list[str] = []
        self.started_count = 0
        self.case = RestartCase.LOADING
        self.loop = Sleepless(self)
        self.kills = Mock(words=Mock(return_value=""))
        self.keeper = ProcessManager(
            self, self.loop, 2, lambda: self.now_ns, lambda: 0.5, cast(MemoryKills, self.kills)
        )
        self.managed = ManagedProcess(
            "it", self._start, worker=0, limits=Limits(Limit(5.0, "load_timeout_s = 5"), Limit(7.0))
        )

    @property
    def processes(self) -> list[ManagedProcess]:
        return [self.managed]

    @property
    def watched(self) -> list[ManagedProcess]:
        return [self.managed] if self.is_watched else []

    @property
    def played(self) -> Played:
        return cast(Played, self.managed.child)

    def _start(self, _again: bool) -> Child:
        if self.refuse:
            raise CannotStart(OSError(self.refuse, os.strerror(self.refuse)))
        self.started_count += 1
        return cast(Child, Played(self.started_count))

    def cpus_of(self, managed: ManagedProcess) -> None:
        assert managed is self.managed

    def on_message(self, managed: ManagedProcess, message: FromRole) -> None:
        self.happened.append(type(message).__name__)
        match message:
            case Ready():
                self.keeper.mark_ready(managed)
            case Failed(reason):
                self.keeper.failed(managed, reason)

    def on_started(self, managed: ManagedProcess) -> None:
        assert managed.child is not None
        self.happened.append("started")

    def on_start_refused(self, managed: ManagedProcess, failure: CannotStart) -> None:
        assert managed.child is None
        self.happened.append(f"refused {failure.errno}")

    def on_ended(self, managed: ManagedProcess, death: Death) -> None:
        assert managed.child is None
        self.happened.append(death.words)
        self.keeper.plan_restart(managed, self.case)

    def after(self, seconds: float) -> None:
        """Take a turn so much later."""
        self.now_ns += round(seconds * S)
        self.keeper.turn(0)
        assert not self.loop.broken


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    if site.managed.child is not None:
        site.played.reap()


@pytest.mark.parametrize("number", REFUSED)
def test_a_failing_start_is_retried_with_growing_waits_until_it_succeeds(
    site: Site, number: int
) -> None:
    site.managed.ever_ready = True
    site.refuse = number
    site.keeper.spawn(site.managed)
    waits = []
    for _ in range(8):
        assert site.managed.child is None
        assert site.managed.restart_ns is not None
        assert "no process can be started" in site.managed.failure
        waits.append(round((site.managed.restart_ns - site.now_ns) / S, 6))
        site.after(waits[-1])
    assert waits == [0.0, 0.75, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5]
    assert site.happened == [f"refused {number}"] * 9
    site.refuse = 0
    site.after(30)
    assert site.happened[-1] == "started"
    assert site.managed.restart_ns is None


def test_the_end_of_a_process_is_explained_by_kills_for_memory(site: Site) -> None:
    site.kills.words.return_value = " at the limit"
    site.keeper.spawn(site.managed)
    site.played.end()
    site.after(0.0)
    assert site.happened[1] == "ended at the limit"


def test_a_process_of_our_own_is_tried_sooner(site: Site) -> None:
    site.managed.worker = None
    site.refuse = errno.EMFILE
    site.keeper.spawn(site.managed)
    for _ in range(9):
        site.after(respawn.MOST_OWN_DELAY_S)
    assert site.happened == [f"refused {errno.EMFILE}"] * 10


def test_one_that_says_nothing_for_too_long_is_ended_in_two_steps(site: Site) -> None:
    site.keeper.spawn(site.managed)
    site.after(4.9)
    assert site.played.signals == []
    site.after(0.1)
    assert site.played.signals == [signal.SIGABRT, signal.SIGCONT]
    assert (
        site.managed.failure
        == "it: its start took longer than load_timeout_s = 5; raise that if it needs longer"
    )
    site.after(0.5)
    assert site.played.signals[2:] == [signal.SIGKILL]
    site.played.end()
    site.after(0)
    assert site.happened == ["started", "ended", "started"]


def test_a_process_that_gave_its_reason_gets_seconds_to_end(
    site: Site,
) -> None:
    """A thread of the model's may keep it from ending by itself, and its reason is what counts."""
    site.keeper.spawn(site.managed)
    site.played.queue_messages([Failed("there is no module nosuch")])
    site.after(0)
    site.after(4.9)
    assert site.played.signals == []
    site.after(0.1)
    assert site.played.signals == [signal.SIGKILL]
    assert site.managed.error == "there is no module nosuch"
    site.played.end()
    site.after(0)
    assert site.happened == ["started", "Failed", "ended", "started"]


def test_one_that_is_being_ended_gets_no_longer_by_saying_why(site: Site) -> None:
    site.keeper.spawn(site.managed)
    site.after(5)
    site.played.queue_messages([Failed("it was stopped")])
    site.after(0.5)
    assert site.played.signals == [signal.SIGABRT, signal.SIGCONT, signal.SIGKILL]


def test_one_that_is_ready_has_no_limit(site: Site) -> None:
    site.keeper.spawn(site.managed)
    site.played.queue_messages([Ready()])
    site.after(1000)
    assert site.happened == ["started", "Ready"]
    site.after(1000)
    assert site.played.signals == []


def test_a_step_that_takes_long_is_logged_each_time_that_its_time_has_doubled(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.managed.limits = Limits(Limit(600.0, "load_timeout_s = 600"))
    caplog.set_level("INFO", "ringbatch.supervisor")
    site.keeper.spawn(site.managed)

    def logged(turns: int) -> list[str]:
        caplog.clear()
        for _ in range(turns):
            site.after(1)
        return [record.getMessage() for record in caplog.records]

    note = "it [1]: after {} s, its start is not done; the limit is load_timeout_s = 600"
    assert logged(9) == []
    assert logged(70) == [note.format(10), note.format(20), note.format(40)]
    site.managed.begins("loading the model", Limit(60.0), site.now_ns)
    assert logged(10) == ["it [1]: after 10 s, loading the model is not done; the limit is 60 s"]
    site.played.queue_messages([Ready()])
    assert logged(100) == ["it: ready"]


def test_a_slow_step_is_logged_without_another_event(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.managed.limits = Limits(Limit(600.0))
    caplog.set_level("INFO", "ringbatch.supervisor")
    site.keeper.spawn(site.managed)
    site.keeper.wait(lambda: bool(caplog.records), 60)
    assert site.now_ns == 20 * S


def test_one_of_our_own_that_starts_again_may_take_less_time(site: Site) -> None:
    site.managed.worker, site.managed.ever_ready = None, True
    site.managed.limits = Limits()
    site.keeper.spawn(site.managed)
    site.after(RESTART_LIMIT_S - 0.1)
    assert site.played.signals == []
    site.after(0.1)
    assert site.played.signals == [signal.SIGABRT, signal.SIGCONT]


def test_one_that_is_watched_and_does_not_move_is_ended_and_replaced(site: Site) -> None:
    site.is_watched = True
    site.keeper.spawn(site.managed)
    site.played.queue_messages([Ready()])
    for _ in range(20):
        site.after(0.5)
        site.keeper.record_progress(site.managed, site.now_ns)
    assert site.played.signals == []
    for _ in range(16):
        site.after(0.1)
    assert site.played.signals == [signal.SIGABRT, signal.SIGCONT]
    site.played.end()
    site.after(0)
    assert site.happened == ["started", "Ready", "ended", "started"]
    assert site.managed.failure == "it: nothing in it moves; hang_timeout_s = 2"


def test_one_that_makes_no_sense_is_ended_and_heard_no_more(site: Site) -> None:
    site.keeper.spawn(site.managed)
    site.played.queue_messages(MalformedMessage("says nonsense"))
    site.after(0)
    assert site.played.signals == [signal.SIGKILL]
    site.played.queue_messages([Ready()])
    site.after(0)
    assert site.happened == ["started"]
    site.played.queued = MalformedMessage("says more nonsense")
    site.played.end()
    site.after(0)
    assert site.happened == ["started", "ended", "started"]


def test_a_fault_in_handling_a_message_ends_its_process_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise ZeroDivisionError

    site.keeper.spawn(site.managed)
    with monkeypatch.context() as faulty:
        faulty.setattr(site, "on_message", fault)
        site.played.queue_messages([Ready()])
        site.after(0)
    assert site.played.signals == [signal.SIGKILL]


def test_when_stopping_nobody_is_started_and_nothing_is_awaited_for_ever(site: Site) -> None:
    site.keeper.spawn(site.managed)
    site.keeper.stop()
    began_ns = site.now_ns
    site.keeper.end([site.managed], 3.0, lambda: False)
    assert site.played.signals == [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL]
    assert site.now_ns - began_ns < 9 * S
    site.played.end()
    site.after(0)
    assert site.managed.child is None
    assert site.managed.restart_ns is None


def test_a_process_that_cannot_be_signalled_keeps_no_other_from_being_ended(site: Site) -> None:
    def fault(number: signal.Signals) -> None:
        if number == signal.SIGTERM:
            raise ZeroDivisionError
        site.played.signals.append(number)

    site.keeper.spawn(site.managed)
    site.keeper.stop()
    site.played.kill = fault  # type: ignore[method-assign]
    site.keeper.end([site.managed], 3.0, lambda: site.loop.broken)
    assert site.loop.broken
    assert site.played.signals == [signal.SIGCONT, signal.SIGKILL]


def test_a_fault_of_the_owner_leaves_no_process_unheard_or_unreaped(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as faulty:
        faulty.setattr(site, "on_started", fault)
        with pytest.raises(ZeroDivisionError):
            site.keeper.spawn(site.managed)
    site.played.queue_messages([Ready()])
    site.after(0)
    site.played.end()
    site.after(0)
    assert site.happened == ["Ready", "ended", "started"]
