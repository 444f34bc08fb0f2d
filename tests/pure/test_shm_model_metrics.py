"""Metrics of model code in shared memory, written and read in one process."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.layout import WORD
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import KINDS, MOST_VALUES, Metric, OwnMetrics, Series

TEXTS = st.text(max_size=20)


def block() -> memoryview:
    return memoryview(bytearray((OwnMetricWords.SIZE + 4) * WORD))


@st.composite
def all_series(draw: st.DrawFn) -> list[Series]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(KINDS))
        bounds = sorted(draw(st.sets(st.floats(-9, 9), min_size=1, max_size=5)))
        labels = draw(st.lists(TEXTS, max_size=3))
        metric = Metric(
            kind,
            f"m{number}",
            draw(TEXTS),
            draw(st.integers(0, 1 << 40)),
            tuple(f"l{at}" for at in range(len(labels))),
            tuple(bounds) if kind == "histogram" else (),
        )
        values = draw(st.lists(st.floats(0, 1e9), min_size=metric.width, max_size=metric.width))
        found.append(Series(metric, tuple(labels), tuple(values)))
    return found


@given(all_series(), all_series())
def test_begun_and_added_series_are_read(kept: list[Series], added: list[Series]) -> None:
    memory = block()
    own = OwnMetrics(memory, 4)
    assert own.read() == []
    own.begin(kept)
    added = [one for one in added if one.metric not in {other.metric for other in kept}]
    for one in added:
        assert own.add(one.metric, one.labels, one.values) is not None
    assert OwnMetrics(memory, 4).read() == [*kept, *added]
    assert not any(memory[: 4 * WORD]), "in front of its block"


def counter(name: str = "m", *labels: str) -> Metric:
    return Metric("counter", name, "Says something.", 7, labels)


def test_a_value_is_changed_in_its_place() -> None:
    own = OwnMetrics(block(), 0)
    own.begin([])
    places = [own.add(counter("m", "l"), (label,)) for label in "ab"]
    assert places == [0, 1]
    own.values[1] += 2.5
    assert [one.values for one in own.read()] == [(0.0,), (2.5,)]


def test_until_another_copy_holds_the_old_one_is_read() -> None:
    memory = block()
    own, reader = OwnMetrics(memory, 0), OwnMetrics(memory, 0)
    old = [Series(counter(), (), (3.0,))]
    new = [Series(counter(f"n{number}"), (), (float(number),)) for number in range(5)]
    own.begin(old)
    seen = []

    def slowly() -> Iterator[Series]:
        for one in new:
            seen.append(reader.read())
            yield one
        seen.append(reader.read())

    own.begin(slowly())
    assert seen == [old] * 6
    assert reader.read() == new


def test_one_that_died_while_it_began_has_lost_nothing() -> None:
    memory = block()
    old = [Series(counter(), (), (3.0,))]
    OwnMetrics(memory, 0).begin(old)

    def dies() -> Iterator[Series]:
        yield Series(counter("other"), (), (1.0,))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OwnMetrics(memory, 0).begin(dies())
    following = OwnMetrics(memory, 0)
    assert following.read() == old
    following.begin([*old, Series(counter("third"), (), (1.0,))])
    assert len(following.read()) == 2


def test_series_without_room_are_not_begun() -> None:
    own = OwnMetrics(block(), 0)
    own.begin([])
    histogram = Metric("histogram", "h", "Says.", 1, ("l",), tuple(map(float, range(98))))
    begun = [own.add(histogram, (str(number),)) for number in range(9)]
    assert begun == [0, 100, 200, 300, 400, None, None, None, None]
    assert own.add(counter(), ()) == 500, "there is room for a smaller one"
    assert len(own.read()) == 6
    texts = OwnMetrics(block(), 0)
    texts.begin([])
    long = [texts.add(counter("m", "l"), (f"{number}" * 2000,)) for number in range(9)]
    assert long[:6] == [0, 1, 2, 3, 4, 5]
    assert long[7:] == [None, None]
    assert len(texts.read()) == sum(place is not None for place in long) < MOST_VALUES


@pytest.mark.parametrize(
    "text", [b"\xff\n", b"{}\n", b"[0, []]\n", b"[]\n", b'["counter"]\n', b"7\n", b"[[]]\n"]
)
def test_a_block_that_makes_no_sense_is_read_as_nothing(text: bytes) -> None:
    memory = block()
    own = OwnMetrics(memory, 0)
    own.begin([Series(counter(), (), (1.0,))])
    start = bytes(memory).index(b'["counter"')
    memory[start : start + len(text)] = text
    assert own.read() == []


def test_the_end_of_the_text_is_never_believed_beyond_the_block() -> None:
    memory = block()
    own = OwnMetrics(memory, 0)
    own.begin([Series(counter(), (), (1.0,))])
    words = memory.cast("Q")
    words[OwnMetricWords.COPIES + OwnMetricWords.COPY_SIZE] = 1 << 60
    assert own.read() == []
