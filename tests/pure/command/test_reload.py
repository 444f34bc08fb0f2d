"""``ringbatch reload``: which word is an engine, and which a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ringbatch.engine.command import reload
from ringbatch.shm.errors import StartupError

ENGINES = {"prod": ("a", "b"), "mnist": ("mnist",), 7: ("a", "b")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str | None]]:
    """The engines and models for which an order is given."""
    given: list[tuple[Any, str | None]] = []

    @contextmanager
    def running(engine: Any) -> Iterator[list[Any]]:
        found = [names for name, names in ENGINES.items() if engine in (None, name)]
        if not found:
            raise StartupError(f"no engine of ringbatch with the name {engine} is running")
        models = ([SimpleNamespace(name=name) for name in names] for names in found)
        yield [SimpleNamespace(models=each) for each in models]

    def ask(engine: Any, order: Any, _tell: Any) -> Any:
        given.append((engine, order.model))
        return SimpleNamespace(end="done", lines=["loaded"])

    monkeypatch.setattr(reload, "running", running)
    monkeypatch.setattr(reload, "only", lambda engine: engine)
    monkeypatch.setattr(reload, "ask", ask)
    return given


@pytest.mark.parametrize(
    ("engine", "word", "model", "order", "note"),
    [
        (None, None, None, (None, None), ""),
        (None, "prod", None, ("prod", None), ""),
        (None, "7", None, (7, None), ""),
        (None, "prod", "a", ("prod", "a"), ""),
        (None, None, "a", (None, "a"), ""),
        ("prod", None, "a", ("prod", "a"), ""),
        (None, "gone", "a", ("gone", "a"), ""),
        ("prod", "a", None, ("prod", "a"), "a: it is taken for a model; write --model a"),
        (
            None,
            "a",
            None,
            (None, "a"),
            "a: no engine is called that, so it is taken for a model; write --model a",
        ),
        (
            None,
            "a.model_of-a-name-that-no-engine-can-have" * 3,
            None,
            (None, "a.model_of-a-name-that-no-engine-can-have" * 3),
            "it is taken for a model",
        ),
        (
            None,
            "mnist",
            None,
            ("mnist", None),
            "mnist: is taken for the engine; for its model alone, write --model mnist",
        ),
    ],
)
def test_a_word_is_an_engine_if_one_is_called_that_else_a_model(
    asked: list[tuple[Any, str | None]],
    capsys: pytest.CaptureFixture[str],
    engine: Any,
    word: str | None,
    model: str | None,
    order: tuple[Any, str | None],
    note: str,
) -> None:
    assert reload.main(engine, word, model) == 0
    assert asked == [order]
    printed = capsys.readouterr()
    assert printed.out == "ringbatch: loaded\n"
    assert note in printed.err
    assert bool(printed.err) == bool(note)


def test_a_word_beside_both_flags_is_refused(asked: list[tuple[Any, str | None]]) -> None:
    with pytest.raises(StartupError, match="leave out a"):
        reload.main("prod", "a", "b")
    assert asked == []


def test_a_word_that_is_neither_is_refused(asked: list[tuple[Any, str | None]]) -> None:
    with pytest.raises(StartupError, match=r"name gone is running\. For a new model .* gone$"):
        reload.main(None, "gone", None)
    assert asked == []
