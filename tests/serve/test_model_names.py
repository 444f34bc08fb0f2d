"""Names of models, from end to end: the oddest that a model may have, and odder ones, which stand
in requests alone and come out nowhere as anything but text."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve.client import Connection, predict_target, request
from serve.grpc_stub import Stub, grpc_port
from serve.scripted import v2_body
from serve.server import COMMAND, Server, Start
from tiers import exhaustive, first_of

from ringbatch.frontend import Client, ModelNotFound

NAMES: Final = ("...", "-", "__", "0", ("A.b-" * 32))
"""Legal names of models; the last is as long as a name may be."""
ODDER: Final = (
    'a"b',
    "a\\b",
    'a\\"b\\n',
    "a\nb",
    "a\r\nb",
    "two words",
    "\N{SNOWMAN}\N{LATIN SMALL LETTER E WITH ACUTE}",
    '"} 1\nforged{model="x',
    "\x1b[31m",
    "\N{LINE SEPARATOR}",
    "x" * 129,
)
LONGEST_TARGET: Final = 128
"""Most characters of a target in the log."""
ENGINE: Final = f"names-{os.getpid()}"
WaitUntil = Callable[..., object]


@pytest.fixture(scope="module", params=first_of(["json", "text"], 1))
def server(
    request: pytest.FixtureRequest, start_for_module: Start, free_port_factory: Callable[[], int]
) -> Server:
    return start_for_module(
        {f'"{name}"': {"path": "counted.py", "max_batch_size": 4} for name in NAMES},
        name=f"{ENGINE}-{request.param}",
        grpc_port=0,
        control_port=free_port_factory(),
        access_log="all",
        log_format=request.param,
    )


def asked(server: Server, name: str) -> list[int | str]:
    """Return the answers of a model of that name: over V1, V2, gRPC and in this process."""
    quoted = urllib.parse.quote(name, safe="")
    body = v2_body((1,), binary=False)[0]
    statuses: list[int | str] = []
    with Connection(server.port) as connection:
        for target, text in (
            (predict_target(quoted), b'{"instances": [1]}'),
            (f"/v2/models/{quoted}/infer", body),
        ):
            statuses.append(connection.ask(request(target, text)).status)
    with Stub(grpc_port(server)) as stub:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1]}
        raw = np.ones(1, "<f4").tobytes()
        statuses.append(stub.infer(name, tensor, raw_input_contents=[raw]).code)
    with Client(server.pid) as client:
        try:
            client.infer(name, np.ones(1, np.float32))
            statuses.append("answered")
        except ModelNotFound:
            statuses.append("not found")
    return statuses


def metrics(server: Server) -> str:
    with Connection(server.control_port) as connection:
        answer = connection.ask(request("/metrics", method="GET"))
    return answer.body.decode()


def counted(server: Server) -> dict[tuple[str, str, str], float]:
    """Requests by model, protocol and status, as another's parser reads them."""
    (family,) = (
        family
        for family in text_string_to_metric_families(metrics(server))
        if family.name == "ringbatch_requests"
    )
    return {
        (labels["model"], labels["protocol"], labels["code"]): sample.value
        for sample in family.samples
        if (labels := sample.labels)["protocol"] != "http" and sample.value
    }


def fields(line: str) -> dict[str, Any]:
    """Return the fields of a log line in either form."""
    if line.startswith("{"):
        return dict(json.loads(line))
    # Quoted values are JSON.
    pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)
    return {name: json.loads(text) if text[0] == '"' else text for name, text in pairs}


@pytest.fixture(scope="module")
def before(server: Server) -> dict[tuple[str, str, str], float]:
    """Counts before the first test sends anything."""
    return counted(server)


def test_every_name_that_a_model_may_have_is_itself_everywhere(
    server: Server, before: dict[tuple[str, str, str], float], wait_until: WaitUntil
) -> None:
    assert before == {}
    for name in NAMES:
        assert asked(server, name) == [200, 200, "OK", "answered"]
    protocols = ("v1", "v2", "grpc", "client")
    expected = {(name, protocol, "200"): 1 for name in NAMES for protocol in protocols}
    wait_until(lambda: counted(server) == expected, "all are counted")
    with Connection(server.port) as connection:
        statistics = connection.ask(request("/v2/models/stats", method="GET")).json["model_stats"]
    assert {one["name"]: one["inference_count"] for one in statistics} == dict.fromkeys(NAMES, 4)
    assert server.status().models.keys() == {*NAMES}
    # All protocols but the client, which has no log.
    expected_lines = sorted(3 * [*NAMES])
    wait_until(lambda: logged(server, "answered", "model") == expected_lines, "all are logged")
    for command in (["status"], ["models"], ["top", "--once"]):
        done = subprocess.run(
            [*COMMAND, *command, "--pid", str(server.pid)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        for name in NAMES:
            assert any(name[:20] in line for line in done.stdout.splitlines()), done.stdout


def logged(server: Server, end: str, field: str) -> list[str]:
    lines = [line for line in server.stderr.splitlines() if f"request {end}" in line]
    return sorted(found[field] for line in lines if field in (found := fields(line)))


def test_no_name_in_a_request_becomes_more_than_text(server: Server, wait_until: WaitUntil) -> None:
    earlier = counted(server)
    for name in ODDER:
        assert asked(server, name) == [404, 404, "NOT_FOUND", "not found"]
    protocols = ("v1", "v2", "grpc", "client")
    nowhere = {("", protocol, "404"): len(ODDER) for protocol in protocols}
    wait_until(lambda: counted(server) == earlier | nowhere, "all are counted")
    targets = {f"POST /v1/models/{name}:predict"[:LONGEST_TARGET] for name in ODDER}
    targets |= {f"POST /v2/models/{name}/infer"[:LONGEST_TARGET] for name in ODDER}

    def all_are_logged() -> bool:
        return targets <= {*logged(server, "failed", "target")}

    wait_until(all_are_logged, "all are logged")
    assert "forged" not in {
        *logged(server, "failed", "model"),
        *logged(server, "answered", "model"),
    }
    assert all(
        line.isprintable() and line.startswith(("{", "20")) for line in server.stderr.splitlines()
    )


@exhaustive
def test_promtool_accepts_their_metrics(server: Server) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    with Connection(server.control_port) as connection:
        text = connection.ask(request("/metrics", method="GET")).body
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
