"""A real Prometheus finds what clients counted, over every protocol and through a reload."""

import json
import re
import shutil
import struct
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from serve.client import Connection, request
from serve.grpc_stub import Stub, grpc_port
from serve.server import COMMAND, Server, Start

from ringbatch.frontend import Client
from ringbatch.shm.errors import RequestError

MONITORING: Final = Path(__file__).parents[2] / "systemd/monitoring"
MAX_REQUEST_BYTES: Final = 1 << 16
CAP: Final = 4
SPLIT: Final = 2 * CAP + 1
"""Instances of a request that takes three batches."""
GRPC_STATUS: Final = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
CLIENT_STATUS: Final = {"InvalidRequest": 400, "ModelNotFound": 404, "ModelFailed": 500}
WaitUntil = Callable[..., object]
Ends = Counter[tuple[str, str, str]]
"""By model, protocol and status, the requests that have ended."""


def installed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian: prometheus)")
    return found


class Prometheus:
    """One that looks at an engine every second."""

    def __init__(self, folder: Path, port: int, control_port: int) -> None:
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(MONITORING / "alerts.yml")],
            "scrape_configs": [
                {
                    "job_name": "ringbatch",
                    "static_configs": [{"targets": [f"127.0.0.1:{control_port}"]}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(configuration))
        self._address = f"http://127.0.0.1:{port}"
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    installed("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **arguments: str) -> Any:
        """What its API answers."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self._address}/api/v1/{path}?{query}", timeout=20) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[Any]:
        """The series that an expression gives now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def ends(self) -> Ends:
        """What it knows of how requests ended, but for those that are no inferences."""
        ends: Ends = Counter()
        for series in self.query('ringbatch_requests_total{protocol!="http"}'):
            labels, count = series["metric"], int(float(series["value"][1]))
            if count:
                ends[labels.get("model", ""), labels["protocol"], labels["code"]] += count
        return ends


@pytest.fixture
def control_port(free_port_factory: Callable[[], int]) -> int:
    return free_port_factory()


@pytest.fixture
def server(start: Start, control_port: int) -> Server:
    models = {
        "m": {"path": "counted.py", "max_batch_size": CAP, "timeout_s": 30.0},
        "other": {"path": "counted.py", "max_batch_size": CAP},
    }
    return start(models, grpc_port=0, client_lanes=2, frontends=2, control_port=control_port)


@pytest.fixture
def prometheus(
    server: Server, tmp_path: Path, control_port: int, free_port_factory: Callable[[], int]
) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, free_port_factory(), control_port)
    yield running
    running.process.terminate()
    running.process.wait()


def over_v1(server: Server, ends: Ends) -> None:
    def ask(model: str, *values: float, body: bytes | None = None, **headers: str) -> int:
        text = json.dumps({"instances": values}).encode() if body is None else body
        with Connection(server.port) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            status = connection.ask(
                request(f"/v1/models/{model}:predict", text, headers=named)
            ).status
        ends[urllib.parse.unquote(model) if model != "none" else "", "v1", str(status)] += 1
        return status

    for number in range(20):
        assert ask("m", number) == 200
    assert ask("other", 1) == 200
    assert ask("m", *range(SPLIT)) == 200
    assert ask("%6D", 1) == 200, "which Falcon answers"
    assert ask("m", body=b"{") == 400
    assert ask("m", 400) == 400
    assert ask("none", 1) == 404
    assert ask("m", body=b" " * (MAX_REQUEST_BYTES + 1)) == 413
    assert ask("m", 500) == 500
    assert ask("m", 503) == 503, "two workers died of it"
    assert ask("m", 504, X_Request_Timeout="0.1") == 504


def over_v2(server: Server, ends: Ends) -> None:
    def ask(model: str, value: float, data: Any = None, *, binary: bool = False) -> int:
        tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1]}
        raw, headers = b"", {}
        if binary:
            raw = struct.pack("<f", value)
            tensor["parameters"] = {"binary_data_size": len(raw)}
        else:
            tensor["data"] = [value] if data is None else data
        text = json.dumps({"inputs": [tensor]}).encode()
        if binary:
            headers["Inference-Header-Content-Length"] = str(len(text))
        with Connection(server.port) as connection:
            found = connection.ask(
                request(f"/v2/models/{model}/infer", text + raw, headers=headers)
            )
        protocol = "v2_binary" if binary else "v2"
        ends["" if model == "none" else model, protocol, str(found.status)] += 1
        return found.status

    for binary in (False, True):
        for _ in range(5):
            assert ask("m", 1, binary=binary) == 200
        assert ask("none", 1, binary=binary) == 404
        assert ask("m", 400, binary=binary) == 400
        assert ask("m", 500, binary=binary) == 500
    assert ask("m", 1, data="no list") == 400


def over_grpc(server: Server, ends: Ends) -> None:
    with Stub(grpc_port(server)) as stub:

        def ask(model: str, *values: float, **fields: Any) -> str:
            tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)]}
            raw = struct.pack(f"<{len(values)}f", *values)
            code = stub.infer(model, tensor, raw_input_contents=[raw], **fields).code
            ends["" if model == "none" else model, "grpc", str(GRPC_STATUS[code])] += 1
            return code

        for number in range(7):
            assert ask("m", number) == "OK"
        assert ask("m", *range(SPLIT)) == "OK"
        assert ask("none", 1) == "NOT_FOUND"
        assert ask("m", 400) == "INVALID_ARGUMENT"
        assert ask("m", 500) == "INTERNAL"


def over_the_client(server: Server, ends: Ends) -> None:
    with Client(server.pid) as client:

        def ask(model: str, *values: float) -> None:
            code = 200
            try:
                client.infer(model, np.array(values, np.float32))
            except RequestError as error:
                code = CLIENT_STATUS[type(error).__name__]
            ends["" if model == "none" else model, "client", str(code)] += 1

        for number in range(6):
            ask("m", number)
        ask("m", *range(SPLIT))
        ask("none", 1)
        ask("m", 400)
        ask("m", 500)
        client.infer_many("m", np.arange(9, dtype=np.float32))
        ends["m", "client", "200"] += 9


def over_all(server: Server, ends: Ends) -> None:
    for load in (over_v1, over_v2, over_grpc, over_the_client):
        load(server, ends)


def statistics(server: Server, model: str) -> Any:
    with Connection(server.port) as connection:
        answer = connection.ask(request(f"/v2/models/{model}/stats", method="GET"))
    (found,) = answer.json["model_stats"]
    return found


def succeeded(ends: Ends, model: str, *, well: bool) -> int:
    return sum(
        n for (name, _, code), n in ends.items() if name == model and well == (code == "200")
    )


def test_prometheus_finds_what_the_clients_counted(
    server: Server, prometheus: Prometheus, wait_until: WaitUntil
) -> None:
    ends: Ends = Counter()
    over_all(server, ends)
    reloaded = subprocess.run(
        [*COMMAND, "reload", "m", "--pid", str(server.pid)], capture_output=True, text=True
    )
    assert reloaded.returncode == 0, reloaded.stderr
    over_all(server, ends)

    def found() -> Ends:
        with suppress(OSError):
            return prometheus.ends()
        return Counter()

    with suppress(AssertionError):
        wait_until(lambda: found() == ends, "all is scraped")
    assert found() == ends
    for model in ("m", "other"):
        stats = statistics(server, model)
        inferences = stats["inference_stats"]
        for name, well in (("success", True), ("fail", False)):
            assert inferences[name]["count"] == succeeded(ends, model, well=well)
            assert (inferences[name]["ns"] > 0) == (inferences[name]["count"] > 0)
        computed = {inferences[f"compute_{part}"]["count"] for part in ("input", "infer", "output")}
        assert len(computed) == 1
        assert (
            sum(size["compute_infer"]["count"] for size in stats["batch_stats"])
            == (stats["execution_count"])
        )
    splits = 2 * 3
    extra = splits * (SPLIT - 1)
    assert statistics(server, "m")["inference_count"] == succeeded(ends, "m", well=True) + extra
    by_name = {
        "ringbatch_model_worker_deaths_total{reason='crashed',model='m'}": 4,
        "ringbatch_request_seconds_count{model='m'}": succeeded(ends, "m", well=True),
        "ringbatch_model_workers{model='m'}": 1,
        "ringbatch_build_info": 1,
        "ringbatch_collector_starts_total": 1,
    }
    for expression, value in by_name.items():
        (series,) = prometheus.query(expression)
        assert float(series["value"][1]) == value, expression
    processes = {
        s["metric"]["process"] for s in prometheus.query("ringbatch_process_resident_memory_bytes")
    }
    assert {
        "supervisor",
        "collector",
        "standby",
        "control",
        "worker m/0",
        "worker other/0",
    } <= processes
    (retried,) = prometheus.query("ringbatch_model_retried_total{model='m'}")
    assert float(retried["value"][1]) >= 2


def expressions() -> list[str]:
    """Of every panel of the dashboard, as Grafana would send them."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [
        target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def test_dashboard_and_rules_ask_for_what_there_is(
    server: Server, prometheus: Prometheus, wait_until: WaitUntil
) -> None:
    over_v1(server, Counter())
    names = re.compile(r"ringbatch_[a-z_]+")

    def known() -> set[str]:
        with suppress(OSError):
            return set(prometheus.ask("label/__name__/values"))
        return set()

    rules = (MONITORING / "alerts.yml").read_text()
    asked = set(names.findall(" ".join([*expressions(), *re.findall(r"^ {10}.*$", rules, re.M)])))
    wait_until(lambda: asked <= known(), "every metric that is asked for is there")
    # A rate takes two looks.
    wait_until(lambda: all(map(prometheus.query, expressions())), "every panel shows something")
    groups = prometheus.ask("rules")["groups"]
    health = [(rule["name"], rule["health"]) for group in groups for rule in group["rules"]]
    assert [name for name, how in health if how == "err"] == []

    def firing() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}

    over_v1(server, Counter())
    wait_until(
        lambda: {"RingbatchErrorsBurnFast", "RingbatchErrorsBurn"} <= firing(), "failures are said"
    )


def test_the_rules_are_as_promtool_wants_them() -> None:
    checked = subprocess.run(
        [installed("promtool"), "check", "rules", str(MONITORING / "alerts.yml")],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_served_is_as_promtool_wants_it(server: Server, control_port: int) -> None:
    over_all(server, Counter())
    with Connection(control_port) as connection:
        text = connection.ask(request("/metrics", method="GET")).body
    checked = subprocess.run(
        [installed("promtool"), "check", "metrics"], input=text, capture_output=True
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
