"""How-to pages about running an engine: their commands, against README's model."""

import json
import re
import shlex
import shutil
import stat
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import README, ROOT, example, output_after, table
from serve.client import Connection, request
from serve.server import SMALL, Server
from tiers import exhaustive

from ringbatch.engine.command import cli
from ringbatch.engine.models import model_metrics
from ringbatch.engine.models.model_metrics import Book
from ringbatch.engine.process.cpu_plan import CpuRequest, Host, plan
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import OwnMetrics
from ringbatch.shm.shm_objects import remove_dead_engines

WaitUntil = Callable[..., Any]

INSTALL: Final = "docs/how-to/install.md"
MONITOR: Final = "docs/how-to/monitor.md"
PAYLOADS: Final = "docs/how-to/log-payloads.md"
PYTHON: Final = "docs/how-to/serve-python.md"
SETTINGS: Final = "docs/how-to/choose-settings.md"
SHARE: Final = "docs/how-to/share-between-teams.md"
SLOW: Final = "docs/how-to/explain-slow-requests.md"
SOCKETS: Final = "docs/how-to/use-unix-sockets.md"
TLS: Final = "docs/how-to/use-tls-and-keys.md"
UPGRADE: Final = "docs/how-to/upgrade.md"


STARTS: Final = (example(MONITOR, "serve"), example(SOCKETS, "serve"), example(SLOW, "serve"))


@pytest.mark.parametrize("command", STARTS)
def test_each_start_command_matches_the_engine_of_these_tests(command: str) -> None:
    """The engine of these tests has the options of all three."""
    arguments = cli._parser().parse_args(shlex.split(command)[1:])
    assert arguments.model == ["model.py"]
    assert arguments.control_port == 9090 or arguments.unix_socket == "$PWD/prod.sock"


def test_metrics_are_at_the_control_address(served: Server, tmp_path: Path) -> None:
    assert "ringbatch_requests_total" in printed(example(MONITOR, "curl"), tmp_path, served)


def test_a_request_may_name_its_class(served: Server, tmp_path: Path) -> None:
    command = example(SHARE, "curl")
    assert "predictions" in printed(command, tmp_path, served)
    assert "not interactive, normal or bulk" in printed(
        command.replace(" bulk", " urgent"), tmp_path, served
    )


@exhaustive
def test_the_teams_share_an_engine(tmp_path: Path) -> None:
    write(tmp_path, "model.py", example(README, "model.py"))
    write(tmp_path, "keys", example(SHARE, "keys"))
    (tmp_path / "keys").chmod(0o600)
    write(tmp_path, "teams.toml", example(SHARE, "teams.toml"))
    with serving(tmp_path, example(SHARE, "serve")) as server:
        command = example(SHARE, "curl")
        assert "predictions" in printed(command, tmp_path, server)
        stranger = command.replace("X-API-Key: ", "X-API-Key: no")
        assert "an API key of this server is needed" in printed(stranger, tmp_path, server)


def test_commands_show_a_running_engine_as_on_the_page(served: Server, tmp_path: Path) -> None:
    with Connection(served.port) as connection:
        body = json.dumps({"instances": [[0] * 16]}).encode()
        assert connection.ask(request("/v1/models/mnist:predict", body)).status == 200
    status, models, top = example(MONITOR, "status").splitlines()
    output = printed(status, tmp_path, served)
    assert "mnist" in output
    assert "idle" in output
    assert "mnist" in printed(models, tmp_path, served)
    assert "mnist" in printed(top, tmp_path, served)


def test_the_model_that_counts_does(monkeypatch: pytest.MonkeyPatch) -> None:
    book, memory = Book(), memoryview(bytearray(OwnMetricWords.SIZE * 8))
    monkeypatch.setattr(model_metrics, "BOOK", book)
    block, names = OwnMetrics(memory, 0), dict[str, Any]()
    book.open(block, 0, set())
    exec(example(MONITOR, "counted.py"), names)
    texts = [{"text": "x" * 101, "lang": "de"}, {"text": "y", "lang": "en"}]
    assert names["predict"](texts) == [101, 1]
    (counted,) = block.read()
    assert (counted.metric.name, counted.labels, counted.values) == ("texts_cut", ("de",), (1.0,))


def test_an_answer_says_where_its_time_went(served: Server, tmp_path: Path) -> None:
    output = printed(example(SLOW, "curl"), tmp_path, served)
    (shown,) = [line for line in output.splitlines() if line.startswith("server-timing: ")]
    for phase in ("queue", "gather", "run", "scatter", "write", "total"):
        assert f"{phase};dur=" in shown
        assert f"{phase};dur=" in output_after(SLOW, "curl")


def test_a_unix_socket_answers(served: Server, tmp_path: Path) -> None:
    folder = Path(f"/proc/{served.pid}/cwd").resolve()
    command = example(SOCKETS, "curl").replace("curl", "curl -w '%{http_code}'")
    assert printed(command, folder, served) == output_after(SOCKETS, "curl") + "200"


@exhaustive
def test_keys_are_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "model.py", example(README, "model.py"))
    printed(example(TLS, "keys"), tmp_path)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    with serving(tmp_path, example(TLS, "serve")) as server:
        with Connection(server.port) as connection:
            assert connection.ask(request("/v1/models", method="GET")).status == 401
        assert "model" in printed(example(TLS, "curl"), tmp_path, server)


@exhaustive
def test_the_certificate_for_a_try_is_served(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    write(tmp_path, "model.py", example(README, "model.py"))
    printed(example(TLS, "certificate"), tmp_path)
    with serving(tmp_path, example(TLS, "serve-tls")) as server:
        assert '"models":["model"]' in printed(example(TLS, "curl-tls"), tmp_path, server)


@exhaustive
def test_payloads_are_kept(tmp_path: Path, wait_until: WaitUntil) -> None:
    write(tmp_path, "prod.toml", example(PAYLOADS, "prod.toml"))
    write(tmp_path, "words.py", example(PYTHON, "words.py"))
    kept = tmp_path / "payloads.jsonl"

    def events() -> list[dict[str, Any]]:
        lines = kept.read_text().splitlines() if kept.exists() else []
        return [json.loads(line) for line in lines]

    with serving(tmp_path, example(PAYLOADS, "serve"), "--payload-log-sample", "1") as server:
        printed(example(PYTHON, "words-curl"), tmp_path, server)
        wait_until(lambda: len(events()) == 2, "a request and its answer in the file")
    named = {row[0].strip("`") for row in table(PAYLOADS, "attribute")}
    for event, kind in zip(events(), ("request", "response"), strict=True):
        assert event["type"] == f"org.kubeflow.serving.inference.{kind}"
        assert {"type", "data", "requestid", "bodybytes"} <= event.keys()
    assert {"type", "requestid`, `batchid", "bodybytes"} <= named


@exhaustive
def test_an_engine_is_reloaded_and_handed_over(tmp_path: Path) -> None:
    write(tmp_path, "model.py", example(README, "model.py"))
    name = f"prod-{tmp_path.name}"
    text = f'[server]\nname = "{name}"\nport = 0\n[models.mnist]\npath = "model.py"\n'
    write(tmp_path, "prod.toml", text)
    (tmp_path / "next").mkdir()
    with serving(tmp_path, "ringbatch serve --config prod.toml") as old:
        printed(example(UPGRADE, "reload"), tmp_path, old)
        program, command, *arguments = shlex.split(example(UPGRADE, "handover"))
        assert (program, command) == ("ringbatch", "handover")
        arguments[arguments.index("prod.toml")] = str(tmp_path / "prod.toml")
        new = Server(tmp_path / "next", *arguments, *SMALL, command=command)
        try:
            assert new.wait_ready().port == old.port
            assert old.process.wait() == 0
        finally:
            new.destroy()
            remove_dead_engines()


@pytest.mark.parametrize("row", table(SETTINGS, "CPUs"), ids=lambda row: f"{row[0]}-cpus")
def test_start_values_are_those_of_placement(row: list[str]) -> None:
    cpus, frontends, workers, threads, in_front = map(int, row)
    host = Host(tuple(range(cpus)), {}, cpus)
    requests = [CpuRequest("a worker")] * workers
    planned = plan(host, requests, auto=True, frontends=frontends, frontend_cpus=None)
    assert len(planned.frontends or ()) == in_front
    assert {worker.threads for worker in planned.workers} == {threads}
    assert in_front + workers * threads == cpus


def test_the_extras_are_those_of_the_package() -> None:
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    named = {name for row in table(INSTALL, "extra") for name in re.findall(r"`(.+?)`", row[0])}
    developers = {"docs", "lint", "test", "test-exhaustive"}
    assert named == {*package["options.extras_require"]} - developers
