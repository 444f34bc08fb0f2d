"""Choice among running engines, with segments as engines make them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from segment_harness import LAYOUT, MODELS, OWN, SHM
from tiers import exhaustive

from ringbatch.shm import shm_objects
from ringbatch.shm.descriptors import LAYOUT_VERSION, HeaderWords
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.engines import (
    alone_of_name,
    attached,
    expect_free,
    of_any_version,
    only,
    starts,
)
from ringbatch.shm.errors import LayoutMismatch, SegmentGone, StartupError
from ringbatch.shm.segment import Segment
from ringbatch.shm.shm_objects import create_locked_segment, unlink_segment

NAME = f"engines-{os.getpid()}"


@contextmanager
def called(*names: str) -> Iterator[list[Segment]]:
    """Engines with these names, none of them ready."""
    made = [Segment.create(LAYOUT, MODELS, name) for name in names]
    try:
        yield made
    finally:
        for one in made:
            one.detach()
            one.unlink()


class Made:
    """Segments of engines that live."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def segment(self, engine: str, ready_ns: int) -> Segment:
        segment = Segment.create(LAYOUT, (), engine)
        segment.words[HeaderWords.READY_NS] = ready_ns
        self.segments.append(segment)
        return segment

    def end(self, segment: Segment) -> None:
        self.segments.remove(segment)
        segment.unlink()
        segment.detach()


def held(name: str) -> str:
    """The name of a segment that can be attached."""
    Segment.attach(name).detach()
    return name


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_objects, "PREFIX", OWN)


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create(LAYOUT, MODELS)
    yield made
    made.detach()
    made.unlink()


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    for segment in list(made.segments):
        made.end(segment)


def test_an_engine_of_another_version_is_found_where_its_segment_is_not_read(made: Made) -> None:
    segment = made.segment(NAME, 1)
    made.segment(NAME, 0)
    segment.words[HeaderWords.VERSION] = LAYOUT_VERSION + 1
    newer = made.segment(NAME, 2)
    newer.words[HeaderWords.VERSION] = LAYOUT_VERSION - 1
    assert of_any_version(NAME) == newer.name
    newer.words[HeaderWords.DRAINING] = 1
    assert of_any_version(NAME) == segment.name


def test_the_reason_for_finding_none_is_the_usual_one(made: Made) -> None:
    with pytest.raises(StartupError, match=f"no engine of ringbatch with the name {NAME}"):
        of_any_version(NAME)
    made.segment(NAME, 1).words[HeaderWords.VERSION] += 1
    with pytest.raises(LayoutMismatch):
        only(NAME)


@pytest.mark.parametrize("beside", [(), ("other",)])
def test_the_error_says_from_when_an_engine_that_starts_is_found(beside: tuple[str, ...]) -> None:
    """Its segment needs the signatures of its models, which may take minutes to open."""
    with called(*(f"{NAME}-{name}" for name in beside)), pytest.raises(StartupError) as refusal:
        only(NAME)
    assert str(refusal.value).endswith(
        "; an engine that starts is found once it has opened its model files"
    )
    assert ("; there is: " in str(refusal.value)) == bool(beside)


def test_one_that_goes_while_it_is_looked_at_was_never_there(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment, attach = made.segment(NAME, 1), Segment.attach

    def late(name: str) -> Segment:
        if segment in made.segments:
            made.end(segment)
        return attach(name)

    monkeypatch.setattr(Segment, "attach", late)
    with pytest.raises(StartupError, match=f"no engine of ringbatch with the name {NAME}"):
        only(NAME)


def test_an_engine_that_ends_before_attachment_is_followed_by_its_successor(made: Made) -> None:
    first = made.segment(NAME, 1)

    def attach(name: str) -> str:
        if first in made.segments:
            made.segment(NAME, 2)
            made.end(first)
        return held(name)

    assert attached(NAME, attach) == made.segments[0].name


def test_an_engine_that_ends_before_attachment_was_never_there(made: Made) -> None:
    segment = made.segment(NAME, 1)

    def attach(name: str) -> str:
        made.end(segment)
        return held(name)

    with pytest.raises(StartupError, match=f"no engine of ringbatch with the name {NAME}"):
        attached(NAME, attach)


def test_an_engine_that_lives_without_its_names_is_not_tried_for_ever(made: Made) -> None:
    made.segment(NAME, 1)

    def attach(_name: str) -> str:
        raise SegmentGone("the semaphore is gone")

    with pytest.raises(SegmentGone, match="the semaphore is gone"):
        attached(NAME, attach)


def test_a_segment_that_is_not_finished_is_nobody_to_replace() -> None:
    name, fd, locks = create_locked_segment(NAME)
    try:
        with pytest.raises(StartupError):
            of_any_version(NAME)
    finally:
        os.close(fd)
        os.close(locks)
        unlink_segment(name)


def test_the_name_of_those_that_were_given_none_says_not_which(made: Made) -> None:
    first, second = made.segment(UNNAMED, 1), made.segment(UNNAMED, 2)
    for find in (only, of_any_version):
        with pytest.raises(StartupError, match="2 engines run, say which, by process id"):
            find(UNNAMED)
    second.words[HeaderWords.READY_NS] = 0
    assert only(UNNAMED) == of_any_version(UNNAMED) == first.name
    third = made.segment(NAME, 3)
    assert only(NAME) == third.name


def test_only_an_engine_that_has_not_been_ready_starts(made: Made) -> None:
    segment = made.segment(NAME, 1)
    assert not starts(segment.name)
    segment.words[HeaderWords.READY_NS] = 0
    assert starts(segment.name)
    segment.words[HeaderWords.DRAINING] = 1
    assert not starts(segment.name)
    assert not starts(f"/ringbatch.{NAME}.1.0123456789abcdef")


def test_another_users_engine_by_process_id_is_refused_as_such(segment: Segment) -> None:
    assert only(os.getpid()) == segment.name
    (SHM / segment.name[1:]).chmod(0o666)
    with pytest.raises(StartupError, match="belongs to another user"):
        only(os.getpid())
    with pytest.raises(StartupError, match="process id 4194305 is running"):
        only(4194305)


def test_an_engine_is_found_by_its_name_among_several() -> None:
    with called("prod", "staging", "prod-2") as made:
        for one in made:
            assert only(one.engine) == one.name
        shown = "; ".join(rf"{name} \(process \d+\) serves m" for name in ("prod", "prod-2"))
        with pytest.raises(StartupError, match=f"^3 engines run, say which, by name .*: {shown}"):
            only(None)
        there = ", ".join(rf"{name} \(process \d+\)" for name in ("prod", "prod-2", "staging"))
        with pytest.raises(StartupError, match=f"with the name pro is running; there is: {there};"):
            only("pro")
        with pytest.raises(StartupError, match=f"id 4194305 is running; there is: {there};"):
            only(4194305)


def test_of_one_name_the_newest_that_is_ready_is_found() -> None:
    with called("prod", "prod", "prod") as (old, new, newest):
        old.publish_ready(1000)
        assert [only("prod"), only(None)] == [old.name, old.name], "the others only start"
        new.publish_ready(2000)
        assert only("prod") == new.name
        with pytest.raises(StartupError, match="2 engines run, say which, by process id: prod"):
            only(None)
        old.drain()
        assert only(None) == new.name
        newest.publish_ready(3000)
        assert only("prod") == newest.name
        newest.drain()
        assert only("prod") == new.name
        new.detach()
        new.unlink()
        assert only("prod") in (old.name, newest.name), "one that stops, where there is no other"


def test_another_users_engine_is_found_by_its_name_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with called("prod") as _:
        with monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
            with pytest.raises(StartupError, match="with the name prod is this user's; there is"):
                only("prod")
            with pytest.raises(StartupError, match=r"with the name staging is running; an engine"):
                only("staging")
        assert only("prod")


@pytest.mark.parametrize("version", [LAYOUT_VERSION, LAYOUT_VERSION + 1])
def test_a_name_is_taken_while_its_engine_starts_or_serves(made: Made, version: int) -> None:
    segment = made.segment(NAME, 0)
    segment.words[HeaderWords.VERSION] = version
    words = f"an engine with the name {NAME} runs already: it is process {os.getpid()}; replace"
    with pytest.raises(StartupError, match=words):
        expect_free(NAME)
    segment.words[HeaderWords.READY_NS] = 1
    segment.words[HeaderWords.PORT] = 8080
    with pytest.raises(StartupError, match="and serves at port 8080; replace it with ringbatch"):
        expect_free(NAME)
    segment.words[HeaderWords.DRAINING] = 1
    expect_free(NAME)


def test_a_name_is_free_for_the_engine_that_replaces_its_engine_and_nobody_else(made: Made) -> None:
    made.segment(NAME, 1)
    expect_free(NAME, replaced=os.getpid())
    with pytest.raises(StartupError, match="runs already"):
        expect_free(NAME, replaced=1)


def test_the_name_that_nobody_has_chosen_is_always_free(made: Made) -> None:
    made.segment(UNNAMED, 1)
    with alone_of_name(UNNAMED):
        made.segment(UNNAMED, 1)


STARTS = """
import sys, time
from ringbatch.shm import shm_objects
from ringbatch.shm.engines import alone_of_name
from ringbatch.shm.errors import StartupError
prefix, name, instant = sys.argv[1], sys.argv[2], float(sys.argv[3])
shm_objects.PREFIX = prefix
from segment_harness import LAYOUT, MODELS
from ringbatch.shm.segment import Segment
while time.monotonic() < instant:
    pass
try:
    with alone_of_name(name):
        segment = Segment.create(LAYOUT, MODELS, name)
except StartupError as error:
    assert "runs already" in str(error), error
    print("refused", flush=True)
else:
    print("runs", flush=True)
    sys.stdin.read()
    segment.unlink()
    segment.detach()
"""


@exhaustive
def test_of_processes_that_take_a_name_in_one_instant_one_has_it() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "harness")}
    for round_ in range(3):
        name, instant = f"{NAME}-{round_}", time.monotonic() + 1.5
        starting = [
            subprocess.Popen(
                [sys.executable, "-c", STARTS, OWN, name, str(instant)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for _ in range(4)
        ]
        lines = [process.stdout.readline() for process in starting if process.stdout]
        for process in starting:
            process.communicate()
        assert sorted(lines) == ["refused\n"] * 3 + ["runs\n"]
        assert not list(shm_objects.DIRECTORY.glob(f"{OWN}.{name}*"))


def test_a_name_lock_that_was_removed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter may get the lock that the process before it has removed."""
    path = shm_objects.DIRECTORY / f"{OWN}.{NAME}.{os.geteuid()}.name"
    waits, tried = shm_objects.wait_for_lock, list[int]()

    def removed_first(fd: int, byte: int) -> None:
        if not tried:
            path.unlink()
        tried.append(fd)
        waits(fd, byte)

    monkeypatch.setattr(shm_objects, "wait_for_lock", removed_first)
    with shm_objects.reserved_name(NAME):
        assert path.exists()
    assert len(tried) == 2
    assert not path.exists()
