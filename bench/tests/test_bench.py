"""Tests of the measurements' basis: reading the tools' output, ratios, limits, /proc, servers."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from email.message import Message
from pathlib import Path

import compare
import numpy as np
import pytest
import redis_table
import speed
import v2
from host import procfs
from host.server import Command, Server, ServerDied, ServerLeftProcesses, free_port
from load import answers, generators, tensors
from load.generators import LoadFailed
from peers import servers
from peers.servers import BENCH, toml
from report import rounds
from report.record import Limit
from tiers import exhaustive

WRK = (
    "Running 1s test @ http://127.0.0.1:1\n"
    'bench-summary {"requests":2000,"duration_us":500000,"connect":0,"read":0,"write":0,'
    '"status":%d,"timeout":0,"p50_us":120,"p99_us":900,"p999_us":1500,"max_us":2500}\n'
)
HEY = """
Summary:
  Total:\t10.0123 secs
  Slowest:\t0.5099 secs
  Fastest:\t0.5001 secs
  Average:\t0.5021 secs
  Requests/sec:\t9.9567

Response time histogram:
  0.500 [1]\t|

Latency distribution:
  10% in 0.5005 secs
  95%% in 0.5047 secs
  0%% in 0.0000 secs

Status code distribution:
  [200]\t95 responses
  [503]\t5 responses

Error distribution:
  [3]\tPost "http://127.0.0.1:1/": dial tcp: connection refused
  [1]\tPost "http://127.0.0.1:1/": EOF
"""
SERVER = """
import http.server, signal, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
print("about to start", flush=True)
ORPHAN
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

BENCHMARK = """\
import sys, time
from host.server import Command, Server, free_port
port = free_port()
with Server(Command([sys.executable, "-c", {server!r}, str(port)], port, "/")) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""

TOOL = """\
#!{python}
import pathlib, re, sys
file = sys.argv[-2]
if sys.argv[0].endswith("wrk"):
    script = pathlib.Path(file).read_text()
    file = re.search(r"io.open\\(\\[=\\[(.*?)\\]=\\]", script)[1]
    pathlib.Path({folder!r}, "script").write_text(script)
else:
    file = sys.argv[sys.argv.index("-D") + 1]
    pathlib.Path({folder!r}, "arguments").write_text("\\n".join(sys.argv))
pathlib.Path({folder!r}, "body").write_bytes(pathlib.Path(file).read_bytes())
print({text!r})
"""
POST = generators.Post("/p", b'{"x":]]}\0\xff\r\n', {"Content-Type": "a/b", "Length-Of": "9"})


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, tool: str, text: str) -> None:
    """Put a program of the name of a load generator first on PATH: it keeps what it was given."""
    file = folder / tool
    file.write_text(TOOL.format(python=sys.executable, folder=str(folder), text=text))
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def v2_answer(raw: bytes = b"", **parts: object) -> answers.Answer:
    output = {"name": "y", "datatype": "FP32", "shape": [1, 10], **parts}
    text = json.dumps({"model_name": "matmul16", "outputs": [output]}).encode()
    headers = Message()
    headers["inference-header-content-length"] = str(len(text))
    return answers.Answer(headers, text + raw)


def command(code: str) -> Command:
    port = free_port()
    return Command([sys.executable, "-c", code, str(port)], port, "/", start_timeout_s=30)


def wait_for_end(pid: int) -> None:
    while (left := procfs.stat_of(pid)) is not None and left.state != "Z":
        time.sleep(0.01)


def test_wrk_summary_is_read_in_the_units_of_the_fields() -> None:
    assert generators.parse_wrk(WRK % 0, 32) == generators.WrkRun(
        32, 0.5, 2000, 4000.0, p50_ms=0.12, p99_ms=0.9, p999_ms=1.5, max_ms=2.5
    )


def test_wrk_run_with_one_failed_request_is_refused() -> None:
    with pytest.raises(LoadFailed, match="'status': 1"):
        generators.parse_wrk(WRK % 1, 32)


@pytest.mark.parametrize("text", ["", "Running 1s test\n", (WRK % 0).replace(":2000", ":0")])
def test_wrk_run_without_requests_is_refused(text: str) -> None:
    with pytest.raises(LoadFailed):
        generators.parse_wrk(text, 1)


def test_wrk_script_quotes_brackets() -> None:
    post = generators.Post("/[[1]]]=]", "", {"A-B": "c[d]"})
    script = generators.wrk_script(post, Path("/e]]"))
    assert "wrk.path = [==[/[[1]]]=]]==]" in script
    assert "wrk.headers[ [=[A-B]=] ] = [=[c[d]]=]" in script
    assert "io.open([=[/e]]]=]" in script


def test_wrk_builds_requests_with_heads_of_their_own_before_it_sends_any() -> None:
    posts = [dataclasses.replace(POST, own_heads=own) for own in (False, True)]
    same, own = (generators.wrk_script(post, Path("/e")) for post in posts)
    assert "traceparent" not in same
    assert 'wrk.headers["traceparent"] = string.format("00-%032x-%016x-01"' in own
    assert "function request()" in own


def test_wrk_is_given_the_body_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, tmp_path, "wrk", WRK % 0)
    generators.wrk("http://127.0.0.1:1", POST, 2, 1)
    assert (tmp_path / "body").read_bytes() == POST.body
    assert "wrk.headers[ [=[Length-Of]=] ] = [=[9]=]" in (tmp_path / "script").read_text()


def test_hey_is_given_the_body_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, tmp_path, "hey", HEY)
    generators.hey("http://127.0.0.1:1", POST, 2, 1)
    assert (tmp_path / "body").read_bytes() == POST.body
    assert (
        "\n-H\nContent-Type: a/b\n-H\nLength-Of: 9\nhttp://127.0.0.1:1/p"
        in (tmp_path / "arguments").read_text()
    )


def test_post_is_json_unless_it_says_otherwise() -> None:
    assert answers.matmul16_post().headers == {"Content-Type": "application/json"}


def test_hey_report_is_read_with_failures_counted() -> None:
    run = generators.parse_hey(HEY)
    assert (run.average_s, run.fastest_s, run.slowest_s) == (0.5021, 0.5001, 0.5099)
    assert run.statuses == {200: 95, 503: 5}
    assert run.errors == 4
    assert run.percentiles_s == {10: 0.5005, 95: 0.5047}


def test_hey_report_without_summary_is_refused() -> None:
    with pytest.raises(LoadFailed, match="Average"):
        generators.parse_hey("nothing")


def test_rounds_are_interleaved() -> None:
    seen: list[tuple[int, str]] = []
    rounds.run_rounds(["a", "b"], 2, lambda turn, name: seen.append((turn, name)))
    assert seen == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


def test_ratio_is_formed_within_a_round_before_the_median() -> None:
    assert rounds.ratios([10, 100, 30], [10, 50, 10]) == rounds.Spread(2.0, 1.0, 3.0)


def test_ratio_of_unequal_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        rounds.ratios([1, 2], [1])


@pytest.mark.parametrize(
    ("value", "low", "high", "met"),
    [(1, 1, None, True), (0.9, 1, None, False), (2, None, 1, False), (1, 0, 1, True)],
)
def test_limit_holds_its_bounds(
    value: float, low: float | None, high: float | None, met: bool
) -> None:
    assert Limit("x", value, low, high, "").met is met


@pytest.mark.parametrize(
    ("images", "workers", "seconds"),
    [(1, 1, 1.0), (10, 1, 1.5), (200, 1, 20.5), (1, 2, 1.0), (10, 2, 1.0), (200, 2, 10.5)],
)
def test_ideal_of_the_redis_table(images: int, workers: int, seconds: float) -> None:
    assert redis_table.ideal_s(images, workers) == seconds


def test_configuration_survives_toml() -> None:
    sections: dict[str, dict[str, str | int | float | bool]] = {
        "server": {"host": 'a"b\\c', "port": 1, "on": True, "wait": 0.5}
    }
    assert tomllib.loads(toml(sections)) == sections


def test_answer_of_another_request_is_refused() -> None:
    body = {"predictions": answers.matmul16_expected(1).tolist()}
    answers.check_matmul16(body, 1)
    with pytest.raises(answers.WrongAnswer):
        answers.check_matmul16(body, 2)


def test_v2_binary_request_is_text_and_the_bytes_of_the_instance() -> None:
    post = tensors.post(tensors.IMAGE, tensors.V2_BINARY, 3)
    assert isinstance(post.body, bytes)
    text_bytes = int(post.headers["Inference-Header-Content-Length"])
    (given,) = json.loads(post.body[:text_bytes])["inputs"]
    assert (given["shape"], given["datatype"]) == ([1, 3, 224, 224], "FP32")
    assert given["parameters"]["binary_data_size"] == 602_112 == len(post.body) - text_bytes
    found = np.frombuffer(post.body[text_bytes:], "<f4").reshape(3, 224, 224)
    assert (found == tensors.IMAGE.instance(3)).all()


def test_v2_json_request_has_the_values_that_its_answer_is_checked_by() -> None:
    post = tensors.post(tensors.MATMUL16, tensors.V2_JSON, 3)
    (given,) = json.loads(post.body)["inputs"]
    assert (np.array(given["data"], "f4") == tensors.MATMUL16.instance(3)).all()


def test_answer_is_read_in_each_form() -> None:
    y = answers.matmul16_expected(3)
    data = y.astype("<f4").tobytes()
    for form, answer in (
        (tensors.V2_JSON, v2_answer(data=y.ravel().tolist())),
        (tensors.V2_BINARY, v2_answer(data, parameters={"binary_data_size": 40})),
        (tensors.RAW, answers.Answer(Message(), data)),
    ):
        tensors.check(tensors.MATMUL16, form, 3, answer)
        with pytest.raises(answers.WrongAnswer, match="expected"):
            tensors.check(tensors.MATMUL16, form, 4, answer)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"parameters": {"binary_data_size": 36}},
        {"parameters": {"binary_data_size": 40}, "name": "x"},
        {"parameters": {"binary_data_size": 40}, "datatype": "INT32"},
        {"parameters": {"binary_data_size": 40}, "shape": [1, 9]},
    ],
)
def test_answer_in_binary_that_contradicts_itself_is_refused(parts: dict[str, object]) -> None:
    answer = v2_answer(answers.matmul16_expected(3).astype("<f4").tobytes(), **parts)
    with pytest.raises(answers.WrongAnswer, match="no answer in V2 binary"):
        tensors.check(tensors.MATMUL16, tensors.V2_BINARY, 3, answer)


def test_answer_in_binary_without_the_length_of_its_text_is_refused() -> None:
    answer = answers.Answer(Message(), answers.matmul16_expected(3).astype("<f4").tobytes())
    with pytest.raises(answers.WrongAnswer, match="no answer in V2 binary"):
        tensors.check(tensors.MATMUL16, tensors.V2_BINARY, 3, answer)


def test_limits_of_v2_are_about_measured_entries() -> None:
    for workload in v2.WORKLOADS.values():
        names = [entry.name for entry in workload.entries]
        assert len(names) == len(set(names))
        assert workload.limits
        for name, count in workload.limits:
            assert name in names
            assert count in workload.connections


def test_v2_is_held_to_the_peers_that_have_run() -> None:
    run = generators.parse_wrk(WRK % 0, 32)
    fast = dataclasses.replace(run, requests_per_s=run.requests_per_s * 2.5)
    runs = {"ringbatch": [{32: fast, 128: fast}], "triton": [{32: run, 128: run}]}
    found = [
        (value, at_least)
        for workload in v2.WORKLOADS.values()
        for _, value, at_least in v2.limits(workload, runs)
    ]
    assert found == [(2.5, 3.0), (2.5, 2.0)]


def test_table_of_cpu_time_has_the_spread_of_the_rounds() -> None:
    run = generators.parse_wrk(WRK % 0, 32)
    text = v2.cpu_table({"triton": [{32: v2.Found(run, us)} for us in (80, 70, 90)]}, [32])
    assert "80 (70..90)" in text


def test_a_comparison_gives_each_figure_with_its_ratio() -> None:
    pairs = [
        {"before": {"rate": before}, "after": {"rate": after}}
        for before, after in ((100.0, 50.0), (100.0, 100.0), (200.0, 300.0))
    ]
    *_, line = compare.show(pairs).splitlines()
    assert line.split() == ["rate", "100.0", "100.0", "1.000", "0.750..1.250", "0.268"]


def test_one_wild_pair_moves_no_paired_ratio() -> None:
    calm = rounds.paired_ratio([101.0] * 20, [100.0] * 20)
    wild = rounds.paired_ratio([101.0] * 19 + [900.0], [100.0] * 20)
    assert calm == wild
    assert (calm.median, calm.error) == (1.01, 0)


def test_tables_of_speed_name_every_peer() -> None:
    run = generators.parse_wrk(WRK % 0, 1)
    runs = {"ringbatch": [{1: run}], "mosec": [{1: run}]}
    for text in (speed.rate_table(runs, [1]), speed.latency_table(runs, [1])):
        assert [line.split()[0] for line in text.splitlines()[2:]] == ["ringbatch", "mosec"]
    assert "1 (1..1)" in speed.ratio_table(runs, [1], "mosec")


def test_stat_is_read_behind_a_title_with_brackets() -> None:
    fields = " ".join(str(n) for n in range(4, 53))
    found = procfs.parse_stat(f"7 (a) (b c) S 3 {fields}")
    assert (found.pid, found.state, found.parent, found.start_ticks) == (7, "S", 3, 21)


def test_descendants_are_those_below_the_root_only() -> None:
    pairs = [(1, 0), (2, 1), (3, 2), (4, 1), (9, 0)]
    stats = [procfs.ProcessStat(pid, "S", parent, 0, 0) for pid, parent in pairs]
    assert procfs.descendants(stats, 2) == [2, 3]
    assert procfs.descendants(stats, 1) == [1, 2, 4, 3]
    assert procfs.descendants(stats, 5) == []


def test_cpu_time_of_a_busy_process_is_seen() -> None:
    before = procfs.sample(os.getpid())
    start = time.process_time_ns()
    while time.process_time_ns() - start < 50_000_000:
        pass
    after = procfs.sample(os.getpid())
    assert before is not None
    assert after is not None
    (used,) = procfs.usage({before.pid: before}, {after.pid: after}, 0.1)
    assert used.cpu_fraction >= 0.45
    assert used.rss_bytes > 0
    assert used.pss_bytes > 0


def test_wake_ups_of_a_polling_process_are_seen() -> None:
    code = "import time\nprint(flush=True)\nwhile True: time.sleep(0.01)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        before = procfs.sample(child.pid)
        assert before is not None
        while True:
            after = procfs.sample(child.pid)
            assert after is not None, "the polling process is gone"
            if after.voluntary_switches >= before.voluntary_switches + 5:
                break
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_server_is_started_and_leaves_nothing() -> None:
    with Server(command(SERVER.replace("ORPHAN", ""))) as server:
        assert "about to start" in server.log
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()


def test_error_of_a_client_carries_the_log_of_its_server() -> None:
    with (
        pytest.raises(answers.WrongAnswer) as caught,
        Server(command(SERVER.replace("ORPHAN", ""))),
    ):
        raise answers.WrongAnswer("7")
    assert "about to start" in caught.value.__notes__[0]


def test_server_that_dies_at_start_shows_its_log() -> None:
    with (
        pytest.raises(ServerDied, match="what went wrong"),
        Server(command("exit('what went wrong')")),
    ):
        pytest.fail("it is not running")


def test_server_that_hangs_is_killed_with_its_children_in_other_sessions() -> None:
    hang = (
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('child', child.pid, flush=True)"
    )
    code = SERVER.replace("ORPHAN", hang).replace("lambda *a: sys.exit(0)", "signal.SIG_IGN")
    stubborn = dataclasses.replace(command(code), stop_timeout_s=0.1)
    with pytest.raises(ServerDied, match="after SIGTERM"), Server(stubborn) as server:
        pid = int(server.log.split("child ")[1].split()[0])
    wait_for_end(pid)


def test_server_that_ends_at_sigint_does_so_where_a_shell_has_it_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ends = command(SERVER.replace("ORPHAN", ""))
        with Server(dataclasses.replace(ends, stop_signal=signal.SIGINT)) as server:
            pid = server.pid
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "it is the caller's"
        assert not Path(f"/proc/{pid}").exists()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_ends_with_a_benchmark_that_a_signal_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "benchmark.py"
    script.write_text(BENCHMARK.format(server=SERVER.replace("ORPHAN", "")))
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
    ) as benchmark:
        assert benchmark.stdout is not None
        server = int(benchmark.stdout.readline())
        assert procfs.stat_of(server) is not None
        benchmark.send_signal(number)
        assert benchmark.wait() == -number
    wait_for_end(server)


def test_a_process_whose_parent_is_gone_ends_at_once() -> None:
    code = "from host.children import end_with_parent; end_with_parent(1 << 30); print('left')"
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCH, capture_output=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")


def test_server_that_leaves_a_process_is_named_and_the_process_killed() -> None:
    orphan = "child = subprocess.Popen(['sleep', '600']); print('child', child.pid, flush=True)"
    with (
        pytest.raises(ServerLeftProcesses, match="sleep 600"),
        Server(command(SERVER.replace("ORPHAN", orphan))) as server,
    ):
        pid = int(server.log.split("child ")[1].split()[0])
    wait_for_end(pid)


@exhaustive
def test_the_frontends_that_call_the_model_themselves_answer_right(tmp_path: Path) -> None:
    peer = servers.PEERS["in-place"]
    with Server(peer.command(tmp_path)) as server:
        answers.check_crowd(server.port, peer.path)
