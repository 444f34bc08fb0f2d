"""The tables of paths, gRPC methods and Python names are those of the code."""

import inspect
import re
from typing import Any
from unittest.mock import MagicMock

import falcon.asgi
import pytest
from documents.pages import ROOT, section, table, text_of

from ringbatch import frontend
from ringbatch.engine import Request, Tensor, metrics
from ringbatch.engine.config.kinds import RUNTIMES
from ringbatch.frontend import Client
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.shm.tensor import DATATYPES

HTTP = "docs/reference/http-api.md"
GRPC = "docs/reference/grpc.md"
CLIENT = "docs/reference/client.md"
MODEL_FILES = "docs/reference/model-files.md"


def routes(monkeypatch: pytest.MonkeyPatch, make: Any) -> set[str]:
    """Return method and path of every route that an application has."""
    found: set[str] = set()

    def add(_app: Any, path: str, resource: Any, **_more: Any) -> None:
        path = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), path)
        methods = ("GET", "POST")
        found.update(f"{m} {path}" for m in methods if hasattr(resource, f"on_{m.lower()}"))

    monkeypatch.setattr(falcon.asgi.App, "add_route", add)
    make()
    return found


def requests(*titles: str) -> set[str]:
    """Return method and path of every row of some sections."""
    cells = re.findall(r"^\| `([A-Z, ]+) (/\S*)` \|", "".join(map(of_http, titles)), re.MULTILINE)
    return {f"{method} {path}" for methods, path in cells for method in methods.split(", ")}


def of_http(title: str) -> str:
    return section(HTTP, title)


def test_the_paths_are_those_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    own = requests(
        "KServe's V1",
        "V2 (Open Inference Protocol)",
        "Triton's extensions",
        "Texts",
        "Completions",
        "Health and description",
    )
    assert own == routes(monkeypatch, lambda: create_app(MagicMock(), 1))


def test_the_paths_of_the_control_address_are_those_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = routes(monkeypatch, lambda: create_control_app(MagicMock(), "1", MagicMock()))
    assert requests("Control address") == {one for one in found if " /assets/" not in one}


def test_the_headers_are_words_of_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "frontend").rglob("*.py")).lower()
    code += "".join(path.read_text() for path in (ROOT / "shm").rglob("*.py")).lower()
    titles = ("Request headers", "Response headers")
    cells = re.findall(r"^\| `([\w-]+)[`:]", "".join(map(of_http, titles)), re.MULTILINE)
    assert len(cells) > 15
    assert [one for one in cells if f'"{one.lower()}' not in code and one.lower() not in code] == []


def test_the_grpc_methods_are_those_of_the_protocol_files() -> None:
    protos = (ROOT / "frontend/grpc").glob("*.proto")
    found = {name for path in protos for name in re.findall(r"rpc (\w+)\(", path.read_text())}
    assert {row[0].strip("`") for row in table(GRPC, "method")} == found


def test_the_methods_of_a_client_are_those_of_the_class() -> None:
    named = [row[0].strip("`") for row in table(CLIENT, "name")]
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert {cell.partition("(")[0] for cell in named} == public
    for cell in named:
        name, bracket, written = cell.partition("(")
        if bracket:
            parameters = list(inspect.signature(getattr(Client, name)).parameters.values())[1:]
            bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
            assert str(inspect.Signature(bare)) == f"({written}"


def test_the_arguments_of_a_client_are_those_of_the_class() -> None:
    parameters = list(inspect.signature(Client).parameters.values())
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert f"Client{inspect.Signature(bare)}" in text_of(CLIENT)
    arguments = [row[0].strip("`") for row in table(CLIENT, "argument")]
    assert arguments == [parameter.name for parameter in parameters]


def test_every_public_name_of_the_frontend_is_on_the_page() -> None:
    named = {*re.findall(r"^\| `(\w+)` \|", text_of(CLIENT), re.MULTILINE)}
    own = {"Client", "Many"}
    assert {*frontend.__all__} - own - named == set()
    errors = [row[0].strip("`") for row in table(CLIENT, "error")]
    assert [name for name in errors if not issubclass(getattr(frontend, name), Exception)] == []


def test_the_endings_of_runtimes_are_those_of_the_code() -> None:
    for name, endings, _ in table(MODEL_FILES, "runtime"):
        assert tuple(re.findall(r"`(\.\w+)`", endings)) == RUNTIMES[name.strip("`")]
    assert len(table(MODEL_FILES, "runtime")) == len(RUNTIMES)


def test_the_names_of_a_model_file_are_those_that_are_looked_up() -> None:
    files = (ROOT / "engine/runtimes").glob("python*.py")
    source = "".join(file.read_text() for file in files)
    looked_up = {*re.findall(r'(?:getattr\((?:parts|module)|flag\(path, parts), "(\w+)"', source)}
    # These are looked up by a variable, or as attributes.
    looked_up |= {*re.findall(r'name = "(\w+)" if .* else "(\w+)"', source)[0]}
    looked_up |= {*re.findall(r"parts\.(\w+)", source)}
    named = {re.split(r"\W", row[0].strip("`"))[0] for row in table(MODEL_FILES, "name")}
    assert named == looked_up


def test_the_arguments_of_a_tensor_are_those_of_the_class() -> None:
    parameters = list(inspect.signature(Tensor).parameters.values())
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    assert f"Tensor{inspect.Signature(bare)}" in text_of(MODEL_FILES)
    assert [row[0].strip("`") for row in table(MODEL_FILES, "argument")] == [p.name for p in bare]
    assert [name for name in DATATYPES if f" {name}" not in section(MODEL_FILES, "Tensor")] == []


def test_the_fields_of_a_request_are_those_of_the_class() -> None:
    public = {name for name in dir(Request) if not name.startswith("_")}
    assert {row[0].strip("`") for row in table(MODEL_FILES, "field")} == public


def test_the_metrics_of_a_model_file_are_those_of_the_module() -> None:
    text = section(MODEL_FILES, "Metrics")
    for kind in ("counter", "gauge", "histogram"):
        made = getattr(metrics, kind)
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `metrics.{kind}(")]
        call = row.partition("`metrics.")[2].partition("`")[0]
        assert re.findall(r"(\w+)[,=)]", call.partition("(")[2]) == [
            *inspect.signature(made).parameters
        ]
        shown = set(re.findall(r"`(\w+)\(", row.split("|")[2]))
        own = getattr(metrics, kind.capitalize())
        assert shown == {name for name in vars(own) if not name.startswith("_")}
