"""ORCA load report: the message ``OrcaLoadReport`` as header fields carry it. Pure.

The forms are those that Envoy and gRPC read: text and JSON behind a word that names the form, and
protobuf's bytes.
"""

import struct
from base64 import b64encode
from typing import Final, Literal, NamedTuple

import orjson

Form = Literal["", "text", "json", "binary"]
"""Form of a report; empty for none."""

ASK_HEADER: Final = "endpoint-load-metrics-format"
"""Header of a request that asks for a report, with the name of its form."""
HEADER: Final = "endpoint-load-metrics"
"""Header of an answer over HTTP that holds the report."""
TRAILER: Final = "endpoint-load-metrics-bin"
"""Behind an answer over gRPC."""
_FORMS: Final[dict[bytes, Form]] = {
    b"text": "text",
    b"json": "json",
    b"bin": "binary",
    b"binary": "binary",
}
_RPS, _EPS, _NAMED, _UTILIZATION = 6, 7, 8, 9
"""Numbers of fields of the message."""
_DOUBLE, _BYTES = 1, 2
"""Kinds of fields on the wire."""


class Report(NamedTuple):
    """Load report of an engine.

    Attributes:
        application_utilization: the demand as a share of the highest rate in full batches, at
            recent batch times; beyond 1 if more comes than it can answer.
        rps_fractional: requests that ended, a second.
        eps: those of them that ended with a status of 500 or more.
        answer_seconds: the expected time of a request that comes now; 0 if unknown.
        percent: its weight for HAProxy; 0 if it is to get no requests.
        slowdown: times of batches as a multiple of those in warm-up; 1 if they are not known to be
            slow.
    """

    application_utilization: float
    rps_fractional: float
    eps: float
    answer_seconds: float
    percent: float
    slowdown: float


def form_of(asked: bytes) -> Form:
    """Return the form that a request wants, by the value of its header.

    An unknown form counts as none. A prediction is worth more than a report of load, and so none is
    refused over it.
    """
    return _FORMS.get(asked.strip().lower(), "")


def encoded(report: Report, form: Form) -> bytes:
    """Return the value of the header of an answer; empty if no form is wanted."""
    if form == "text":
        named = [f"named_metrics.{name}={value!r}" for name, value in _named(report)]
        own = [f"{name}={value!r}" for name, value in _own(report)]
        return f"TEXT {', '.join([*own, *named])}".encode()
    if form == "json":
        fields = dict(_own(report)) | {"named_metrics": dict(_named(report))}
        return b"JSON " + orjson.dumps(fields)
    if form == "binary":
        return b"BIN " + b64encode(message(report))
    return b""


def message(report: Report) -> bytes:
    """Return the bytes of the message."""
    fields = [
        _double(_RPS, report.rps_fractional),
        _double(_EPS, report.eps),
        *(_delimited(_NAMED, _entry(name, value)) for name, value in _named(report)),
        _double(_UTILIZATION, report.application_utilization),
    ]
    return b"".join(fields)


def _own(report: Report) -> list[tuple[str, float]]:
    """Return the report's values that are fields of the ORCA message itself, by name."""
    return [(name, getattr(report, name)) for name in Report._fields[:3]]


def _named(report: Report) -> list[tuple[str, float]]:
    """Return the report's values that go into the message's map, under names of ours."""
    return [(name, getattr(report, name)) for name in Report._fields[3:]]


def _entry(name: str, value: float) -> bytes:
    """Return an entry of a protobuf map, encoded as the message that it is on the wire."""
    return _delimited(1, name.encode()) + _double(2, value)


def _double(number: int, value: float) -> bytes:
    return struct.pack("<Bd", number << 3 | _DOUBLE, value)


def _delimited(number: int, data: bytes) -> bytes:
    return struct.pack("BB", number << 3 | _BYTES, len(data)) + data
