"""The messages of gRPC: against recorded bytes, and against the descriptors of Triton's client."""

import subprocess
import sys
from typing import Any

import pytest

from ringbatch.frontend.grpc_messages import (
    HEALTH_SERVICE,
    INFERENCE_SERVICE,
    SCHEMA,
    inference,
)
from ringbatch.frontend.grpc_schema import Package, Schema

RAW_REQUEST = (
    "0a 06 61 64 64 6f 6e 65 1a 02 34 32 2a 0d 0a 01 78 12 04 46 50 33 32 1a 02 01 02 "
    "3a 08 00 00 80 3f 00 00 00 40"
)
TYPED_REQUEST = (
    "0a 06 61 64 64 6f 6e 65 2a 19 0a 01 78 12 04 46 50 33 32 1a 02 01 02 "
    "2a 0a 32 08 00 00 80 3f 00 00 00 40"
)


def test_a_raw_request_has_the_bytes_of_the_protocol() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    raw = bytes.fromhex("0000803f00000040")
    request = inference("ModelInferRequest")(
        model_name="addone", id="42", inputs=[tensor], raw_input_contents=[raw]
    )
    assert request.SerializeToString().hex(" ") == RAW_REQUEST


def test_a_typed_request_has_the_bytes_of_the_protocol() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    contents = {"contents": {"fp32_contents": [1, 2]}}
    request = inference("ModelInferRequest")(model_name="addone", inputs=[tensor | contents])
    assert request.SerializeToString().hex(" ") == TYPED_REQUEST


@pytest.mark.parametrize(
    ("service", "method", "request_bytes", "fields", "response_bytes"),
    [
        (HEALTH_SERVICE, "Check", "", {"status": "SERVING"}, "08 01"),
        (INFERENCE_SERVICE, "ServerReady", "", {"ready": True}, "08 01"),
        (INFERENCE_SERVICE, "ServerLive", "", {"live": False}, ""),
        (INFERENCE_SERVICE, "ModelReady", "0a 06 61 64 64 6f 6e 65", {"ready": True}, "08 01"),
    ],
)
def test_health_and_readiness_have_the_bytes_of_the_protocol(
    service: str, method: str, request_bytes: str, fields: dict[str, Any], response_bytes: str
) -> None:
    found = SCHEMA.services[service][method]
    request = found.request.FromString(bytes.fromhex(request_bytes))
    assert getattr(request, "name", "") == ("addone" if request_bytes else "")
    assert found.response(**fields).SerializeToString().hex(" ") == response_bytes


def fields_of(descriptor: Any) -> dict[str, tuple[Any, ...]]:
    found = {}
    for field in descriptor.fields:
        message, oneof = field.message_type, field.containing_oneof
        found[field.name] = (
            field.number,
            field.type,
            field.default_value if field.message_type is None else None,
            message.full_name if message else None,
            oneof.name if oneof else None,
        )
    return found


def test_every_message_has_the_fields_that_tritons_client_knows() -> None:
    """Names, numbers, types, oneofs; `properties` is in the protocol and not in Triton."""
    from tritonclient.grpc import service_pb2

    theirs = service_pb2.DESCRIPTOR.message_types_by_name
    ours = SCHEMA.pool.FindFileByName("inference.proto").message_types_by_name
    pairs = [(message, theirs[name]) for name, message in ours.items()]
    assert len(pairs) > 20
    while pairs:
        own, other = pairs.pop()
        expected = fields_of(other)
        if own.name == "ModelMetadataResponse":
            expected |= {"properties": fields_of(own)["properties"]}
        assert fields_of(own) == expected, own.full_name
        pairs += [
            (nested, other.nested_types_by_name[nested.name])
            for nested in own.nested_types
            if nested.name != "PropertiesEntry"
        ]


def test_every_method_takes_and_gives_what_tritons_client_expects() -> None:
    from tritonclient.grpc import service_pb2

    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    for name, method in SCHEMA.services[INFERENCE_SERVICE].items():
        assert method.request.DESCRIPTOR.full_name == theirs[name].input_type.full_name
        assert method.response.DESCRIPTOR.full_name == theirs[name].output_type.full_name
        assert (method.streams_requests, method.streams_responses) == (
            theirs[name].client_streaming,
            theirs[name].server_streaming,
        )


def test_the_messages_stand_in_nobodys_way() -> None:
    """Whichever is imported first, generated code with the same names can be imported too."""
    ours, theirs = "ringbatch.frontend.grpc_messages", "tritonclient.grpc.service_pb2"
    for first, second in ((ours, theirs), (theirs, ours)):
        subprocess.run([sys.executable, "-c", f"import {first}, {second}"], check=True)


def test_a_table_becomes_messages() -> None:
    package = Package(
        "a.b",
        {
            "Out": "rep int64 n=1, map Out.In by_name=2, kind string text=3, kind Out.Way way=4",
            "Out.In": "double d=7",
        },
        {"Out.Way": "UP DOWN"},
        {"S": {"M": "stream Out -> Out"}},
    )
    schema = Schema([package])
    message = schema.message("a.b.Out")(n=[1, 300], by_name={"k": {"d": 0.5}}, way="DOWN")
    assert message.WhichOneof("kind") == "way"
    again = schema.message("a.b.Out").FromString(message.SerializeToString())
    assert (list(again.n), again.by_name["k"].d, again.way) == ([1, 300], 0.5, 1)
    again.text = "x"
    assert again.WhichOneof("kind") == "text"
    assert message.SerializeToString()[:5] == bytes.fromhex("0a0301ac02"), "numbers are packed"
    method = schema.services["a.b.S"]["M"]
    assert (method.streams_requests, method.streams_responses) == (True, False)
