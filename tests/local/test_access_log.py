"""Access log: its selection of requests, its lines, and a target that takes nothing."""

import json
import logging
import os
import random
import select
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from ringbatch.frontend.access.line_writer import MOST_WAITING, Writer
from ringbatch.frontend.access.log_entry import Entry, fields, line
from ringbatch.frontend.access.sampling import (
    BURST,
    FAILURES_PER_S,
    AccessSettings,
    Choice,
    Draw,
)
from ringbatch.shm.host import background
from ringbatch.shm.host.log_handler import writing_to
from ringbatch.shm.host.log_lines import LineFormatter
from ringbatch.shm.latency_breakdown import Breakdown

S = 1_000_000_000
ENTRY = Entry(
    time_s=1.5,
    request_id="a",
    trace="",
    target="",
    model="m",
    version="1",
    protocol="v2",
    status=200,
    found=Breakdown(0, 0, queue=2_000_000, run=5_000_000, batch=3, batch_rows=4, reason="full"),
    rows=4,
    batch_id="b-3",
    bytes_in=10,
    bytes_out=20,
    client="127.0.0.1:1",
)


def chosen(settings: AccessSettings, status: int, took_ns: int, *, drawn: bool) -> Any:
    return Choice(settings, 0).takes(status, took_ns, 0, lambda: 150_000_000, drawn=drawn)


@pytest.mark.parametrize(
    ("settings", "status", "took_ms", "drawn", "expected"),
    [
        (AccessSettings("off", slower_than_ms=1), 500, 9, True, False),
        (AccessSettings("failures"), 200, 9, False, False),
        (AccessSettings("failures"), 399, 9, False, False),
        (AccessSettings("failures"), 400, 9, False, True),
        (AccessSettings("failures", slower_than_ms=10), 200, 9, False, False),
        (AccessSettings("failures", slower_than_ms=10), 200, 11, False, True),
        (AccessSettings("failures"), 200, 1500, False, False),
        (AccessSettings("failures"), 200, 1501, False, True),
        (AccessSettings("all", 0.0), 200, 1501, False, True),
        (AccessSettings("off"), 200, 1501, False, False),
        (AccessSettings("failures", slower_than_ms=0), 200, 1501, False, False),
        (AccessSettings("all"), 200, 0, True, True),
        (AccessSettings("all", 0.01), 200, 0, False, False),
        (AccessSettings("all", 0.01), 503, 0, False, True),
        (AccessSettings("all", 0.0, 10), 200, 11, False, True),
    ],
)
def test_which_requests_are_logged(
    settings: AccessSettings, status: int, took_ms: int, drawn: bool, expected: bool
) -> None:
    assert chosen(settings, status, took_ms * 1_000_000, drawn=drawn) is expected


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0, 0, 0), (0.01, 80, 120), (1, 10_000, 10_000)]
)
def test_a_sample_has_its_share(share: float, least: int, most: int) -> None:
    draw = Draw(share, random.Random(1).random)
    assert least <= sum(draw.hits() for _ in range(10_000)) <= most


def test_failures_are_logged_within_a_rate() -> None:
    choice = Choice(AccessSettings("failures"), 0)

    def logged(now_ns: int) -> int:
        return [choice.takes(500, 0, now_ns, int, drawn=False) for _ in range(1000)].count(True)

    assert logged(0) == BURST
    assert logged(0) == 0
    assert choice.takes(500, 0, 0, int, drawn=False) is None
    assert logged(S) == FAILURES_PER_S
    assert logged(3600 * S) == BURST


def test_sampled_requests_count_for_no_rate() -> None:
    choice = Choice(AccessSettings("all"), 0)
    assert all(choice.takes(500, 0, 0, int, drawn=True) for _ in range(10 * BURST))


def test_an_entry_has_the_fields_that_apply_and_no_others() -> None:
    assert fields(ENTRY) == {
        "id": "a",
        "model": "m",
        "version": "1",
        "protocol": "v2",
        "status": 200,
        "ms": 7.0,
        "cause": "run",
        "queue_ms": 2.0,
        "run_ms": 5.0,
        "batch": "b-3",
        "batch_size": 4,
        "instances": 4,
        "reason": "full",
        "bytes_in": 10,
        "bytes_out": 20,
        "client": "127.0.0.1:1",
    }


def test_an_entry_has_the_copies_of_a_device_between_the_phases() -> None:
    copied = fields(ENTRY._replace(found=ENTRY.found._replace(gather=1_000_000, copy=3_000_000)))
    assert [name for name in copied if name.endswith("_ms")] == [
        *("queue_ms", "gather_ms", "copy_ms", "run_ms")
    ]
    assert (copied["copy_ms"], copied["ms"]) == (3.0, 8.0)


def test_an_entry_names_the_client_and_the_class_if_there_are_any() -> None:
    named = fields(ENTRY._replace(account="key-1f0c9a3b", priority="bulk"))
    assert {name: named[name] for name in named.keys() - fields(ENTRY).keys()} == {
        "account": "key-1f0c9a3b",
        "class": "bulk",
    }


@pytest.mark.parametrize(
    ("status", "level", "word"),
    [(200, "info", "answered"), (404, "info", "failed"), (500, "warning", "failed")],
)
def test_a_failure_of_ours_is_a_warning(status: int, level: str, word: str) -> None:
    made = json.loads(line(ENTRY._replace(status=status), LineFormatter("f", "json")))
    assert (made["level"], made["message"]) == (level, f"request {word}")
    assert datetime.fromisoformat(made["time"]).timestamp() == ENTRY.time_s


def test_a_model_with_odd_characters_stays_within_its_field() -> None:
    made = line(ENTRY._replace(model='a b="\n\x1b\x7f', request_id='="'), LineFormatter("f"))
    assert made.count("\n") == 0
    assert r'id="=\"" model="a b=\"\n\u001b\u007f" version=1' in made


class Target:
    """Target that takes lines when it may, and fails when it is to."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.asked = threading.Event()
        self.may = threading.Event()
        self.fails = False

    def write(self, piece: bytes) -> None:
        self.asked.set()
        self.may.wait()
        if self.fails:
            raise OSError("no space left")
        self.pieces.append(piece)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for piece in self.pieces for line in piece.splitlines()]


def messages(target: Target) -> list[str]:
    return [line["message"] for line in target.lines]


def test_a_blocked_target_delays_nobody_and_gets_the_count_of_missing_lines(
    wait_until: Callable[..., object],
) -> None:
    target = Target()
    writer = Writer(LineFormatter("f", "json"), target.write)
    writer.start()
    writer.put(ENTRY)
    wait_until(target.asked.is_set, "the thread has the first line")
    for _ in range(MOST_WAITING + 7):
        writer.put(ENTRY)
    assert target.lines == []
    target.may.set()
    wait_until(lambda: len(target.lines) == MOST_WAITING + 2, "all lines")
    assert messages(target)[-1] == "lines on requests that the log did not take: 7"
    writer.close()
    assert len(target.lines) == MOST_WAITING + 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_entry_that_comes_while_the_thread_goes_to_rest_wakes_it(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(LineFormatter("f"), lambda _line: None)
    news, clear = writer._news, writer._news.clear

    def beside_a_put() -> None:
        if when == "before":
            writer.put(ENTRY)
        clear()
        if when == "after":
            writer.put(ENTRY)

    monkeypatch.setattr(news, "clear", beside_a_put)
    news.set()
    writer._rest()
    assert news.is_set()


def test_the_thread_rests_once_nothing_has_come() -> None:
    writer = Writer(LineFormatter("f"), lambda _line: None)
    writer.put(ENTRY)
    writer._rest()
    assert writer._news.is_set(), "lines come"
    writer.write_waiting()
    writer._rest()
    assert not writer._news.is_set()


def test_a_failing_target_gets_the_count_of_missing_lines_later() -> None:
    target = Target()
    target.may.set()
    writer = Writer(LineFormatter("f", "json"), target.write)
    target.fails = True
    writer.put(ENTRY)
    writer.write_waiting()
    target.fails = False
    writer.put(ENTRY)
    writer.write_waiting()
    assert messages(target) == [
        "request answered",
        "lines on requests that the log did not take: 1",
    ]


def test_lines_go_out_together_as_far_as_a_pipe_takes_them_in_one_piece() -> None:
    target = Target()
    target.may.set()
    writer = Writer(LineFormatter("f", "json"), target.write)
    lengths = [1, 50, 900, 2000, 3500, 9000, 1, 1, 4000, 20]
    sent = [ENTRY._replace(request_id="x" * length) for length in lengths * 3]
    for entry in sent:
        writer.put(entry)
    writer.write_waiting()
    assert [line["id"] for line in target.lines] == [entry.request_id for entry in sent]
    assert all(piece.endswith(b"\n") for piece in target.pieces)
    assert all(len(p) <= select.PIPE_BUF or p.count(b"\n") == 1 for p in target.pieces)
    assert len(target.pieces) < len(sent)


def test_all_lines_of_a_piece_that_fails_are_missing() -> None:
    target = Target()
    target.may.set()
    writer = Writer(LineFormatter("f", "json"), target.write)
    target.fails = True
    for _ in range(3):
        writer.put(ENTRY)
    writer.write_waiting()
    target.fails = False
    writer.write_waiting()
    assert messages(target) == ["lines on requests that the log did not take: 3"]


def test_the_thread_goes_on_after_an_entry_that_no_line_can_be_made_of(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    target = Target()
    target.may.set()
    monkeypatch.setattr(background, "AFTER_ERROR_S", 0.0)
    writer = Writer(LineFormatter("f", "json"), target.write)
    none: Any = "none"
    odd = ENTRY._replace(status=none)
    for entry in (ENTRY, odd, ENTRY):
        writer.put(entry)
    writer.start()
    wait_until(lambda: len(target.lines) == 2, "the last line, and what is missing")
    writer.close()
    assert messages(target)[1] == "lines on requests that the log did not take: 2"


def test_the_count_of_omitted_failures_is_logged_once() -> None:
    target = Target()
    target.may.set()
    writer = Writer(LineFormatter("f", "json"), target.write)
    for _ in range(5):
        writer.leave_out()
    writer.write_waiting()
    writer.write_waiting()
    assert messages(target) == ["failed or slow requests too many to log each: 5"]


def test_a_descriptor_that_does_not_block_gets_whole_lines(
    wait_until: Callable[..., object],
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text = b"x" * 1_000_000
    thread = threading.Thread(target=writing_to(writing), args=(text,))
    thread.start()
    found = b""
    while len(found) < len(text):
        found += os.read(reading, 1 << 16)
    thread.join()
    assert found == text
    os.close(reading)
    os.close(writing)


def test_closing_does_not_wait_for_a_target_that_takes_nothing() -> None:
    target = Target()
    writer = Writer(LineFormatter("f", "json"), target.write)
    writer.start()
    writer.put(ENTRY)
    writer.close()
    assert target.lines == []
    target.may.set()


def test_levels_are_not_asked_for() -> None:
    """The access log has settings of its own: `log_level` has no say."""
    logging.getLogger("ringbatch.access").setLevel(logging.CRITICAL)
    target = Target()
    target.may.set()
    writer = Writer(LineFormatter("f", "json"), target.write)
    writer.put(ENTRY)
    writer.write_waiting()
    assert messages(target) == ["request answered"]
