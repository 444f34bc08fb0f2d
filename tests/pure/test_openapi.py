"""The OpenAPI document and its page, as far as they can be judged without a server."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, get_args
from urllib.parse import urljoin

import pytest
from segment_fixture import spec

from ringbatch.frontend.falcon import openapi_texts
from ringbatch.frontend.falcon.docs_page import POLICY, page
from ringbatch.frontend.falcon.openapi import document
from ringbatch.frontend.texts import classifying, cohere, openai, reranking, tei
from ringbatch.frontend.v2.documents import index_entry, model_metadata
from ringbatch.shm.model_spec import ModelSpec, State
from ringbatch.shm.tensor import DATATYPES, Tensor

NASTY = "</script><b>&\"'"
MODELS = (
    spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [-1, 3])], name="plain"),
    spec(1, name="untyped"),
    spec(2, [Tensor("a", "INT8", []), Tensor(NASTY, "BYTES", [1])], [Tensor("r", "BOOL", [])]),
    spec(3, [Tensor("h", "FP16", [2])], [Tensor("b", "BF16", [2])], name="half"),
    spec(4, [Tensor("image", "FP32", [3, 224, 224])], [Tensor("y", "FP64", [2])], name="large"),
)
VOID = ("meta",)


def described(*models: ModelSpec) -> dict[str, Any]:
    return document(models or MODELS, "1.2.3")


def references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for value in node.values() for ref in references(value)]
    return [ref for value in node for ref in references(value)] if isinstance(node, list) else []


def test_every_reference_leads_somewhere() -> None:
    found = described()
    assert len(set(references(found))) > 20
    for reference in references(found):
        target: Any = found
        for key in reference.removeprefix("#/").split("/"):
            target = target[key]
        assert target


def test_a_model_has_the_paths_that_serve_it() -> None:
    paths = described()["paths"]
    assert {f"{method} {path}" for path in paths for method in paths[path] if "plain" in path} == {
        "get /v1/models/plain",
        "post /v1/models/plain:predict",
        "get /v2/models/plain",
        "get /v2/models/plain/ready",
        "get /v2/models/plain/stats",
        "get /v2/models/plain/config",
        "get /v2/models/plain/trace/setting",
        "post /v2/models/plain/trace/setting",
        "post /v2/models/plain/infer",
        "post /v2/models/plain/generate",
        "get /v2/models/plain/generate_stream",
        "post /v2/models/plain/generate_stream",
    }
    assert "/v2/models/untyped" in paths
    assert "/v2/models/untyped/infer" not in paths
    assert "/v2/models/untyped/generate" not in paths
    assert "/v2/models/half/generate" not in paths


def body(path: str) -> dict[str, Any]:
    content = described()["paths"][path]["post"]["requestBody"]["content"]
    found: dict[str, Any] = content["application/json"]
    return found


def test_examples_are_instances_of_the_signature() -> None:
    assert body("/v1/models/plain:predict")["example"] == {"instances": [[0.5, 0.5]]}
    assert body("/v1/models/m:predict")["example"] == {"instances": [{"a": 1, NASTY: ["text"]}]}
    assert body("/v2/models/m/infer")["example"]["inputs"][1] == {
        "name": NASTY,
        "datatype": "BYTES",
        "shape": [1, 1],
        "data": ["text"],
    }


@pytest.mark.parametrize("path", ["/v1/models/large:predict", "/v2/models/half/infer"])
def test_there_is_no_example_that_nobody_reads_or_that_json_cannot_carry(path: str) -> None:
    assert "example" not in body(path)


@pytest.mark.parametrize("name", DATATYPES)
def test_every_datatype_is_described_in_both_directions(name: str) -> None:
    tensor = Tensor("t", name, [3])
    schemas = described(spec(0, [tensor], [tensor]))["components"]["schemas"]
    request = schemas["m.V2Request"]["properties"]["inputs"]["items"]
    assert request["properties"]["datatype"] == {"const": name}
    assert ("data" in request["properties"]) == (name not in ("FP16", "BF16"))
    assert request["properties"]["shape"]["minItems"] == 2
    row = schemas["m.V1Answer"]["properties"]["predictions"]["items"]
    assert (row["minItems"], row["maxItems"]) == (3, 3)


def test_the_bounds_of_rounded_numbers_are_where_packing_ends() -> None:
    schemas = described(*MODELS)["components"]["schemas"]
    vector = schemas["plain.V1Request"]["properties"]["instances"]["items"]["anyOf"][0]
    assert vector["items"]["exclusiveMaximum"] == 2.0**128 - 2.0**103
    half = schemas["half.V1Request"]["properties"]["instances"]["items"]["anyOf"][0]
    assert half["items"]["exclusiveMinimum"] == -65520.0


def members(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """The schemas of an object's members, where it has all that it must and no other."""
    assert set(schema["required"]) <= set(value) <= set(schema["properties"])
    found: dict[str, Any] = schema["properties"]
    return found


def test_metadata_is_as_described_with_defaults_and_paddings() -> None:
    tensors = [Tensor("x", "FP32", [2], default=[1, 2])], [Tensor("y", "FP32", [-1], padding=0)]
    with_both = spec(0, *tensors)
    for model in (*MODELS, with_both):
        schema = described(model)["components"]["schemas"]["ModelMetadata"]
        metadata = model_metadata(model, ["1"])
        found = members(schema, metadata)
        for side in ("inputs", "outputs"):
            for tensor in metadata[side]:
                of_tensor = members(found[side]["items"], tensor)
                members(of_tensor["parameters"] | {"required": []}, tensor.get("parameters", {}))
    assert metadata["inputs"][0]["parameters"] == {"default": [1.0, 2.0]}
    assert metadata["outputs"][0]["parameters"] == {"padding": 0.0}


def test_a_model_in_every_state_stands_in_the_index_as_described() -> None:
    entry = described()["components"]["schemas"]["Index"]["items"]
    states = set()
    for state in get_args(State):
        for unready in ("", "still loading"):
            line = index_entry(replace(spec(), state=state), unready)
            states.add(line["state"])
            members(entry, line)
    assert states == set(entry["properties"]["state"]["enum"])


class Reader(HTMLParser):
    """Parser of a page that checks the balance of its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.unlabelled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        assert {"src", "style", "onclick", "action"}.isdisjoint(given)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        self.unlabelled += tag == "textarea" and not given.get("aria-label")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    reader = read(page(described(), "http://h:1"))
    assert len(set(reader.ids)) == len(reader.ids)
    links = set(reader.links) - {"openapi.json"}
    assert {link.removeprefix("#") for link in links} <= set(reader.ids)
    assert all(link.startswith("#") for link in links)
    assert not reader.tags & {"link", "img", "iframe"}
    assert reader.unlabelled == 0


def test_no_address_leads_outside_of_a_prefix() -> None:
    """A proxy may serve all of it below one; what begins with a slash would leave it."""
    found = described()
    shown = page(found, "http://h:1")
    addresses = re.findall(r'(?:href|src|action|data-path)="([^"]*)"', shown)
    assert {address[:1] for address in addresses} == {"#", "o", "."}
    sent = {f"http://h:1/below{path}" for path in found["paths"]}
    relative = re.findall(r'data-path="([^"]*)"', shown)
    assert {urljoin("http://h:1/below/docs", html.unescape(path)) for path in relative} <= sent
    (server,) = found["servers"]
    assert urljoin("http://h:1/below/openapi.json", server["url"]) == "http://h:1/below/"


def test_every_endpoint_and_an_example_for_each_model_stand_in_the_page() -> None:
    found = described()
    reader = read(page(found, "http://h:1"))
    assert set(found["paths"]) <= set(reader.texts)
    text = "".join(reader.texts)
    example = json.dumps({"instances": [[0.5, 0.5]]})
    assert f"curl http://h:1/v1/models/plain:predict -d '{example}'" in text
    assert "curl http://h:1/v1/models/large:predict -d @request.json" in text


def test_names_from_a_model_file_are_text_in_the_page_and_nothing_more() -> None:
    with_nasty, without = (
        read(page(described(*models), "http://h:1")) for models in (MODELS[2:3], MODELS[:1])
    )
    assert with_nasty.tags == without.tags
    assert NASTY in "".join(with_nasty.texts)


def test_the_page_allows_its_own_script_alone() -> None:
    directives = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].startswith("'sha256-")
    assert "unsafe" not in POLICY


def test_loading_and_unloading_is_described_where_it_is_on() -> None:
    off, on = (document(MODELS[:1], "1", model_control=control) for control in (False, True))
    paths = {f"/v2/repository/models/{{name}}/{action}" for action in ("load", "unload")}
    assert set(on["paths"]) - set(off["paths"]) == paths
    assert paths <= set(read(page(on, "http://h:1")).texts)


def test_shared_memory_is_described_where_it_is_on() -> None:
    off, on = (document(MODELS[:1], "1", shared_memory=shared) for shared in (False, True))
    assert not any("sharedmemory" in path for path in off["paths"])
    status = "/v2/systemsharedmemory/region/{name}/status"
    assert "get" in on["paths"][status]
    assert "shared_memory_region" not in json.dumps(off)
    assert "shared_memory_region" in json.dumps(on["components"]["schemas"]["plain.V2Request"])
    assert status in read(page(on, "http://h:1")).texts


def test_bodies_about_texts_may_have_the_members_that_are_read() -> None:
    assert set(openapi_texts._embeddings()) == {*openai._KNOWN}
    assert set(openapi_texts._reranking()) == {*reranking._OF_TEI, *reranking._OF_COHERE}
    assert set(openapi_texts._classifying()) == {*classifying._MEMBERS}
    assert set(openapi_texts._embed_of_tei()) == {*tei._KNOWN}
    assert set(openapi_texts._embed_of_cohere()) == {*cohere._KNOWN}
