"""Which of the engines that run is meant, with segments as engines make them."""

import os
from collections.abc import Iterator

import pytest

from ringbatch.shm import engines, object_names
from ringbatch.shm.descriptors import LAYOUT_VERSION, HeaderWords
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.engines import of_any_version, only
from ringbatch.shm.errors import LayoutMismatch, StartupError
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.object_names import made_and_locked
from ringbatch.shm.object_names import unlink as unlink_object
from ringbatch.shm.segment import Segment

NAME = f"engines-{os.getpid()}"
LAYOUT = Layout(lanes=1, slots=8, lane_bytes=16 * PAGE, workers=1, models=1, model_table_bytes=PAGE)


class Made:
    """Segments of engines that live."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def one(self, engine: str, ready_ns: int) -> Segment:
        segment = Segment.create(LAYOUT, (), engine)
        segment.words[HeaderWords.READY_NS] = ready_ns
        self.segments.append(segment)
        return segment


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    made = Made()
    usual = object_names.names

    def ours(engine: str | int | None) -> list[str]:
        # Other tests run engines beside these.
        known = {segment.name for segment in made.segments}
        return [name for name in usual(engine) if name in known]

    monkeypatch.setattr(engines, "names", ours)
    yield made
    for segment in made.segments:
        segment.unlink()
        segment.detach()


def test_an_engine_of_another_version_is_found_where_its_segment_is_not_read(made: Made) -> None:
    segment = made.one(NAME, 1)
    made.one(NAME, 0)
    segment.words[HeaderWords.VERSION] = LAYOUT_VERSION + 1
    newer = made.one(NAME, 2)
    newer.words[HeaderWords.VERSION] = LAYOUT_VERSION - 1
    assert of_any_version(NAME) == newer.name
    newer.words[HeaderWords.DRAINING] = 1
    assert of_any_version(NAME) == segment.name


def test_why_there_is_none_is_said_as_ever(made: Made) -> None:
    with pytest.raises(StartupError, match=f"no engine of ringbatch with the name {NAME}"):
        of_any_version(NAME)
    made.one(NAME, 1).words[HeaderWords.VERSION] += 1
    with pytest.raises(LayoutMismatch):
        only(NAME)


def test_one_that_goes_while_it_is_looked_at_was_never_there(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = made.one(NAME, 1)

    def gone(_name: str) -> Segment:
        made.segments.remove(segment)
        segment.unlink()
        segment.detach()
        raise StartupError("the engine's shared memory is gone")

    monkeypatch.setattr(Segment, "attach", gone)
    with pytest.raises(StartupError, match=f"no engine of ringbatch with the name {NAME}"):
        only(NAME)


def test_a_segment_that_is_not_finished_is_nobody_to_replace() -> None:
    name, fd, locks = made_and_locked(NAME)
    try:
        with pytest.raises(StartupError):
            of_any_version(NAME)
    finally:
        os.close(fd)
        os.close(locks)
        unlink_object(name)


def test_the_name_of_those_that_were_given_none_says_not_which(made: Made) -> None:
    first, second = made.one(UNNAMED, 1), made.one(UNNAMED, 2)
    for find in (only, of_any_version):
        with pytest.raises(StartupError, match="2 engines run, say which"):
            find(UNNAMED)
    second.words[HeaderWords.READY_NS] = 0
    assert only(UNNAMED) == of_any_version(UNNAMED) == first.name
    third = made.one(NAME, 3)
    assert only(NAME) == third.name
