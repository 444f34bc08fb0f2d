"""The demo's pure parts: what it draws, how it counts, what it takes for an answer."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringbatch.engine.demo import client as demo_client
from ringbatch.engine.demo import demo
from ringbatch.engine.demo import report as demo_report
from ringbatch.engine.demo.client import Answer, Head
from ringbatch.engine.demo.report import ASCII, BLOCKS, Progress, Sample

SCORES = [0.0, 0.25, 0.5, 0.125, 0.125, 0.0, 0.0, 0.0, 0.0, 0.0]


def body(**changes: object) -> bytes:
    return json.dumps({"message": "", "batchId": "b-1", "predictions": [SCORES]} | changes).encode()


def image(*inked: int) -> NDArray[np.uint8]:
    pixels = np.zeros(64, np.uint8)
    pixels[list(inked)] = 16
    return pixels


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.mark.parametrize(
    ("encoding", "ink"),
    [
        ("utf-8", BLOCKS),
        ("UTF-8", BLOCKS),
        ("cp437", BLOCKS),
        ("ascii", ASCII),
        ("latin-1", ASCII),
        ("no-such-encoding", ASCII),
        (None, ASCII),
    ],
)
def test_blocks_are_used_where_the_encoding_has_them(
    encoding: str | None, ink: demo_report.Ink
) -> None:
    assert demo_report.ink_for(encoding) == ink


def test_a_picture_is_eight_lines_from_the_top_two_characters_a_pixel() -> None:
    lines = demo_report.drawn(image(0, 15, 63), ASCII)
    assert lines[0] == "@@" + " " * 14
    assert lines[1] == " " * 14 + "@@"
    assert lines[2:7] == [" " * 16] * 5
    assert lines[7] == " " * 14 + "@@"


def test_shades_go_from_paper_to_full_ink() -> None:
    row = np.repeat(np.array([0, 4, 8, 12, 16, 0, 0, 0], np.uint8)[np.newaxis], 8, axis=0)
    assert demo_report.drawn(row.ravel(), BLOCKS)[3] == "  ░░▒▒▓▓██      "


def test_the_gallery_puts_pictures_side_by_side_above_their_answers() -> None:
    lines = demo_report.gallery(
        [Sample(image(0), 3, 0.999, 3), Sample(image(7), 5, 0.5071, 9)], ASCII
    )
    assert lines[0] == "@@" + " " * (14 + 3 + 14) + "@@"
    assert [line.split() for line in lines[-2:]] == [
        ["answer", "3", "99.9%", "answer", "5", "50.7%"],
        ["truth", "3", "right", "truth", "9", "WRONG"],
    ]
    assert all(line == line.rstrip() and len(line) <= 35 for line in lines)


def test_four_pictures_fit_a_terminal_of_eighty_columns() -> None:
    lines = demo_report.gallery([Sample(image(*range(64)), 1, 1.0, 1)] * demo.SHOWN_DIGITS, ASCII)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("answers", "truths", "count", "places"),
    [
        pytest.param([3, 1, 2], [3, 1, 2], 4, [1, 2, 0], id="in-the-order-of-the-digits"),
        pytest.param([1, 1, 2], [1, 1, 2], 4, [0, 2], id="no-digit-twice"),
        pytest.param([0, 1, 2, 3], [0, 1, 2, 3], 2, [0, 1], id="no-more-than-asked"),
        pytest.param([0, 1, 8, 3], [0, 1, 2, 3], 3, [0, 1, 2], id="the-mistake-is-last"),
        pytest.param([0, 7, 8, 3], [0, 1, 2, 3], 9, [0, 2, 3, 1], id="one-mistake-is-enough"),
        pytest.param([8], [3], 1, [0], id="nothing-but-a-mistake"),
    ],
)
def test_chosen(answers: list[int], truths: list[int], count: int, places: list[int]) -> None:
    assert demo_report.chosen(answers, truths, count) == places


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [
        ([7], 0.5, 7),
        ([1, 2], 0.5, 1),
        ([1, 2, 3], 0.5, 2),
        (list(range(1, 101)), 0.07, 7),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 1.0, 100),
        (list(range(1, 101)), 0.0, 1),
        (list(range(1, 1001)), 0.9, 900),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[int], share: float, value: int) -> None:
    assert demo_report.percentile(values, share) == value


@given(st.lists(st.integers(), min_size=1).map(sorted), st.integers(0, 100))
def test_a_percentile_is_the_first_value_that_enough_do_not_exceed(
    values: list[int], percent: int
) -> None:
    found = demo_report.percentile(values, percent / 100)
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < max(1, percent * len(values))


def test_latencies_are_in_milliseconds_in_any_order() -> None:
    values_ns = [number * 1_000_000 for number in range(100, 0, -1)]
    assert demo_report.latencies(values_ns) == (
        "p50 50.00 ms   p90 90.00 ms   p99 99.00 ms   max 100.00 ms"
    )


def test_bars_are_in_proportion_and_leave_out_zeros() -> None:
    assert demo_report.bars({"1": 1, "2": 0, "3-4": 600, "17-32": 1200}, ASCII) == [
        "    1      1  #",
        "  3-4    600  " + "#" * 20,
        "17-32  1,200  " + "#" * 40,
    ]


def test_no_counts_no_bars() -> None:
    assert demo_report.bars({}, ASCII) == []
    assert demo_report.bars({"1": 0}, ASCII) == []


def test_reasons_come_the_most_frequent_first() -> None:
    counts = {"full": 12, "latency": 0, "idle": 1512, "drain": 1}
    assert demo_report.reasons(counts) == "idle 1,512, full 12, drain 1"


@pytest.mark.parametrize(
    ("done", "elapsed_ns", "line"),
    [
        (0, 0, "." * 40 + "     0 of 2,000 answers          0/s"),
        (500, 250_000_000, "#" * 10 + "." * 30 + "   500 of 2,000 answers      2,000/s"),
        (1999, 1_000_000_000, "#" * 39 + "." + " 1,999 of 2,000 answers      1,999/s"),
        (2000, 1_000_000_000, "#" * 40 + " 2,000 of 2,000 answers      2,000/s"),
    ],
)
def test_progress_line(done: int, elapsed_ns: int, line: str) -> None:
    assert demo_report.progress_line(done, 2000, elapsed_ns, ASCII) == line


@given(st.integers(1, 10**6), st.data())
def test_the_progress_line_never_changes_its_width(total: int, data: st.DataObject) -> None:
    done = data.draw(st.integers(0, total))
    first = demo_report.progress_line(0, total, 10**9, BLOCKS)
    assert len(demo_report.progress_line(done, total, 10**9, BLOCKS)) == len(first)


def test_off_a_terminal_progress_is_a_line_each_quarter() -> None:
    stream = io.StringIO()
    progress = Progress(10, stream, ASCII, Clock())
    for _ in range(10):
        progress.step()
    progress.finish()
    assert stream.getvalue().splitlines() == [f"{n} of 10 answers" for n in (3, 5, 8, 10)]


def test_on_a_terminal_progress_is_one_line_drawn_ten_times_a_second() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(1000, stream, ASCII, clock)
    for _ in range(1000):
        progress.step()
        clock.now_ns += 1_000_000
    progress.finish()
    drawn = stream.getvalue().split("\r")[1:]
    assert len(drawn) == 11
    assert "\n" not in "".join(drawn[:-1])
    assert drawn[-1] == demo_report.progress_line(1000, 1000, 10**9, ASCII) + "\n"


def test_a_request_is_one_picture_scaled_to_one() -> None:
    head, _, content = demo_client.request("digits", image(5)).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/models/digits:predict HTTP/1.1"
    assert f"Content-Length: {len(content)}" in lines
    assert json.loads(content) == {"instances": [[0.0] * 5 + [1.0] + [0.0] * 58]}


@pytest.mark.parametrize(
    ("lines", "head"),
    [
        (["HTTP/1.1 200 OK", "Content-Length: 12"], Head(200, 12, True)),
        (["HTTP/1.1 503", "content-length:0", "x: y:z"], Head(503, 0, True)),
        (
            ["HTTP/1.1 200 OK", "CONTENT-LENGTH: 1 ", "Connection: Close"],
            Head(200, 1, False),
        ),
    ],
)
def test_parse_head(lines: list[str], head: Head) -> None:
    assert demo_client.parse_head("\r\n".join([*lines, "", ""]).encode()) == head


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\r\n\r\n", "not a response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not a response"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "not a response"),
        (b"HTTP/1.1 two OK\r\nContent-Length: 1\r\n\r\n", "not a response"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "without a usable Content-Length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "usable Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "usable Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", "usable Content-Length"),
    ],
)
def test_a_head_of_another_kind_is_refused_in_words(head: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        demo_client.parse_head(head)


def test_a_good_answer_is_a_batch_id_and_ten_scores() -> None:
    prediction = demo_client.parse_prediction(body())
    assert prediction.batch_id == "b-1"
    assert prediction.scores.tolist() == SCORES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Expecting value"),
        (b"\xff", "can't decode"),
        (b"[]", "no JSON object"),
        (b"{}", "the message None"),
        (body(message="boom"), "the message 'boom'"),
        (body(batchId=""), "the batchId ''"),
        (body(batchId=7), "the batchId 7"),
        (body(predictions=None), "one row of ten"),
        (body(predictions=[]), "one row of ten"),
        (body(predictions=[SCORES, SCORES]), "one row of ten"),
        (body(predictions=[SCORES[:9]]), "one row of ten"),
        (body(predictions=[[[1], 2]]), "one row of ten"),
        (body(predictions=[{"scores": SCORES}]), "one row of ten"),
    ],
)
def test_an_answer_of_another_kind_is_refused_in_words(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        demo_client.parse_prediction(content)


def test_an_answer_that_is_its_own_is_no_problem() -> None:
    expected = np.array([SCORES], np.float32)
    scores, problems = demo.judge([Answer(200, body(), 1)], expected)
    assert problems == []
    assert np.array_equal(scores, expected)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(None, "no answer", id="missing"),
        pytest.param(Answer(503, b'{"error":"busy"}', 1), 'status 503: {"error":"busy"}', id="503"),
        pytest.param(Answer(200, b"[]", 1), "no JSON object", id="unreadable"),
        pytest.param(
            Answer(200, body(predictions=[SCORES[::-1]]), 1), "not that of its picture", id="mixed"
        ),
        pytest.param(
            Answer(200, body(predictions=[[float("nan")] * 10]), 1), "not that of", id="nan"
        ),
        pytest.param(
            Answer(200, body(predictions=[[0.0002, *SCORES[1:]]]), 1), "not that of", id="close"
        ),
    ],
)
def test_an_answer_that_is_missing_or_wrong_is_named(answer: Answer | None, words: str) -> None:
    good = Answer(200, body(), 1)
    _, problems = demo.judge([good, answer, good], np.array([SCORES] * 3, np.float32))
    assert len(problems) == 1
    assert problems[0].startswith("request 1: ")
    assert words in problems[0]


def test_an_unreadable_answer_is_nan_and_the_rest_stays_in_its_place() -> None:
    expected = np.array([SCORES] * 2, np.float32)
    scores, _ = demo.judge([None, Answer(200, body(), 1)], expected)
    assert np.isnan(scores[0]).all()
    assert np.array_equal(scores[1], expected[1])


def test_the_summary_counts_repetitions_and_omitted_lines() -> None:
    problems = ["lost"] * 3 + [f"request {number}" for number in range(demo.SHOWN_PROBLEMS + 1)]
    lines = demo.summary(problems)
    assert lines[0] == "lost (3 times)"
    assert lines[1] == "request 0"
    assert lines[-1] == "and 2 more"
    assert len(lines) == demo.SHOWN_PROBLEMS + 1


def test_nothing_wrong_is_nothing_to_summarise() -> None:
    assert demo.summary([]) == []


@pytest.mark.parametrize(("requests", "clients"), [(0, 1), (1, 0), (-1, 32)])
def test_senseless_arguments_are_refused_in_words(
    requests: int, clients: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(requests, clients) == 2
    assert f"not {requests} and {clients}" in capsys.readouterr().err


def test_the_pictures_and_the_models_answers_agree_in_number() -> None:
    pictures = demo.held_out()
    assert demo.probabilities(pictures.images).shape == (len(pictures.labels), 10)
