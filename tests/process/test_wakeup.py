"""Doorbells between processes: what is rung is heard, once."""

import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringbatch.shm import wakeup
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.errors import StartupError
from ringbatch.shm.wakeup import Wakeup

WAIT = """
import signal, sys
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.wakeup import Wakeup
signal.signal(signal.SIGUSR1, lambda *_: None)
bell = {"Doorbell": Doorbell, "Wakeup": Wakeup}[sys.argv[1]].attach(sys.argv[2])
print("waiting", flush=True)
print(bell.wait(), flush=True)
"""

AnyDoorbell = Wakeup | Doorbell


@dataclass(frozen=True)
class Kind:
    """Kind of doorbell, and a name for the test's own."""

    type: type[Wakeup] | type[Doorbell]
    name: str

    def attach(self) -> AnyDoorbell:
        return self.type.attach(self.name)

    def unlink(self) -> None:
        if self.type is Doorbell:
            Path(self.name).unlink(missing_ok=True)
        else:
            wakeup.unlink(self.name)


@contextmanager
def made(kind: Kind) -> Iterator[AnyDoorbell]:
    try:
        kind.type.create(kind.name)
        bell = kind.attach()
        yield bell
        bell.close()
    finally:
        kind.unlink()


@pytest.fixture(params=[Wakeup, Doorbell])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    name = f"/ringbatch.{os.getpid()}.test"
    return Kind(request.param, str(tmp_path / "bell") if request.param is Doorbell else name)


@pytest.fixture
def bell(kind: Kind) -> Iterator[AnyDoorbell]:
    with made(kind) as bell:
        yield bell


semaphores_only = pytest.mark.parametrize("kind", [Wakeup], indirect=True)
pipes_only = pytest.mark.parametrize("kind", [Doorbell], indirect=True)


def test_a_wake_up_before_the_wait_is_not_lost(bell: AnyDoorbell) -> None:
    bell.wake()
    assert bell.wait(0)


def test_a_burst_is_one_wake_up(bell: AnyDoorbell) -> None:
    for _ in range(1000):
        bell.wake()
    assert bell.wait(0)
    assert not bell.wait(0)


@semaphores_only
def test_a_waiter_can_see_that_it_was_rung_and_still_wait(bell: AnyDoorbell) -> None:
    assert isinstance(bell, Wakeup)
    seen = [bell.rung]
    bell.wake()
    seen += [bell.rung, bell.rung, bell.wait(0), bell.rung]
    assert seen == [False, True, True, True, False]


def test_nobody_rang(bell: AnyDoorbell) -> None:
    assert not bell.wait(0)
    assert not bell.wait(0.01)


def test_each_attachment_rings_the_same_bell(kind: Kind, bell: AnyDoorbell) -> None:
    other = kind.attach()
    other.wake()
    assert bell.wait(0)
    assert not other.wait(0)
    bell.wake()
    assert other.wait(0)
    other.close()


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "S"


def start_waiter(kind: Kind, wait_until: Callable[..., object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WAIT, kind.type.__name__, kind.name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    wait_until(lambda: sleeps(process.pid), "the waiter to sleep")
    return process


def test_a_waiting_process_is_woken(
    kind: Kind, bell: AnyDoorbell, wait_until: Callable[..., object]
) -> None:
    with start_waiter(kind, wait_until) as process:
        bell.wake()
        assert process.communicate()[0] == "True\n"
    assert not bell.wait(0)


@semaphores_only
def test_a_signal_ends_the_wait_without_a_wake_up(
    kind: Kind, bell: AnyDoorbell, wait_until: Callable[..., object]
) -> None:
    with start_waiter(kind, wait_until) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.communicate()[0] == "False\n"
    bell.wake()
    assert bell.wait(0)


def test_a_waiter_that_was_killed_takes_no_wake_up_along(
    kind: Kind, bell: AnyDoorbell, wait_until: Callable[..., object]
) -> None:
    with start_waiter(kind, wait_until) as process:
        process.kill()
        process.communicate()
    bell.wake()
    assert bell.wait(0)


def test_no_wake_up_is_lost_between_two_that_play_ball(kind: Kind, bell: AnyDoorbell) -> None:
    """Each rings only after it was rung for: one lost wake-up, and nobody moves any more."""
    rounds = 2000
    with made(Kind(kind.type, kind.name + ".other")) as other:

        def play() -> None:
            for _ in range(rounds):
                assert other.wait()
                bell.wake()

        partner = threading.Thread(target=play)
        partner.start()
        for _ in range(rounds):
            other.wake()
            assert bell.wait()
        partner.join()
        assert not bell.wait(0)


def test_a_bell_is_for_its_user_alone(kind: Kind) -> None:
    before = os.umask(0)
    try:
        with made(kind):
            path = Path(f"/dev/shm/sem.{kind.name[1:]}" if kind.type is Wakeup else kind.name)
            mode = path.stat().st_mode
    finally:
        os.umask(before)
    assert stat.S_IMODE(mode) == 0o600


@semaphores_only
def test_a_semaphore_is_made_once(kind: Kind, bell: AnyDoorbell) -> None:
    with pytest.raises(StartupError, match=f"the semaphore {kind.name} exists already"):
        Wakeup.create(kind.name)


@pipes_only
def test_a_pipe_is_made_once(kind: Kind, bell: AnyDoorbell) -> None:
    with pytest.raises(FileExistsError):
        Doorbell.create(kind.name)


def test_a_bell_that_is_gone_is_an_error_in_words(kind: Kind) -> None:
    with pytest.raises(StartupError, match="is gone; has the engine stopped"):
        kind.attach()


@semaphores_only
def test_a_name_is_removed_once_and_then_stays_away(kind: Kind, bell: AnyDoorbell) -> None:
    kind.unlink()
    kind.unlink()
    assert not Path("/dev/shm", f"sem.{kind.name[1:]}").exists()
    bell.wake()
    assert bell.wait(0), "who holds it may use it on"


@pipes_only
def test_an_unread_pipe_never_blocks_its_ringer(kind: Kind, bell: AnyDoorbell) -> None:
    for _ in range(100_000):
        bell.wake()
    assert bell.wait(0)
    assert not bell.wait(0)


@pipes_only
def test_an_event_loop_sees_a_pipe_that_was_rung_until_it_is_hushed(
    kind: Kind, bell: AnyDoorbell
) -> None:
    assert isinstance(bell, Doorbell)

    def readable() -> bool:
        return bool(select.select([bell], [], [], 0)[0])

    assert not readable()
    bell.wake()
    bell.wake()
    assert readable()
    bell.hush()
    assert not readable()
    bell.hush()


@pipes_only
def test_a_ring_that_comes_when_the_time_is_up_is_for_the_next_wait(
    kind: Kind, bell: AnyDoorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        """Doorbell that is rung just after a poll."""

        def register(self, *_: int) -> None:
            pass

        def poll(self, _: float | None) -> list[tuple[int, int]]:
            bell.wake()
            return []

    monkeypatch.setattr("ringbatch.shm.doorbell.select.poll", Late)
    assert not bell.wait(0)
    monkeypatch.undo()
    assert bell.wait(0)


@semaphores_only
def test_a_wait_for_no_time_asks_no_kernel(
    bell: AnyDoorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with rows that step has one before each step."""
    monkeypatch.setattr(wakeup, "_WAIT_UNTIL", lambda *_: pytest.fail("the kernel is asked"))
    assert not bell.wait(0.0)
    bell.wake()
    assert bell.wait(0.0)


@pytest.mark.parametrize("timeout_s", [0.001, 1.5, 3600.0])
def test_a_wait_ends_by_the_clock_that_is_never_set_back(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    """The wall clock may be, and then every sleep would be as much longer."""
    asked: list[tuple[int, float]] = []

    def until(_semaphore: object, clock: int, instant: object) -> int:
        seconds, nanoseconds = instant._obj  # type: ignore[attr-defined]
        asked.append((clock, seconds + nanoseconds / 1e9))
        return -1

    name = f"/ringbatch-wakeup-{os.getpid()}"
    with made(Kind(Wakeup, name)) as bell:
        monkeypatch.setattr(wakeup, "_WAIT_UNTIL", until)
        before = time.monotonic()
        assert not bell.wait(timeout_s)
        ((clock, instant),) = asked
        assert clock == time.CLOCK_MONOTONIC
        assert before + timeout_s - 1e-6 <= instant <= time.monotonic() + timeout_s + 1e-6


@pytest.mark.parametrize("timeout_s", [0.0, 0.01, 0.1])
def test_a_wait_takes_its_time_and_little_more(timeout_s: float) -> None:
    with made(Kind(Wakeup, f"/ringbatch-wakeup-{os.getpid()}")) as bell:
        before = time.monotonic()
        assert not bell.wait(timeout_s)
        assert time.monotonic() - before >= timeout_s
