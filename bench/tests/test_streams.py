"""Reading of events, and limits of the measurement of answers in parts."""

import json
import time
from pathlib import Path

import pytest
from report.record import Report
from streams import (
    EVENTS,
    MOST_GAP_MS,
    PARTS,
    WHOLE,
    Reader,
    Run,
    Times,
    WrongAnswer,
    hold_steps_to_limit,
    hold_to_limits,
    message,
    model_us,
    percentile,
)

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FIVE = 5


def answer(numbers: list[float]) -> bytes:
    return json.dumps({"message": "", "predictions": [numbers]}, separators=(",", ":")).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def streamed(begin: int = FIVE) -> list[bytes]:
    """An answer in parts, a chunk for each."""
    parts = [b"data: %b\n\n" % answer([float(begin + step)]) for step in range(PARTS)]
    return [HEAD, *map(chunk, parts), chunk(b"")]


def test_each_part_has_its_time() -> None:
    times = Times()
    reader = Reader(EVENTS, FIVE, times)
    reader.sent(10.0)
    ends = [reader.take(piece, 10.0 + n / 1e3) for n, piece in enumerate(streamed())]
    assert ends == [False] * (PARTS + 1) + [True]
    assert times.first == pytest.approx([1.0])
    assert times.gaps == pytest.approx([1.0] * (PARTS - 1))
    assert (times.answers, times.parts) == (1, PARTS)


def test_bytes_may_come_one_by_one_and_a_second_answer_behind_the_first() -> None:
    times = Times()
    reader = Reader(EVENTS, FIVE, times)
    for number in (1, 2):
        reader.sent(0.0)
        *before, last = [reader.take(bytes([byte]), 0.0) for piece in streamed() for byte in piece]
        assert last
        assert not any(before)
        assert (times.answers, times.parts) == (number, number * PARTS)


def test_one_answer_has_all_parts() -> None:
    times = Times()
    reader = Reader(WHOLE, FIVE, times)
    reader.sent(1.0)
    body = answer([float(FIVE + step) for step in range(PARTS)])
    assert not reader.take(HEAD + body[:30], 1.04)
    assert reader.take(body[30:], 1.05)
    assert times.first == pytest.approx([50.0])
    assert (times.answers, times.parts, times.gaps) == (1, PARTS, [])


@pytest.mark.parametrize(
    "pieces",
    [
        streamed(FIVE + 1),
        [*streamed()[:-2], streamed()[-1]],
        [HEAD, chunk(b'data: {"error":"no"}\n\n')],
        [b"HTTP/1.1 503 No\r\n\r\n{}"],
    ],
    ids=["others", "one missing", "an error", "a refusal"],
)
def test_a_wrong_answer_ends_the_measurement(pieces: list[bytes]) -> None:
    reader = Reader(EVENTS, FIVE, Times())
    reader.sent(0.0)
    with pytest.raises(WrongAnswer):
        [reader.take(piece, 0.0) for piece in pieces]


def test_only_one_of_the_ways_asks_for_events() -> None:
    assert [b"text/event-stream" in message(way, 1) for way in (EVENTS, WHOLE)] == [True, False]


def test_percentiles_are_of_all_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.99) == 0.0


def test_model_time_is_of_its_own_step_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent_s = [5.0]
    monkeypatch.setattr(time, "process_time", lambda: spent_s[0])
    monkeypatch.setattr(time, "spent_s", spent_s, raising=False)
    file = tmp_path / "model.py"
    file.write_text(
        "import time\n\n\ndef begin(x):\n    time.spent_s[0] += 1\n    return [*x]\n\n\n"
        "def step(states):\n    time.spent_s[0] += 1e-4 * len(states)\n"
    )
    assert model_us(file, 4) == pytest.approx(100)


@pytest.mark.parametrize(("cpu_us", "met"), [(17.5, True), (18.5, False)])
def test_costly_steps_miss_the_limit(cpu_us: float, met: bool) -> None:
    report = Report("streams", {})
    run = Run(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, cpu_us)
    hold_steps_to_limit(report, 32, 1.0, [run])
    assert [limit.met for limit in report.limits] == [met]


@pytest.mark.parametrize(
    ("gap_ms", "step_ms", "met"),
    [
        (MOST_GAP_MS + 2, 2.0, True),
        (MOST_GAP_MS + 2, 1.0, False),
        (MOST_GAP_MS + 49, 50.0, True),
    ],
)
def test_long_gaps_miss_the_limit(gap_ms: float, step_ms: float, met: bool) -> None:
    report = Report("streams", {})
    run = Run(1.0, 1.0, 1.0, 1.0, 1.0, gap_ms, gap_ms, 1.0)
    hold_to_limits(report, 32, step_ms, [run])
    assert [limit.met for limit in report.limits] == [met]
