"""Metrics of model code: what a name may be, what is counted, and what a worker takes over of one
that ended."""

import os
import re
from typing import Any

import numpy as np
import pytest

from ringbatch.engine.metrics import counter, gauge, histogram
from ringbatch.engine.models.model_metrics import (
    BOOK,
    MOST_LABEL_CHARACTERS,
    Book,
    Counter,
    Gauge,
    Histogram,
    within,
)
from ringbatch.shm.layout import WORD
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import Metric, OwnMetrics, Series


@pytest.fixture(autouse=True)
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    fresh = Book()
    monkeypatch.setattr("ringbatch.engine.models.model_metrics.BOOK", fresh)
    return fresh


def block() -> OwnMetrics:
    return OwnMetrics(memoryview(bytearray(OwnMetricWords.SIZE * WORD)), 0)


def counted(own: OwnMetrics) -> dict[tuple[str, ...], tuple[float, ...]]:
    return {(one.metric.name, *one.labels): one.values for one in own.read()}


def test_each_kind_counts_as_its_name_says(book: Book) -> None:
    cut = counter("texts_cut_total", "Texts cut.", labels=["lang"])
    size = gauge("cache_size", "Texts kept.")
    spread = histogram("seconds", "Time.", buckets=[1, 2])
    own = block()
    book.open(own, 5, set())
    cut.labels("de").inc()
    cut.labels(lang="de").inc(2.5)
    cut.labels(7).inc(0)
    size.set(4)
    size.inc()
    size.dec(2)
    for value in (0.5, 1, 1.5, 9):
        spread.observe(value)
    assert counted(own) == {
        ("texts_cut", "de"): (3.5,),
        ("texts_cut", "7"): (0.0,),
        ("cache_size",): (3.0,),
        ("seconds",): (2.0, 1.0, 1.0, 12.0),
    }
    assert {one.metric.account for one in own.read()} == {5}


@pytest.mark.parametrize(
    "value", ["text", "7", b"7", None, [1], {}, 1 + 2j, 10**400, np.array([1.0, 2.0])]
)
def test_a_value_that_is_no_number_is_refused_before_it_is_counted(book: Book, value: Any) -> None:
    made = counter("n", "h"), gauge("g", "h"), histogram("s", "h", buckets=[1])
    own = block()
    book.open(own, 0, set())
    made[1].set(5)
    before = counted(own)
    calls = made[0].inc, made[1].set, made[1].inc, made[1].dec, made[2].observe
    for call in calls:
        with pytest.raises(ValueError, match=r"metric [ngs]: wants a (finite )?number, not "):
            call(value)
    assert counted(own) == before


@pytest.mark.parametrize("value", [2, 2.0, True + 1, np.float32(2), np.int64(2), np.array(2)])
def test_every_number_of_python_is_one(book: Book, value: Any) -> None:
    gauge("g", "h").set(value)
    own = block()
    book.open(own, 0, set())
    assert counted(own) == {("g",): (2.0,)}


def test_the_time_of_a_raising_block_is_observed_too(book: Book) -> None:
    spread = histogram("seconds", "Time.")
    with pytest.raises(KeyError), spread.time():
        raise KeyError
    own = block()
    book.open(own, 0, set())
    ((*buckets, total),) = counted(own).values()
    assert sum(buckets) == 1
    assert total > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: counter("ringbatch_requests", "h"), "begin with ringbatch_ are ringbatch's own"),
        (lambda: counter("2nd", "h"), "begins with no digit; not '2nd'"),
        (lambda: counter("a" * 101, "h"), "up to 100 letters"),
        (lambda: counter(3, "h"), "not 3"),  # type: ignore[arg-type]
        (lambda: counter("total", ""), "says nothing of itself"),
        (lambda: counter("x", "h", "lang"), "labels must be a list of names, not 'lang'"),
        (lambda: counter("x", "h", ["a-b"]), "'a-b' is no name for a label"),
        (lambda: counter("x", "h", ["__a"]), "'__a' is no name for a label"),
        (lambda: counter("x", "h", ["model"]), "the label model is ringbatch's own"),
        (lambda: histogram("x", "h", ["le"]), "the label le is ringbatch's own"),
        (lambda: counter("x", "h", ["a", "a"]), "has the label a twice"),
        (lambda: histogram("x", "h", buckets=[2, 1]), "in ascending order"),
        (lambda: histogram("x", "h", buckets=range(41)), "at most 40 numbers"),
        (lambda: histogram("x", "h", buckets=["1"]), "buckets must be numbers"),  # type: ignore[list-item]
        (lambda: histogram("x", "h", buckets=[float("nan"), 1]), "in ascending order"),
        (lambda: histogram("x", "h", buckets=[]), "needs at least one bucket"),
    ],
)
def test_an_invalid_metric_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


def test_the_same_metric_again_is_the_same_and_another_of_its_name_is_refused() -> None:
    assert counter("x", "h", ["a"]) is counter("x_total", "h", ["a"])
    for make in (
        lambda: gauge("x", "h", ["a"]),
        lambda: counter("x", "h", ["b"]),
        lambda: counter("x", "other", ["a"]),
    ):
        with pytest.raises(ValueError, match="metric x: there is another of that name, a counter"):
            make()
    histogram("y", "h")
    with pytest.raises(ValueError, match="the histogram y has the name y_count as well"):
        gauge("y_count", "h")


def test_an_uncountable_value_is_refused() -> None:
    cut, spread = counter("cut", "h", ["a"]), histogram("s", "h")
    for amount in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a counter goes up by 0 or more"):
            cut.labels("x").inc(amount)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="wants a finite number"):
            spread.observe(value)
    with pytest.raises(ValueError, match=r"say labels\(a\) first"):
        cut.inc()
    with pytest.raises(ValueError, match="2 values for the labels a"):
        cut.labels("x", "y")
    with pytest.raises(ValueError, match="its labels are a"):
        cut.labels(b="y")
    with pytest.raises(ValueError, match="has no labels"):
        spread.labels()
    size = gauge("g", "h", ["a"])
    with pytest.raises(ValueError, match=r"say labels\(a\) first"):
        size.set(1)


def test_a_long_label_counts_by_its_beginning(book: Book) -> None:
    cut = counter("cut", "h", ["a"])
    for end in "xy":
        cut.labels("a" * MOST_LABEL_CHARACTERS + end).inc()
    own = block()
    book.open(own, 0, set())
    assert counted(own) == {("cut", "a" * MOST_LABEL_CHARACTERS): (2.0,)}


def test_a_worker_goes_on_where_the_one_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    own = block()
    for rounds in (1, 2):
        book = Book()
        monkeypatch.setattr("ringbatch.engine.models.model_metrics.BOOK", book)
        cut, size = counter("cut", "h", ["a"]), gauge("size", "h")
        cut.labels("x").inc()
        if rounds == 1:
            size.set(9)
        book.open(own, 5, set())
        cut.labels("x").inc(2)
        if rounds == 1:
            cut.labels("gone").inc()
    # What it does not count, the one before it did; a gauge is of the process that is there.
    assert counted(own) == {("cut", "x"): (6.0,), ("cut", "gone"): (1.0,), ("size",): (0.0,)}


def of_another_process(monkeypatch: pytest.MonkeyPatch) -> Book:
    """The book of a worker that takes the place of one that has ended."""
    book = Book()
    monkeypatch.setattr("ringbatch.engine.models.model_metrics.BOOK", book)
    return book


def test_a_workers_counts_go_on_through_its_replacements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = block()
    for _ in range(3):
        book = of_another_process(monkeypatch)
        cut, spread = counter("cut", "h", ["a"]), histogram("seconds", "h", ["a"], buckets=[1])
        book.open(own, 5, set())
        counter("plain", "h").inc()
        cut.labels("x").inc(10)
        spread.labels("x").observe(2)
    assert sorted((one.metric.name, one.labels, one.values) for one in own.read()) == [
        ("cut", ("x",), (30.0,)),
        ("plain", (), (3.0,)),
        ("seconds", ("x",), (0.0, 3.0, 6.0)),
    ]


def test_all_that_a_model_had_counted_is_kept_while_it_has_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = block()
    for _ in range(3):
        book = of_another_process(monkeypatch)
        book.open(own, 5, set())
        cut = counter("cut", "h", ["a"])
        for number in range(400):
            cut.labels(number).inc()
    found = counted(own)
    assert len(found) == 400
    assert set(found.values()) == {(3.0,)}


def test_a_block_keeps_other_living_models_metrics_and_drops_those_of_gone_ones(
    book: Book,
) -> None:
    own = block()
    kept, gone = (Metric("counter", "theirs", "h", account) for account in (8, 9))
    own.begin([Series(kept, (), (3.0,)), Series(gone, (), (4.0,))])
    counter("mine", "h").inc()
    book.open(own, 5, {8})
    assert {(one.metric.name, one.metric.account): one.values for one in own.read()} == {
        ("mine", 5): (1.0,),
        ("theirs", 8): (3.0,),
    }


def test_series_beyond_the_room_are_not_counted_and_reported_once(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    own = block()
    book.open(own, 0, set())
    cut = counter("cut", "h", ["a"])
    for number in range(3000):
        cut.labels(number).inc()
    found = counted(own)
    assert 300 < len(found) <= 512
    assert set(found.values()) == {(1.0,)}
    assert [line for line in caplog.messages if "no room for more series" in line] == [
        caplog.messages[-1]
    ]
    cut.labels(0).inc()
    assert counted(own)["cut", "0"] == (2.0,)


def test_a_metric_without_a_series_is_there_for_others_to_see(book: Book) -> None:
    counter("cut", "h", ["a"])
    own = block()
    book.open(own, 7, set())
    gauge("late", "h", ["a"])
    assert [(one.name, one.account) for one in own.metrics()] == [("cut", 7), ("late", 7)]
    assert own.read() == []


def test_a_forked_child_counts_nothing(book: Book) -> None:
    own = block()
    book.open(own, 0, set())
    cut = counter("cut", "h")
    cut.inc()
    book.forked()
    cut.inc()
    assert counted(own) == {("cut",): (1.0,)}


def test_the_book_of_a_process_hears_of_forks() -> None:
    before = BOOK.lock
    child = os.fork()
    if child == 0:
        os._exit(0 if BOOK.lock is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("kind", "name", "clashes"),
    [
        ("counter", "x", False),
        ("gauge", "x", True),
        ("gauge", "x_total", True),
        ("gauge", "other", False),
        ("histogram", "x", True),
    ],
)
def test_names_that_two_models_mean_differently_clash(
    book: Book, kind: str, name: str, clashes: bool
) -> None:
    counter("x", "h")
    words = book.clash([("theirs", Metric(kind, name, "h", 3))])
    assert bool(words) == clashes
    assert not clashes or f"the {kind} {name} of the model 'theirs'" in words


def test_within_keeps_the_first_that_fit() -> None:
    series = [Series(Metric("counter", f"m{n}", "h", 0), (), (1.0,)) for n in range(5)]
    assert within(series, 3, 10_000) == series[:3]
    assert within(series, 10, 150) == series[:2]


def test_the_kinds_are_those_of_the_public_names() -> None:
    from ringbatch.engine import metrics

    assert (metrics.Counter, metrics.Gauge, metrics.Histogram) == (Counter, Gauge, Histogram)


def test_counts_of_a_warm_up_are_dropped_but_for_gauges(book: Book) -> None:
    cut = counter("texts_cut_total", "Texts cut.", labels=["lang"])
    size = gauge("cache_size", "Texts kept.")
    spread = histogram("seconds", "Time.", buckets=[1, 2])
    own = block()
    book.open(own, 5, set())
    cut.labels("de").inc()
    with book.unseen():
        cut.labels("de").inc()
        cut.labels("fr").inc()
        spread.observe(1)
        size.set(4)
        assert counted(own)["texts_cut", "de"] == (1.0,), "nor does a scrape see it meanwhile"
    cut.labels("fr").inc(2)
    assert counted(own) == {
        ("texts_cut", "de"): (1.0,),
        ("texts_cut", "fr"): (2.0,),
        ("cache_size",): (4.0,),
        ("seconds",): (0.0, 0.0, 0.0, 0.0),
    }
