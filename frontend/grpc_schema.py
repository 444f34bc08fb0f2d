"""Protocol buffer messages and services from tables, in a descriptor pool of their own.

A table says of each message what its definition would: the label, if any, the type, the name and
the number of each field.

    string name=1, rep int64 shape=3, map InferParameter parameters=4, choice bool bool_param=1

`rep` is a repeated field, `map` one from strings to the type, and any other label the name of the
oneof that the field belongs to. Types of the same package are written without it, with the message
around them where there is one.

The pool is private: whoever has the same messages from generated code in the same process, such as
a client of the same protocol, neither meets these nor stands in their way.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Message = Any
"""A message, or its class: both are made while the program runs."""

_FIELD: Final = re.compile(r"(?:(\w+) )?([\w.]+) (\w+)=(\d+)")
_METHOD: Final = re.compile(r"(stream )?(\w+) -> (stream )?(\w+)")
_SCALARS: Final = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
}


class Package(NamedTuple):
    """What one .proto file would hold.

    Attributes:
        name: of the package.
        messages: the fields of each; a message within another follows it, with its name in front.
        enums: the values of each, from 0 on; each lies within a message.
        services: of each the methods, and of these the messages that go in and out.
    """

    name: str
    messages: Mapping[str, str]
    enums: Mapping[str, str]
    services: Mapping[str, Mapping[str, str]]


class Method(NamedTuple):
    """One method of a service.

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
    """Packages, ready to use.

    Attributes:
        pool: where their descriptors are.
        services: by full name, the methods of each service by name.
    """

    def __init__(self, packages: Iterable[Package]) -> None:
        self.pool = DescriptorPool()
        self.services: dict[str, dict[str, Method]] = {}
        for package in packages:
            self.pool.AddSerializedFile(_file(package).SerializeToString())
            for service, methods in package.services.items():
                self.services[f"{package.name}.{service}"] = {
                    name: self._method(package.name, text) for name, text in methods.items()
                }

    def message(self, full_name: str) -> Message:
        """The class of a message."""
        return GetMessageClass(self.pool.FindMessageTypeByName(full_name))

    def _method(self, package: str, text: str) -> Method:
        streams_in, request, streams_out, response = _match(_METHOD, text).groups()
        return Method(
            self.message(f"{package}.{request}"),
            self.message(f"{package}.{response}"),
            streams_in is not None,
            streams_out is not None,
        )


def _file(package: Package) -> FileDescriptorProto:
    file = FileDescriptorProto(name=f"{package.name}.proto", package=package.name, syntax="proto3")
    places: dict[str, Any] = {}
    for name, fields in package.messages.items():
        outer, _, own = name.rpartition(".")
        message = (places[outer].nested_type if outer else file.message_type).add(name=own)
        places[name] = message
        for field in filter(None, fields.split(", ")):
            _add_field(package, name, message, field)
    for name, values in package.enums.items():
        outer, _, own = name.rpartition(".")
        enum = places[outer].enum_type.add(name=own)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for name, methods in package.services.items():
        service = file.service.add(name=name)
        for method, text in methods.items():
            streams_in, request, streams_out, response = _match(_METHOD, text).groups()
            service.method.add(
                name=method,
                input_type=f".{package.name}.{request}",
                output_type=f".{package.name}.{response}",
                client_streaming=streams_in is not None,
                server_streaming=streams_out is not None,
            )
    return file


def _add_field(package: Package, owner: str, message: DescriptorProto, text: str) -> None:
    label, kind, name, number = _match(_FIELD, text).groups()
    field = message.field.add(name=name, number=int(number))
    repeated = label in ("rep", "map")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if label == "map":
        entry = message.nested_type.add(name=f"{_camel(name)}Entry")
        entry.options.map_entry = True
        _add_field(package, f"{owner}.{entry.name}", entry, "string key=1")
        _add_field(package, f"{owner}.{entry.name}", entry, f"{kind} value=2")
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package.name}.{owner}.{entry.name}"
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = field.TYPE_ENUM if kind in package.enums else field.TYPE_MESSAGE
        field.type_name = f".{package.name}.{kind}"
    if label is not None and not repeated:
        names = [oneof.name for oneof in message.oneof_decl]
        if label not in names:
            message.oneof_decl.add(name=label)
            names.append(label)
        field.oneof_index = names.index(label)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    assert found is not None, text
    return found
