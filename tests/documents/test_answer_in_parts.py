"""The how-to page of answers in parts: its commands and its script for browsers, to the letter."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import example, output_after, text_of
from serve.browser import Browser
from serve.server import Server
from tiers import exhaustive

from ringbatch.frontend.codec.event_stream import MOST_UNREAD_BYTES, SILENCE_S

PARTS: Final = "docs/how-to/answer-in-parts.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("parts")
    write(folder, "halve.py", example(PARTS, "halve.py"))
    with serving(folder, example(PARTS, "serve"), "--max-batch-size", "2") as started:
        yield started


def without_ids(text: str) -> str:
    return re.sub(r'"batchId":"[^"]*"', "", text).strip()


def test_events_of_v1_are_those_of_the_page(server: Server, tmp_path: Path) -> None:
    found = printed(example(PARTS, "v1"), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(PARTS, "v1"))


def test_events_of_v2_are_those_of_the_page(server: Server, tmp_path: Path) -> None:
    found = printed(example(PARTS, "v2"), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(PARTS, "v2"))


def test_the_joined_answer_is_that_of_the_page(server: Server, tmp_path: Path) -> None:
    found = printed(example(PARTS, "joined"), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(PARTS, "joined"))


def test_a_request_with_too_many_instances_is_refused(server: Server, tmp_path: Path) -> None:
    command = example(PARTS, "v1").replace("[8]", "[8, 8, 8]")
    assert "at most 2" in json.loads(printed(command, tmp_path, server))["error"]


def test_binary_outputs_are_refused_in_events(server: Server, tmp_path: Path) -> None:
    wish = '"path", "parameters": {"binary_data": true}'
    command = example(PARTS, "v2").replace('"path"', wish)
    assert "binary" in json.loads(printed(command, tmp_path, server))["error"]


def test_the_script_for_browsers_prints_each_part(server: Server, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here")
    address = f"127.0.0.1:{server.port}"
    script = example(PARTS, "browser").replace("127.0.0.1:8080", address)
    write(tmp_path, "read.mjs", script)
    done = subprocess.run(
        [node, str(tmp_path / "read.mjs")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[4], [2], [1], [0.5]]


def test_an_event_source_gets_each_part_and_the_end(server: Server, tmp_path: Path) -> None:
    (query,) = re.findall(r'"http://127.0.0.1:8080([^"]*)"', example(PARTS, "event-source"))
    command = f"curl -sN 'http://127.0.0.1:8080{query}'"
    begun, *events, end = printed(command, tmp_path, server).strip().split("\n\n")
    paths = [json.loads(event.removeprefix("data: "))["path"] for event in events]
    assert (begun, paths, end) == ("id: begun", [4, 2, 1, 0.5], "event: end\ndata:")
    again = printed(f"{command} -i -H 'Last-Event-ID: begun'", tmp_path, server)
    assert again.startswith("HTTP/1.1 204 ")
    wrong = printed(command.replace("level=8", "level=much"), tmp_path, server)
    assert '"much"' in json.loads(wrong)["error"]
    nothing = printed(command.replace("halve", "none"), tmp_path, server)
    assert "unknown model" in json.loads(nothing)["error"]


@exhaustive
def test_a_real_event_source_closes_at_the_end(server: Server, tmp_path: Path) -> None:
    browser = Browser(tmp_path)
    try:
        # A page of the same origin.
        browser.open(f"http://127.0.0.1:{server.port}/v1/models")
        script = example(PARTS, "event-source").replace(":8080", f":{server.port}")
        found = browser.value(
            "new Promise((resolve) => { const paths = []; const console = {log: (path) => "
            f"paths.push(path)}}; {script}; "
            'source.addEventListener("end", () => resolve([paths, source.readyState])); })'
        )
    finally:
        browser.close()
    assert found == [[4, 2, 1, 0.5], 2]


@exhaustive
def test_a_real_event_source_that_stays_open_asks_for_nothing_again(
    server: Server, tmp_path: Path
) -> None:
    browser = Browser(tmp_path)
    try:
        browser.open(f"http://127.0.0.1:{server.port}/v1/models")
        path = "/v2/models/halve/generate_stream?level=8"
        states = browser.value(
            "new Promise((resolve) => { const states = []; "
            f'const source = new EventSource("{path}"); '
            "source.onerror = () => { states.push(source.readyState); "
            "if (states.length === 2) resolve(states); }; })"
        )
    finally:
        browser.close()
    assert states == [0, 2], "it connects again, and is closed by the second answer"


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    text = " ".join(text_of(PARTS).split())
    assert f"leaves {MOST_UNREAD_BYTES >> 20} MiB of parts unread" in text
    assert f"Every {SILENCE_S:g} s without a part" in text
