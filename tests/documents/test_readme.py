"""README.md is held to the truth: its examples run, its tables are the code's, its files exist."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed
from documents.pages import README, ROOT, example, output_after, section, table, text_of
from serve.client import Connection, request
from serve.server import COMMAND, Server
from test_architecture import defined

from ringbatch.engine.config.document import ALIASES
from ringbatch.frontend.codec.outcome import RULES
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.metrics.exposition import LANE_NAMES
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.counters import LaneCounter

ANSWER_ROUNDED_TO: Final = 0.05


def test_the_curl_example_gets_the_answer_that_is_shown(served: Server, tmp_path: Path) -> None:
    answer = json.loads(printed(example(README, "curl"), tmp_path, served))
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
            r"(?<![\w/.])((?:shm|engine|frontend|bench|docs|tests|systemd)/[\w./]*\w)",
            text_of(README),
        )
    )
    names |= set(re.findall(r"\b([A-Z]+\.md|LICENSE)\b", text_of(README)))
    assert {"bench/speed.py", "ARCHITECTURE.md", "LICENSE"} <= names
    assert [name for name in names if not (ROOT / name).exists()] == []
