"""Triton's generate extension: a JSON object with a member for each tensor, instead of V2's lists.

    {"text": "a b", "weights": [1, 2], "temperature": 0.5, "parameters": {...}, "id": "..."}
    {"id": "...", "model_name": "m", "model_version": "1", "answer": "c", "scores": [0.5, 1.0]}

A member with the name of an input is that input. All others are parameters of the request, like the
members of `parameters`, among which inputs may stand too. The shape of an input is that of its
lists. A flat list or a single value has no shape: it fills as many instances as it can where the
shape is fixed, and else the last open dimension of one instance. After the extension as Triton's
documentation has it. Pure.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

from orjson import JSONDecodeError, dumps, loads

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import Answer, Headers
from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.codec.rendering import OffloadJob, Results
from ringbatch.frontend.v2.answer import InferAnswers
from ringbatch.frontend.v2.offloaded_answers import write_with
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.frontend.v2.requested_outputs import parameters_of
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY, Tensor

_BINARY: Final = "binary_data_output"


def infer_request(found: Any, spec: ModelSpec) -> dict[str, Any]:
    """Return the V2 request of a decoded body.

    Args:
        found: the body.
        spec: its model.

    Raises:
        InvalidRequest: it is no object, an input has no shape, or a member stands in it twice.
    """
    if not spec.typed:
        # The model's reader refuses every request.
        return {}
    if not isinstance(found, dict):
        raise InvalidRequest(f"the request is {shown(found)}, not an object")
    tensors = {tensor.name: tensor for tensor in spec.inputs}
    own = {name: found.get(name) for name in ("id", "parameters") if name not in tensors}
    beside = own.get("parameters")
    if not isinstance(beside, dict | None):
        raise InvalidRequest(f"the parameters of the request are {shown(beside)}, not an object")
    inputs: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    members = [(name, value) for name, value in found.items() if name not in own]
    for name, value in (*members, *(beside or {}).items()):
        if value is None:
            continue
        place = inputs if name in tensors else parameters
        if name in place:
            raise InvalidRequest(
                f"{shown(name)} stands in the request twice, in its parameters and beside them"
            )
        place[name] = value
    if type(parameters.get("inputs")) is list:
        raise InvalidRequest("`inputs` are for /infer; here each input is a member of the request")
    if parameters_of({"parameters": parameters}, "the request").get(_BINARY) not in (None, False):
        raise InvalidRequest(f"parameter {shown(_BINARY)} is for /infer; answers here are JSON")
    return {
        "id": own.get("id"),
        "parameters": parameters,
        "inputs": [_entry(tensors[name], inputs[name], batched=spec.batched) for name in inputs],
    }


def body_of(query: Sequence[tuple[str, str]], spec: ModelSpec) -> bytes:
    """Return the body that a query stands for.

    The values of an input of texts are texts. All others are JSON, or texts if they are none.

    Args:
        query: names and values, in order; several values of a name are a list.
        spec: the model.
    """
    texts = {tensor.name for tensor in spec.inputs if tensor.datatype.name == "BYTES"} | {"id"}
    values: dict[str, list[Any]] = {}
    for name, value in query:
        values.setdefault(name, []).append(value if name in texts else _literal(value))
    return dumps({name: _value(several) for name, several in values.items()})


def _literal(text: str) -> Any:
    try:
        return loads(text)
    except JSONDecodeError:
        return text


def _value(several: list[Any]) -> Any:
    return several[0] if len(several) == 1 else several


def _entry(tensor: Tensor, value: Any, *, batched: bool) -> dict[str, Any]:
    """Return an input of a V2 request."""
    shape = _shape(tensor, _sizes(tensor.name, value), batched=batched)
    data = value if isinstance(value, list) else [value]
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": shape, "data": data}


def _sizes(name: str, value: Any) -> list[int]:
    """Return the sizes of nested lists; none of a single value.

    Raises:
        InvalidRequest: the lists of a level differ in size.
    """
    sizes: list[int] = []
    level = [value]
    while level and all(isinstance(item, list) for item in level):
        sizes.append(len(level[0]))
        if any(len(item) != sizes[-1] for item in level):
            raise InvalidRequest(f"the lists of input {shown(name)} differ in length")
        level = [item for inner in level for item in inner]
    if any(isinstance(item, list) for item in level):
        raise InvalidRequest(f"input {shown(name)} has lists and single values side by side")
    return sizes


def _shape(tensor: Tensor, sizes: list[int], *, batched: bool) -> list[int]:
    """Return the shape of an input, with the batch dimension if the model has one."""
    own, rank = tensor.shape, len(tensor.shape)
    if len(sizes) > 1:
        if len(sizes) == rank:
            return [1, *sizes] if batched else sizes
        if len(sizes) == rank + 1 and batched:
            return sizes
        levels = f"{rank}, or {rank + 1} for several instances" if batched else str(rank)
        raise InvalidRequest(
            f"input {shown(tensor.name)} has {len(sizes)} levels of lists; give {levels}, "
            "or one flat list"
        )
    count = sizes[0] if sizes else 1
    known = prod(size for size in own if size != ANY)
    if ANY not in own:
        rows = count // known if known and count % known == 0 else 1
        return [rows, *own] if batched else [*own]
    last = max(place for place, size in enumerate(own) if size == ANY)
    filled = [1 if size == ANY else size for size in own]
    filled[last] = count // known if known else 0
    return [1, *filled] if batched else filled


def write_generated(value: Any, data: Sequence[memoryview]) -> tuple[Headers, list[bytes]]:
    """Write an answer in another process; arguments and errors as for `write_v2`."""
    return write_with(InferAnswers.render_members, value, data)


class GenerateRendering(NamedTuple):
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Attributes:
        v2: of the same request, for what both protocols have in common.
    """

    v2: V2Rendering

    @property
    def part_limits(self) -> PartLimits:
        """As in `Rendering`."""
        return self.v2.part_limits

    def render(self, results: Results, batch_id: str) -> Answer:
        """As in `Rendering`."""
        answers, requested = self.v2
        body, headers = answers.render_members(results, requested, batch_id)
        return 200, body, headers

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> Answer:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes a large answer in another process, as in `Rendering`."""
        job = self.v2.apart(rows, size, batch_id)
        return None if job is None else (write_generated, job[1])

    def written(self, value: Any, data: Sequence[memoryview]) -> Answer:
        """Return the answer that another process has written, as in `Rendering`."""
        return self.v2.written(value, data)

    def render_error(self, error: RequestError, batch_id: str) -> Answer:
        """As in `Rendering`."""
        return self.v2.render_error(error, batch_id)
