"""The messages of gRPC: against recorded bytes, and against the descriptors of Triton's client."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tiers import exhaustive

from ringbatch.frontend.grpc import messages
from ringbatch.frontend.grpc.messages import (
    HEALTH_SERVICE,
    INFERENCE_SERVICE,
    REFLECTION_VERSIONS,
    SCHEMA,
    Schema,
    inference,
)

PROTOS = Path(messages.__file__).parent

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
        (
            HEALTH_SERVICE,
            "List",
            "",
            {"statuses": {"m": {"status": 2}}},
            "0a 07 0a 01 6d 12 02 08 02",
        ),
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
    """Names, numbers, types, oneofs; `properties` is in the protocol and not in Triton. Of a
    model's configuration there are some."""
    from tritonclient.grpc import model_config_pb2, service_pb2

    configuration = model_config_pb2.DESCRIPTOR.message_types_by_name
    theirs = {**service_pb2.DESCRIPTOR.message_types_by_name, **configuration}
    ours = SCHEMA.pool.FindFileByName("inference.proto").message_types_by_name
    pairs = [(message, theirs[name]) for name, message in ours.items()]
    assert len(pairs) > 20
    while pairs:
        own, other = pairs.pop()
        expected = fields_of(other)
        if own.name == "ModelMetadataResponse":
            expected |= {"properties": fields_of(own)["properties"]}
        if own.name in configuration:
            expected = {name: expected[name] for name in fields_of(own)}
        assert fields_of(own) == expected, own.full_name
        pairs += [
            (nested, other.nested_types_by_name[nested.name])
            for nested in own.nested_types
            if nested.name != "PropertiesEntry"
        ]


def test_every_choice_has_the_number_that_tritons_client_knows() -> None:
    from tritonclient.grpc import model_config_pb2

    file = SCHEMA.pool.FindFileByName("inference.proto")
    theirs = model_config_pb2.DESCRIPTOR
    pairs = [(file.enum_types_by_name["DataType"], theirs.enum_types_by_name["DataType"])]
    for message, name in (("ModelInput", "Format"), ("ModelInstanceGroup", "Kind")):
        own, other = (f.message_types_by_name[message] for f in (file, theirs))
        pairs.append((own.enum_types_by_name[name], other.enum_types_by_name[name]))
    for own, other in pairs:
        numbers = {value.name: value.number for value in own.values}
        assert numbers == {value.name: value.number for value in other.values}


def test_every_method_has_the_messages_of_tritons_client() -> None:
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
    """Generated code with the same names can be imported too, in either order."""
    ours, theirs = "ringbatch.frontend.grpc.messages", "tritonclient.grpc.service_pb2"
    for first, second in ((ours, theirs), (theirs, ours)):
        subprocess.run([sys.executable, "-c", f"import {first}, {second}"], check=True)


def compiled(folder: Path, output: Path) -> bytes:
    """Return the descriptor set that protoc compiles from a folder's .proto files."""
    pytest.importorskip("grpc_tools", reason="protoc is in the extra `test-exhaustive`")
    files = sorted(folder.glob("*.proto"))
    command = (sys.executable, "-m", "grpc_tools.protoc", "-I", folder)
    subprocess.run([*command, f"--descriptor_set_out={output}", *files], check=True)
    return output.read_bytes()


@exhaustive
def test_the_descriptors_are_those_that_protoc_makes_of_the_proto_files(tmp_path: Path) -> None:
    made = FileDescriptorSet.FromString(compiled(PROTOS, tmp_path / "messages.pb"))
    kept = FileDescriptorSet.FromString((PROTOS / "messages.pb").read_bytes())
    assert kept == made, "make messages.pb again: frontend/grpc/messages.py says how"
    assert [file.name for file in kept.file] == [
        path.name for path in sorted(PROTOS.glob("*.proto"))
    ]


def test_both_versions_of_reflection_are_the_same() -> None:
    first, second = (
        SCHEMA.pool.FindFileByName(f"grpc.reflection.{version}.proto")
        for version in REFLECTION_VERSIONS
    )
    older, newer = ((PROTOS / file.name).read_text() for file in (second, first))
    _, _, declared = newer.replace(first.package, second.package).partition("\npackage ")
    assert older.endswith(declared)
    assert declared.startswith(f"{second.package};")


@exhaustive
def test_a_schema_has_messages_and_methods_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text(
        'syntax = "proto3"; package a.b;'
        "message Out { repeated int64 n = 1; oneof kind { string text = 3; double way = 4; } }"
        "service S { rpc M(stream Out) returns (Out); }"
    )
    schema = Schema(compiled(tmp_path, tmp_path / "a.pb"))
    message = schema.message("a.b.Out")(n=[1, 300], way=0.5)
    assert message.WhichOneof("kind") == "way"
    assert message.SerializeToString()[:5] == bytes.fromhex("0a0301ac02"), "numbers are packed"
    method = schema.services["a.b.S"]["M"]
    assert (method.streams_requests, method.streams_responses) == (True, False)
    assert method.request is method.response is schema.message("a.b.Out")
