"""README.md is held to the truth: its examples run, its tables are the code's, its files exist."""

import asyncio
import hashlib
import http.client
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from documents.pages import README, ROOT, example, output_after, section, table, text_of
from serve.client import Connection, request
from serve.server import COMMAND, SMALL, Server
from test_architecture import defined
from tiers import exhaustive

from ringbatch.engine.config.document import ALIASES
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.process.cpu_plan import Host, Wish, plan
from ringbatch.engine.runtimes import model_metrics
from ringbatch.engine.runtimes.model_metrics import Book
from ringbatch.frontend import Client
from ringbatch.frontend.codec.outcome import RULES
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.metrics.exposition import LANE_NAMES
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import OwnMetrics
from ringbatch.shm.shm_objects import sweep

ANSWER_ROUNDED_TO: Final = 0.05


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The README's server, on a port that is free; its model file is the README's."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "model.py").write_text(example(README, "model.py"))
    program, command, *arguments = shlex.split(example(README, "serve"))
    assert (program, command) == ("ringbatch", "serve")
    server = Server(folder, *arguments, *SMALL, "--port", "0")
    try:
        yield server.wait_ready()
    finally:
        server.destroy()
        sweep()


def test_the_curl_example_gets_the_answer_that_is_shown(served: Server) -> None:
    command = example(README, "curl").replace("\\\n", "")
    usual = f"127.0.0.1:{ServerConfig().port}"
    assert usual in command
    words = shlex.split(command.replace(usual, f"127.0.0.1:{served.port}"))
    answer = json.loads(ask(words))
    batch_id, numbers = re.fullmatch(
        r'\{"message":"","batchId":"([0-9a-f]{8})-\.\.\.","predictions":\[\[(.*),\.\.\.\]\]\}',
        output_after(README, "curl"),
    ).groups()  # type: ignore[union-attr]
    assert list(answer) == ["message", "batchId", "predictions"]
    assert answer["message"] == ""
    assert len(answer["batchId"].partition("-")[0]) == len(batch_id)
    (row,) = answer["predictions"]
    assert len(row) == 10
    for number, text in zip(row, numbers.split(","), strict=False):
        assert number == pytest.approx(float(text), abs=ANSWER_ROUNDED_TO)


def ask(words: list[str]) -> bytes:
    """What the curl command prints; where there is no curl, the same is sent without it."""
    assert words[0] == "curl"
    if shutil.which("curl"):
        told = subprocess.run([*words, "-sS", "--noproxy", "*"], capture_output=True, check=True)
        return told.stdout
    url, flag, body = words[1:]
    assert flag == "-d"
    authority, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(authority)
    try:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", f"/{path}", body, form)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_the_client_example_gets_answers(served: Server) -> None:
    code = example(README, "client").replace("Client()", f"Client({served.pid})")
    names: dict[str, Any] = {"x": np.ones((3, 16), np.float32)}
    exec(f"{code}\n    late = future.result()", names)
    outputs, errors = names["outputs"], names["errors"]
    assert not errors
    assert names["y"].shape == (3, 10)
    # They may have been in batches of different sizes, which add up in different orders.
    assert np.allclose(names["y"], outputs, rtol=1e-5)
    assert np.allclose(names["y"], names["late"], rtol=1e-5)


def test_the_asyncio_example_gets_an_answer(served: Server) -> None:
    names: dict[str, Any] = {}
    exec(example(README, "asyncio"), names)
    with Client(served.pid) as client:
        y = asyncio.run(names["answer"](client, np.ones((3, 16), np.float32)))
    assert y.shape == (3, 10)


def test_the_example_that_counts_does(monkeypatch: pytest.MonkeyPatch) -> None:
    book, memory = Book(), memoryview(bytearray(OwnMetricWords.SIZE * 8))
    monkeypatch.setattr(model_metrics, "BOOK", book)
    block, names = OwnMetrics(memory, 0), dict[str, Any]()
    book.open(block, 0, set())
    exec(example(README, "counted.py"), names)
    texts = [{"text": "x" * 101, "lang": "de"}, {"text": "y", "lang": "en"}]
    assert names["predict"](texts) == [101, 1]
    (counted,) = block.read()
    assert (counted.metric.name, counted.labels, counted.values) == ("texts_cut", ("de",), (1.0,))


@exhaustive
def test_the_example_with_routes_of_its_own_is_served(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(example(README, "model.py"))
    (tmp_path / "api.py").write_text(example(README, "api.py"))
    program, command, *arguments = shlex.split(example(README, "app"))
    assert (program, command) == ("ringbatch", "serve")
    server = Server(tmp_path, *arguments, *SMALL, "--port", "0", "--frontends", "1")
    try:
        with Connection(server.wait_ready().port) as connection:
            asked = partial(request, "/classify", headers={"Content-Type": "application/json"})
            answer = connection.ask(asked(json.dumps([float(n) for n in range(16)]).encode()))
            assert answer.json["digit"] in range(10)
            refused = connection.ask(asked(b"[1, 2]"))
            assert refused.status == 400
            assert refused.error.startswith('input "x" has shape [1, 2]')
    finally:
        server.destroy()
        sweep()


BESIDE = """
import logging
import numpy as np
import beside
from ringbatch.engine import Tensor

inputs = [Tensor("x", "BYTES", [-1])]
outputs = [Tensor("y", "BYTES", [-1])]


def predict(x):
    logging.getLogger("mine").info("%s rows of %s", *x.shape)
    return np.concatenate([x, [[beside.MARK]] * len(x)], axis=1)
"""


def test_a_model_file_may_do_what_is_said_of_it(tmp_path: Path) -> None:
    """Sizes of any length, a module beside it, logging, and bytes in both directions."""
    (tmp_path / "model.py").write_text(BESIDE)
    (tmp_path / "beside.py").write_text(r'MARK = b"\xff"')
    assert '`{"b64": "..."}`' in section(README, "Serve your own model")
    server = Server(tmp_path, "model.py", "--name", "mine", *SMALL, "--port", "0")
    try:
        server.wait_ready()
        with Connection(server.port) as connection:
            for row in (["a"], [{"b64": "/w=="}, "b"]):
                body = json.dumps({"instances": [row, row]}).encode()
                answer = connection.ask(request("/v1/models/mine:predict", body))
                answered = [*row, {"b64": "/w=="}]
                assert answer.json["predictions"] == [answered, answered], answer.body
        assert "2 rows of 1" in server.stderr
    finally:
        server.destroy()
        sweep()


@pytest.mark.parametrize("row", table(README, "CPUs"), ids=lambda row: f"{row[0]}-cpus")
def test_the_table_of_processes_is_what_placement_makes_of_it(row: list[str]) -> None:
    cpus, frontends, workers, threads, in_front = map(int, row)
    host = Host(tuple(range(cpus)), {}, cpus)
    wishes = [Wish("a worker")] * workers
    planned = plan(host, wishes, auto=True, frontends=frontends, frontend_cpus=None)
    assert len(planned.frontends or ()) == in_front
    assert {worker.threads for worker in planned.workers} == {threads}
    assert in_front + workers * threads == cpus


FAST: Final = b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
LEAVES: Final = {
    "health check": b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n",
    "HTTP/1.0": FAST.replace(b"1.1", b"1.0"),
    "chunked": FAST.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
    "max_request_bytes": FAST.replace(b": 2", b": 2000"),
    "Expect": FAST + b"Expect: 100-continue\r\n",
    "compressed": FAST + b"Content-Encoding: gzip\r\n",
    "CloudEvent": FAST + b"Content-Type: application/cloudevents+json\r\n",
    "Accept-Encoding": FAST + b"Accept-Encoding: gzip, identity;q=0\r\n",
    "wrong API key": FAST + b"X-API-Key: another\r\n",
    "X-Request-Timeout": FAST + b"X-Request-Timeout: soon\r\n",
}
"""By a word of what is said of it."""


def test_what_leaves_the_fast_lane_is_what_is_said() -> None:
    keys = ApiKeys([hashlib.sha256(b"k" * 16).digest()])
    key = b"X-API-Key: " + b"k" * 16 + b"\r\n"
    told = section(README, "The fast lane")
    reader = HeadReader(1000, compress_answers=True, keys=keys)
    assert reader.read(FAST + key + b"\r\n") is not None
    for word, head in LEAVES.items():
        assert word in told
        with_key = head if word == "wrong API key" else head + key
        assert reader.read(with_key + b"\r\n") is None, word
    name, _ = LANE_NAMES[LaneCounter.HANDED_OVER]
    assert f"`ringbatch_{name}`" in told


STEPS: Final = {
    "tokenizer": """
inputs = [Tensor("text", "BYTES", [])]
outputs = [Tensor("ids", "INT64", [-1])]
def predict(text):
    return np.array([[*row] for row in text])
""",
    "encoder": """
inputs = [Tensor("ids", "INT64", [-1])]
outputs = [Tensor("vector", "FP32", [2])]
def predict(ids):
    return np.stack([ids.min(axis=1), ids.max(axis=1)], axis=1).astype("f4")
""",
    "ranker": """
inputs = [Tensor("vector", "FP32", [2])]
outputs = [Tensor("score", "FP32", [])]
def predict(vector):
    return vector[:, 1] - vector[:, 0]
""",
}


def test_the_chain_example_answers_as_its_steps_do(tmp_path: Path) -> None:
    for name, source in STEPS.items():
        imports = "import numpy as np\nfrom ringbatch.engine import Tensor\n"
        (tmp_path / f"{name}.py").write_text(imports + source)
    text = "[server]\nport = 0\n" + example(README, "chain.toml")
    (tmp_path / "ringbatch.toml").write_text(text)
    server = Server(tmp_path, "--config", str(tmp_path / "ringbatch.toml"), *SMALL)
    try:
        port = server.wait_ready().port
        answer = json.loads(
            ask(
                [
                    "curl",
                    f"http://127.0.0.1:{port}/v1/models/search:predict",
                    "-d",
                    '{"instances": ["az"]}',
                ]
            )
        )
    finally:
        server.destroy()
        sweep()
    assert answer["predictions"] == [25.0]


def test_the_configuration_example_is_sound(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(example(README, "model.py"))
    (tmp_path / "ringbatch.toml").write_text(example(README, "ringbatch.toml"))
    told = subprocess.run(
        [*COMMAND, "check", "--settings", "--config", "ringbatch.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (told.returncode, told.stderr) == (0, "")
    for line in example(README, "ringbatch.toml").splitlines():
        assert line.partition(" = ")[0] in told.stdout


def test_every_other_spelling_of_a_key_is_named() -> None:
    for alias in ALIASES:
        assert f"`{alias}`" in section(README, "Configuration")


ROW = [0.0] * 16
POSTED = {
    ":predict": ({"instances": [ROW]}, ["message", "batchId", "predictions"]),
    "/infer": (
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": ROW}]},
        ["model_name", "model_version", "outputs"],
    ),
    "/index": ({}, None),
}
"""By the end of a path, what is posted to it and the keys of the answer; None for a list."""


def test_every_endpoint_of_the_table_answers_as_it_says(served: Server) -> None:
    posted = []
    with Connection(served.port) as connection:
        for cell, says in endpoints():
            method, _, path = cell.partition(" ")
            path = path.replace("NAME", "mnist")
            if method == "POST":
                (ending,) = [ending for ending in POSTED if path.endswith(ending)]
                document, keys = POSTED[ending]
                answer = connection.ask(request(path, json.dumps(document).encode()))
                assert (list(answer.json) if keys else None) == keys, answer.body
                assert re.findall(r'"(\w+)"', says.partition(" to ")[2]) in (keys, [])
                posted.append(ending)
            else:
                answer = connection.ask(request(path, method=method))
            assert answer.status == 200, f"{method} {path}: {answer.body!r}"
            if says.startswith('`{"status"'):
                assert answer.json == json.loads(says.strip("`"))
    assert posted == list(POSTED)


def endpoints() -> list[tuple[str, str]]:
    """A request line and what the table says of it, for each path in the table."""
    lines = section(README, "What is served").splitlines()
    rows = [line.strip("|").split(" | ", 1) for line in lines if line.startswith("| `")]
    found = [
        (cell, says.strip(" |"))
        for cells, says in rows
        for cell in re.findall(r"`(\w+ /\S*)`", cells)
    ]
    assert len(found) >= 6
    return found


def test_the_statuses_of_errors_are_those_of_the_code() -> None:
    paragraph = (
        section(README, "What is served").partition("Errors are JSON")[2].partition("\n\n")[0]
    )
    named = {int(number) for number in re.findall(r"\b([45]\d\d)\b", paragraph)}
    assert named == {rule.status for rule in RULES.values()}


def test_every_file_of_the_reading_order_exists() -> None:
    names = re.findall(r"`(\w+/[\w/]*(?:\.\w+)?)`", section(README, "Read the code"))
    assert len(names) >= 14
    assert [name for name in names if not (ROOT / name).exists()] == []


WHERE: Final = {
    "gzip decoded": "zlib.decompressobj",
    "a batch closed": "def decide(",
    "a dead worker's batch taken back": "def regroup(",
    "the retry limit": "MAX_DEATHS = ",
    "systemd's watchdog fed": "WATCHDOG",
    "V2's binary header read": "Inference-Header-Content-Length",
    "a metric named": "model_further_parts",
}
"""What a newcomer looks for, and what the file that README names for it must hold."""


def test_everything_is_where_it_is_said_to_be() -> None:
    places = {what: place.strip("`") for what, place in table(README, "Where is ...?")}
    for what, place in places.items():
        path, _, name = place.partition(":")
        assert not name or name in defined(ROOT / path), f"{what}: {place}"
    for what, holds in WHERE.items():
        assert holds in (ROOT / places[what].partition(":")[0]).read_text(), what


def test_every_file_that_is_named_anywhere_exists() -> None:
    names = set(
        re.findall(
            r"(?<![\w/.])((?:shm|engine|frontend|bench|tests|systemd)/[\w./]*\w)", text_of(README)
        )
    )
    names |= set(re.findall(r"\b([A-Z]+\.md|LICENSE)\b", text_of(README)))
    assert {"bench/speed.py", "ARCHITECTURE.md", "LICENSE"} <= names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_status_prints_the_counters_of_a_running_engine(served: Server) -> None:
    with Connection(served.port) as connection:
        body = json.dumps({"instances": [[0] * 16]}).encode()
        assert connection.ask(request("/v1/models/mnist:predict", body)).status == 200
    told = subprocess.run(
        [*COMMAND, "status", "--pid", str(served.pid)], capture_output=True, text=True
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert "mnist" in told.stdout
    assert "idle" in told.stdout
