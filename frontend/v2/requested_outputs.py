"""Requested outputs of a V2 request: each as JSON or as bytes, the id, a timeout, a priority.

The parameters that V2 and its extensions reserve are checked here. Those for a feature that
ringbatch lacks are ignored if they do no harm.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from orjson import dumps

from ringbatch.frontend.codec.classification import UNCLASSIFIED
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits, limits_given
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory, Target, span_of
from ringbatch.shm.account import LEVELS, LOWEST_LEVEL
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

RAW_ONLY: Final = ("FP16", "BF16")
"""Datatypes that V2 does not let travel as JSON."""
MAX_TIMEOUT_US: Final = 1 << 52
MAX_PRIORITY: Final = (1 << 64) - 1
MAX_CLASSES: Final = (1 << 31) - 1

ID_MEMBER: Final = b'"id":%b,'
"""The member of an answer with the request's id as JSON, and a comma."""

_SCALARS: Final = {str, int, float, bool}


class RequestedOutput(NamedTuple):
    """Output that a request asks for, and its form.

    Attributes:
        output: its place in the model's signature.
        binary: whether it is wanted as bytes; or what of the client's memory it is wanted in.
        classes: how many of its best classes are wanted of an instance; 0 for the output itself.
    """

    output: int
    binary: bool | Target
    classes: int = 0


class RequestedOutputs(NamedTuple):
    """Requested outputs of one answer.

    Attributes:
        id: the member with the request's id and a comma, as JSON; empty if it has none.
        outputs: in the order of the answer.
        timeout_ns: how long the request is worth an answer; 0 without a limit.
        level: of its class, as in `ringbatch.shm.account.word_for_slot`; 0 if it asks for none.
        limits: of an answer in parts, that the request asks for.
    """

    id: bytes
    outputs: tuple[RequestedOutput, ...]
    timeout_ns: int
    level: int = 0
    limits: PartLimits = NO_LIMITS

    @property
    def shared(self) -> bool:
        """True if an output is wanted in memory of the client's."""
        return any(not isinstance(output.binary, bool) for output in self.outputs)


class RequestedOutputsReader:
    """Reads what requests to one model want.

    Args:
        spec: the model, with declared outputs.
        memory: where clients may want outputs.
    """

    def __init__(self, spec: ModelSpec, memory: ClientMemory = OFF) -> None:
        self._outputs = spec.outputs
        self._memory = memory
        self._index = {tensor.name: index for index, tensor in enumerate(spec.outputs)}
        self._gives = f'model "{spec.name}" gives {quoted(self._index)}'
        self._all_json = tuple(RequestedOutput(index, False) for index in range(len(spec.outputs)))
        self._raw_only = next((t for t in spec.outputs if t.datatype.name in RAW_ONLY), None)
        self.all_binary = RequestedOutputs(
            b"", tuple(RequestedOutput(index, True) for index in range(len(spec.outputs))), 0
        )

    def read(self, request: dict[str, Any]) -> RequestedOutputs:
        """Return the requested outputs of a decoded request.

        Raises:
            InvalidRequest: with the value found and the right form.
            RequestError: `ClientMemory` does.
        """
        identity = b""
        if (given := request.get("id")) is not None:
            if not isinstance(given, str):
                raise InvalidRequest(f"the request's id is {shown(given)}, not a string")
            identity = id_member(given)
        binary, timeout_ns, level = False, 0, 0
        if parameters := parameters_of(request, "the request"):
            binary, timeout_ns, level = _read_parameters(parameters)
        listed = request.get("outputs")
        if listed is None or listed == []:
            return RequestedOutputs(identity, self._all(binary), timeout_ns, level)
        return RequestedOutputs(identity, self._listed(listed, binary), timeout_ns, level)

    def _all(self, binary: bool) -> tuple[RequestedOutput, ...]:
        if binary:
            return self.all_binary.outputs
        if self._raw_only is not None:
            raise _no_json(self._raw_only)
        return self._all_json

    def _listed(self, listed: Any, binary: bool) -> tuple[RequestedOutput, ...]:
        if not isinstance(listed, list):
            raise InvalidRequest(f"`outputs` is {shown(listed)}, not a list")
        requested: dict[int, RequestedOutput] = {}
        for position, entry in enumerate(listed):
            one = self._one(entry, position, binary)
            if one.output in requested:
                raise InvalidRequest(f'output "{self._outputs[one.output].name}" is wanted twice')
            requested[one.output] = one
        return tuple(requested.values())

    def _one(self, entry: Any, position: int, binary: bool) -> RequestedOutput:
        if not isinstance(entry, dict):
            raise InvalidRequest(f"outputs[{position}] is {shown(entry)}, not an object")
        name = entry.get("name")
        if not isinstance(name, str):
            found = "lacks its name" if name is None else f"has {shown(name)} as its name"
            raise InvalidRequest(f"outputs[{position}] {found}, which is a string")
        index = self._index.get(name)
        if index is None:
            raise InvalidRequest(f"outputs[{position}] is {shown(name)}, but {self._gives}")
        tensor = self._outputs[index]
        if parameters := parameters_of(entry, f'output "{name}"'):
            span = span_of(parameters, f'output "{name}"', self._memory)
            classes = _classes(parameters, tensor)
            if span is not None:
                if classes:
                    raise InvalidRequest(f'output "{name}" is in shared memory and classes as well')
                if _boolean(parameters, "binary_data", default=False):
                    raise InvalidRequest(f'output "{name}" is in shared memory and binary as well')
                return RequestedOutput(index, self._memory.target(span))
            binary = _boolean(parameters, "binary_data", default=binary)
            if classes:
                return RequestedOutput(index, binary, classes)
        if not binary and tensor.datatype.name in RAW_ONLY:
            raise _no_json(tensor)
        return RequestedOutput(index, binary)


class PartedOutputsReader(RequestedOutputsReader):
    """The same for a model that answers in parts."""

    def read(self, request: dict[str, Any]) -> RequestedOutputs:
        """Return the requested outputs with the limits of parts, as in `RequestedOutputsReader`."""
        limits = limits_given(parameters_of(request, "the request"))
        return super().read(request)._replace(limits=limits)


def outputs_reader(spec: ModelSpec, memory: ClientMemory = OFF) -> RequestedOutputsReader:
    """Return the reader for a model; arguments as for `RequestedOutputsReader`."""
    return (PartedOutputsReader if spec.in_parts else RequestedOutputsReader)(spec, memory)


def id_member(given: str) -> bytes:
    """Return the `ID_MEMBER` of an answer."""
    return ID_MEMBER % dumps(given)


def parameters_of(owner: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the parameters of a request, an input or an output; empty if it has none.

    Raises:
        InvalidRequest: they are no object of strings, numbers and booleans.
    """
    parameters = owner.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequest(f"the parameters of {where} are {shown(parameters)}, not an object")
    for name, value in parameters.items():
        if type(value) not in _SCALARS and value is not None:
            raise InvalidRequest(
                f"parameter {shown(name)} of {where} is {shown(value)}; a parameter is a string, "
                "a number or a boolean"
            )
    # Some clients write null for what they do not give.
    if None in parameters.values():
        return {name: value for name, value in parameters.items() if value is not None}
    return parameters


def quoted(names: Iterable[str]) -> str:
    """Return names as they stand in the text of an error."""
    return ", ".join(f'"{name}"' for name in names)


def _read_parameters(parameters: dict[str, Any]) -> tuple[bool, int, int]:
    """Return whether outputs are wanted as bytes by default, the timeout in ns, and the level.

    A sequence means nothing to a model without state, and none here has any.
    """
    for name in parameters:
        if name == "headers" or name.startswith("triton_"):
            raise InvalidRequest(f"parameter {shown(name)} is reserved and cannot be given")
    for name in ("sequence_start", "sequence_end"):
        _boolean(parameters, name, default=False)
    level = _level(parameters["priority"]) if "priority" in parameters else 0
    timeout_us = _whole(parameters, "timeout", MAX_TIMEOUT_US)
    return _boolean(parameters, "binary_data_output", default=False), timeout_us * 1000, level


def _level(priority: Any) -> int:
    """Return the level of a priority: Triton's, of which 1 is the highest, or a class by name.

    Triton has as many levels as a model says. Here every level below normal is bulk.
    """
    if type(priority) is int and 0 <= priority <= MAX_PRIORITY:
        return min(priority, LOWEST_LEVEL)
    found = LEVELS.get(priority.lower()) if isinstance(priority, str) else None
    if found is None:
        raise InvalidRequest(
            f'parameter "priority" is {shown(priority)}, not a whole number from 0 to '
            f"{MAX_PRIORITY}, nor interactive, normal or bulk"
        )
    return found


def _classes(parameters: dict[str, Any], tensor: Tensor) -> int:
    classes = _whole(parameters, "classification", MAX_CLASSES)
    if classes and tensor.datatype.name in UNCLASSIFIED:
        raise InvalidRequest(
            f'output "{tensor.name}" is {tensor.datatype.name}, which has no classes'
        )
    return classes


def _boolean(parameters: dict[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest(f"parameter {shown(name)} is {shown(value)}, not true or false")
    return value


def _whole(parameters: dict[str, Any], name: str, largest: int) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value <= largest:
        raise InvalidRequest(
            f"parameter {shown(name)} is {shown(value)}, not a whole number from 0 to {largest}"
        )
    return value


def _no_json(tensor: Tensor) -> InvalidRequest:
    return InvalidRequest(
        f'output "{tensor.name}" is {tensor.datatype.name}, which V2 does not carry as JSON; '
        "ask for binary data, in one answer of /infer"
    )
