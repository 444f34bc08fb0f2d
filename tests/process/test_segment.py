"""Real segments in /dev/shm: made, attached, refused where they are of another kind."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import posix_ipc
import pytest
from open_files import none_left_open
from segment_harness import LAYOUT, MODELS, OWN, SHM, objects_of

from ringbatch.shm import shm_objects
from ringbatch.shm.descriptors import LAYOUT_VERSION, HeaderWords
from ringbatch.shm.engines import running
from ringbatch.shm.errors import LayoutMismatch, SegmentNotReady, StartupError
from ringbatch.shm.layout import PAGE, WORD
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


def test_an_attached_process_sees_the_same_memory(segment: Segment) -> None:
    other = Segment.attach(segment.name)
    assert other.layout == LAYOUT
    assert other.models == MODELS
    assert other.identity == segment.identity != 0
    segment.words[LAYOUT.payload_byte // WORD] = 42
    assert other.words[LAYOUT.payload_byte // WORD] == 42
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


def test_a_segment_that_is_gone_is_an_error_in_words(segment: Segment) -> None:
    with pytest.raises(StartupError, match="is gone; has the engine stopped"):
        Segment.attach(segment.name + "0")


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
    [(b'"inputs"', b'"inpots"'), (b'"version"', b'"volumes"'), (b'{"index', b'["index')],
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
    with (
        none_left_open(),
        pytest.raises(LayoutMismatch, match="run the same version everywhere"),
    ):
        Segment.attach(segment.name)
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
    with none_left_open(), pytest.raises(LayoutMismatch):
        Segment.attach(segment.name)


def test_a_twin_for_tests_has_no_name() -> None:
    twin = Segment.local(LAYOUT, MODELS)
    assert twin.name == ""
    assert twin.models == MODELS
    assert twin.identity
    twin.detach()
