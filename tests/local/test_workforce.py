"""When a worker's number is free for another."""

import signal
from pathlib import Path
from typing import Any, cast

import pytest

from ringbatch.engine.child import Child
from ringbatch.engine.place import Place
from ringbatch.engine.settings import ModelConfig
from ringbatch.engine.workforce import Workforce

MODEL = ModelConfig(name="m", runtime="python", path=Path("/m.py"))


class Running:
    """A process that only notes what it is sent."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []

    def kill(self, number: signal.Signals) -> None:
        self.signals.append(number)


class Site:
    """A workforce whose processes are `Running`.

    Attributes:
        entered: the numbers that the table has.
    """

    def __init__(self) -> None:
        self.entered: set[int] = set()
        self.force = Workforce(
            self._make, self._fill, lambda _: None, lambda: None, self.entered.__contains__
        )

    def _make(self, number: int, model: ModelConfig, index: int) -> Place:
        return Place(f"{model.name}/{index}", _nobody, worker=number)

    def _fill(self, place: Place) -> None:
        place.child = cast(Child, Running())

    def hire(self, number: int = 0, *, known: bool) -> Place:
        self.force.hire(number, MODEL, 0)
        place = self.force.workers[number]
        place.known = known
        return place

    def ends(self, place: Place) -> None:
        """Its process ends, as the supervisor hears it."""
        place.child = None
        if place.released:
            self.force.bury(place)

    def free(self, number: int = 0) -> bool:
        return number not in self.force.workers


def _nobody() -> Any:
    raise AssertionError("nobody is started here")


@pytest.fixture
def site() -> Site:
    return Site()


def test_who_is_dismissed_is_asked_to_end_and_has_gone_when_it_has(site: Site) -> None:
    place = site.hire(known=False)
    running = cast(Running, place.child)
    site.force.dismiss(place)
    assert (running.signals, place.kill_ns is not None) == ([signal.SIGTERM], True)
    assert not site.free()
    site.ends(place)
    assert site.free()


def test_who_died_before_it_was_known_is_gone_when_it_is_dismissed(site: Site) -> None:
    place = site.hire(known=False)
    site.ends(place)
    assert not site.free(), "whoever hired it looks for it there"
    site.force.dismiss(place)
    assert site.free()


def test_who_died_while_the_collector_knew_it_keeps_the_number_until_it_is_released(
    site: Site,
) -> None:
    place = site.hire(known=True)
    site.ends(place)
    assert not site.free()
    site.force.release(0)
    assert site.free()


def test_what_a_collector_says_of_an_earlier_worker_is_not_meant_for_this_one(site: Site) -> None:
    for known, entered in ((False, set[int]()), (True, {0})):
        site.entered.clear()
        site.entered |= entered
        place = site.hire(known=known)
        site.force.release(0)
        assert not place.released
        del site.force.workers[0]
    site.force.release(0)


def test_the_death_of_the_collector_frees_what_only_it_held(site: Site) -> None:
    leaving, retiring, loading, lasting = (site.hire(n, known=True) for n in range(4))
    new = site.hire(4, known=False)
    lasting.lasting = True
    site.entered |= {1, 2, 3}
    for place in (leaving, retiring, loading, lasting, new):
        place.child = None
    site.force.collector_died()
    assert sorted(site.force.workers) == [1, 2, 3, 4]
    assert "the collector died" in loading.failure
    assert "the collector died" in new.failure
    assert lasting.failure == ""
    site.entered.discard(2)
    site.force.collector_ready()
    assert sorted(site.force.workers) == [1, 3], "the next one has never heard of the others"
