"""Log lines: one form for every process."""

import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.host.log_lines import (
    FORM_VARIABLE,
    Form,
    LineFormatter,
    formatter,
    is_journal,
    priority,
)
from ringbatch.shm.host.logfmt import as_words


def record(
    message: str,
    *arguments: object,
    level: int = logging.INFO,
    exc_info: Any = None,
) -> Any:
    made = logging.LogRecord("ringbatch.x", level, __file__, 1, message, arguments, exc_info)
    made.created, made.process = 86400.25, 4711
    return made


def caught() -> Any:
    try:
        raise ValueError("as\nasked")
    except ValueError:
        return sys.exc_info()


def test_a_line_of_text_has_time_role_level_and_message() -> None:
    line = LineFormatter("worker m 0").format(record("took %d s", 5, level=logging.WARNING))
    assert line.startswith("1970-01-0")
    assert line.endswith(f" ringbatch worker m 0 [{os.getpid()}] WARNING took 5 s")


def test_a_line_of_json_says_the_same() -> None:
    line = LineFormatter("collector", "json").format(record("took %d s", 5))
    assert json.loads(line) == {
        "time": "1970-01-02T00:00:00.250+00:00",
        "level": "info",
        "role": "collector",
        "pid": os.getpid(),
        "message": "took 5 s",
    }


@pytest.mark.parametrize("name", ["texts.cleaner", "urllib3", "ringbatchy"])
def test_a_logger_that_is_not_the_servers_keeps_its_name(name: str) -> None:
    logged = record("took %d s", 5)
    logged.name = name
    assert LineFormatter("worker").format(logged).endswith(f" INFO {name}: took 5 s")
    assert json.loads(LineFormatter("worker", "json").format(logged))["logger"] == name


@pytest.mark.parametrize("name", ["root", "gunicorn.error", "uvicorn.error", "ringbatch.worker"])
def test_the_servers_own_lines_name_no_logger(name: str) -> None:
    logged = record("took %d s", 5)
    logged.name = name
    assert LineFormatter("worker").format(logged).endswith("] INFO took 5 s")
    assert "logger" not in json.loads(LineFormatter("worker", "json").format(logged))


def test_a_traceback_is_a_field_of_its_own_in_json_and_one_line() -> None:
    line = LineFormatter("worker", "json").format(record("raised", exc_info=caught()))
    assert "\n" not in line
    assert json.loads(line)["traceback"].endswith("ValueError: as\nasked")


def test_a_traceback_in_text_stands_below_its_line() -> None:
    first, *below = LineFormatter("worker").format(record("raised", exc_info=caught())).split("\n")
    assert first.endswith("INFO raised")
    assert below[0].startswith("  Traceback")
    assert below[-2:] == ["  ValueError: as", "  asked"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_a_text_that_fills_the_log_the_middle_is_left_out(form: Form) -> None:
    """A model may put a whole request into an exception, or log it."""
    request = "begin" + "x" * 10_000_000 + "end"
    try:
        raise ValueError(request)
    except ValueError:
        raised = sys.exc_info()
    for logged in (record(request), record("raised", exc_info=raised)):
        line = LineFormatter("worker", form).format(logged)
        assert len(line) < 70_000
        words = r"beginx{50000,} \.\.\. \d+ characters are left out \.\.\. x{4000,}end"
        assert re.search(words, line)


@given(st.text(), st.text())
def test_no_text_of_a_client_can_pass_for_a_line_of_the_log(message: str, raised: str) -> None:
    """Neither in a message nor in what was raised over it."""
    forged = "\n1970-01-02 00:00:00 ringbatch frontend [1] ERROR forged"
    try:
        raise ValueError(raised + forged)
    except ValueError:
        log_record = record("%s failed", message + forged, exc_info=sys.exc_info())
    text = LineFormatter("f").format(log_record)
    first, *below = text.splitlines()
    assert first.endswith("\\x0a1970-01-02 00:00:00 ringbatch frontend [1] ERROR forged failed")
    assert all(line.startswith("  ") for line in below)


def test_a_last_line_feed_of_a_message_is_not_shown() -> None:
    assert LineFormatter("f").format(record("failed\n")).endswith(" INFO failed")


def test_for_the_journal_each_line_begins_with_the_priority() -> None:
    text = LineFormatter("worker", journal=True).format(
        record("raised", level=logging.ERROR, exc_info=caught())
    )
    assert all(line.startswith("<3>") for line in text.split("\n"))
    assert LineFormatter("w", "json", journal=True).format(record("x")).startswith("<6>{")


@pytest.mark.parametrize(
    ("level", "number"),
    [("CRITICAL", 2), ("ERROR", 3), ("WARNING", 4), ("INFO", 6), ("DEBUG", 7)],
)
def test_the_priorities_are_those_of_syslog(level: str, number: int) -> None:
    assert priority(getattr(logging, level)) == number


def test_fields_stand_behind_the_message_and_are_members_in_json() -> None:
    fields = {"status": 500, "ms": 1.25, "id": "a"}
    record_fields = 86400.25, logging.INFO, "request", fields
    assert LineFormatter("f").line(*record_fields).endswith("INFO request status=500 ms=1.250 id=a")
    assert fields.items() <= json.loads(LineFormatter("f", "json").line(*record_fields)).items()


@given(st.text(), st.dictionaries(st.sampled_from("abc"), st.text()))
def test_no_text_of_a_client_ends_a_line_or_moves_the_cursor(
    text: str, fields: dict[str, Any]
) -> None:
    for form in ("text", "json"):
        lines = LineFormatter("f", form)
        for line in (lines.format(record("%s", text)), lines.line(0, logging.INFO, "r", fields)):
            assert len(line.splitlines()) == 1
            assert not any((ord(c) < 32 and c != "\t") or 127 <= ord(c) < 160 for c in line)
            line.encode("utf-8", "surrogatepass")


@given(st.text())
def test_a_value_cannot_pass_for_a_field_of_its_own(value: str) -> None:
    words = as_words({"id": value})
    shown = words.removeprefix("id=")
    if shown.startswith('"'):
        assert json.loads(shown) == value
    else:
        assert shown == value
        assert not {" ", "=", '"'} & {*shown}
        assert shown.isascii()


def test_the_journal_is_recognised_by_the_device_and_inode_of_the_descriptor(
    tmp_path: Path,
) -> None:
    with open(tmp_path / "log", "w") as file:
        found = os.fstat(file.fileno())
        right = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(right, file.fileno())
        assert not is_journal({"JOURNAL_STREAM": f"{found.st_dev}:1{found.st_ino}"}, file.fileno())
        assert not is_journal({}, file.fileno())
    assert not is_journal(right, file.fileno() if not file.closed else 1 << 20)


def test_the_form_is_that_of_the_environment(tmp_path: Path) -> None:
    for form, starts in (("json", "{"), ("text", "1970"), ("", "1970")):
        with open(tmp_path / "log", "w") as file:
            made = formatter("f", {FORM_VARIABLE: form}, file.fileno())
        assert made.format(record("x")).startswith(starts)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("journal", [False, True])
@given(
    times_s=st.lists(st.floats(0, 4e9), min_size=2),
    level=st.sampled_from([logging.INFO, logging.WARNING]),
)
def test_a_line_made_without_a_record_is_the_one_that_logging_makes(
    form: Form, journal: bool, times_s: list[float], level: int
) -> None:
    lines = LineFormatter("frontend", form, journal=journal)
    made = record("request answered", level=level)
    made.process = os.getpid()
    # Each twice, because a second is written once.
    for time_s in [time_s for time_s in times_s for _ in range(2)]:
        made.created, made.msecs = time_s, int(time_s % 1 * 1000)
        assert lines.line(time_s, level, "request answered", {}) == lines.format(made)
