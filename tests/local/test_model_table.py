"""The model table as its writer and its readers meet in it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from segment_fixture import local_segment, spec

from ringbatch.shm import model_spec
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.model_table import ModelTable
from ringbatch.shm.segment import Segment

ONE = (spec(name="one"),)
TWO = (spec(name="one"), spec(1, name="two", workers=(0,)))


def padded() -> tuple[Segment, ModelTable]:
    """A segment with room for more than it has."""
    segment = local_segment(replace(ONE[0], platform="x" * 2000))
    segment.model_table.publish(ONE)
    return segment, segment.model_table


def test_a_table_holds_from_the_moment_it_is_published() -> None:
    _, table = padded()
    number = table.number
    assert table.read() == (number, ONE)
    assert table.publish(TWO) == table.number == number + 1
    assert table.read() == (number + 1, TWO)
    table.publish(ONE)
    assert table.read() == (number + 2, ONE)


def test_a_new_table_is_unseen_until_its_number_is_stored() -> None:
    segment, table = padded()
    number = table.number
    table.publish(TWO)
    segment.words[HeaderWords.MODEL_TABLE] = number
    assert table.read() == (number, ONE), "the old copy is as it was"


def test_a_reader_that_is_overtaken_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    segment, table = padded()
    tables: list[tuple[ModelSpec, ...]] = [TWO, ONE, TWO]

    class Overtaken(ModelTable):
        """Table that changes twice between the look at the number and its copy."""

        @property
        def number(self) -> int:
            found = table.number
            if tables:
                table.publish(tables.pop())
            return found

    reader = Overtaken(segment.words, segment.memory, segment.layout)
    assert reader.read() == table.read()
    assert tables == []


def test_a_table_without_room_changes_nothing() -> None:
    _, table = padded()
    number = table.number
    with pytest.raises(ValueError, match="the model table has"):
        table.publish((spec(name="x" * 5000),))
    assert table.read() == (number, ONE)


def test_a_place_is_wiped_for_the_next_model() -> None:
    segment, table = padded()
    ready = segment.layout.model(0) + ModelWords.READY
    segment.words[ready] = 1
    table.clear_place(0)
    assert segment.words[ready] == 0


def test_an_entry_that_has_not_changed_is_neither_written_nor_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment, table = padded()
    reader = ModelTable(segment.words, segment.memory, segment.layout)
    table.publish(TWO)
    _, before = reader.read()
    done = Counter[str]()
    for name in ("line_of", "entry_of"):
        right = getattr(model_spec, name)

        def counted(argument: object, name: str = name, right: Any = right) -> object:
            done[name] += 1
            return right(argument)

        monkeypatch.setattr(model_spec, name, counted)
    changed = (TWO[0], replace(TWO[1], workers=(3,)))
    table.publish(changed)
    _, after = reader.read()
    assert after == changed
    assert after[0] is before[0]
    assert done == {"line_of": 1, "entry_of": 1}
    table.publish(changed[:1])
    assert reader.read()[1] == changed[:1]
    table.publish(changed)
    assert reader.read()[1] == changed
    assert done == {"line_of": 2, "entry_of": 2}, "of what has gone nothing is kept"


def test_a_table_may_be_empty() -> None:
    _, table = padded()
    table.publish(())
    assert table.read()[1] == ()
