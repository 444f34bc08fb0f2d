r"""Messages and services of gRPC: the Open Inference Protocol with Triton's additions, and others.

The .proto files beside this one define them; protoc makes `messages.pb` of them:

    python -m grpc_tools.protoc -I frontend/grpc --descriptor_set_out=frontend/grpc/messages.pb \
        frontend/grpc/*.proto

They are in a descriptor pool of their own, not in the one of the process. So other code with the
same messages in the same process, such as a client of the same protocol, does not collide with
them.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Message = Any
"""A message, or its class: both are made while the program runs."""

REFLECTION_VERSIONS: Final = ("v1", "v1alpha")
"""Versions of the reflection protocol: the same messages under two names; clients use either."""
INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"


class Method(NamedTuple):
    """Method of a service, with the classes of its messages.

    Attributes:
        request: the class of its requests.
        response: that of its responses.
        streams_requests: whether there are any number of them in a call.
        streams_responses: the same of responses.
    """

    request: Message
    response: Message
    streams_requests: bool
    streams_responses: bool


class Schema:
    """The messages and services of some .proto files, ready to use.

    Args:
        descriptors: a serialized FileDescriptorSet.

    Attributes:
        pool: where their descriptors are.
        services: by full name, the methods of each service by name.
    """

    def __init__(self, descriptors: bytes) -> None:
        self.pool = DescriptorPool()
        self.services: dict[str, dict[str, Method]] = {}
        for file in FileDescriptorSet.FromString(descriptors).file:
            self.pool.AddSerializedFile(file.SerializeToString())
            for service in file.service:
                self.services[f"{file.package}.{service.name}"] = {
                    method.name: Method(
                        self.message(method.input_type[1:]),
                        self.message(method.output_type[1:]),
                        method.client_streaming,
                        method.server_streaming,
                    )
                    for method in service.method
                }

    def message(self, full_name: str) -> Message:
        """Return the class of a message."""
        return GetMessageClass(self.pool.FindMessageTypeByName(full_name))


SCHEMA: Final = Schema(Path(__file__).with_name("messages.pb").read_bytes())


def inference(name: str) -> Message:
    """Return the class of one of the inference protocol's messages."""
    return SCHEMA.message(f"inference.{name}")
