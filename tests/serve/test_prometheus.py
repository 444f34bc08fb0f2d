"""A real Prometheus finds what clients counted, over every protocol and through a reload."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from documents.commands import write
from documents.pages import example
from model_server import ModelServer, running
from serve.client import Connection, instances, predict_target, request
from serve.scripted import (
    BUSY,
    CAP,
    FRONTENDS,
    MAX_IN_FLIGHT,
    MAX_REQUEST_BYTES,
    Ends,
    Script,
    too_busy,
)
from serve.secure import KEY, bearer, write_private
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

MONITORING: Final = Path(__file__).parents[2] / "systemd/monitoring"
WaitUntil = Callable[..., object]


def needs(program: str) -> pytest.MarkDecorator:
    """Skips before any server is started for the test."""
    reason = f"{program} is not installed (Debian: prometheus)"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


class Prometheus:
    """Prometheus server that scrapes an engine every second."""

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
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **arguments: str) -> Any:
        """Return the data that its API answers."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self._address}/api/v1/{path}?{query}", timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[Any]:
        """The series that an expression gives now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def ends(self) -> Ends:
        """Return the counts of ended requests, but for those with a key that are no inferences."""
        ends: Ends = Counter()
        inferences = 'ringbatch_requests_total{protocol!="http"}'
        for series in self.query(inferences + ' or ringbatch_requests_total{code="401"}'):
            labels, count = series["metric"], int(float(series["value"][1]))
            if count:
                ends[labels.get("model", ""), labels["protocol"], labels["code"]] += count
        return ends


@pytest.fixture
def control_port(free_port_factory: Callable[[], int]) -> int:
    return free_port_factory()


@pytest.fixture(scope="module")
def behind() -> Iterator[ModelServer]:
    with running() as server:
        server.respond = too_busy
        yield server


@pytest.fixture
def server(start: Start, behind: ModelServer, tmp_path: Path, control_port: int) -> Server:
    models = {
        "m": {"path": "counted.py", "max_batch_size": CAP, "timeout_s": 30.0},
        "other": {"path": "counted.py", "max_batch_size": CAP},
        BUSY: {"path": f"{behind.url}/v2/models/linear", "protocol": "v2"},
        "stepping": {"path": "stepping.py", "max_batch_size": 2},
    }
    return start(
        models,
        grpc_port=0,
        client_lanes=2,
        frontends=FRONTENDS,
        max_in_flight=MAX_IN_FLIGHT,
        max_request_bytes=MAX_REQUEST_BYTES,
        api_keys_file=str(write_private(tmp_path / "keys", KEY)),
        control_port=control_port,
    )


@pytest.fixture
def script(server: Server, wait_until: WaitUntil) -> Script:
    return Script(server, wait_until)


@pytest.fixture
def prometheus(
    server: Server, tmp_path: Path, control_port: int, free_port_factory: Callable[[], int]
) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, free_port_factory(), control_port)
    yield running
    running.process.terminate()
    running.process.wait()


def statistics(server: Server, model: str) -> Any:
    with Connection(server.port) as connection:
        target = f"/v2/models/{model}/stats"
        answer = connection.ask(request(target, method="GET", headers=bearer()))
    (found,) = answer.json["model_stats"]
    return found


def succeeded(ends: Ends, model: str, *, well: bool) -> int:
    return sum(
        n for (name, _, code), n in ends.items() if name == model and well == (code == "200")
    )


@exhaustive
@needs("prometheus")
def test_prometheus_finds_the_clients_counts(
    server: Server, script: Script, prometheus: Prometheus, wait_until: WaitUntil
) -> None:
    script.run()
    reloaded = subprocess.run(
        [*COMMAND, "reload", "--model", "m", "--pid", str(server.pid)],
        capture_output=True,
        text=True,
    )
    assert reloaded.returncode == 0, reloaded.stderr
    script.run()
    ends = script.ends

    def found() -> Ends:
        with suppress(OSError):
            return prometheus.ends()
        return Counter()

    with suppress(AssertionError):
        wait_until(lambda: found() == ends, "all is scraped")
    assert found() == ends
    for model in ("m", "other", BUSY):
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
    assert statistics(server, "m")["inference_count"] == script.instances
    by_name = {
        "ringbatch_model_worker_deaths_total{reason='crashed',model='m'}": 4,
        "ringbatch_model_worker_deaths_total{reason='killed',model='m'}": 2,
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
    """Return the expressions of every panel of the dashboard, as Grafana would send them."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [
        target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


@exhaustive
@needs("prometheus")
def test_dashboard_and_rules_query_existing_metrics(
    server: Server, script: Script, prometheus: Prometheus, wait_until: WaitUntil
) -> None:
    script.over_v1()
    with Connection(server.port) as connection:
        headers = bearer() | {"Accept": "text/event-stream"}
        body = instances({"text": ["3"]})
        answer = connection.ask(request(predict_target("stepping"), body, headers=headers))
        assert answer.status == 200
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

    script.over_v1()
    wait_until(
        lambda: {"RingbatchErrorsBurnFast", "RingbatchErrorsBurn"} <= firing(), "failures are said"
    )


def test_engines_of_different_jobs_are_never_added_up() -> None:
    shown = [(MONITORING / "alerts.yml").read_text(), *expressions()]
    kept = re.findall(r"\b(?:sum|max|min|avg|count)(?: by \(([^)]*)\))? ?\(", " ".join(shown))
    assert len(kept) > len(shown)
    assert [labels for labels in kept if "job" not in labels.split(", ")] == []


JOBS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'ringbatch_requests_total{{job="live",model="m",version="1",code="200"}}'
        values: '0+100000x400'
      - series: 'ringbatch_requests_total{{job="staging",model="m",version="1",code="500"}}'
        values: '0+1x400'
    alert_rule_test:
      - eval_time: 390m
        alertname: RingbatchErrorsBurnFast
        exp_alerts:
          - exp_labels: {{job: staging, model: m, version: "1", severity: page}}
            exp_annotations: {{summary: {summary!r}, description: {description!r}}}
"""


@needs("promtool")
def test_a_jobs_failures_are_not_hidden_by_another_jobs_successes(tmp_path: Path) -> None:
    rules = tmp_path / "test.yml"
    text = JOBS.format(
        rules=MONITORING / "alerts.yml",
        summary="staging: m 1 fails requests so fast that a month's budget is gone in two days",
        description="Of an objective of 99.9 % of the requests, over one hour and still over the "
        "last five minutes.",
    )
    rules.write_text(text)
    checked = subprocess.run(
        ["promtool", "test", "rules", str(rules)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs("promtool")
def test_the_rules_are_as_promtool_wants_them() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(MONITORING / "alerts.yml")],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs("promtool")
def test_the_scrape_of_the_page_is_as_promtool_wants_it(tmp_path: Path) -> None:
    write(tmp_path, "prometheus.yml", example("docs/how-to/monitor.md", "prometheus.yml"))
    command = ["promtool", "check", "config", "prometheus.yml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs("promtool")
def test_promtool_accepts_the_served_metrics(script: Script, control_port: int) -> None:
    script.run()
    with Connection(control_port) as connection:
        text = connection.ask(request("/metrics", method="GET", headers=bearer(KEY))).body
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
