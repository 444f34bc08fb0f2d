"""The page of `ringbatch top`: what it says between two samples, and how it fits."""

from dataclasses import replace

import pytest
from samples import CLASSES, FIRST, LATER_CLASSES, MODEL, SECOND, WORKER, S, slow, times

from ringbatch.engine.report.frame import page, percentile
from ringbatch.shm.snapshot.sample import Sample
from ringbatch.shm.time_buckets import BOUNDS_S


def shown(before: Sample | None, now: Sample, width: int = 100, height: int | None = None) -> str:
    return "\n".join(line.text for line in page(before, now, width, height))


def test_events_of_the_interval_are_shown() -> None:
    assert (
        shown(FIRST, SECOND)
        == """\
ringbatch: prod, process 7, ready for 92 s, 103 requests/s

MODEL   REQ/S     P50     P99  FLIGHT  WAIT  OLDEST  EXPECT  BATCH  WORKERS
digits    103  <400us  <3.2ms      12     7   250ms    31ms   50.0    1/2+1
digits: closed full 75%, idle 25%; ended 200: 200, 503: 4, 500: 2; failed batches 3

WORKER  OF      BATCH/S  INST/S  BUSY  STATE
     4  digits      2.0     100   50%  ready, process 4711

workers died 1, hung 0"""
    )


def test_without_an_earlier_sample_there_are_no_rates_and_all_that_was_counted() -> None:
    text = shown(None, FIRST)
    assert "ready for 90 s, - requests/s" in text
    assert "digits      -  <400us  <400us" in text
    assert "so far closed idle 75%, full 25%; so far ended 200: 100, 503: 4;" in text
    assert "digits        -       -     -  ready" in text


def test_an_interval_without_events_has_zeros_and_the_counts_so_far() -> None:
    text = shown(FIRST, replace(FIRST, at_ns=101 * S))
    assert "0 requests/s" in text
    assert "digits      0    -    -" in text
    assert "so far ended 200: 100, 503: 4" in text


def test_another_engine_of_that_name_is_not_compared_with_the_one_before() -> None:
    assert "- requests/s" in shown(FIRST, replace(SECOND, segment="/ringbatch.prod.8.y"))


def test_counts_that_begin_anew_give_no_negative_rate() -> None:
    text = shown(SECOND, replace(FIRST, at_ns=104 * S))
    assert "0 requests/s" in text
    assert "-1" not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ready_ns": 0}, "starting"),
        ({"stops": True}, "stopping"),
        ({"at_ns": 10 * S + 59 * S}, "ready for 59 s"),
        ({"at_ns": 10 * S + 3600 * 5 * S + 120 * S}, "ready for 5 h 2 min"),
        ({"at_ns": 10 * S + 86400 * 3 * S}, "ready for 3 days"),
    ],
)
def test_the_first_line_says_how_the_engine_is(changes: dict[str, int], words: str) -> None:
    assert words in shown(None, replace(FIRST, **changes)).splitlines()[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [1, 5, 24, 50])
def test_it_fits(width: int, height: int) -> None:
    long = replace(MODEL, title="a-model-whose-name-is-as-long-as-names-may-be-" + "x" * 60)
    many = replace(SECOND, models=(*SECOND.models, long), workers=(WORKER,) * 40)
    lines = page(FIRST, many, width, height)
    assert len(lines) <= height
    assert all(len(line.text) <= width for line in lines)
    if height < 40:
        assert lines[-1].text.startswith("... ")


def test_a_long_name_gives_way_to_the_figures() -> None:
    long = replace(MODEL, title="m" * 90)
    (row,) = (
        line.text
        for line in page(None, replace(FIRST, models=(long,)), 80)
        if line.text.startswith("mmm") and line.text.endswith("1/2+1")
    )
    assert "~" in row
    assert len(row) <= 80


@pytest.mark.parametrize(
    ("counts", "share", "text"),
    [
        (times(), 0.5, "-"),
        (times(b0=1), 0.5, "<50us"),
        (times(b0=1, b1=1), 0.5, "<50us"),
        (times(b0=1, b1=2), 0.5, "<100us"),
        (times(b0=99, b9=1), 0.99, "<50us"),
        (times(b0=98, b9=2), 0.99, "<26ms"),
        (times(b21=1), 0.5, f">{BOUNDS_S[-1]:.0f}s"),
    ],
)
def test_a_percentile_is_the_edge_of_its_bucket(
    counts: tuple[int, ...], share: float, text: str
) -> None:
    assert percentile(counts, share) == text


SLOW = replace(
    SECOND,
    slowest=(
        slow(request_id="r-1"),
        slow(
            took_ns=2_000_000,
            phases={"read": 100_000, "write": 1_900_000},
            model="",
            request_id="r-2",
        ),
    ),
)


def test_the_slowest_requests_stand_at_the_end() -> None:
    assert (
        shown(FIRST, SLOW).partition("hung 0\n\n")[2]
        == """\
SLOWEST  OF      STATUS  CAUSE  WHERE                    REQUEST
  3.5ms  digits     200  batch  run 3.0ms, queue 500us   r-1
  2.0ms  none       200  batch  write 1.9ms, read 100us  r-2"""
    )


def test_they_are_shown_as_far_as_there_is_room() -> None:
    without = len(shown(FIRST, SECOND).splitlines())
    for more, expected in ((0, []), (2, []), (3, ["r-1"]), (4, ["r-1", "r-2"])):
        text = shown(FIRST, SLOW, 100, without + more)
        assert "more lines" not in text
        assert [name for name in ("r-1", "r-2") if name in text] == expected


def test_the_classes_of_requests_have_rows_of_their_own() -> None:
    before = replace(FIRST, models=(replace(MODEL, classes=CLASSES),))
    now = replace(SECOND, models=(replace(SECOND.models[0], classes=LATER_CLASSES),))
    assert (
        shown(before, now).partition("failed batches 3\n\n")[2].partition("\n\n")[0]
        == """\
CLASS        OF      REQ/S  QUEUE  SHARE  REFUSED/S
interactive  digits    100  1.0ms    25%          0
normal       digits      0      -     0%          0
bulk         digits    1.0   5.0s    75%        2.0"""
    )


def test_without_an_earlier_sample_classes_have_the_counts_so_far() -> None:
    text = shown(None, replace(FIRST, models=(replace(MODEL, classes=CLASSES),)))
    assert "interactive  digits      -   20ms    50%          -" in text


def test_parts_have_a_column_where_a_model_answers_in_parts() -> None:
    parted = replace(MODEL, title="texts", in_parts=True, firsts=times(b2=5), gaps=times(b1=7))
    later = replace(parted, firsts=times(b2=25), gaps=times(b1=87))
    before = replace(FIRST, models=(MODEL, parted))
    lines = shown(before, replace(SECOND, models=(*SECOND.models, later))).splitlines()
    assert lines[2].split()[:4] == ["MODEL", "REQ/S", "PARTS/S", "P50"]
    assert lines[3].split()[:3] == ["digits", "103", "-"]
    assert lines[4].split()[:3] == ["texts", "0", "50"]
    assert "PARTS/S" not in shown(FIRST, SECOND)
    assert shown(None, before).splitlines()[4].split()[:3] == ["texts", "-", "-"]
