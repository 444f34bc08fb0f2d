"""Life locks of an engine's supervisor, of its collector, and of each lane's owner."""

import os
import select
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from segment_harness import LAYOUT, MODELS, OWN, child, line, lives

from ringbatch.shm import shm_objects
from ringbatch.shm.errors import NoFreeLane
from ringbatch.shm.lane import Lane
from ringbatch.shm.segment import Segment


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_objects, "PREFIX", OWN)


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create(LAYOUT, MODELS)
    yield made
    made.detach()
    made.unlink()


def test_a_segment_is_alive_as_long_as_its_maker_holds_it(segment: Segment) -> None:
    other = Segment.attach(segment.name)
    life = other.watch_life()
    poll = select.poll()
    poll.register(life, select.POLLIN)
    assert (segment.alive, other.alive, poll.poll(0)) == (True, True, [])
    segment.detach()
    assert not other.alive
    assert [fd for fd, _ in poll.poll(0)] == [life]
    os.close(life)
    other.detach()


def test_no_program_that_the_maker_started_keeps_its_engine_alive() -> None:
    """The program either forks and runs another, or forks, goes on and lets go of the segment."""
    start = (
        "import subprocess\nmade = Segment.create(layout, models)\n"
        "subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "done, ready = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    made.disown()\n    os.write(ready, b'.')\n    os.close(1)\n    time.sleep(60)\n"
        "os.read(done, 1)\nsay(made.name)\nstay()\n"
    )
    with child("os.setpgid(0, 0)\n" + start) as process:
        try:
            name = line(process)
            other = Segment.attach(name)
            assert lives(other)
            process.kill()
            process.wait()
            assert not other.alive
            other.detach()
            assert name[1:] in shm_objects.remove_dead_engines()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


HOLD = """
segment = Segment.attach(sys.argv[1] if len(sys.argv) > 1 else os.environ["SEGMENT"])
lane = Lane.attach(segment, lambda: None)
say(lane.index)
stay()
"""


@pytest.fixture
def _segment_in_environment(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENT", segment.name)


@pytest.mark.usefixtures("_segment_in_environment")
def test_each_process_gets_a_lane_of_its_own_until_there_is_none(segment: Segment) -> None:
    with child(HOLD) as first, child(HOLD) as second:
        assert {line(first), line(second)} == {"0", "1"}
        other = Segment.attach(segment.name)
        with pytest.raises(NoFreeLane, match="all 2 lanes are in use"):
            Lane.attach(other, lambda: None)
        other.detach()


@pytest.mark.usefixtures("_segment_in_environment")
def test_a_killed_processs_lane_can_be_attached_at_once(segment: Segment) -> None:
    with child(HOLD) as first, child(HOLD) as second:
        lanes = {line(first): first, line(second): second}
        lanes["1"].kill()
        lanes["1"].wait()
        other = Segment.attach(segment.name)
        assert Lane.attach(other, lambda: None).index == 1
        other.detach()


def test_a_lane_is_held_once_within_a_process_too(segment: Segment) -> None:
    other = Segment.attach(segment.name)
    assert segment.lock_lane(0)
    assert segment.lock_lane(0)
    assert not other.lock_lane(0)
    assert other.lock_lane(1)
    assert not segment.lock_lane(1)
    other.detach()
    assert segment.lock_lane(1)


def test_the_next_collector_is_it_when_the_one_before_is_gone(segment: Segment) -> None:
    got = threading.Event()
    waiting = Segment.attach(segment.name)

    def wait() -> None:
        waiting.lock_collector()
        got.set()

    attach = f"segment = Segment.attach({segment.name!r})\n"
    with child(f"{attach}segment.lock_collector()\nsay('it is')\nstay()\n") as process:
        assert line(process) == "it is"
        threading.Thread(target=wait, daemon=True).start()
        assert segment.lock_lane(0), "that has nothing to do with lanes"
        assert not got.is_set()
        process.kill()
        got.wait()
    waiting.detach()


def test_a_frontend_serves_from_when_it_says_so_until_it_is_gone(segment: Segment) -> None:
    for _ in range(2):
        owner = Segment.attach(segment.name)
        lane = Lane.attach(owner, lambda: None)
        assert lane.index == 0
        assert segment.serving_lanes() == 0, "it has just begun, whatever its predecessor said"
        lane.publish_serving()
        assert segment.serving_lanes() == 1
        del lane
        owner.detach()
        assert segment.serving_lanes() == 0


def test_a_program_started_by_the_holder_does_not_keep_its_lane(segment: Segment) -> None:
    holder = Segment.attach(segment.name)
    assert holder.lock_lane(0)
    with child("say('here')\nstay()\n") as process:
        assert line(process) == "here"
        holder.detach()
        assert segment.lock_lane(0)


def test_detaching_drops_the_lock_though_arrays_still_show_the_memory(
    segment: Segment,
) -> None:
    other = Segment.attach(segment.name)
    assert other.lock_lane(0)
    segment.memory[LAYOUT.payload_byte] = 7
    array = np.frombuffer(other.memory, np.uint8)
    other.detach()
    assert segment.lock_lane(0)
    assert array[LAYOUT.payload_byte] == 7


BARE_FORK = """
import ctypes, signal
segment = Segment.attach(os.environ["SEGMENT"])
lane = Lane.attach(segment, lambda: None)
libc = ctypes.PyDLL(None)
pid = libc.fork()
if pid == 0:
    libc.pause()
    libc._exit(0)
say(f"{lane.index} {pid}")
stay()
"""


@pytest.mark.usefixtures("_segment_in_environment")
def test_a_lane_is_free_once_its_owner_has_died_even_after_a_bare_fork(
    segment: Segment,
) -> None:
    """Such a child has copies of all that its parent had open."""
    with child(BARE_FORK) as process:
        index, orphan = map(int, line(process).split())
        try:
            other = Segment.attach(segment.name)
            assert other.lane_is_held(index)
            assert not other.lock_lane(index)
            process.kill()
            process.wait()
            assert os.path.exists(f"/proc/{orphan}")
            assert [segment.lane_is_held(index), other.lane_is_held(index)] == [False, False]
            assert other.lock_lane(index)
            assert not segment.lock_lane(index)
            assert [segment.lane_is_held(index), other.lane_is_held(index)] == [True, False]
            with child(HOLD) as next_one:
                assert line(next_one) == str(1 - index)
            other.detach()
            assert segment.lock_lane(index)
        finally:
            os.kill(orphan, signal.SIGKILL)
