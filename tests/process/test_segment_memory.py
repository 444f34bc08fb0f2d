"""Memory for a segment in /dev/shm: it is there from the start, or an error says what lacks."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import posix_ipc
import pytest
from open_files import none_left_open
from segment_harness import LAYOUT, MODELS, OWN, PRELUDE, SHM, child, line

from ringbatch.shm import shm_objects
from ringbatch.shm.engines import only
from ringbatch.shm.errors import StartupError
from ringbatch.shm.layout import PAGE, Layout
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


def test_memory_is_really_there_from_the_start(segment: Segment) -> None:
    found = Path(SHM, segment.name[1:]).stat()
    assert found.st_size == LAYOUT.size
    assert found.st_blocks * 512 >= LAYOUT.size


def test_a_process_whose_memory_limit_is_too_small_is_refused_in_words() -> None:
    large = Segment.create(replace(LAYOUT, lane_bytes=4 << 20), MODELS)
    script = """
import resource
from ringbatch.shm.errors import StartupError
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (4 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    Segment.attach(sys.argv[1])
except StartupError as error:
    say(error)
"""
    try:
        with child(script, large.name) as process:
            assert line(process) == "cannot map 8 MiB of shared memory: Cannot allocate memory"
    finally:
        large.detach()
        large.unlink()


def test_a_model_table_that_does_not_fit_leaves_nothing_behind() -> None:
    small = Layout(lanes=1, slots=1, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=5)
    before = set(SHM.glob(f"*ringbatch.*.{os.getpid()}.*"))
    with none_left_open(), pytest.raises(ValueError, match="the model table has"):
        Segment.create(small, MODELS)
    assert set(SHM.glob(f"*ringbatch.*.{os.getpid()}.*")) == before


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
def test_an_unmakable_segment_is_reported_with_the_reason(
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


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Make /dev/shm larger, or lower [server] max_request_bytes, "),
        (errno.EDQUOT, "Raise this user's quota in /dev/shm, or lower [server] "),
        (errno.EFBIG, "Raise the limit of a file's size (ulimit -f, LimitFSIZE=), or lower "),
        (errno.ENOMEM, "Raise the limit of memory (MemoryMax=, ulimit -v), or lower [server] "),
        (errno.EMFILE, "raise the limit of open files (ulimit -n, LimitNOFILE=)"),
        (errno.ENFILE, "raise this host's limit of open files (fs.file-max)"),
    ],
)
def test_the_remedy_is_that_of_the_reason(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(StartupError) as refused:
        Segment.create(LAYOUT, MODELS)
    assert os.strerror(number) in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize("there", [False, True])
def test_an_unreadable_directory_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    directory = tmp_path / "shm"
    if there:
        directory.touch()
    monkeypatch.setattr(shm_objects, "DIRECTORY", directory)
    reason = "Not a directory" if there else "No such file or directory"
    for look in (shm_objects.remove_dead_engines, lambda: only("prod"), lambda: only(None)):
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
