"""Upkeep takes each part's step when the supervisor turns, and is due when the first part is."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringbatch.engine.supervisor import upkeep as upkeep_module
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.shm_names_check import NamesLost
from ringbatch.engine.supervisor.upkeep import Upkeep

PARTS = {
    "names": "ShmNamesCheck",
    "scaler": "Autoscaler",
    "early": "EarlyRestarts",
    "failing": "FailingWorkers",
}


class Part:
    """A part of upkeep, which counts its steps and may fail at each."""

    def __init__(self, next_ns: int | None) -> None:
        self.next_ns = next_ns
        self.steps = 0
        self.paused = 0
        self.fault: BaseException | None = None

    def step(self) -> None:
        self.steps += 1
        if self.fault is not None:
            raise self.fault

    def pause(self) -> None:
        self.paused += 1


class Site:
    """Upkeep of parts that do nothing; only the check of names always has a next instant."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts = {name: Part(9 if name == "names" else None) for name in PARTS}
        for name, made in PARTS.items():
            monkeypatch.setattr(upkeep_module, made, self._part(name))
        monkeypatch.setattr(upkeep_module, "HostGauge", SimpleNamespace)
        monkeypatch.setattr(upkeep_module, "ModelFileWatch", self._watch)
        self.looks: Callable[[], object] = list
        self.loop = Loop()
        monkeypatch.setattr(self.loop, "watch", self._watched)
        self.differing: list[object] = []
        served = SimpleNamespace(files=[], differing=set())
        changes = SimpleNamespace(served=served, differ=self.differing.append)
        segment = SimpleNamespace(lost_names=list)
        pool = SimpleNamespace()
        self.upkeep = Upkeep(cast(Any, segment), cast(Any, changes), cast(Any, pool), self.loop)

    def _part(self, name: str) -> Callable[..., Part]:
        return lambda *_: self.parts[name]

    def _watch(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(take=lambda: "m.py")

    def _watched(self, _source: object, act: Callable[[], object], _contain: object) -> None:
        self.looks = act


@pytest.mark.parametrize("first", PARTS)
def test_it_is_due_when_the_first_of_its_parts_is(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    site = Site(monkeypatch)
    assert site.upkeep.next_ns == 9
    site.parts[first].next_ns = 5
    assert site.upkeep.next_ns == 5


def test_each_part_takes_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.upkeep.step()
    assert {name: part.steps for name, part in site.parts.items()} == dict.fromkeys(PARTS, 1)


@pytest.mark.parametrize("name", [name for name in PARTS if name != "names"])
def test_a_fault_of_a_part_keeps_no_other_from_its_step(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    site = Site(monkeypatch)
    site.parts[name].fault = ZeroDivisionError("a fault")
    site.upkeep.step()
    assert {name: part.steps for name, part in site.parts.items()} == dict.fromkeys(PARTS, 1)
    # Without the scaler the engine goes on; without another part it ends.
    assert (site.parts["scaler"].paused, site.loop.broken) == (
        (1, False) if name == "scaler" else (0, True)
    )


def test_lost_names_end_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.parts["names"].fault = NamesLost("gone")
    with pytest.raises(NamesLost):
        site.upkeep.step()
    assert site.parts["scaler"].steps == 0


def test_a_changed_model_file_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.looks()
    assert site.differing == ["m.py"]
