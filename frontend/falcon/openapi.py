"""The OpenAPI document of a server: every endpoint, and the bodies of the models really served.

A model has paths of its own rather than a place in a template, so that its document says which
tensors it takes and gives. Written after the OpenAPI Specification 3.1, whose schemas are JSON
Schema 2020-12. Pure.
"""

from collections.abc import Iterable
from typing import Any, Final

from ringbatch.frontend.codec.event_stream import MEDIA_TYPE as EVENTS_TYPE
from ringbatch.frontend.codec.model_list import OWNER
from ringbatch.frontend.codec.outcome import BATCH_HEADER
from ringbatch.frontend.falcon.openapi_tensors import (
    generate_answer,
    generate_example,
    generate_query,
    generate_request,
    takes_generate,
    v1_answer,
    v1_example,
    v1_request,
    v2_answer,
    v2_example,
    v2_request,
)
from ringbatch.frontend.falcon.openapi_texts import text_paths
from ringbatch.frontend.security.api_keys import OPEN_PATHS
from ringbatch.frontend.v2.answer import LENGTH_HEADER
from ringbatch.shm.host.key_headers import KEY_HEADER
from ringbatch.shm.model_spec import FILE_DIFFERS, ModelSpec

Json = dict[str, Any]

JSON_TYPE: Final = "application/json"
OCTETS_TYPE: Final = "application/octet-stream"
TEXT_TYPE: Final = "text/plain"

_ERRORS: Final = {
    400: "The request is not what it should be; the text says what was found and what is right.",
    401: "The request has no API key of the server's.",
    403: "A page of another site had a browser send this, and it would change something.",
    404: "There is no such model, or no such shared memory.",
    408: "The body did not come in time.",
    411: "The request has neither Content-Length nor a chunked body.",
    413: "The body, or the memory it takes, is larger than what is accepted.",
    415: "The body is in a form that is not taken.",
    429: "A limit of this client is reached.",
    500: "The model failed, or the server did.",
    501: "The protocol has this, the server has not.",
    503: "Nothing can be taken now: no worker is ready, or too many requests wait.",
    504: "No answer came before the deadline.",
}
_POSTED: Final = (408, 411, 413, 415)
_PREDICTED: Final = (400, *_POSTED, 429, 500, 503, 504)
_STRING: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_YES: Final = {"const": True}
_ANY: Final = {"type": "object"}
_NAMED: Final = {
    "parameters": [{"name": "name", "in": "path", "required": True, "schema": _STRING}]
}
"""Parameters of a path with a name in it that is not a model of this document."""


def document(
    models: Iterable[ModelSpec],
    version: str,
    *,
    shared_memory: bool = False,
    model_control: bool = False,
    api_keys: bool = False,
) -> Json:
    """Return the document of a server.

    Args:
        models: that it serves.
        version: of ringbatch.
        shared_memory: True if clients may share memory with it.
        model_control: True if clients may load and unload models.
        api_keys: True if clients must send a key.
    """
    specs = tuple(models)
    paths = _server_paths() | text_paths(specs)
    if shared_memory:
        paths |= _memory_paths()
    if model_control:
        paths |= _control_paths()
    schemas = _server_schemas()
    for spec in specs:
        paths |= _v1_paths(spec) | _v2_paths(spec)
        schemas |= _model_schemas(spec, shared_memory)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "ringbatch",
            "version": version or "unknown",
            "description": (
                "Model inference over KServe's V1 protocol and the Open Inference Protocol V2. "
                "Requests for one model share batches, whatever protocol they came in. Each path "
                "of a model but trace/setting is served with /versions/VERSION behind its name "
                "too, for each version that model metadata names."
            ),
        },
        "servers": [{"url": "."}],
        "tags": [
            {"name": "server", "description": "The server as a whole."},
            *({"name": f"model {s.name}", "description": _summary(s)} for s in specs),
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                f"Error{status}": {
                    "description": words,
                    "content": _json(_ref("Error")),
                    **(
                        {"headers": {"Retry-After": {"schema": _STRING}}}
                        if status in (429, 503)
                        else {}
                    ),
                }
                for status, words in _ERRORS.items()
            },
        },
    }
    return _with_keys(described) if api_keys else described


def _with_keys(described: Json) -> Json:
    """Return the document with the key that clients must send."""
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
    }
    described["components"]["securitySchemes"] = schemes
    described["security"] = [{name: []} for name in schemes]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if path in OPEN_PATHS:
                operation["security"] = []
            elif method != "parameters":
                operation["responses"]["401"] = {"$ref": "#/components/responses/Error401"}
    return described


def _summary(spec: ModelSpec) -> str:
    if not spec.typed:
        return f"Model {spec.name} takes and gives lists of JSON values."
    inputs, outputs = (
        ", ".join(f"{t.name}: {t.datatype.name} {list(t.shape)}" for t in tensors)
        for tensors in (spec.inputs, spec.outputs)
    )
    return f"Model {spec.name} takes {inputs} and gives {outputs}, for each instance."


def _server_paths() -> Json:
    names = _closed(models={"type": "array", "items": _STRING})
    index = _operation("server", "Models and their states", _answer(_ref("Index")), 400, 413)
    index["requestBody"] = {
        "content": _json({"type": "object", "properties": {"ready": {"type": ["boolean", "null"]}}})
    }
    return {
        "/": {"get": _get("Liveness, as KServe has it", _closed(status={"const": "alive"}))},
        "/v1/models": {"get": _get("The models, as KServe and OpenAI have them", _model_list())},
        "/v2": {"get": _get("Server metadata", _ref("ServerMetadata"))},
        "/v2/health/live": {"get": _get("Liveness", _closed(live=_YES))},
        "/v2/health/ready": {
            "get": _get("Whether every model can predict", _closed(ready=_YES), 503)
        },
        "/v2/models": {"get": _get("Names of the models", names)},
        "/v2/models/stats": {"get": _get("Statistics of all models", _ref("Statistics"))},
        "/v2/repository/index": {"post": index},
        "/v2/trace/setting": _settings("What is traced, as Triton has it"),
        "/v2/logging": _settings("What is logged, as Triton has it"),
        "/openapi.json": {"get": _get("This document", _ANY)},
        "/docs": {
            "get": _operation(
                "server",
                "This document for people",
                {"description": "A page.", "content": {"text/html": {}}},
            )
        },
    }


def _settings(summary: str, tag: str = "server") -> Json:
    """Return the paths of settings; no schema can say which values are accepted."""
    words = f"{summary}, if that is what is wanted"
    confirm = _operation(tag, words, _answer(_ANY), 400, 403, 413)
    confirm["requestBody"] = {"content": _json(_closed())}
    return {"get": _get(summary, _ANY, tag=tag), "post": confirm}


def _control_paths() -> Json:
    parameters = {"type": ["object", "null"]}
    paths = {}
    for action, summary in (
        ("load", "Load a model, again where it serves already"),
        ("unload", "Unload a model"),
    ):
        done = _answer(_closed(name=_STRING, **{action: _YES}))
        ask = _operation("server", summary, done, 400, 403, 404, 413, 500, 503)
        ask["requestBody"] = {
            "content": _json({"type": "object", "properties": {"parameters": parameters}})
        }
        paths[f"/v2/repository/models/{{name}}/{action}"] = {**_NAMED, "post": ask}
    return paths


def _memory_paths() -> Json:
    tag, path = "server", "/v2/systemsharedmemory"
    region = _closed(name=_STRING, key=_STRING, offset=_COUNT, byte_size=_COUNT)
    regions = {"type": "array", "items": region}
    done = {"description": "Done."}
    memory = _closed(key=_STRING, offset=_COUNT, byte_size=_COUNT) | {
        "required": ["key", "byte_size"]
    }
    register = _operation(tag, "Register a region", done, 400, 403, 404, 413)
    register["requestBody"] = _body(memory | {"additionalProperties": True}, None)
    unregister = _operation(tag, "Unregister a region, if it is there", done, 400, 403, 413)
    unregister_all = _operation(tag, "Unregister all regions", done, 400, 403, 413)
    return {
        f"{path}/status": {"get": _get("Regions of shared memory", regions)},
        f"{path}/unregister": {"post": unregister_all},
        f"{path}/region/{{name}}/status": {**_NAMED, "get": _get("One region", regions, 404)},
        f"{path}/region/{{name}}/register": {**_NAMED, "post": register},
        f"{path}/region/{{name}}/unregister": {**_NAMED, "post": unregister},
    }


def _v1_paths(spec: ModelSpec) -> Json:
    tag, path = f"model {spec.name}", f"/v1/models/{spec.name}"
    predict = _operation(tag, "Predict", _prediction(spec), *_PREDICTED)
    if spec.kserve_errors:
        predict["responses"]["400"] = {
            "description": "The body has no instances, in the words of KServe's batcher.",
            "content": {TEXT_TYPE: {"schema": _STRING}},
        }
    predict["requestBody"] = _body(_ref(f"{spec.name}.V1Request"), v1_example(spec))
    return {
        path: {"get": _get("Whether it can predict", _model_state(spec), 503, tag=tag)},
        f"{path}:predict": {"post": predict},
    }


def _readiness(spec: ModelSpec) -> Json:
    schema = _closed(name={"const": spec.name}, ready=_YES)
    schema["properties"]["model_file"] = {"const": FILE_DIFFERS}
    return schema


def _model_state(spec: ModelSpec) -> Json:
    schema = _readiness(spec)
    as_openai = _openai_model({"const": spec.name})
    schema["properties"] |= as_openai["properties"]
    schema["required"] = [*schema["required"], *as_openai["required"]]
    return schema


def _model_list() -> Json:
    return _closed(
        models={"type": "array", "items": _STRING},
        object={"const": "list"},
        data={"type": "array", "items": _openai_model(_STRING)},
    )


def _openai_model(name: Json) -> Json:
    return _closed(id=name, object={"const": "model"}, created=_COUNT, owned_by={"const": OWNER})


def _prediction(spec: ModelSpec) -> Json:
    schema = _ref(f"{spec.name}.V1Answer")
    if not spec.kserve_errors:
        return _answer(schema)
    failure = _closed(message=_STRING, batchId=_STRING, predictions={"type": "null"})
    return {
        "description": "The answer, or the reason why there is none; JSON as text.",
        "content": {TEXT_TYPE: {"schema": {"anyOf": [schema, failure]}}},
    }


def _v2_paths(spec: ModelSpec) -> Json:
    tag, path = f"model {spec.name}", f"/v2/models/{spec.name}"
    ready = _readiness(spec)
    paths = {
        path: {"get": _get("Its metadata", _ref("ModelMetadata"), tag=tag)},
        f"{path}/ready": {"get": _get("Whether it can predict", ready, 503, tag=tag)},
        f"{path}/stats": {"get": _get("Its statistics", _ref("Statistics"), tag=tag)},
        f"{path}/config": {"get": _get("Its configuration, as Triton has it", _ANY, tag=tag)},
        f"{path}/trace/setting": _settings("What is traced of it, as Triton has it", tag),
    }
    if spec.typed:
        paths[f"{path}/infer"] = {"post": _inference(spec, tag)}
    if takes_generate(spec):
        answer = _answer(_ref(f"{spec.name}.GenerateAnswer"))
        events = {"description": "An event for each part.", "content": {EVENTS_TYPE: {}}}
        paths[f"{path}/generate"] = {"post": _generation(spec, tag, "Generate", answer)}
        paths[f"{path}/generate_stream"] = {
            "post": _generation(spec, tag, "Generate, with an event for each part", events),
            "get": _event_source(spec, tag, events),
        }
    return paths


def _event_source(spec: ModelSpec, tag: str, events: Json) -> Json:
    summary = "Generate, for a browser's EventSource"
    generate = _operation(tag, summary, events, 400, 404, 429, 500, 503, 504)
    generate["responses"]["204"] = {"description": "It has had the answer."}
    generate["parameters"] = generate_query(spec)
    return generate


def _generation(spec: ModelSpec, tag: str, summary: str, answer: Json) -> Json:
    generate = _operation(tag, summary, answer, *_PREDICTED, 404)
    schema = _ref(f"{spec.name}.GenerateRequest")
    generate["requestBody"] = _body(schema, generate_example(spec))
    return generate


def _inference(spec: ModelSpec, tag: str) -> Json:
    length = {
        "description": "Bytes of the JSON text, which binary tensors follow, before compression.",
        "schema": _COUNT,
    }
    answer = _answer(_ref(f"{spec.name}.V2Answer"))
    answer["content"][OCTETS_TYPE] = {}
    answer["headers"] = {
        BATCH_HEADER: {"description": "The batch's id.", "schema": _STRING},
        LENGTH_HEADER: length,
    }
    infer = _operation(tag, "Infer", answer, *_PREDICTED, 404, 501)
    infer["parameters"] = [{"name": LENGTH_HEADER, "in": "header", **length}]
    infer["requestBody"] = _body(_ref(f"{spec.name}.V2Request"), v2_example(spec))
    infer["requestBody"]["content"][OCTETS_TYPE] = {
        "schema": {"type": "string", "format": "binary"}
    }
    return infer


def _model_schemas(spec: ModelSpec, shared_memory: bool) -> Json:
    schemas = {
        f"{spec.name}.V1Request": v1_request(spec),
        f"{spec.name}.V1Answer": v1_answer(spec),
    }
    if spec.typed:
        schemas[f"{spec.name}.V2Request"] = v2_request(spec, shared_memory=shared_memory)
        schemas[f"{spec.name}.V2Answer"] = v2_answer(spec, shared_memory=shared_memory)
    if takes_generate(spec):
        schemas[f"{spec.name}.GenerateRequest"] = generate_request(spec)
        schemas[f"{spec.name}.GenerateAnswer"] = generate_answer(spec)
    return schemas


def _server_schemas() -> Json:
    tensor = _closed(
        name=_STRING, datatype=_STRING, shape={"type": "array", "items": {"type": "integer"}}
    )
    # What an input has where a request leaves it out, and what shorter rows of an output end with.
    tensor["properties"]["parameters"] = {
        "type": "object",
        "properties": {"default": {}, "padding": {}},
        "additionalProperties": False,
    }
    tensors = {"type": "array", "items": tensor}
    texts = {"type": "array", "items": _STRING}
    duration = _closed(count=_COUNT, ns=_COUNT)
    parts = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    statistics = _closed(
        name=_STRING,
        version=_STRING,
        last_inference=_COUNT,
        inference_count=_COUNT,
        execution_count=_COUNT,
        inference_stats=_closed(
            **dict.fromkeys((*parts, "cache_hit", "cache_miss"), _ref("Duration"))
        ),
        response_stats={"type": "object"},
        batch_stats={"type": "array"},
        memory_usage={"type": "array"},
    )
    states = {"enum": ["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]}
    entry = _closed(name=_STRING, version=_STRING, state=states, reason=_STRING)
    return {
        "Error": _closed(error=_STRING),
        "ServerMetadata": _closed(name=_STRING, version=_STRING, extensions=texts),
        "ModelMetadata": _closed(
            name=_STRING, versions=texts, platform=_STRING, inputs=tensors, outputs=tensors
        ),
        "Duration": duration,
        "Statistics": _closed(model_stats={"type": "array", "items": statistics}),
        "Index": {"type": "array", "items": entry},
    }


def _get(summary: str, schema: Json, *errors: int, tag: str = "server") -> Json:
    return _operation(tag, summary, _answer(schema), *errors)


def _operation(tag: str, summary: str, answer: Json, *errors: int) -> Json:
    responses = {"200": answer}
    for status in sorted(errors):
        responses[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
    return {"tags": [tag], "summary": summary, "responses": responses}


def _answer(schema: Json) -> Json:
    return {"description": "The answer.", "content": _json(schema)}


def _body(schema: Json, example: Json | None) -> Json:
    content = _json(schema)
    if example is not None:
        content[JSON_TYPE]["example"] = example
    return {"required": True, "content": content}


def _json(schema: Json) -> Json:
    return {JSON_TYPE: {"schema": schema}}


def _ref(name: str) -> Json:
    return {"$ref": _at(name)}


def _at(name: str) -> str:
    return f"#/components/schemas/{name}"


def _closed(**properties: Json) -> Json:
    """Return an object schema with exactly these members."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
