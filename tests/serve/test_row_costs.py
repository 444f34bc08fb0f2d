"""Models in steps whose live rows may cost only so much, on a real engine."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, Response, fast
from serve.server import COMMAND, Server, Start, configured
from serve.steps_client import Stream, samples, v1_body
from tiers import exhaustive

V1: Final = "/v1/models/costing:predict"
MOST: Final = 10
MODEL: Final = {"path": "costing.py", "max_batch_size": 8, "max_batch_cost": MOST}


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module({"costing": MODEL | {"max_joining_rows": 2}}, control_port=0)


def stream(server: Server, text: str) -> Stream:
    return Stream(server, text, V1, v1_body(text))


def ask(server: Server, *texts: str) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(fast("costing", json.dumps(v1_body(*texts)).encode()))


def asked(server: Server, *texts: str) -> list[dict[str, Any]]:
    """Return the predictions of one answer."""
    answer = ask(server, *texts)
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["predictions"]
    return found


def test_live_rows_never_cost_more_than_the_limit(server: Server) -> None:
    texts = [str(1 + number * 7 % MOST) for number in range(30)]
    with ThreadPoolExecutor(len(texts)) as threads:
        found = [one for own in threads.map(lambda text: asked(server, text), texts) for one in own]
    assert [one["number"] for one in found] == [[*range(int(text))] for text in texts]
    costs = {cost for one in found for cost in one["costs"]}
    assert max(costs) <= MOST
    assert len(costs) > 2, "rows ran side by side"
    # The limit of rows that join at once.
    assert max(one["begun"] for one in found) <= 2


def test_a_costly_row_waits_for_its_turn_and_gets_it(server: Server, tmp_path: Path) -> None:
    end = tmp_path / "end"
    long = stream(server, f"6 {end}")
    assert long.part()["costs"] == [6]
    assert samples(server)["ringbatch_model_live_cost"] == 6
    status = subprocess.run(
        [*COMMAND, "status", str(server.pid)], capture_output=True, text=True, check=True
    )
    assert "1 of 8 rows live, of cost 6" in status.stdout
    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(asked, server, str(MOST))
        small = threads.submit(asked, server, "3")
        end.touch()
        assert large.result()[0]["costs"] == [MOST] * MOST
        assert small.result()[0]["number"] == [0, 1, 2]
    long.close()


def test_rows_that_wait_outlive_their_worker(
    server: Server, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    end = tmp_path / "end"
    long = stream(server, f"{MOST} {end}")
    assert long.part()["costs"] == [MOST]
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(asked, server, text) for text in ("4", "5", str(MOST))]
        wait_until(lambda: samples(server)["ringbatch_model_in_flight"] == 4, "all have come")
        os.kill(server.role("worker costing/0"), signal.SIGKILL)
        assert "died" in long.last()["error"]
        found = [one.result()[0] for one in waiting]
    assert [len(one["number"]) for one in found] == [4, 5, MOST]
    assert max(cost for one in found for cost in one["costs"]) <= MOST
    long.close()


def test_a_row_beyond_the_limit_is_refused_in_words(server: Server) -> None:
    words = f"model 'costing': the request costs 11, and max_batch_cost is {MOST}"
    answer = ask(server, "11")
    assert (answer.status, answer.json["error"]) == (400, words)
    events = stream(server, "11")
    assert events.refused(400) == words
    events.close()
    answer = ask(server, "endless")
    assert (answer.status, answer.json["error"]) == (400, "endless texts are not taken")
    answer = ask(server, "three")
    assert answer.status == 500
    assert "raised ValueError" in answer.json["error"]
    assert asked(server, "2")[0]["number"] == [0, 1]


REFUSED: Final = {
    "no-cost": (
        {"path": "stepping.py", "max_batch_cost": 5},
        r"stepping\.py: max_batch_cost needs a function cost in the model file, which takes what ",
    ),
    "no-steps": (
        {"path": "slow.py", "max_joining_rows": 5},
        r"slow\.py: max_joining_rows is set, but the model does not work in steps",
    ),
}


@exhaustive
@pytest.mark.parametrize(("settings", "words"), REFUSED.values(), ids=REFUSED)
def test_limits_that_a_model_cannot_have_are_refused_in_words(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    configured(tmp_path, {"m": settings})
    command = [*COMMAND, "check", "--config", "ringbatch.toml", "--load"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(words, done.stderr), done.stderr
