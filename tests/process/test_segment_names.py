"""Names of segments in /dev/shm: what the dead leave is swept up, what the living use stays."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from segment_harness import LAYOUT, MAKE, MODELS, OWN, PRELUDE, SHM, child, line, lives, objects_of

from ringbatch.shm import shm_objects
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


def test_a_killed_creators_objects_are_swept_up() -> None:
    with child(MAKE) as process:
        name = line(process)
        assert len(objects_of(name)) == 6
        assert name in list(shm_objects.segment_names(process.pid))
        process.send_signal(signal.SIGKILL)
        process.wait()
        removed = shm_objects.remove_dead_engines()
    assert {entry.removeprefix("sem.") for entry in removed} >= {
        name[1:] + suffix for suffix in ("", ".c", ".l0", ".l1", ".life", ".w0")
    }
    assert objects_of(name) == []


def test_a_zombie_is_dead(wait_until: Callable[..., object]) -> None:
    """Killed and not waited for: its process id is still taken."""
    with child(MAKE) as process:
        name = line(process)
        other = Segment.attach(name)
        assert lives(other)
        os.kill(process.pid, signal.SIGKILL)
        stat_file = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat_file.read_text().split(") ")[1][0] == "Z", "a zombie")
        wait_until(lambda: not other.alive, "its threads have ended as well")
        other.detach()
        assert name[1:] in shm_objects.remove_dead_engines()


def test_objects_of_living_processes_stay(segment: Segment) -> None:
    with child(MAKE) as process:
        name = line(process)
        before = objects_of(name) + objects_of(segment.name)
        removed = shm_objects.remove_dead_engines()
        assert objects_of(name) + objects_of(segment.name) == before
        assert not {path.name for path in before} & set(removed)
        Segment.attach(name).detach()
        shm_objects.unlink_segment(name)
        assert objects_of(name) == []


@pytest.mark.parametrize(
    "name",
    [
        "other.name.{pid}.0123456789abcdef",
        "{own}",
        "{own}.name.{pid}",
        "{own}.{pid}.0123456789abcdef",
        "{own}.name.{pid}.0123456789abcde",
        "{own}.name.{pid}.0123456789abcdef0",
        "{own}.name.{pid}.0123456789abcdeg",
        "{own}.name..0123456789abcdef",
        "{own}..{pid}.0123456789abcdef",
        "{own}.name.one.0123456789abcdef",
        "{own}.4711.{pid}.0123456789abcdef",
        "{own}.-n.{pid}.0123456789abcdef",
        "{own}-name.{pid}.0123456789abcdef",
        "{own}.name.{pid}.4711.0123456789abcdef",
        "sem.other.name.{pid}.0123456789abcdef",
    ],
)
def test_a_foreign_name_stays(name: str) -> None:
    path = SHM / name.format(own=OWN, pid=f"{os.getpid()}0")
    path.touch()
    try:
        assert path.name not in shm_objects.remove_dead_engines()
        assert f"/{path.name}" not in list(shm_objects.segment_names())
        assert path.exists()
    finally:
        path.unlink()


def test_its_maker_sees_which_of_its_names_are_removed(segment: Segment) -> None:
    made = objects_of(segment.name)
    assert segment.lost_names() == []
    for count, path in enumerate(made, 1):
        path.unlink()
        assert segment.lost_names() == sorted(map(str, made[:count]))


def test_its_maker_sees_that_its_name_is_that_of_another_segment(segment: Segment) -> None:
    path = SHM / segment.name[1:]
    kept = path.with_name(f"{path.name}.kept")
    path.rename(kept)
    try:
        path.touch(mode=0o600)
        assert segment.lost_names() == [str(path)]
        kept.rename(path)
        assert segment.lost_names() == []
    finally:
        kept.unlink(missing_ok=True)


def test_a_living_process_that_holds_no_lock_keeps_nothing() -> None:
    left = [SHM / f"{OWN}.left.{os.getpid()}.{secrets.token_hex(8)}{end}" for end in ("", ".l0")]
    for path in left:
        path.touch()
    assert {path.name for path in left} <= set(shm_objects.remove_dead_engines())
    assert not any(path.exists() for path in left)


def test_leftovers_beside_a_vanished_segment_are_swept_up() -> None:
    left = SHM / f"sem.{OWN}.left.{os.getpid()}.{secrets.token_hex(8)}.w0"
    left.touch()
    assert left.name in shm_objects.remove_dead_engines()
    assert not left.exists()


def test_a_segment_made_while_another_process_sweeps_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the name and its lock it looks like a dead engine's."""
    usual = shm_objects.reopen
    sweeps: list[list[str]] = []

    def swept(fd: int) -> int:
        if len(sweeps) < 3:
            sweeps.append(shm_objects.remove_dead_engines())
        return usual(fd)

    monkeypatch.setattr(shm_objects, "reopen", swept)
    made = Segment.create(LAYOUT, MODELS)
    assert [len(removed) for removed in sweeps] == [1, 1, 1]
    other = Segment.attach(made.name)
    assert other.alive
    assert made.name[1:] not in shm_objects.remove_dead_engines()
    other.detach()
    made.unlink()
    made.detach()


def elsewhere(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script where no process of this one's is seen, and /dev/shm is the same."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare command here")
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    begin = [unshare, *user, "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run([*begin, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no processes may be hidden here: {tried.stderr.strip()}")
    command = [*begin, sys.executable, "-c", PRELUDE + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_process_that_sees_other_processes_removes_nothing_of_a_living_engine(
    segment: Segment,
) -> None:
    before = objects_of(segment.name)
    run = elsewhere(
        "from ringbatch.shm.shm_objects import remove_dead_engines\nprint(remove_dead_engines())\n"
    )
    assert run.returncode == 0, run.stderr
    assert segment.name[1:] not in run.stdout
    assert objects_of(segment.name) == before


def test_a_process_that_sees_other_processes_finds_a_living_engine(segment: Segment) -> None:
    run = elsewhere(
        "from ringbatch.frontend.client.engines import attach\n"
        "from ringbatch.shm.engines import only\n"
        "segment, life = attach(sys.argv[1])\n"
        "print(segment.alive, only(int(sys.argv[2])) == sys.argv[1])\n",
        segment.name,
        str(os.getpid()),
    )
    assert run.stdout == "True True\n", run.stderr


def test_removing_a_segment_twice_does_no_harm() -> None:
    made = Segment.create(LAYOUT, MODELS)
    made.detach()
    made.unlink()
    made.unlink()
