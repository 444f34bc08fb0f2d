"""gRPC status of errors, and answers of reflection."""

from typing import Any

import grpc
import pytest

from ringbatch.frontend.codec.outcome import RULES, InternalError
from ringbatch.frontend.grpc.messages import SCHEMA
from ringbatch.frontend.grpc.reflection import REFLECTION_SERVICES, reflected
from ringbatch.frontend.grpc.status import grpc_status
from ringbatch.shm import errors

BY_STATUS = {
    400: {"INVALID_ARGUMENT", "ALREADY_EXISTS"},
    401: {"UNAUTHENTICATED"},
    404: {"NOT_FOUND"},
    413: {"RESOURCE_EXHAUSTED"},
    429: {"RESOURCE_EXHAUSTED"},
    500: {"INTERNAL"},
    501: {"UNIMPLEMENTED"},
    502: {"INTERNAL", "UNAVAILABLE"},
    503: {"UNAVAILABLE"},
    504: {"DEADLINE_EXCEEDED"},
}
"""Names of the gRPC statuses for an error's HTTP status."""


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: str(kind.__name__))
def test_the_code_has_the_meaning_of_the_http_status(kind: type[errors.RequestError]) -> None:
    code, text = grpc_status(kind())
    (name,) = [status.name for status in grpc.StatusCode if status.value[0] == code]
    assert name in BY_STATUS[RULES[kind].status]
    assert text == RULES[kind].text


def test_an_error_of_a_narrower_kind_has_the_code_of_its_base() -> None:
    class Narrower(errors.InvalidRequest):
        pass

    assert grpc_status(Narrower("no")) == (3, "no")


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (404, "NOT_FOUND"),
        (413, "RESOURCE_EXHAUSTED"),
        (418, "INTERNAL"),
        (422, "INVALID_ARGUMENT"),
        (499, "INTERNAL"),
        (520, "INTERNAL"),
        (429, "UNAVAILABLE"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_model_servers_status_decides_the_code(status: int, name: str) -> None:
    found = grpc_status(errors.ModelServerAnswered("busy", status))
    assert found == (grpc.StatusCode[name].value[0], "busy")


def test_a_text_fits_into_a_header() -> None:
    assert grpc_status(InternalError("\ud800")).text == "?"
    assert len(grpc_status(InternalError("é" * 5000)).text.encode()) < 4096


def ask(service: str, **asked: Any) -> Any:
    method = SCHEMA.services[service]["ServerReflectionInfo"]
    answer = reflected(method.request(host="h", **asked))
    assert isinstance(answer, method.response)
    assert (answer.valid_host, answer.original_request.host) == ("h", "h")
    return answer


@pytest.mark.parametrize("service", REFLECTION_SERVICES)
def test_reflection_lists_all_services(service: str) -> None:
    found = ask(service, list_services="*").list_services_response.service
    assert {entry.name for entry in found} == {
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "inference.GRPCInferenceService"},
        {"file_containing_symbol": "inference.GRPCInferenceService.ModelInfer"},
        {"file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"},
        {"file_by_filename": "inference.proto"},
    ],
)
def test_reflection_gives_the_file_that_a_client_can_use(asked: dict[str, str]) -> None:
    from google.protobuf.descriptor_pool import DescriptorPool

    (file,) = ask(REFLECTION_SERVICES[0], **asked).file_descriptor_response.file_descriptor_proto
    pool = DescriptorPool()
    pool.AddSerializedFile(file)
    methods = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name
    assert methods["ModelInfer"].input_type.fields_by_name["raw_input_contents"].number == 7


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"file_by_filename": "other.proto"}, 5),
        ({"file_containing_symbol": "inference.GRPCInferenceService.Nope"}, 5),
        ({"file_containing_symbol": ""}, 5),
        ({"all_extension_numbers_of_type": "inference.Nope"}, 5),
        ({"file_containing_extension": {"containing_type": "inference.InferParameter"}}, 3),
        ({}, 3),
    ],
)
def test_reflection_reports_unknown_names(asked: dict[str, Any], code: int) -> None:
    error = ask(REFLECTION_SERVICES[1], **asked).error_response
    assert error.error_code == code
    assert error.error_message


def test_reflection_knows_no_extensions() -> None:
    answer = ask(REFLECTION_SERVICES[0], all_extension_numbers_of_type="inference.InferParameter")
    found = answer.all_extension_numbers_response
    assert (found.base_type_name, list(found.extension_number)) == ("inference.InferParameter", [])
