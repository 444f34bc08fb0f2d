"""Numbers of workers: when one is free for another worker."""

import signal
from typing import Any, cast

import pytest

from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.worker_pool import WorkerPool


class Running:
    """A process that only notes what it is sent."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []

    def kill(self, number: signal.Signals) -> None:
        self.signals.append(number)


class Site:
    """A worker pool whose processes are `Running`.

    Attributes:
        entered: the numbers that the table has.
    """

    def __init__(self) -> None:
        self.entered: set[int] = set()
        self.pool = WorkerPool()

    def start(self, number: int = 0, *, known: bool) -> ManagedProcess:
        managed = ManagedProcess(f"m/{number}", _nobody, worker=number)
        self.pool.add(number, managed)
        managed.child = cast(Child, Running())
        managed.tie.known = known
        return managed

    def ends(self, managed: ManagedProcess) -> None:
        """End a worker's process, and let the supervisor know."""
        managed.child = None
        if managed.tie.released:
            self.pool.remove(managed)

    def free(self, number: int = 0) -> bool:
        return number not in self.pool.workers


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_released_worker_gets_sigterm_and_has_gone_when_it_has_ended(site: Site) -> None:
    managed = site.start(known=False)
    running = cast(Running, managed.child)
    site.pool.end(managed)
    assert (running.signals, managed.kill_ns is not None) == ([signal.SIGTERM], True)
    assert not site.free()
    site.ends(managed)
    assert site.free()


def test_a_worker_that_died_unknown_is_gone_when_it_is_released(site: Site) -> None:
    managed = site.start(known=False)
    site.ends(managed)
    assert not site.free(), "whoever started it looks for it there"
    site.pool.end(managed)
    assert site.free()


def test_a_worker_that_died_known_keeps_its_number_until_it_is_released(
    site: Site,
) -> None:
    managed = site.start(known=True)
    site.ends(managed)
    assert not site.free()
    site.pool.release(0, site.entered)
    assert site.free()


def test_a_collectors_word_on_an_earlier_worker_does_not_release_this_one(site: Site) -> None:
    for known, entered in ((False, set[int]()), (True, {0})):
        site.entered.clear()
        site.entered |= entered
        managed = site.start(known=known)
        site.pool.release(0, site.entered)
        assert not managed.tie.released
        del site.pool.workers[0]
    site.pool.release(0, site.entered)


def test_a_new_collector_frees_workers_that_it_never_heard_of(site: Site) -> None:
    processes = gone, living, unreclaimed, _, lasting = [
        site.start(number, known=True) for number in range(5)
    ]
    lasting.lasting = True
    site.entered.add(3)
    for managed in processes:
        managed.child = None if managed is not living else managed.child
    unreclaimed.tie.unreclaimed = True
    site.pool.release_unheard_of(site.entered)
    assert sorted(site.pool.workers) == [1, 2, 3, 4]
    assert gone.tie.released
