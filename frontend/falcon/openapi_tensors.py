"""JSON Schemas of one model's requests and answers, and an example of each request.

They are as narrow as JSON Schema allows. The texts of errors say the rest. Instances of one request
agree in their open dimensions, columns are of one length, a V2 tensor has as many elements as its
shape, and 2.0 is no integer. `prefixItems` could express the sizes in a shape, but too few programs
understand it; they stand in its description.
"""

from math import prod
from typing import Any, Final

import numpy as np

from ringbatch.frontend.codec.classification import UNCLASSIFIED
from ringbatch.frontend.v2.requested_outputs import MAX_CLASSES, MAX_TIMEOUT_US, RAW_ONLY
from ringbatch.frontend.v2.shared_memory import OFFSET, REGION, SIZE
from ringbatch.shm.default_values import plain
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY, Datatype, Tensor

Json = dict[str, Any]

MAX_EXAMPLE_ELEMENTS: Final = 64
"""An instance of more makes an example that nobody reads."""

_STRING: Final = {"type": "string"}
_CLASS: Final = "^[^:]+:[0-9]+$"
_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_SCALAR_OR_NULL: Final = {"type": ["string", "number", "boolean", "null"]}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_BASE64: Final = {
    "type": "object",
    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["b64"],
    "additionalProperties": False,
}
_BINARY: Final = {
    "type": "object",
    "properties": {"binary_data_size": _WHOLE},
    "required": ["binary_data_size"],
    "additionalProperties": _SCALAR,
}
_SHARED: Final = {
    "type": "object",
    "properties": {REGION: _STRING, OFFSET: _WHOLE, SIZE: _WHOLE},
    "required": [REGION, SIZE],
    "additionalProperties": _SCALAR,
}


def v1_request(spec: ModelSpec) -> Json:
    """Return the schema of the body of ``:predict``."""
    instance = _v1_instance(spec)
    rows = {"type": "array", "items": instance, "minItems": 1}
    if spec.typed:
        each = {t.name: {**rows, "items": _v1_value(t)} for t in spec.inputs}
        columns = _object(each, optional=_optional(spec))
        inputs: Json = {"anyOf": [rows, columns]}
    else:
        inputs = rows
    return {
        "type": "object",
        "properties": {"instances": rows, "inputs": inputs},
        "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
    }


def v1_answer(spec: ModelSpec) -> Json:
    """Return the schema of a prediction."""
    values = {tensor.name: _v1_value(tensor) for tensor in spec.outputs}
    row: Json = {}
    column: Json = {"type": "array", "items": row}
    if len(values) == 1:
        (row,) = values.values()
        column = {"type": "array", "items": row}
    elif values:
        row = _object(values)
        column = _object({n: {"type": "array", "items": v} for n, v in values.items()})
    answer = _object(
        {
            "message": {"const": ""},
            "batchId": {"type": "string", "format": "uuid"},
            "predictions": {"type": "array", "items": row, "minItems": 1},
            "outputs": column,
        },
        optional=("predictions", "outputs"),
    )
    return answer | {"oneOf": [{"required": ["predictions"]}, {"required": ["outputs"]}]}


def v1_example(spec: ModelSpec) -> Json | None:
    """Return a body for ``:predict``; None if an instance is too large to be shown."""
    if not spec.typed:
        return {"instances": [1]}
    if _is_large(spec) or any(tensor.datatype.name == "BF16" for tensor in spec.inputs):
        return None
    values = {tensor.name: _nested_example(tensor) for tensor in spec.inputs}
    return {"instances": [*values.values()] if len(values) == 1 else [values]}


def v2_request(spec: ModelSpec, *, shared_memory: bool = False) -> Json:
    """Return the schema of an inference request; tensors may lie in memory of the client's."""
    given = {"anyOf": [_BINARY, _SHARED]} if shared_memory else _BINARY
    entries = [_v2_input(spec, tensor, given) for tensor in spec.inputs]
    count = len(entries)
    entry = entries[0] if count == 1 else {"anyOf": entries}
    parameters = {
        "type": "object",
        "properties": {
            "binary_data_output": {"type": "boolean"},
            "timeout": {"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_US},
        },
        "additionalProperties": _SCALAR,
    }
    return {
        "type": "object",
        "properties": {
            "id": _STRING,
            "parameters": parameters,
            "inputs": {
                "type": "array",
                "items": entry,
                "minItems": count - len(_optional(spec)),
                "maxItems": count,
            },
            "outputs": {
                "type": "array",
                "items": _v2_requested(spec),
                "maxItems": len(spec.outputs),
            },
        },
        "required": ["inputs"],
    }


def v2_answer(spec: ModelSpec, *, shared_memory: bool = False) -> Json:
    """Return the schema of an inference response, likewise."""
    entries = [_v2_output(spec, tensor, shared_memory) for tensor in spec.outputs]
    return _object(
        {
            "id": _STRING,
            "model_name": {"const": spec.name},
            "model_version": {"const": spec.version},
            "outputs": {
                "type": "array",
                "items": entries[0] if len(entries) == 1 else {"anyOf": entries},
                "minItems": 1,
                "maxItems": len(entries),
            },
        },
        optional=("id",),
    )


def v2_example(spec: ModelSpec) -> Json | None:
    """Return an inference request as JSON; None if it is too large, or is not JSON alone."""
    tensors = spec.inputs + spec.outputs
    if _is_large(spec) or any(tensor.datatype.name in RAW_ONLY for tensor in tensors):
        return None
    return {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype.name,
                "shape": [1, *_example_shape(tensor)][not spec.batched :],
                "data": [_example_value(tensor.datatype)] * prod(_example_shape(tensor)),
            }
            for tensor in spec.inputs
        ]
    }


def takes_generate(spec: ModelSpec) -> bool:
    """Return whether the generate extension can carry all tensors of a model."""
    raw_only = any(tensor.datatype.name in RAW_ONLY for tensor in spec.inputs + spec.outputs)
    return spec.typed and not raw_only


def generate_request(spec: ModelSpec) -> Json:
    """Return the schema of the body of ``/generate``."""
    parameters = {
        "type": ["object", "null"],
        "properties": {"binary_data_output": {"enum": [False, None]}},
        "additionalProperties": _SCALAR_OR_NULL,
    }
    inputs = {tensor.name: _generate_input(tensor) for tensor in spec.inputs}
    return {
        "type": "object",
        "properties": {"id": {"type": ["string", "null"]}, "parameters": parameters} | inputs,
        "required": [name for name in inputs if name not in _optional(spec)],
        "additionalProperties": _SCALAR_OR_NULL,
    }


def generate_answer(spec: ModelSpec) -> Json:
    """Return the schema of an answer of ``/generate``, and of an event of ``/generate_stream``."""
    own = {
        "id": _STRING,
        "model_name": {"const": spec.name},
        "model_version": {"const": spec.version},
    }
    outputs = {t.name: {"anyOf": [_value(t.datatype), _values(t)]} for t in spec.outputs}
    return _object(own | outputs, optional=("id",))


def generate_query(spec: ModelSpec) -> list[Json]:
    """Return the inputs as parameters of a query: texts as they are, all others as JSON."""
    optional, example = _optional(spec), generate_example(spec) or {}
    parameters = []
    for tensor in spec.inputs:
        shown = {"example": example[tensor.name]} if tensor.name in example else {}
        texts: Json = {"type": "array", "items": _STRING} if tensor.shape else _STRING
        form: Json = {"schema": texts} | shown
        if tensor.datatype.name != "BYTES":
            content = {"schema": _generate_input(tensor)} | shown
            form = {"content": {"application/json": content}}
        required = tensor.name not in optional
        about = {"name": tensor.name, "in": "query", "description": "An input."}
        parameters.append({**about, "required": required, **form})
    return parameters


def generate_example(spec: ModelSpec) -> Json | None:
    """Return a body for ``/generate``; None if an instance is too large to be shown."""
    if _is_large(spec):
        return None
    return {tensor.name: _nested_example(tensor) for tensor in spec.inputs}


def _generate_input(tensor: Tensor) -> Json:
    forms = [_value(tensor.datatype), _values(tensor, {"type": "array"})]
    return {"anyOf": forms if tensor.default is None else [*forms, {"type": "null"}]}


def _v1_instance(spec: ModelSpec) -> Json:
    if not spec.typed:
        return {}
    values = {tensor.name: _v1_value(tensor) for tensor in spec.inputs}
    named = _object(values, optional=_optional(spec))
    if len(spec.inputs) > 1:
        return named
    return {"anyOf": [_v1_value(spec.inputs[0]), named]}


def _v1_value(tensor: Tensor) -> Json:
    value = _value(tensor.datatype)
    if tensor.datatype.name == "BYTES":
        value = {"anyOf": [_STRING, _BASE64]}
    for size in reversed(tensor.shape):
        value = {"type": "array", "items": value}
        if size != ANY:
            value |= {"minItems": size, "maxItems": size}
    return value if tensor.default is None else value | {"default": plain(tensor.default)}


def _optional(spec: ModelSpec) -> tuple[str, ...]:
    """Return the inputs that requests may leave out."""
    return tuple(tensor.name for tensor in spec.inputs if tensor.default is not None)


def _v2_input(spec: ModelSpec, tensor: Tensor, given: Json) -> Json:
    named = _named(spec, tensor)
    if tensor.datatype.name in RAW_ONLY:
        properties = named | {"parameters": given}
        return {"type": "object", "properties": properties, "required": [*properties]}
    values = _values(tensor, {"type": "array"})
    return {
        "type": "object",
        "properties": named | {"data": values, "parameters": given},
        "required": [*named],
        "oneOf": [{"required": ["data"]}, {"required": ["parameters"]}],
    }


def _v2_output(spec: ModelSpec, tensor: Tensor, shared_memory: bool) -> Json:
    sources: list[Json] = [{"required": ["data"]}, {"required": ["parameters"]}]
    properties = _named(spec, tensor) | {"data": _values(tensor), "parameters": _BINARY}
    if tensor.datatype.name in RAW_ONLY:
        sources = sources[1:]
        properties.pop("data")
    if shared_memory:
        sources.append({"not": {"anyOf": [{"required": ["data"]}, {"required": ["parameters"]}]}})
    entry = _object(properties, optional=("data", "parameters")) | {"oneOf": sources}
    if tensor.datatype.name in UNCLASSIFIED:
        return entry
    classes = {"type": "array", "items": {"type": "string", "pattern": _CLASS}}
    shape = {"type": "array", "items": _WHOLE, "minItems": 1, "maxItems": 2}
    properties = properties | {"datatype": {"const": "BYTES"}, "shape": shape, "data": classes}
    classified = _object(properties, optional=("data", "parameters")) | {"oneOf": sources[:2]}
    return {"anyOf": [entry, classified]}


def _v2_requested(spec: ModelSpec) -> Json:
    parameters = {
        "type": "object",
        "properties": {
            "binary_data": {"type": "boolean"},
            "classification": {"type": "integer", "minimum": 0, "maximum": MAX_CLASSES},
        },
        "additionalProperties": _SCALAR,
    }
    return {
        "type": "object",
        "properties": {
            "name": {"enum": [tensor.name for tensor in spec.outputs]},
            "parameters": parameters,
        },
        "required": ["name"],
    }


def _named(spec: ModelSpec, tensor: Tensor) -> Json:
    shape = [ANY, *tensor.shape] if spec.batched else [*tensor.shape]
    return {
        "name": {"const": tensor.name},
        "datatype": {"const": tensor.datatype.name},
        "shape": {
            "description": f"{shape}, where -1 is any size",
            "type": "array",
            "items": _WHOLE,
            "minItems": len(shape),
            "maxItems": len(shape),
        },
    }


def _values(tensor: Tensor, *others: Json) -> Json:
    """Return the schema of a tensor's elements, in one list."""
    value = _value(tensor.datatype)
    return {"type": "array", "items": {"anyOf": [value, *others]} if others else value}


def _value(datatype: Datatype) -> Json:
    """Return the JSON schema of one element."""
    if datatype.name == "BOOL":
        return {"type": "boolean"}
    if datatype.name == "BYTES":
        return _STRING
    if datatype.name in ("FP16", "FP32"):
        # Numbers are rounded, so the bound is half a step beyond the largest one.
        floats = np.finfo(datatype.numpy)
        end = float(floats.max) + 2.0 ** (int(floats.maxexp) - floats.nmant - 2)
        return {"type": "number", "exclusiveMinimum": -end, "exclusiveMaximum": end}
    if datatype.name in ("BF16", "FP64"):
        return {"type": "number"}
    limits = np.iinfo(datatype.numpy)
    return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}


def _object(properties: Json, optional: tuple[str, ...] = ()) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _is_large(spec: ModelSpec) -> bool:
    elements = sum(prod(_example_shape(tensor)) for tensor in spec.inputs)
    return elements > MAX_EXAMPLE_ELEMENTS


def _example_shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(2 if size == ANY else size for size in tensor.shape)


def _example_value(datatype: Datatype) -> bool | int | float | str:
    if datatype.name == "BOOL":
        return True
    if datatype.name == "BYTES":
        return "text"
    return 0.5 if "FP" in datatype.name else 1


def _nested_example(tensor: Tensor) -> Any:
    value: Any = _example_value(tensor.datatype)
    for size in reversed(_example_shape(tensor)):
        value = [value] * size
    return value
