"""Load reports in each of their forms, read as Envoy and gRPC read them."""

import json
from base64 import b64decode
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.load.orca_report import Form, Report, encoded, form_of, message

REPORT: Final = Report(0.25, 1234.5, 0.5, 0.0625, 17.0, 2.0)
FIELDS: Final = {"rps_fractional": 6, "eps": 7, "application_utilization": 9}
"""Fields of xds.data.orca.v3.OrcaLoadReport; the map named_metrics is 8."""


def parsed(data: bytes) -> Any:
    """The message, by protobuf's own reader."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="t", syntax="proto3")
    report_type = file.message_type.add(name="OrcaLoadReport")
    for name, number in FIELDS.items():
        report_type.field.add(name=name, number=number, type=kinds.TYPE_DOUBLE, label=1)
    entry = report_type.nested_type.add(name="NamedMetricsEntry")
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_DOUBLE, label=1)
    entry.options.map_entry = True
    report_type.field.add(
        name="named_metrics",
        number=8,
        type=kinds.TYPE_MESSAGE,
        label=3,
        type_name=".t.OrcaLoadReport.NamedMetricsEntry",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.OrcaLoadReport"))
    return kind.FromString(data)


def of_text(value: bytes) -> dict[str, float]:
    """Parse the text format as Envoy does."""
    word, _, pairs = value.decode().partition(" ")
    assert word == "TEXT"
    return {name: float(number) for name, number in (p.split("=") for p in pairs.split(", "))}


def test_all_forms_say_the_same() -> None:
    named = {"answer_seconds": 0.0625, "percent": 17.0, "slowdown": 2.0}
    own = {"application_utilization": 0.25, "rps_fractional": 1234.5, "eps": 0.5}
    text = own | {f"named_metrics.{name}": value for name, value in named.items()}
    assert of_text(encoded(REPORT, "text")) == text
    word, _, data = encoded(REPORT, "json").partition(b" ")
    assert (word, json.loads(data)) == (b"JSON", own | {"named_metrics": named})
    word, _, data = encoded(REPORT, "binary").partition(b" ")
    assert (word, b64decode(data)) == (b"BIN", message(REPORT))
    decoded = parsed(message(REPORT))
    assert {name: getattr(decoded, name) for name in FIELDS} == own
    assert dict(decoded.named_metrics) == named
    assert encoded(REPORT, "") == b""


figures = st.floats(0, 1e12)


@given(st.builds(Report, *[figures] * 6))
def test_any_figures_can_be_read(report: Report) -> None:
    decoded = parsed(message(report))
    assert decoded.rps_fractional == report.rps_fractional
    assert decoded.named_metrics["answer_seconds"] == report.answer_seconds
    assert of_text(encoded(report, "text"))["eps"] == report.eps
    for form in ("text", "json", "binary"):
        assert encoded(report, form).isascii()


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        (b"text", "text"),
        (b"TEXT", "text"),
        (b" Json ", "json"),
        (b"bin", "binary"),
        (b"BINARY", "binary"),
        (b"", ""),
        (b"xml", ""),
        (b"text, json", ""),
        (b"text\0", ""),
        (b"\xff\xfe", ""),
        (b"t" * 10_000, ""),
    ],
)
def test_a_form_that_there_is_not_is_as_good_as_none(asked: bytes, form: Form) -> None:
    assert form_of(asked) == form
