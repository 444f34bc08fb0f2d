"""The manifest for KServe: of the shape that KServe's own Python package publishes, and of one mind
with itself."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tiers import exhaustive

from ringbatch.engine.config.settings import ServerConfig

# It has no types.
yaml: Any = pytest.importorskip("yaml")

FILE: Final = Path(__file__).parents[2] / "systemd/container/inferenceservice.yaml"
PLAIN: Final = {"str": str, "int": int, "bool": bool, "float": float}
SERVER, BATCHER = "kserve-container", "transformer-container"
"""KServe's names of the containers of the model server and of the batcher in front of it."""


PRINT_KINDS: Final = """
import json, re
from kserve import models as ours
from kubernetes.client import models as theirs
kinds, wanted = {}, ["V1beta1InferenceService"]
while wanted:
    name = wanted.pop()
    found = getattr(ours, name, None) or getattr(theirs, name, None)
    if name not in kinds and hasattr(found, "openapi_types"):
        kinds[name] = found.attribute_map, found.openapi_types
        wanted += re.findall("[A-Za-z0-9]+", " ".join(found.openapi_types.values()))
print(json.dumps(kinds))
"""
"""Program that prints the kinds of kserve's models.

kserve's messages for gRPC and Triton's have the same names, so that one process can import only
one of them.
"""


class Kind(NamedTuple):
    """A model: the public name of each field by its own, and the kind of each."""

    attribute_map: dict[str, str]
    openapi_types: dict[str, str]


Kinds = Mapping[str, Kind]


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    """The models that KServe and Kubernetes publish."""
    if importlib.util.find_spec("kserve") is None:
        pytest.skip("kserve is not installed; the extra `test-exhaustive` has it")
    completed = subprocess.run([sys.executable, "-c", PRINT_KINDS], capture_output=True, check=True)
    return {name: Kind(*fields) for name, fields in json.loads(completed.stdout).items()}


@pytest.fixture
def manifest() -> Any:
    return yaml.safe_load(FILE.read_text())


def faults(value: Any, kind: str, kinds: Kinds, place: str = "") -> Iterator[str]:
    """Yield the places where a value is not of the kind that KServe or Kubernetes declares."""
    # Of the two packages each has its own way of writing them.
    listed = re.fullmatch(r"[Ll]ist\[(.+)\]", kind)
    of_text = re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", kind)
    model = kinds.get(kind)
    if listed and isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, listed[1], kinds, f"{place}[{number}]")
    elif of_text and isinstance(value, dict):
        for key, item in value.items():
            yield from faults(item, of_text[1], kinds, f"{place}.{key}")
    elif model is not None and isinstance(value, dict):
        names = {public: name for name, public in model.attribute_map.items()}
        for key, item in value.items():
            if key in names:
                yield from faults(item, model.openapi_types[names[key]], kinds, f"{place}.{key}")
            else:
                yield f"{place}.{key}: {kind} has no such field"
    elif kind not in ("object", "ResourceQuantity") and not isinstance(value, PLAIN.get(kind, ())):
        yield f"{place}: {value!r} is no {kind}"


def containers(manifest: Any) -> tuple[Any, Any]:
    """The model server's, and ringbatch's."""
    by_name = {found["name"]: found for found in manifest["spec"]["predictor"]["containers"]}
    assert by_name.keys() == {SERVER, BATCHER}
    return by_name[SERVER], by_name[BATCHER]


@exhaustive
def test_it_is_an_inference_service(manifest: Any, kinds: Kinds) -> None:
    assert manifest["apiVersion"] == "serving.kserve.io/v1beta1"
    assert manifest["kind"] == "InferenceService"
    assert list(faults(manifest, "V1beta1InferenceService", kinds)) == []


@exhaustive
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("spec", "predictors"), {}, ".spec.predictors: V1beta1InferenceServiceSpec has no such"),
        (("spec", "predictor", "containers"), {}, ".spec.predictor.containers: {} is no list"),
        (("spec", "predictor", "minReplicas"), "2", ".minReplicas: '2' is no int"),
        (("spec", "predictor", "volumes", 0, "emptydir"), {}, "volumes[0].emptydir: V1Volume has"),
    ],
)
def test_one_of_another_shape_is_found(
    manifest: Any, kinds: Kinds, path: tuple[str | int, ...], value: object, words: str
) -> None:
    part = manifest
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (fault,) = faults(manifest, "V1beta1InferenceService", kinds)
    assert words in fault


def test_each_asks_the_other_where_it_listens(manifest: Any) -> None:
    server, batcher = containers(manifest)
    flags = dict(flag.lstrip("-").split("=") for flag in batcher["args"][1:])
    assert batcher["args"][0] == "sidecar"
    assert f"--http_port={flags['component-port']}" in server["args"]
    assert "ports" not in server
    (port,) = batcher["ports"]
    assert str(port["containerPort"]) == flags["port"]
    probes = [batcher[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [probe["port"] for probe in probes] == [port["containerPort"]] * 3
    assert [probe["path"].rpartition("/")[2] for probe in probes] == ["ready", "ready", "live"]


def test_both_have_one_large_shared_memory(manifest: Any) -> None:
    (volume,) = manifest["spec"]["predictor"]["volumes"]
    assert volume["emptyDir"]["medium"] == "Memory"
    for container in containers(manifest):
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/dev/shm"}]


def test_the_model_server_outlives_the_last_requests_to_it(manifest: Any) -> None:
    server_s, batcher_s = (
        int(found["lifecycle"]["preStop"]["exec"]["command"][1]) for found in containers(manifest)
    )
    assert batcher_s + ServerConfig().drain_s < server_s
    assert server_s < manifest["spec"]["predictor"]["terminationGracePeriodSeconds"]
