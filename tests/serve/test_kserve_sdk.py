"""The inference clients of the kserve SDK, unchanged, against a real server.

Of the second tier because the SDK takes long to install. What it asks, in V1, V2 and gRPC, others
ask in the first: test_inputs.py, test_tritonclient.py, test_grpc.py.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serve.server import Start
from tiers import exhaustive

pytestmark = exhaustive

TWICE = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "{datatype}", [{size}])]
outputs = [Tensor("y", "{datatype}", [{size}])]
def predict(x):
    return x + x
"""
MATMUL = [float(sum(n % 7 for n in range(start, 160, 10))) for start in range(10)]
ANSWERS = {
    "long": ["long", "of long", "y", "INT64", [2, 2], [[2, 4], [2**61, 8]]],
    "half": ["half", "of half", "y", "FP16", [1, 2], [[1.0, float("inf")]]],
    "strings": ["strings", "of strings", "y", "BYTES", [2, 1], [["aa"], ["äöäö"]]],
    "matmul": ["matmul", "of matmul", "y", "FP32", [2, 10], [MATMUL, MATMUL]],
}


@pytest.fixture(scope="module")
def results(
    start_for_module: Start,
    tmp_path_factory: pytest.TempPathFactory,
    free_port_factory: Callable[[], int],
) -> dict[str, Any]:
    """Results of the SDK's clients."""
    if importlib.util.find_spec("kserve") is None:
        pytest.skip(
            "kserve is not installed; the extra `test-exhaustive` has it, but there is no release "
            "for Python 3.14"
        )
    folder = tmp_path_factory.mktemp("models")
    models = {"matmul": {"path": "matmul.py"}}
    for name, datatype, size in (
        ("long", "INT64", 2),
        ("half", "FP16", 2),
        ("strings", "BYTES", 1),
    ):
        path: Path = folder / f"{name}.py"
        path.write_text(TWICE.format(datatype=datatype, size=size))
        models[name] = {"path": str(path)}
    grpc_port = free_port_factory()
    server = start_for_module(models, grpc_port=grpc_port)
    script = Path(__file__).with_name("kserve_sdk.py")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(server.port), str(grpc_port)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_v1(results: dict[str, Any]) -> None:
    v1 = results["v1"]
    assert (v1["live"], v1["model ready"]) == (True, True)
    assert v1["predictions"] == [MATMUL]
    assert "instances[0] has shape [15]" in v1["refused"]


def test_v2_shows_readiness(results: dict[str, Any]) -> None:
    v2 = results["v2"]
    assert (v2["live"], v2["ready"], v2["model ready"]) == (True, True, True)
    assert v2["unknown ready"] is False
    assert 'there is no model "unknown"' in v2["refused"]


@pytest.mark.parametrize("protocol", ["v2", "grpc"])
@pytest.mark.parametrize("model", ANSWERS)
def test_every_form_of_a_request_gets_the_answer(
    results: dict[str, Any], protocol: str, model: str
) -> None:
    answers = results[protocol]["answers"][model]
    assert answers
    assert answers == [ANSWERS[model]] * len(answers)


def test_grpc_shows_readiness(results: dict[str, Any]) -> None:
    grpc = results["grpc"]
    assert (grpc["live"], grpc["ready"], grpc["model ready"]) == (True, True, True)
