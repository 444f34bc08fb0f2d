"""gRPC's reflection service as a function: what a client asks of the services, and the answer."""

from typing import Any, Final

from ringbatch.frontend.codec.grpc_codes import INVALID_ARGUMENT, NOT_FOUND
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.grpc.messages import REFLECTION_VERSIONS, SCHEMA, Message

REFLECTION_SERVICES: Final = [
    f"grpc.reflection.{version}.ServerReflection" for version in REFLECTION_VERSIONS
]


def reflected(request: Message) -> Message:
    """Return the response to a ServerReflectionRequest, of the same version of the protocol."""
    response = SCHEMA.message(f"{request.DESCRIPTOR.file.package}.ServerReflectionResponse")
    kind = request.WhichOneof("message_request")
    try:
        answer = _answer(kind, getattr(request, kind)) if kind else _refused("asks for nothing")
    except KeyError:
        answer = _error(NOT_FOUND, f"there is no {shown(getattr(request, kind))} here")
    return response(valid_host=request.host, original_request=request, **answer)


def _answer(kind: str, asked: Any) -> dict[str, Any]:
    """Return the field of the response; raises `KeyError` if that name is unknown."""
    if kind == "list_services":
        services = [{"name": name} for name in SCHEMA.services]
        return {"list_services_response": {"service": services}}
    if kind == "all_extension_numbers_of_type":
        SCHEMA.pool.FindMessageTypeByName(asked)
        return {"all_extension_numbers_response": {"base_type_name": asked}}
    if kind == "file_by_filename":
        return _file(SCHEMA.pool.FindFileByName(asked))
    if kind == "file_containing_symbol":
        service, _, method = asked.rpartition(".")
        known = method in SCHEMA.services.get(service, {})
        return _file(SCHEMA.pool.FindFileContainingSymbol(service if known else asked))
    return _refused("asks for an extension, and there are none")


def _file(descriptor: Any) -> dict[str, Any]:
    # None of them needs another.
    return {"file_descriptor_response": {"file_descriptor_proto": [descriptor.serialized_pb]}}


def _refused(why: str) -> dict[str, Any]:
    return _error(INVALID_ARGUMENT, f"the request {why}")


def _error(code: int, text: str) -> dict[str, Any]:
    return {"error_response": {"error_code": code, "error_message": text}}
