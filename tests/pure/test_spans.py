"""Spans of requests and batches, from what stands in their records."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ringbatch.frontend.codec.outcome import RULES
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.frontend.tracing.messages import Encoder
from ringbatch.frontend.tracing.open_batches import HOLD_NS, MOST_OPEN, OpenBatches
from ringbatch.frontend.tracing.spans import (
    Kind,
    ModelName,
    Span,
    SpanContext,
    batch_context,
    batch_span,
    request_spans,
)
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.errors import ModelServerAnswered
from ringbatch.shm.latency_breakdown import PHASES, Breakdown
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol

FOUND = Breakdown(10, 0, 30, 40, 500, 60, 70, 0, batch=9, batch_rows=4, reason="full", attempts=1)
REQUEST = RequestRecord(
    1_000_710, 5, Protocol.V1, 200, 3, FOUND, "0af7" * 8, "an-id", "b7ad" * 4, "c0de" * 4
)
IDS = BatchIds(77)
MNIST = ModelName("mnist", "1")


def spans_of(**changes: Any) -> list[Span]:
    return request_spans(REQUEST._replace(**changes), MNIST, IDS)


def test_the_span_of_a_request_has_its_known_attributes() -> None:
    span, *_ = spans_of()
    batch_id = IDS.text(9)
    assert span == Span(
        SpanContext("0af7" * 8, "c0de" * 4),
        "b7ad" * 4,
        "predict mnist",
        Kind.SERVER,
        1_000_000,
        1_000_710,
        {
            "ringbatch.request_id": "an-id",
            "ringbatch.protocol": "v1",
            "http.response.status_code": 200,
            "http.request.method": "POST",
            "http.route": "/v1/models/{model}:predict",
            "ringbatch.model": "mnist",
            "ringbatch.model_version": "1",
            "ringbatch.instances": 3,
            "ringbatch.batch_id": batch_id,
            "ringbatch.batch_size": 4,
            "ringbatch.reason": "full",
            "ringbatch.attempts": 1,
        },
        (SpanContext(batch_id.replace("-", ""), batch_id.replace("-", "")[16:]),),
        False,
    )


def test_a_phase_that_took_time_has_a_span_below_and_they_follow_one_another() -> None:
    whole, *phases = spans_of()
    assert [span.name for span in phases] == ["read", "queue", "gather", "run", "scatter", "write"]
    assert all(span.parent == whole.context.span for span in phases)
    assert {span.context.trace for span in phases} == {whole.context.trace}
    assert phases[0].began_ns == whole.began_ns
    assert phases[-1].ended_ns == whole.ended_ns
    assert all(one.ended_ns == other.began_ns for one, other in pairwise(phases))
    assert [span.ended_ns - span.began_ns for span in phases] == [10, 30, 40, 500, 60, 70]


def test_copies_of_a_device_are_an_attribute_and_no_phase() -> None:
    copied = REQUEST._replace(found=FOUND._replace(copy=25))
    whole, *phases = request_spans(copied, ModelName("m"), IDS)
    plain, *others = request_spans(REQUEST, ModelName("m"), IDS)
    assert phases == others
    assert whole.attributes == {**plain.attributes, "ringbatch.copy_ns": 25}
    batch, before = batch_span([copied], "m", IDS), batch_span([REQUEST], "m", IDS)
    assert batch.attributes == {**before.attributes, "ringbatch.copy_ns": 25}


@given(st.integers(1, (1 << 64) - 1))
def test_the_ids_of_phases_differ_and_are_none_of_zero(span: int) -> None:
    found = Breakdown(1, 1, 1, 1, 1, 1, 1, 1)
    spans = spans_of(span=f"{span:016x}", found=found)
    ids = {each.context.span for each in spans}
    assert len(ids) == len(PHASES) + 1
    assert "0" * 16 not in ids
    assert all(len(own) == 16 for own in ids)


@pytest.mark.parametrize(
    ("changes", "model", "name"),
    [
        ({"protocol": Protocol.V1}, "m", "predict m"),
        ({"protocol": Protocol.V2}, "m", "infer m"),
        ({"protocol": Protocol.V2_BINARY}, "m", "infer m"),
        ({"protocol": Protocol.GRPC}, "m", "ModelInfer m"),
        ({"protocol": Protocol.GRPC}, "", "ModelInfer"),
        ({"protocol": Protocol.HTTP}, "", "HTTP"),
    ],
)
def test_a_span_has_the_name_of_the_call(changes: dict[str, Any], model: str, name: str) -> None:
    span, *_ = request_spans(REQUEST._replace(**changes), ModelName(model), IDS)
    assert span.name == name
    assert ("ringbatch.model" in span.attributes) == bool(model)


@pytest.mark.parametrize(
    ("protocol", "model", "route"),
    [
        (Protocol.V1, ModelName("m"), "/v1/models/{model}:predict"),
        (Protocol.V1, ModelName("m", texts=True), None),
        (Protocol.V1, ModelName(), None),
        (Protocol.V2, ModelName("m", texts=True), "/v2/models/{model}/infer"),
        (Protocol.V2, ModelName(), "/v2/models/{model}/infer"),
        (Protocol.V2_BINARY, ModelName("m"), "/v2/models/{model}/infer"),
    ],
)
def test_a_route_is_given_if_there_is_but_one(
    protocol: Protocol, model: ModelName, route: str | None
) -> None:
    """Embeddings and the like are counted with V1, and are about models of texts, or of none."""
    span, *_ = request_spans(REQUEST._replace(protocol=protocol), model, IDS)
    assert span.attributes.get("http.route") == route
    assert span.attributes["http.request.method"] == "POST"


@pytest.mark.parametrize(
    ("code", "grpc", "failed"),
    [
        (200, 0, False),
        (400, 3, False),
        (404, 5, False),
        (499, 1, False),
        (500, 13, True),
        (503, 14, True),
        (504, 4, True),
        (401, 13, False),
        (403, 13, False),
        (409, 13, False),
        (418, 13, False),
        (520, 13, True),
    ],
)
def test_a_failure_of_ours_is_an_error(code: int, grpc: int, failed: bool) -> None:
    http, *_ = spans_of(code=code)
    rpc, *_ = spans_of(code=code, protocol=Protocol.GRPC)
    assert (http.attributes["http.response.status_code"], http.failed) == (code, failed)
    assert (rpc.attributes["rpc.grpc.status_code"], rpc.failed) == (grpc, failed)
    assert grpc in {0, 1, *(rule.code for rule in RULES.values())}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 418, 422, 429, 503, 504, 520])
def test_the_status_of_a_model_server_is_that_of_its_client(status: int) -> None:
    expected_code = grpc_status(ModelServerAnswered("no", status)).code
    span, *_ = spans_of(code=status, protocol=Protocol.GRPC)
    assert span.attributes["rpc.grpc.status_code"] == expected_code


def test_a_request_without_a_batch_links_to_none() -> None:
    whole, *phases = spans_of(found=Breakdown(0, 70), code=503, parent="", instances=0)
    assert (whole.links, whole.parent, whole.failed) == ((), "", True)
    assert not {"ringbatch.batch_id", "ringbatch.instances"} & {*whole.attributes}
    assert [span.name for span in phases] == ["wait"]


def member(number: int, batch: int = 9, late_ns: int = 0) -> RequestRecord:
    found = FOUND._replace(batch=batch, write=FOUND.write + late_ns)
    span = f"{number + 1:016x}"
    return REQUEST._replace(found=found, span=span, ended_ns=REQUEST.ended_ns + late_ns)


def test_the_span_of_a_batch_lasts_from_its_take_up_and_links_to_its_members() -> None:
    members = [member(0), member(1, late_ns=900)]
    span = batch_span(members, "mnist", IDS)
    whole, *phases = request_spans(members[1], MNIST, IDS)
    by_name = {phase.name: phase for phase in phases}
    assert (span.began_ns, span.ended_ns) == (
        by_name["queue"].ended_ns,
        by_name["scatter"].ended_ns,
    )
    assert span.links == [SpanContext(m.trace, m.span) for m in members]
    assert whole.links == (span.context,)
    assert (span.name, span.kind, span.parent) == ("batch mnist", Kind.INTERNAL, "")
    assert span.attributes == {
        "ringbatch.batch_id": IDS.text(9),
        "ringbatch.batch_size": 4,
        "ringbatch.reason": "full",
        "ringbatch.model": "mnist",
    }


@given(st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 64) - 1))
def test_the_ids_of_a_batch_are_ids(batch: int, identity: int) -> None:
    context = batch_context(BatchIds(identity), batch)
    assert (len(context.trace), len(context.span)) == (32, 16)
    assert int(context.trace, 16)
    assert int(context.span, 16)


def test_a_batch_is_given_out_once_with_all_that_came_in_time() -> None:
    batches = OpenBatches()
    batches.add(member(0), 5)
    assert batches.take(5 + HOLD_NS - 1) == []
    batches.add(member(1), 5 + HOLD_NS - 1)
    batches.add(member(2, batch=10), 6)
    assert batches.take(5 + HOLD_NS) == [[member(0), member(1)]]
    batches.add(member(3), 6 + HOLD_NS)
    assert batches.take(6 + HOLD_NS) == [[member(2, batch=10)]]
    assert batches.take(9 * HOLD_NS) == batches.take_all() == []


def test_at_the_end_all_batches_are_given_out() -> None:
    batches = OpenBatches()
    batches.add(member(0), 5)
    assert batches.take_all() == [[member(0)]]
    assert batches.take_all() == []


def test_held_batches_are_bounded() -> None:
    batches = OpenBatches()
    taken = 0
    for batch in range(4 * MOST_OPEN):
        batches.add(member(0, batch), 0)
        taken += len(batches.take(0))
    assert len(batches._open) == MOST_OPEN
    assert taken == 3 * MOST_OPEN
    assert len(batches._given) == 2 * MOST_OPEN


def message_of(span: Span, epoch_ns: int) -> Message:
    """A span as OpenTelemetry's own message."""

    def value(of: str | int) -> AnyValue:
        return AnyValue(string_value=of) if isinstance(of, str) else AnyValue(int_value=of)

    return Message(
        trace_id=bytes.fromhex(span.context.trace),
        span_id=bytes.fromhex(span.context.span),
        parent_span_id=bytes.fromhex(span.parent),
        name=span.name,
        kind=Message.SpanKind.ValueType(span.kind),
        start_time_unix_nano=epoch_ns + span.began_ns,
        end_time_unix_nano=epoch_ns + span.ended_ns,
        attributes=[KeyValue(key=k, value=value(v)) for k, v in span.attributes.items()],
        links=[
            Message.Link(trace_id=bytes.fromhex(t), span_id=bytes.fromhex(s)) for t, s in span.links
        ],
        status=Status(code=Status.STATUS_CODE_ERROR) if span.failed else None,
    )


def hexadecimal(digits: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=digits // 2, max_size=digits // 2).map(bytes.hex)


contexts = st.builds(SpanContext, hexadecimal(32), hexadecimal(16))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
any_spans = st.builds(
    Span,
    contexts,
    st.just("") | hexadecimal(16),
    texts.filter(bool),
    st.sampled_from(Kind),
    st.integers(1, 1 << 62),
    st.integers(1, 1 << 62),
    st.dictionaries(texts.filter(bool), texts | st.integers(0, (1 << 63) - 1), max_size=5),
    st.lists(contexts, max_size=3),
    st.booleans(),
)


@given(st.lists(any_spans, max_size=4), st.integers(1, 1 << 61))
def test_the_bytes_are_read_by_opentelemetry_as_the_same(spans: list[Span], epoch: int) -> None:
    data = Encoder({"service.name": "e"}, "1").encode(spans, epoch)
    (of_resource,) = ExportTraceServiceRequest.FromString(data).resource_spans
    (of_scope,) = of_resource.scope_spans
    assert list(of_scope.spans) == [message_of(span, epoch) for span in spans]
    assert of_resource.resource.attributes[0].value.string_value == "e"
    assert of_scope.scope.name == "ringbatch"


def test_numbers_of_nonsense_are_written_all_the_same() -> None:
    most = (1 << 64) - 1
    (span, *rest) = spans_of(ended_ns=most, code=most, found=Breakdown(most, most))
    data = Encoder({}, "1").encode([span, *rest], 1 << 60)
    (of_resource,) = ExportTraceServiceRequest.FromString(data).resource_spans
    assert len(of_resource.scope_spans[0].spans) == 3
