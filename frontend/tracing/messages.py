"""Spans as OTLP's messages. Only the extra `otel` brings the package that this module imports."""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ringbatch.frontend.tracing.spans import Attributes, Span, Value
from ringbatch.frontend.tracing.wire import field, span_field

_FIRST: Final = b"\x0a"
_SECOND: Final = b"\x12"
"""Tags of the outer messages: the resource or scope, and the messages below it."""


class Encoder:
    """Makes messages of spans.

    Args:
        resource: attributes of this engine, sent with every message.
        version: of ringbatch.
    """

    def __init__(self, resource: Attributes, version: str) -> None:
        about = Resource(attributes=_pairs(resource))
        scope = InstrumentationScope(name="ringbatch", version=version)
        self._resource = field(_FIRST, about.SerializeToString())
        self._scope = field(_FIRST, scope.SerializeToString())

    def encode(self, spans: Iterable[Span], epoch_ns: int) -> bytes:
        """Return a request to the collector.

        Args:
            spans: in it.
            epoch_ns: when the monotonic clock began, in nanoseconds since 1970.
        """
        of_scope = self._scope + b"".join([span_field(span, epoch_ns) for span in spans])
        return field(_FIRST, self._resource + field(_SECOND, of_scope))


def refusal(body: bytes) -> str:
    """Return a collector's reason for taking only some of the spans; empty if it has all.

    Raises:
        ValueError: its answer has another form.
    """
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError as error:
        raise ValueError("its answer is not OTLP's") from error
    if not partial.rejected_spans:
        return ""
    return f"it refused {partial.rejected_spans} spans: {partial.error_message}"


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    return AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
