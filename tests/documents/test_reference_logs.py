"""The tables of log fields, phases and reasons are those of the code."""

import re

from documents.pages import section, table

from ringbatch.engine.config.addresses import _OF_ONE_EVENT
from ringbatch.frontend.access.log_entry import Entry, fields
from ringbatch.frontend.payloads.events import REQUEST_TYPE, RESPONSE_TYPE
from ringbatch.shm.latency_breakdown import PHASES, Breakdown
from ringbatch.shm.slot import Reason

LOGS = "docs/reference/logs.md"
FULL = Breakdown(1, 1, 1, 1, 1, 1, 1, 1, batch=1, batch_rows=2, reason="full", attempts=1, copy=1)
ENTRY = Entry(0, "i", "t", "GET /", "m", "1", "v1", 200, FULL, 1, "b", 1, 1, "c", "a", "bulk")


def first_cells(heading: str) -> list[str]:
    return [row[0].strip("`") for row in table(LOGS, heading)]


def test_every_field_of_a_line_is_in_the_table() -> None:
    assert first_cells("field") == [*fields(ENTRY)]


def test_every_phase_is_in_the_table() -> None:
    assert sorted(first_cells("phase")) == sorted(PHASES)


def test_every_reason_is_in_the_table() -> None:
    assert first_cells("reason") == [reason.name.lower() for reason in Reason]


def test_the_example_has_fields_of_the_table() -> None:
    (line,) = re.findall(r"```text\n(request .*?)\n```", section(LOGS, "Access log"), re.DOTALL)
    named = re.findall(r"(?<!\S)(\w+)=", line)
    known = first_cells("field")
    assert named == [name for name in known if name in named]


def test_the_types_of_events_are_named() -> None:
    text = section(LOGS, "Payload log")
    assert f"`{REQUEST_TYPE}`" in text
    assert f"`{RESPONSE_TYPE}`" in text


def test_every_attribute_of_an_event_is_in_the_table() -> None:
    assert {*first_cells("attribute")} == _OF_ONE_EVENT
