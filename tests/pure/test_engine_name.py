"""Names of engines: the legal ones, and the choice among several engines."""

from pathlib import PurePath
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.engine_name import MAX_CHARACTERS, engine_name_of, is_engine_name
from ringbatch.shm.engines import eligible, in_order


@pytest.mark.parametrize("name", ["p", "prod", "Prod-2", "a_b", "x" * MAX_CHARACTERS])
def test_a_legal_name(name: str) -> None:
    assert is_engine_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "4711", "2nd", "-x", "_x", "a.b", "a b", "a/b", "\u00fc", "a\n", "x" * 41, 7, True, None],
)
def test_a_name_that_is_refused(name: object) -> None:
    assert not is_engine_name(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/etc/ringbatch/prod.toml", "prod"),
        ("ringbatch.toml", "ringbatch"),
        ("a.b.toml", "a-b"),
        ("my models (2).toml", "my-models--2-"),
        ("4711.toml", "ringbatch-4711"),
        ("-x.toml", "ringbatch--x"),
        ("/dev/stdin", "stdin"),
    ],
)
def test_the_name_of_a_file(file: str, name: str) -> None:
    assert engine_name_of(PurePath(file)) == name


@given(st.text(min_size=1).filter(lambda text: PurePath(text).stem != ""))
def test_every_file_gives_a_legal_name(file: str) -> None:
    assert is_engine_name(engine_name_of(PurePath(file)))


class Engine(NamedTuple):
    """Engine with the fields that are looked at."""

    engine: str
    ready_ns: int


OLD, NEW, STARTS = Engine("prod", 10), Engine("prod", 20), Engine("prod", 0)
OTHER, OTHER_STARTS = Engine("other", 30), Engine("other", 0)


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ([OLD, NEW], NEW),
        ([NEW, OLD], NEW),
        ([STARTS, OLD], OLD),
        ([STARTS, OLD, NEW], NEW),
        ([STARTS], STARTS),
    ],
)
def test_the_newest_that_is_ready_comes_first(found: list[Engine], first: Engine) -> None:
    assert in_order(found)[0] == first


def test_names_come_in_order() -> None:
    assert in_order([OLD, OTHER, STARTS, NEW]) == [OTHER, NEW, OLD, STARTS]


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ([], []),
        ([OLD], [OLD]),
        ([STARTS], [STARTS]),
        ([STARTS, OLD], [OLD]),
        ([OLD, NEW], [OLD, NEW]),
        ([STARTS, OTHER], [STARTS, OTHER]),
        ([OLD, STARTS, OTHER_STARTS], [OLD, OTHER_STARTS]),
    ],
)
def test_an_unnamed_engine_gives_way_only_to_one_of_its_name(
    found: list[Engine], meant: list[Engine]
) -> None:
    assert eligible(found) == meant
