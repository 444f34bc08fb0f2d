"""Models in steps on a real engine: rows that join and end between steps, and what lives on.

Rows go on until a file of the test is there. So a row that a test waits for ends beside others that
are live for certain.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from dev_shm import takes
from serve.client import Connection, request
from serve.grpc_stub import grpc_port
from serve.models.stepping import PAUSE_S
from serve.server import COMMAND, Server, Start, configured
from serve.steps_client import (
    GENERATE,
    MODELS,
    PLACES,
    TIMEOUT_S,
    V1,
    V2,
    Stream,
    asked,
    begun,
    reasons,
    samples,
    v1_body,
    v2_body,
)
from serve.test_grpc_parts import Stream as GrpcStream
from slices import shortened_ns, slice_ns
from tiers import exhaustive

from ringbatch.frontend import Client

pytestmark = takes(20)

ROUNDING_S = 1e-6
"""Of differences between sums of floats."""

WaitUntil = Callable[..., Any]


@pytest.fixture(scope="module")
def shared(start_for_module: Start) -> Server:
    return start_for_module(MODELS, frontends=2, grpc_port=0, control_port=0)


@pytest.fixture
def server(shared: Server, wait_until: WaitUntil) -> Server:
    """A server without a row of an earlier test."""
    wait_until(lambda: samples(shared)["ringbatch_model_in_flight"] == 0, "all rows have left")
    return shared


def kill_9(server: Server, role: str, wait_until: WaitUntil) -> None:
    """Kill the process with that role, and wait until another has it."""
    killed = server.role(role)
    os.kill(killed, signal.SIGKILL)
    wait_until(
        lambda: server.titles().get(f"ringbatch: {role}", killed) != killed, "another is there"
    )


def test_only_the_worker_preempts_others_when_it_wakes_up(server: Server) -> None:
    policies = {title: os.sched_getscheduler(pid) for title, pid in server.titles().items()}
    workers = {title for title in policies if title.startswith("ringbatch: worker ")}
    assert {policies.pop(title) for title in workers} == {os.SCHED_OTHER}
    assert set(policies.values()) == {os.SCHED_BATCH}
    slices = {title: slice_ns(pid) for title, pid in server.titles().items()}
    own = {slices.pop(title) for title in workers}
    (usual_ns,) = set(slices.values())
    assert own == {shortened_ns(usual_ns)}
    pids = [server.titles()[title] for title in workers]
    assert {Path(f"/proc/{pid}/timerslack_ns").read_text() for pid in pids} == {"1\n"}


def test_each_part_is_an_event(server: Server) -> None:
    for path, body in ((V1, v1_body("4")), (V2, v2_body("4")), (GENERATE, {"text": "4"})):
        stream = Stream(server, "4", path, body)
        found = []
        while (event := stream.next()) is not None:
            found += numbers_of(event)
        assert found == [0, 1, 2, 3], path
        stream.close()


def numbers_of(event: dict[str, Any]) -> list[int]:
    """Return the numbers of an event of V1, of V2, or of the generate extension."""
    if "predictions" in event:
        return [*event["predictions"][0]["number"]]
    if "outputs" in event:
        return [*next(one["data"] for one in event["outputs"] if one["name"] == "number")]
    number = event["number"]
    return number if isinstance(number, list) else [number]


def test_each_part_is_a_response_of_a_grpc_stream(server: Server) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        assert client.get_model_config("stepping").config.model_transaction_policy.decoupled
        stream = GrpcStream(client)
        tensor = triton.InferInput("text", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[b"3"]], object))
        client.async_stream_infer("stepping", [tensor], enable_empty_final_response=True)
        found: list[int] = []
        while True:
            result, error = stream.next()
            assert error is None, error.message()
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            found += result.as_numpy("number").ravel().tolist()
        stream.close()
    assert found == [0, 1, 2]


def test_a_client_gets_each_part(server: Server, tmp_path: Path) -> None:
    with Client(server.pid) as client:
        texts = {"text": np.array([["3"]], object)}
        parts = [part["number"].tolist() for part in client.stream("stepping", texts)]
        assert parts == [[[0]], [[1]], [[2]]]
        assert client.infer("stepping", texts)["number"].tolist() == [[0, 1, 2]]
        endless = {"text": np.array([[f"until {tmp_path / 'never'}"]], object)}
        for part in client.stream("stepping", endless):
            assert part["number"].tolist() == [[0]]
            break
    # It has left the loop, so that all places are free.
    with begun(server, *[f"until {tmp_path / 'never'}"] * PLACES):
        pass


def test_answers_as_one_have_all_parts(server: Server) -> None:
    one, two = asked(server, "3", "5")
    assert one["number"] == [0, 1, 2]
    assert two["number"] == [0, 1, 2, 3, 4]
    assert two["by"] == "old"
    # There are more rows than places.
    found = asked(server, *map(str, range(1, 11)))
    assert [one["number"] for one in found] == [[*range(n)] for n in range(1, 11)]
    assert {live for one in found for live in one["live"]} == {*range(1, PLACES + 1)}


def test_several_instances_have_no_parts(server: Server) -> None:
    stream = Stream(server, "", body=v1_body("1", "2"))
    assert "has 2 instances" in stream.refused(400)
    stream.close()


def test_a_row_joins_while_others_run(server: Server, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with begun(server, f"until {end}") as (long,):
        (short,) = asked(server, "3")
        assert short["live"] == [2, 2, 2]
        end.touch()
        assert long.numbers()[-1] > 3


def test_rows_beyond_the_places_wait_for_one(server: Server, tmp_path: Path) -> None:
    ends = [tmp_path / str(number) for number in range(PLACES)]
    with (
        begun(server, *(f"until {end}" for end in ends)) as streams,
        ThreadPoolExecutor(2 * PLACES) as threads,
    ):
        waiting = [threads.submit(asked, server, "4") for _ in range(2 * PLACES)]
        for stream in streams:
            assert stream.part()["live"][0] <= PLACES
        assert not any(future.done() for future in waiting)
        for end in ends[1:]:
            end.touch()
        # One row still has its place, and the others share the rest of them.
        lives = [live for future in waiting for live in future.result()[0]["live"]]
        assert max(lives) == PLACES
        assert min(lives) > 1
        ends[0].touch()
        numbers = streams[0].numbers()
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]


def test_a_client_that_leaves_frees_its_place(
    server: Server, tmp_path: Path, wait_until: WaitUntil
) -> None:
    before = reasons(server)
    with begun(server, *[f"until {tmp_path / 'never'}"] * PLACES) as streams:
        streams[1].close()
        assert asked(server, "2")[0]["live"] == [PLACES, PLACES]
    wanted = Counter({"cancelled": PLACES, "done": 1})
    wait_until(lambda: reasons(server) - before == wanted, "all of them have ended")


def test_each_row_ends_with_its_reason(
    server: Server, tmp_path: Path, wait_until: WaitUntil
) -> None:
    before = reasons(server)
    refused = Stream(server, "refuse")
    assert "ValueError" in refused.refused(500)
    refused.close()
    with begun(server, "2 raise") as (stream,):
        assert "raised ValueError" in stream.last()["error"]
    body = json.dumps(v1_body(f"until {tmp_path / 'never'}")).encode()
    with Connection(server.port) as connection:
        late = connection.ask(request(V1, body, headers={"X-Request-Timeout": "0.2"}))
    assert late.status == 504
    with begun(server, "5") as (stream,):
        assert stream.numbers() == [1, 2, 3, 4]
    # The row that could not begin has no state to end.
    wanted = Counter({"failed": 1, "deadline": 1, "done": 1})
    wait_until(lambda: reasons(server) - before == wanted, "all of them have ended")


def test_metrics_count_each_row_once(server: Server, wait_until: WaitUntil) -> None:
    before, began_s = samples(server), time.monotonic()
    with begun(server, "3") as (stream,):
        asked(server, "2", "2")
        assert stream.last() is not None

    def more() -> Counter[str]:
        found = samples(server)
        found.subtract(before)
        return found

    for name, count in (("model_executed_parts_total", 3), ("part_gap_seconds_count", 2)):
        wait_until(lambda n=name, c=count: more()[f"ringbatch_{n}"] == c, f"{name} is {count}")
    found = more()
    assert found["ringbatch_model_requests_total"] == 2
    for name in ("parts", "instances", "batches", "dispatched_instances"):
        assert found[f"ringbatch_model_{name}_total"] == 3, name
    assert found["ringbatch_worker_batches_total"] == 3
    assert found["ringbatch_worker_run_seconds_total"] >= 3 * PAUSE_S - ROUNDING_S
    # Rows share the time of their steps.
    spent = found["ringbatch_model_run_seconds_sum"]
    assert spent >= 3 * PAUSE_S - ROUNDING_S
    assert spent <= found["ringbatch_worker_run_seconds_total"] + ROUNDING_S
    assert found["ringbatch_model_failed_batches_total"] == 0
    assert found["ringbatch_model_retried_total"] == 0
    # Of the answer in three parts.
    assert found["ringbatch_first_part_seconds_count"] == 1
    # A frontend that stands still for a while gets all parts at once.
    assert 0 <= found["ringbatch_part_gap_seconds_sum"] <= time.monotonic() - began_s


def test_a_dead_worker_cuts_off_begun_rows_and_no_others(server: Server, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with begun(server, *[f"until {end}"] * 2) as streams, ThreadPoolExecutor(1) as threads:
        # It is live as well, with nothing out.
        whole = threads.submit(asked, server, f"until {end}")
        while streams[0].part()["live"] != [3]:
            pass
        os.kill(server.role("worker stepping/0"), signal.SIGKILL)
        for stream in streams:
            assert "died" in stream.last()["error"]
        end.touch()
        assert whole.result()[0]["number"] == [0]
    assert [one["number"] for one in asked(server, "2", "3")] == [[0, 1], [0, 1, 2]]


def test_a_row_that_kills_its_worker_is_given_up(server: Server) -> None:
    with begun(server, "2 exit") as (stream,):
        assert "died" in stream.last()["error"]
    assert asked(server, "2")[0]["number"] == [0, 1]


def test_nobody_notices_the_death_of_the_collector(
    server: Server, tmp_path: Path, wait_until: WaitUntil
) -> None:
    end = tmp_path / "end"
    with (
        begun(server, *[f"until {end}"] * PLACES) as streams,
        ThreadPoolExecutor(2) as threads,
    ):
        whole = [threads.submit(asked, server, "4") for _ in range(2)]
        kill_9(server, "collector", wait_until)
        end.touch()
        for stream in streams:
            numbers = stream.numbers()
            assert numbers == [*range(numbers[0], numbers[-1] + 1)]
        assert [future.result()[0]["number"] for future in whole] == [[0, 1, 2, 3]] * 2


def test_the_rows_of_another_frontend_outlive_one(
    server: Server, tmp_path: Path, wait_until: WaitUntil
) -> None:
    end = tmp_path / "end"
    found = {t: pid for t, pid in server.titles().items() if t.startswith("ringbatch: frontend ")}
    (killed, _), (_, other) = found.items()
    with ExitStack() as stack:
        by_frontend: dict[int | None, Stream] = {}
        while len(by_frontend) < len(found):
            stream = Stream(server, f"until {end}")
            stack.callback(stream.close)
            assert stream.part()["number"] == [0]
            if by_frontend.setdefault(server.serves(stream.port), stream) is not stream:
                stream.close()
        cut, stream = by_frontend[found[killed]], by_frontend[other]
        kill_9(server, killed.removeprefix("ringbatch: "), wait_until)
        with pytest.raises(httpx.TransportError):
            cut.last()
        # The row of the dead one leaves.
        while stream.part()["live"] != [1]:
            pass
        end.touch()
        numbers = stream.numbers()
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]


def test_a_reload_lets_rows_end_on_the_old_model(
    server: Server, tmp_path: Path, wait_until: WaitUntil
) -> None:
    end = tmp_path / "end"
    path = server.config.with_name("stepping.py")
    with begun(server, f"until {end}") as (stream,):
        path.write_text(path.read_text().replace('b"old"', 'b"new"'))
        done = reload(server)
        assert (done.returncode, done.stderr) == (0, "")
        wait_until(lambda: asked(server, "1")[0]["by"] == "new", "the new model serves")
        assert stream.part()["by"] == "old"
        end.touch()
        assert stream.last()["predictions"][0]["by"] == "old"


TOO_MUCH: Final = {
    "no-places": ("max_batch_size = 0", r"max_batch_size, which is 0, must be the number of rows"),
    "too-many-places": ("max_batch_size = 4096", r"which is 4096, must be .* from 1 to 2048"),
    "sizes": ("allowed_batch_sizes = [3]", r"allowed_batch_sizes is set, but the model works in"),
    "chain": ("[models.c]\nsteps = ['stepping']", r"a chain needs the whole answer of each step"),
}


@pytest.mark.parametrize(("setting", "words"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_reload_refuses_settings_that_a_model_in_steps_cannot_follow(
    setting: str, words: str, server: Server
) -> None:
    text = server.config.read_text()
    kept = re.sub("max_batch_size.*\n", "", text) if "max_batch_size" in setting else text
    server.config.write_text(f"{kept}{setting}\n")
    try:
        done = reload(server)
    finally:
        server.config.write_text(text)
    assert done.returncode == 1
    assert re.search(words, done.stderr), done.stderr
    assert asked(server, "2")[0]["number"] == [0, 1]


def test_places_change_with_a_reload(server: Server, tmp_path: Path) -> None:
    end = tmp_path / "end"
    text = server.config.read_text()
    with begun(server, *[f"until {end}"] * PLACES) as streams:
        server.config.write_text(text.replace("size = 3", "size = 4"))
        try:
            assert reload(server).returncode == 0
            assert asked(server, "1")[0]["live"] == [PLACES + 1]
        finally:
            server.config.write_text(text)
        end.touch()
        assert all(stream.last() for stream in streams)
    assert reload(server).returncode == 0


def reload(server: Server) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "reload", str(server.pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@exhaustive
def test_a_handover_lets_rows_end_on_the_old_engine(start: Start, tmp_path: Path) -> None:
    name = f"steps-{os.getpid()}"
    old = start(MODELS, name=name)
    folder, end = tmp_path / "next", tmp_path / "end"
    folder.mkdir()
    arguments = configured(folder, MODELS, name=name)
    path = folder / "stepping.py"
    path.write_text(path.read_text().replace('b"old"', 'b"new"'))
    with begun(old, f"until {end}") as (stream,), ExitStack() as stack:
        new = Server(folder, *arguments, command="handover")
        stack.callback(new.kill)
        new.wait_ready()
        assert asked(new, "1")[0]["by"] == "new"
        assert stream.part()["by"] == "old"
        end.touch()
        assert stream.last()["predictions"][0]["by"] == "old"
        assert old.process.wait(TIMEOUT_S) == 0


LENGTHS: Final = """
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [-1])]
def begin(x): return [*x]
def step(states): return states, [True] * len(states)
"""
REFUSED: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "no-places": ("", {"max_batch_size": 0}, r"so max_batch_size, which is 0, must be the number"),
    "too-many-places": ("", {"max_batch_size": 4096}, r"which is 4096, .* from 1 to 2048"),
    "sizes": ("", {"allowed_batch_sizes": [3]}, r"allowed_batch_sizes is set, but the model works"),
    "elements": ("", {"max_batch_elements": 9}, r"max_batch_elements is set, but the model works"),
    "lengths": (
        LENGTHS,
        {"pad_variable_length": True},
        r"pad_variable_length is set, but the model works in steps",
    ),
    "no-step": (
        "def begin(x): return x\n",
        {},
        r"`begin` is there, so `step` must be as well: a model in steps needs both",
    ),
    "no-states": (
        "def begin(x): return []\ndef step(states): return states, [True]\n",
        {"warm_up_file": "one.json"},
        r"begin returned 0 states for 1 rows",
    ),
    "no-pair": (
        "def begin(x): return x\ndef step(states): return states\n",
        {"warm_up_file": "one.json"},
        r"step must return a pair: the outputs, and which rows have ended",
    ),
    "too-few-ends": (
        "def begin(x): return x\ndef step(states): return states, []\n",
        {"warm_up_file": "one.json"},
        r"step said of 0 of 1 rows if they have ended",
    ),
}
"""The text of a model file, by default that of this module's; settings; and the words."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of a check of all of these models, and of a chain."""
    folder = tmp_path_factory.mktemp("check")
    models: dict[str, dict[str, Any]] = {
        name: {"path": f"{name}.py", "max_batch_size": PLACES} | settings
        for name, (_, settings, _) in REFUSED.items()
    }
    configured(folder, models)
    (folder / "one.json").write_text('{"instances": [1]}')
    for name, (text, _, _) in REFUSED.items():
        (folder / f"{name}.py").write_text(text or (folder / "stepping.py").read_text())
    command = [*COMMAND, "check", "--config", "ringbatch.toml", "--load"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    return done.stderr


@exhaustive
@pytest.mark.parametrize(("name", "words"), [(n, w) for n, (_, _, w) in REFUSED.items()])
def test_settings_that_a_model_in_steps_cannot_follow_are_refused_in_words(
    name: str, words: str, checked: str
) -> None:
    assert re.search(rf"{name}\.py: .*{words}", checked), checked
