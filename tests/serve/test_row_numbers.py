"""Models in steps that get the numbers of their rows' places, on a real engine."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, fast
from serve.server import COMMAND, Server, Start
from serve.steps_client import PLACES, Stream, v1_body

V1: Final = "/v1/models/numbering:predict"


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module({"numbering": {"path": "numbering.py", "max_batch_size": PLACES}})


def stream(server: Server, text: str) -> Stream:
    return Stream(server, text, V1, v1_body(text))


def asked(server: Server, *texts: str) -> list[dict[str, Any]]:
    """Return the predictions of one answer."""
    with Connection(server.port) as connection:
        answer = connection.ask(fast("numbering", json.dumps(v1_body(*texts)).encode()))
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["predictions"]
    return found


def test_each_live_row_has_a_number_of_its_own(server: Server, tmp_path: Path) -> None:
    end = tmp_path / "end"
    streams = [stream(server, f"until {end}") for _ in range(PLACES)]
    firsts = [one.part() for one in streams]
    assert {first["row"] for first in firsts} == {*range(PLACES)}
    assert {first["places"] for first in firsts} == {PLACES}
    assert [first["number"] for first in firsts] == [[0]] * PLACES
    # A row that leaves gives its number to the next.
    streams[1].close()
    (again,) = asked(server, "4")
    assert (again["row"], again["number"]) == (firsts[1]["row"], [0, 1, 2, 3])
    end.touch()
    for one in (streams[0], streams[2]):
        numbers = one.numbers()
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
        one.close()


def test_numbers_come_back_after_rows_that_could_not_begin(server: Server) -> None:
    refused = [stream(server, "refuse") for _ in range(PLACES + 1)]
    for one in refused:
        assert "ValueError" in one.refused(500)
        one.close()
    found = asked(server, *["3"] * (2 * PLACES))
    assert [one["number"] for one in found] == [[0, 1, 2]] * (2 * PLACES)
    assert {one["row"] for one in found} <= {*range(PLACES)}


def test_another_number_of_places_is_for_new_workers(server: Server, tmp_path: Path) -> None:
    """The old ones have arrays of the old size, and end their rows there."""
    end = tmp_path / "end"
    text = server.config.read_text()
    before = server.role("worker numbering/0")
    old = stream(server, f"until {end}")
    assert old.part()["places"] == PLACES
    server.config.write_text(text.replace(f"size = {PLACES}", "size = 5"))
    try:
        assert "numbering: version 1 loaded" in reload(server)
        with ThreadPoolExecutor(5) as threads:
            new = [stream(server, f"until {end}") for _ in range(5)]
            found = [*threads.map(Stream.part, new)]
        assert {one["places"] for one in found} == {5}
        assert {one["row"] for one in found} == {*range(5)}
        assert server.role("worker numbering/0") != before
        assert old.part()["places"] == PLACES
        end.touch()
        assert old.last()["predictions"][0]["places"] == PLACES
        for one in (*new, old):
            one.close()
        server.config.write_text(server.config.read_text() + "timeout_s = 50\n")
        assert "numbering: version 1 adjusted" in reload(server)
    finally:
        server.config.write_text(text)
    assert "loaded" in reload(server)


def reload(server: Server) -> str:
    command = [*COMMAND, "reload", str(server.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
