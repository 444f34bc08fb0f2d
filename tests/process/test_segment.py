"""Real segments in /dev/shm: made, attached, refused, swept up after kill -9."""

import errno
import os
import secrets
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import posix_ipc
import pytest

from ringbatch.shm import object_names
from ringbatch.shm.descriptors import LAYOUT_VERSION, HeaderWords
from ringbatch.shm.engines import only, running
from ringbatch.shm.errors import LayoutMismatch, NoFreeLane, SegmentNotReady, StartupError
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, WORD, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.segment import Segment

SHM = Path("/dev/shm")
OWN = f"ringbatch-{os.getpid()}"
"""What names begin with here: no other engine's start sweeps up what these tests look at."""
MODELS = (ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,)),)
LAYOUT = Layout(
    lanes=2,
    slots=4,
    lane_bytes=PAGE,
    workers=1,
    models=1,
    model_table_bytes=len(dumps(MODELS)) + 10,
)
PRELUDE = f"""
import os, sys, time
from ringbatch.shm import object_names as objects
objects.PREFIX = {OWN!r}
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
layout = {LAYOUT!r}
models = ({MODELS[0]!r},)
def say(text):
    print(text, flush=True)
def stay():
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_names, "PREFIX", OWN)


@contextmanager
def child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the script; whatever it does, it is gone afterwards."""
    command = [sys.executable, "-c", PRELUDE + script, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create(LAYOUT, MODELS)
    yield made
    made.detach()
    made.unlink()


def lives(segment: Segment) -> bool:
    return segment.alive


def objects_of(name: str) -> list[Path]:
    """The segment and its doorbells."""
    return sorted(SHM.glob(f"*{name.removeprefix('/')}*"))


@contextmanager
def raw_object(size: int) -> Iterator[str]:
    """A shared memory object that nobody has filled."""
    name = f"/{OWN}.raw.{os.getpid()}.{secrets.token_hex(8)}"
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=size)
    try:
        yield name
    finally:
        memory.close_fd()
        posix_ipc.unlink_shared_memory(name)


def test_who_attaches_sees_the_same_memory(segment: Segment) -> None:
    other = Segment.attach(segment.name)
    assert other.layout == LAYOUT
    assert other.models == MODELS
    assert other.identity == segment.identity != 0
    segment.words[LAYOUT.payload // WORD] = 42
    assert other.words[LAYOUT.payload // WORD] == 42
    before = other.draining
    segment.drain()
    assert [before, other.draining] == [False, True]
    other.detach()


def test_two_segments_differ_in_name_and_identity(segment: Segment) -> None:
    other = Segment.create(LAYOUT, MODELS)
    other.unlink()
    assert other.name != segment.name
    assert other.identity != segment.identity
    other.detach()


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_objects_are_for_their_user_alone_and_carry_the_pid(umask: int) -> None:
    before = os.umask(umask)
    try:
        made = Segment.create(LAYOUT, MODELS)
    finally:
        left = os.umask(before)
    assert left == umask
    Segment.attach(made.name).detach()
    paths = objects_of(made.name)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths}
    made.detach()
    made.unlink()
    assert made.name.startswith(f"/{OWN}.ringbatch.{os.getpid()}.")
    assert (made.engine, made.pid) == ("ringbatch", os.getpid())
    base = made.name[1:]
    assert [path.name for path in paths] == [
        base,
        f"{base}.l0",
        f"{base}.l1",
        f"{base}.life",
        f"sem.{base}.c",
        f"sem.{base}.w0",
    ]
    assert modes == {0o600}
    assert objects_of(made.name) == []


def test_memory_is_really_there_from_the_start(segment: Segment) -> None:
    found = Path(SHM, segment.name[1:]).stat()
    assert found.st_size == LAYOUT.size
    assert found.st_blocks * 512 >= LAYOUT.size


def test_a_segment_that_is_gone_is_an_error_in_words(segment: Segment) -> None:
    with pytest.raises(StartupError, match="is gone; has the engine stopped"):
        Segment.attach(segment.name + "0")


def test_who_may_not_have_so_much_memory_is_told_so() -> None:
    large = Segment.create(replace(LAYOUT, lane_bytes=32 << 20), MODELS)
    script = """
import resource
from ringbatch.shm.errors import StartupError
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (16 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    Segment.attach(sys.argv[1])
except StartupError as error:
    say(error)
"""
    try:
        with child(script, large.name) as process:
            assert line(process) == "cannot map 64 MiB of shared memory: Cannot allocate memory"
    finally:
        large.detach()
        large.unlink()


@pytest.mark.parametrize("size", [0, 100, HeaderWords.SIZE * WORD, LAYOUT.size])
def test_an_unfinished_segment_is_not_ready(size: int) -> None:
    with raw_object(size) as name, pytest.raises(SegmentNotReady, match="not finished"):
        Segment.attach(name)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (HeaderWords.VERSION, LAYOUT_VERSION + 1, f"has layout {LAYOUT_VERSION + 1}, this version"),
        (HeaderWords.VERSION, 0, "has layout 0, this version"),
        (HeaderWords.SEGMENT_BYTES, LAYOUT.size + PAGE, "bytes, its header gives"),
        (HeaderWords.LANES, LAYOUT.lanes + 1, "bytes, its header gives"),
        (HeaderWords.SLOTS, 3, "impossible size: slots must be a power of two, not 3"),
        (HeaderWords.LANE_BYTES, (1 << 64) - PAGE, "impossible size: lane_bytes must be from 1"),
        (HeaderWords.MODEL_TABLE_BYTES, 0, "impossible size: model_table_bytes"),
    ],
)
def test_a_segment_of_another_kind_is_refused(
    segment: Segment, field: int, value: int, message: str
) -> None:
    segment.words[field] = value
    with pytest.raises(LayoutMismatch, match=message):
        Segment.attach(segment.name)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"inputs"', b'"inpots"'), (b'"version"', b'"volumes"'), (b"[{", b"{[")],
    ids=["a member less", "another member", "no JSON"],
)
def test_a_model_table_of_another_version_is_refused_and_keeps_no_file_open(
    segment: Segment, old: bytes, new: bytes
) -> None:
    """Such an engine beside it must not keep one of this version from starting."""
    layout = segment.layout
    copy = layout.model_table_copy(segment.model_table.number)
    text = bytes(segment.memory[copy])
    assert old in text
    segment.memory[copy] = text.replace(old, new)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(LayoutMismatch, match="run the same version everywhere"):
        Segment.attach(segment.name)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(StartupError, match="no engine of ringbatch"), running("nobody"):
        pass


@pytest.mark.parametrize("change", [-PAGE, PAGE])
def test_a_segment_that_is_shorter_or_longer_than_it_says_is_refused(
    segment: Segment, change: int
) -> None:
    os.truncate(SHM / segment.name[1:], LAYOUT.size + change)
    with pytest.raises(LayoutMismatch, match=f"has {LAYOUT.size + change} bytes, its header"):
        Segment.attach(segment.name)


def test_a_segment_that_others_may_write_is_refused(segment: Segment) -> None:
    (SHM / segment.name[1:]).chmod(0o666)
    with pytest.raises(StartupError, match="belongs to another user"):
        Segment.attach(segment.name)


def test_a_refused_attachment_leaves_no_file_open(segment: Segment) -> None:
    segment.words[HeaderWords.VERSION] = 99
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(LayoutMismatch):
            Segment.attach(segment.name)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_model_table_that_does_not_fit_leaves_nothing_behind() -> None:
    small = Layout(lanes=1, slots=1, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=5)
    before = set(SHM.glob(f"*ringbatch.*.{os.getpid()}.*")), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="the model table has"):
        Segment.create(small, MODELS)
    assert (
        set(SHM.glob(f"*ringbatch.*.{os.getpid()}.*")),
        len(os.listdir("/proc/self/fd")),
    ) == before


def test_a_twin_for_tests_has_no_name() -> None:
    twin = Segment.local(LAYOUT, MODELS)
    assert twin.name == ""
    assert twin.models == MODELS
    assert twin.identity
    twin.detach()


# A full /dev/shm


def on_a_small_dev_shm(size: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run the script where /dev/shm is a file system of its own, as large as `size`.

    The mount is seen by that process alone. Skips where mounting is not permitted.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare command here")
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    begin = [unshare, *user, "--mount", "--propagation", "private", "sh", "-c"]
    tried = subprocess.run([*begin, mount], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system may be mounted here: {tried.stderr.strip()}")
    command = f'{mount} && exec "$0" -c "$1"'
    return subprocess.run(
        [*begin, command, sys.executable, PRELUDE + script],
        capture_output=True,
        text=True,
        check=False,
    )


CREATE = """
from ringbatch.shm.errors import StartupError
try:
    Segment.create(layout, models)
    print("made")
except StartupError as error:
    print(error)
print(os.listdir("/dev/shm"))
"""


def test_a_segment_that_does_not_fit_is_a_startup_error_and_leaves_nothing() -> None:
    run = on_a_small_dev_shm("64k", CREATE)
    assert run.returncode == 0, run.stderr
    message, left = run.stdout.splitlines()
    assert "cannot allocate 0 MiB of shared memory: No space left on device" in message
    assert "/dev/shm has 0 MiB free" in message
    assert left == "[]"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (posix_ipc.PermissionsError("No permission"), "No permission"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
    ],
)
def test_where_nothing_can_be_made_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(posix_ipc, "SharedMemory", refuse)
    with pytest.raises(StartupError) as refused:
        Segment.create(LAYOUT, MODELS)
    assert str(refused.value) == (
        f"cannot make shared memory in /dev/shm: {reason}; engines need a tmpfs there in which "
        "this user may make files, as by mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    )


@pytest.mark.parametrize("there", [False, True])
def test_where_nothing_can_be_looked_up_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    directory = tmp_path / "shm"
    if there:
        directory.touch()
    monkeypatch.setattr(object_names, "DIRECTORY", directory)
    reason = "Not a directory" if there else "No such file or directory"
    for look in (object_names.sweep, lambda: only("prod"), lambda: only(None)):
        with pytest.raises(StartupError) as refused:
            look()
        assert str(refused.value) == (
            f"cannot look for engines in /dev/shm: {reason}; engines need a tmpfs there in which "
            "this user may make files, as by mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        )


def test_semaphores_that_do_not_fit_are_a_startup_error_and_leave_nothing() -> None:
    run = on_a_small_dev_shm(str(LAYOUT.size + PAGE), CREATE)
    assert run.returncode == 0, run.stderr
    message, left = run.stdout.splitlines()
    assert f"cannot make the semaphore /{OWN}." in message
    assert "no space left" in message
    assert left == "[]"


def test_the_same_segment_fits_where_there_is_room() -> None:
    run = on_a_small_dev_shm(str(LAYOUT.size + 16 * PAGE), CREATE)
    assert run.stdout.splitlines()[0] == "made", run.stderr


# What the dead leave

MAKE = "made = Segment.create(layout, models)\nsay(made.name)\nstay()\n"


def test_what_a_killed_creator_left_is_swept_up() -> None:
    with child(MAKE) as process:
        name = line(process)
        assert len(objects_of(name)) == 6
        assert name in list(object_names.names(process.pid))
        process.send_signal(signal.SIGKILL)
        process.wait()
        removed = object_names.sweep()
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
        assert name[1:] in object_names.sweep()


def test_what_the_living_use_stays(segment: Segment) -> None:
    with child(MAKE) as process:
        name = line(process)
        before = objects_of(name) + objects_of(segment.name)
        removed = object_names.sweep()
        assert objects_of(name) + objects_of(segment.name) == before
        assert not {path.name for path in before} & set(removed)
        Segment.attach(name).detach()
        object_names.unlink(name)
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
        assert path.name not in object_names.sweep()
        assert f"/{path.name}" not in list(object_names.names())
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
    assert {path.name for path in left} <= set(object_names.sweep())
    assert not any(path.exists() for path in left)


def test_what_is_left_beside_a_segment_that_is_gone_is_swept_up() -> None:
    left = SHM / f"sem.{OWN}.left.{os.getpid()}.{secrets.token_hex(8)}.w0"
    left.touch()
    assert left.name in object_names.sweep()
    assert not left.exists()


def test_who_makes_a_segment_while_another_sweeps_has_one_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the name and its lock it looks like a dead engine's."""
    usual = object_names.opened_anew
    sweeps: list[list[str]] = []

    def swept(fd: int) -> int:
        if len(sweeps) < 3:
            sweeps.append(object_names.sweep())
        return usual(fd)

    monkeypatch.setattr(object_names, "opened_anew", swept)
    made = Segment.create(LAYOUT, MODELS)
    assert [len(removed) for removed in sweeps] == [1, 1, 1]
    other = Segment.attach(made.name)
    assert other.alive
    assert made.name[1:] not in object_names.sweep()
    other.detach()
    made.unlink()
    made.detach()


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
    """Whether it forks and runs another program, or forks and goes on as it is and lets go."""
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
            assert name[1:] in object_names.sweep()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


# In another place than the engine


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


def test_who_sees_other_processes_removes_nothing_of_a_living_engine(segment: Segment) -> None:
    before = objects_of(segment.name)
    run = elsewhere("from ringbatch.shm.object_names import sweep\nprint(sweep())\n")
    assert run.returncode == 0, run.stderr
    assert segment.name[1:] not in run.stdout
    assert objects_of(segment.name) == before


def test_who_sees_other_processes_finds_a_living_engine(segment: Segment) -> None:
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


# Locks of lanes

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
        lane.say_serving()
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


def test_who_detaches_drops_the_lock_though_arrays_still_show_the_memory(
    segment: Segment,
) -> None:
    other = Segment.attach(segment.name)
    assert other.lock_lane(0)
    segment.memory[LAYOUT.payload] = 7
    array = np.frombuffer(other.memory, np.uint8)
    other.detach()
    assert segment.lock_lane(0)
    assert array[LAYOUT.payload] == 7


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
def test_a_lane_is_free_once_its_owner_has_died_whoever_forked_past_python(
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


def test_who_asks_for_another_users_engine_by_its_process_id_is_told_so(segment: Segment) -> None:
    assert only(os.getpid()) == segment.name
    (SHM / segment.name[1:]).chmod(0o666)
    with pytest.raises(StartupError, match="belongs to another user"):
        only(os.getpid())
    with pytest.raises(StartupError, match="process id 4194305 is running"):
        only(4194305)


@contextmanager
def engines(*called: str) -> Iterator[list[Segment]]:
    """Engines with these names, none of them ready."""
    made = [Segment.create(LAYOUT, MODELS, name) for name in called]
    try:
        yield made
    finally:
        for one in made:
            one.detach()
            one.unlink()


def test_an_engine_is_found_by_its_name_among_several() -> None:
    with engines("prod", "staging", "prod-2") as made:
        for one in made:
            assert only(one.engine) == one.name
        shown = "; ".join(rf"{name} \(process \d+\) serves m" for name in ("prod", "prod-2"))
        with pytest.raises(StartupError, match=f"^3 engines run, say which, by name .*: {shown}"):
            only(None)
        there = ", ".join(rf"{name} \(process \d+\)" for name in ("prod", "prod-2", "staging"))
        with pytest.raises(StartupError, match=f"with the name pro is running; there is: {there}$"):
            only("pro")
        with pytest.raises(StartupError, match=f"id 4194305 is running; there is: {there}$"):
            only(4194305)


def test_of_one_name_the_newest_that_is_ready_is_found() -> None:
    with engines("prod", "prod", "prod") as (old, new, newest):
        old.say_ready(1000)
        assert [only("prod"), only(None)] == [old.name, old.name], "the others only start"
        new.say_ready(2000)
        assert only("prod") == new.name
        with pytest.raises(StartupError, match="2 engines run"):
            only(None)
        old.drain()
        assert only(None) == new.name
        newest.say_ready(3000)
        assert only("prod") == newest.name
        newest.drain()
        assert only("prod") == new.name
        new.detach()
        new.unlink()
        assert only("prod") in (old.name, newest.name), "one that stops, where there is no other"


def test_another_users_engine_is_found_by_its_name_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engines("prod") as _:
        with monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
            with pytest.raises(StartupError, match="with the name prod is this user's; there is"):
                only("prod")
            with pytest.raises(StartupError, match=r"with the name staging is running$"):
                only("staging")
        assert only("prod")
