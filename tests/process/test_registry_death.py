"""Registrars in processes of their own: seen by others, killed with SIGKILL, standing still."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.region import Region
from ringbatch.shm.region_registry import Registry, RegistryBusy
from ringbatch.shm.segment import Segment

MODELS = (ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,)),)
LAYOUT = Layout(
    lanes=1, slots=4, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=len(dumps(MODELS))
)
A = Region("a", "/app_a", 0, 64, 26, 7)
B = Region("b", "/app_b", 8, 16, 26, 8)

REGISTRAR = f"""
import os, signal, sys
from ringbatch.shm.region import Region
from ringbatch.shm.region_registry import Registry
from ringbatch.shm.segment import Segment

segment = Segment.attach(sys.argv[1])
point = sys.argv[2]

def stop(here):
    if here == point:
        os.kill(os.getpid(), signal.SIGSTOP)

class Words:
    def __init__(self, words):
        self.words, self.stores = words, 0
    def __getitem__(self, index):
        return self.words[index]
    def __setitem__(self, index, value):
        stop(str(self.stores))
        self.words[index] = value
        self.stores += 1

words = Words(segment.words)
registry = Registry(
    words, segment.layout.registry_word, segment.lock_registry, segment.unlock_registry
)
registry.add({B!r})
stop("done")
"""


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create(LAYOUT, MODELS)
    yield made
    made.detach()
    made.unlink()


@contextmanager
def stopped_registrar(segment: Segment, point: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that registers B and stands still at that store, or once it is done."""
    with subprocess.Popen([sys.executable, "-c", REGISTRAR, segment.name, point]) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield process
        finally:
            process.kill()


def test_a_region_is_seen_by_attached_processes_and_outlives_its_registrar(
    segment: Segment,
) -> None:
    registry = Registry.attach(segment)
    with stopped_registrar(segment, "done") as process:
        assert [entry.region for entry in registry.entries()] == [B]
        registry.add(A)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert {entry.region for entry in registry.entries()} == {A, B}


@pytest.mark.parametrize("point", ["0", "4", "8", "9"])
def test_a_kill_during_registration_leaves_no_region_and_no_lock(
    segment: Segment, point: str
) -> None:
    registry = Registry.attach(segment)
    with stopped_registrar(segment, point) as process:
        assert registry.entries() == []
        with pytest.raises(RegistryBusy):
            registry.add(A)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert registry.entries() == []
    entry = registry.add(A)
    assert registry.entries() == [entry]
    assert registry.add(B).place == 1


def test_the_lock_of_the_registry_is_none_of_the_lanes(segment: Segment) -> None:
    assert segment.lock_registry()
    other = Segment.attach(segment.name)
    assert not segment.lane_is_held(0)
    assert not other.lane_is_held(0)
    assert other.lock_lane(0)
    assert not other.lock_registry()
    segment.unlock_registry()
    assert other.lock_registry()
    other.detach()
    assert segment.lock_registry()
    assert segment.lock_lane(0)
