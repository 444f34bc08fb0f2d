"""`ringbatch bench` as its user sees it: a page for a model of one's own, or words.

Where the environment names a folder in RINGBATCH_SCREENSHOTS, screenshots are left there.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from documents.pages import README, example
from serve.browser import Browser
from serve.secure import Authority
from serve.server import COMMAND, Server, Start, configured
from tiers import exhaustive

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import Outcome
from ringbatch.bench.load.target import Target
from ringbatch.bench.report.point import Asked, judged
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.asking import ask
from ringbatch.bench.served.engine import started
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.engine.command import cli

PAGE = "docs/how-to/choose-settings.md"
QUICK = ("--even-if-busy", "--duration-s", "0.3", "--rounds", "1", "--max-lag-ms", "60000")
SLACK = ("--even-if-busy", "--p99-ms", "5000")
"""Flags for a crowded machine, on which no rate keeps the page's limit."""
STALL_S = 0.5
ROW = orjson.dumps({"instances": [[*range(16)]]})


@pytest.fixture(scope="module")
def served(start_for_module: Start) -> Server:
    """A model of sixteen numbers, on one frontend."""
    return start_for_module({"matmul": {"path": "matmul.py"}}, control_port=0)


def bench(*arguments: str | Path) -> int:
    return cli.main(["bench", *map(str, arguments)])


# Proofs


def seen_with_stop(served: Server, pid_of: str) -> Outcome:
    """A run of two seconds in which a process stands still for half a second."""
    requests = [post("x", "/v1/models/matmul:predict", ROW)]
    with Fleet(1, Target("127.0.0.1", served.port), requests) as fleet:
        pid = fleet.pids[0] if pid_of == "generator" else served.role("frontend 0")
        before = served.status().models["matmul"].requests

        ended = threading.Event()

        def stop() -> None:
            while served.status().models["matmul"].requests < before + 50:
                if ended.wait(0.01):
                    return
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=stop)
        thread.start()
        try:
            return fleet.run(Arrivals(Kind.POISSON, 2, 400, seed=1), 256, 30)
        finally:
            ended.set()
            thread.join()


def test_a_stall_of_the_server_appears_in_its_percentiles(served: Server) -> None:
    """A quarter of all requests were due meanwhile; a closed loop would have sent none of them."""
    found = seen_with_stop(served, "frontend")
    longest_ms = STALL_S * 1e3
    assert found.times().quantile_ns(0.99) / 1e6 > 0.8 * longest_ms
    assert found.times().quantile_ns(0.9) / 1e6 > 0.4 * longest_ms
    late = (found.took_ns > 0.1 * longest_ms * 1e6).mean()
    assert late > 0.15
    # The generator itself was on time all the while.
    assert found.lag_ms(0.9) < 0.2 * longest_ms


@exhaustive
def test_a_generator_that_stood_still_says_so_and_its_run_is_void(served: Server) -> None:
    found = seen_with_stop(served, "generator")
    assert found.lag_ms(0.99) > 0.8 * STALL_S * 1e3
    point = judged(Asked("a", 400.0, 256), [found], [None], slo=Slo(20), lag_max_ms=5)
    assert "the generator was late" in point.void[0]
    assert point.figures == {}
    # Nothing is hidden: its requests count from when they were due.
    assert (found.took_ns >= found.lag_ns).all()


def test_several_generators_make_the_load_of_one(served: Server) -> None:
    requests = [post("x", "/v1/models/matmul:predict", ROW)]
    address = Target("127.0.0.1", served.port)
    arrivals = Arrivals(Kind.POISSON, 0.5, 300, seed=5)
    with Fleet(1, address, requests) as alone, Fleet(3, address, requests) as several:
        one, three = (fleet.run(arrivals, 32, 30) for fleet in (alone, several))
    assert one.due_ns.tolist() == three.due_ns.tolist()
    assert one.counts() == three.counts() == {200: one.count}


# The command


@exhaustive
def test_the_command_of_the_readme_measures_the_model_and_draws_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(example(README, "model.py"))
    (tmp_path / "ringbatch.toml").write_text(example(README, "ringbatch.toml"))
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(example(PAGE, "bench"))
    assert program == "ringbatch"
    assert cli.main([*arguments, *QUICK, "--rates", "50,200", "--check"]) == 0
    printed = capsys.readouterr()
    assert "this takes about" in printed.err
    assert "| 200 requests/s | " in printed.out
    (found,) = (tmp_path / "ringbatch-bench").glob("mnist-*.json")
    result = json.loads(found.read_text())
    assert [point["void"] for point in result["points"]] == [[], []]
    assert result["points"][1]["figures"]["rate /s"] > 100
    assert result["points"][1]["engine"]["instances"] > 0
    assert result["lone"]["figures"]["cpu us"] > 0
    page = found.with_suffix(".html")
    assert "Throughput against latency" in page.read_text()
    assert found.with_suffix(".md").read_text() in printed.out

    looked_at(page, tmp_path)
    # A comparison of single rounds says that they prove nothing.
    assert bench("--compare", found, found) == 2
    assert "1 rounds prove nothing" in capsys.readouterr().err


def looked_at(page: Path, folder: Path) -> None:
    """Assert that the page fits every screen, requests nothing and complains of nothing."""
    shots = os.environ.get("RINGBATCH_SCREENSHOTS")
    browser = Browser(folder)
    try:
        for name, size in {"light": (1280, 900), "dark": (1280, 900), "phone": (360, 740)}.items():
            browser.look_like(*size, "light" if name == "light" else "dark")
            browser.open(page.as_uri())
            loaded = "new Promise((done) => document.readyState === 'complete' ? done(true) : "
            assert browser.value(loaded + "addEventListener('load', () => done(true)))")
            assert browser.value("document.querySelectorAll('svg').length") == 7
            assert browser.value("document.documentElement.scrollWidth") <= size[0]
            if shots is not None:
                browser.screenshot(Path(shots, f"bench-{name}.png"))
        assert browser.complaints == []
        assert {url.partition(":")[0] for url in browser.asked} <= {"file", "data"}
    finally:
        browser.close()


@exhaustive
def test_an_engine_that_runs_is_asked_and_left_running(
    served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "body.json"
    tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [*range(16)]}
    request.write_bytes(orjson.dumps({"inputs": [tensor]}))
    trace = tmp_path / "trace"
    trace.write_text("\n".join(str(n / 200) for n in range(100)))
    more = ("--control-url", f"http://127.0.0.1:{served.control_port}", "--request", request)
    where = ("--url", f"http://127.0.0.1:{served.port}", "--output", tmp_path / "out")
    assert bench(*where, *more, *QUICK, "--trace", trace) == 0
    assert "replayed arrivals" in capsys.readouterr().out
    (found,) = (tmp_path / "out").glob("matmul-*.json")
    result = json.loads(found.read_text())
    assert result["settings"]["path"] == "/v2/models/matmul/infer"
    assert result["points"][0]["statuses"] == {"status 200": 100}
    assert result["knee"] == {}
    assert served.process.poll() is None


@exhaustive
def test_settings_are_tuned_until_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(example(README, "model.py"))
    (tmp_path / "ringbatch.toml").write_text(example(README, "ringbatch.toml"))
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(example(PAGE, "tune"))
    assert program == "ringbatch"
    assert cli.main([*arguments, *SLACK, "--budget-s", "20"]) == 0
    printed = capsys.readouterr()
    assert "trial 1, " in printed.err
    assert "as it is: " in printed.err
    assert "the time is over" in printed.err
    assert "| all else as chosen | " in printed.out
    (tmp_path / "ringbatch.toml").write_text("[models.mnist]\npath = 'missing.py'\n")
    assert cli.main([*arguments, *SLACK]) == 2
    assert "missing.py" in capsys.readouterr().err


@exhaustive
@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=exhaustive), signal.SIGINT])
def test_a_stopped_run_writes_its_measurements(
    number: signal.Signals, served: Server, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    url = ("--url", f"http://127.0.0.1:{served.port}", *QUICK)
    arguments = [*url, "--rounds", "50", "--rates", "50", "--output", "out"]
    log = tmp_path / "log"
    with log.open("w") as errors, (tmp_path / "printed").open("w") as printed:
        process = subprocess.Popen(
            [*COMMAND, "bench", *arguments],
            cwd=tmp_path,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "round 2 of 50" in log.read_text(), "the second round", 120)
        # A terminal's Ctrl-C is for all of its foreground.
        os.killpg(process.pid, number)
        assert process.wait() == 130, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "**It was stopped in round 2 of 50.**" in (tmp_path / "printed").read_text()
    (found,) = (tmp_path / "out").glob("matmul-*.json")
    result = json.loads(found.read_text())
    assert result["stopped"] is True
    assert result["lone"]["figures"]["rate /s"] > 0


# What cannot be measured


@pytest.fixture
def babbler() -> Iterator[str]:
    """The address of a server that speaks no HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))

    def babble() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail.example.org ready\r\n")

    thread = threading.Thread(target=babble)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def refused(
    capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str | Path, output: str = "out"
) -> str:
    """The words of a command that must fail, and have written nothing."""
    assert bench(*arguments, *QUICK, "--output", folder / output) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert not list(folder.glob("out/*"))
    return printed.err.strip().splitlines()[-1]


def test_a_server_that_is_not_there_or_no_server_of_models_is_named(
    tmp_path: Path, babbler: str, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    url = f"http://127.0.0.1:{free_port}"
    assert f"nothing serves at {url}" in refused(capsys, tmp_path, "--url", url)
    assert "is not HTTP" in refused(capsys, tmp_path, "--url", babbler)
    assert "must be http://HOST:PORT" in refused(capsys, tmp_path, "--url", "localhost:80")


def test_a_request_that_the_model_refuses_is_reported_with_its_words(
    served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{served.port}"
    body = tmp_path / "body.json"
    body.write_text('{"instances": [[1, 2]]}')
    words = refused(capsys, tmp_path, "--url", url, "--request", body)
    assert f"the request in {body} is refused with status 400: " in words
    assert "shape" in words
    body.write_text("{")
    assert "no JSON" in refused(capsys, tmp_path, "--url", url, "--request", body)
    body.write_bytes(ROW)
    for protocol in ("grpc", "client"):
        words = refused(capsys, tmp_path, "--url", url, "--request", body, "--protocol", protocol)
        assert f"for --protocol {protocol} it must be a request of V2" in words
    missing = tmp_path / "missing.json"
    assert "No such file" in refused(capsys, tmp_path, "--url", url, "--request", missing)
    for name in ("other", "größer", "a b"):
        assert "status 404" in refused(capsys, tmp_path, "--url", url, "--model", name)


def test_an_unwritable_output_is_found_before_anything_is_measured(
    served: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    url = f"http://127.0.0.1:{served.port}"
    words = refused(capsys, tmp_path, "--url", url, output="file/out")
    assert words.endswith("file/out: Not a directory")


def test_an_engine_that_does_not_start_is_reported_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "ringbatch.toml"
    config.write_text('[models.a]\npath = "missing.py"\n')
    assert "missing.py" in refused(capsys, tmp_path, "--config", config)


def test_arguments_that_would_be_passed_over_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.toml"
    words = refused(capsys, tmp_path, "--config", missing)
    assert words.endswith(f"--config {missing}: No such file or directory")
    for flag, value in (("--grpc-url", "http://a:1"), ("--control-url", "http://a:1")):
        words = refused(capsys, tmp_path, "--config", missing, flag, value)
        assert words.endswith(f"{flag} {value}: that is for an engine that runs, see --url")
    words = refused(capsys, tmp_path, "--config", missing, "--pid", "1")
    assert words.endswith("--engine 1: that is for an engine that runs, see --url")


@exhaustive
def test_a_configuration_with_tls_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = Authority(tmp_path).certify()
    more = {"tls_certificate": str(certificate), "tls_key": str(key)}
    arguments = configured(tmp_path, {"matmul": {"path": "matmul.py"}}, **more)
    config = tmp_path / arguments[arguments.index("--config") + 1]
    words = refused(capsys, tmp_path, "--config", config)
    assert words.endswith(
        "measure with a copy without tls_certificate, tls_key and control_tls_certificate"
    )


@exhaustive
def test_an_engine_that_dies_meanwhile_is_reported_with_its_last_words(tmp_path: Path) -> None:
    arguments = configured(tmp_path, {"matmul": {"path": "matmul.py"}})
    config = Path(arguments[arguments.index("--config") + 1])

    def killed_meanwhile() -> None:
        with started(tmp_path / config) as served:
            assert served.pid is not None
            os.kill(served.pid, signal.SIGKILL)
            while True:
                ask(served.address, "GET", "/v1/models")

    with pytest.raises(CannotMeasure, match=r"the engine ended with status -9:\n"):
        killed_meanwhile()


def test_a_file_that_is_no_result_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result.json"
    result.write_text("{}")
    assert bench("--compare", result, result) == 2
    assert "no result of ringbatch bench" in capsys.readouterr().err
    assert bench("--compare", tmp_path / "none", result) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_host_that_does_other_things_is_refused_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = (0.4, ["compiler (80% of a CPU)"])
    monkeypatch.setattr("ringbatch.bench.command.main.others", lambda: load)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert bench("--url", url, "--output", tmp_path) == 2
    words = capsys.readouterr().err
    assert "40% of this host's CPU time is taken by others: compiler (80% of a CPU)" in words
    assert "--even-if-busy" in words


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--url", "http://127.0.0.1:1"), "nothing serves at http://127.0.0.1:1: Connection"),
        (("--url", "localhost:80"), '--url: found "localhost:80", but it must be http://HOST:'),
        (("--url", "http://a/v1"), '--url: found "http://a/v1", but it must be http://HOST:PORT'),
        (("--config", "none.toml"), "--config none.toml: No such file or directory"),
        (("--url", "http://127.0.0.1:1", "--request", "none"), "--request none: No such file"),
    ],
)
def test_wrong_arguments_are_refused_before_a_busy_host(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    expected: str,
) -> None:
    monkeypatch.setattr("ringbatch.bench.command.main.others", lambda: (0.4, []))
    assert bench(*arguments, "--output", tmp_path) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--url", "http://a:1", "--config", "x"),
        ("--url", "http://a:1", "--rates", "1,x"),
        ("--url", "http://a:1", "--rates", "0"),
        ("--url", "http://a:1", "--header", "no colon"),
        ("--url", "http://a:1", "--header", "X-Name: Zoë"),
        ("--url", "http://a:1", "--slo-ms", "-1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench(*arguments)
    assert ended.value.code == 2
