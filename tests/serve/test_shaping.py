"""Warm-up, padding and placement as a client and an operator see them."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.server import COMMAND, SMALL, Server, Start
from tiers import only

from ringbatch.engine.process.memory_limits import WORKER_HEAP
from ringbatch.shm.shm_objects import remove_dead_engines

pytestmark = takes(20)

SIZES = [1, 4, 8]
TOKENS: dict[str, Any] = {
    "path": "tokens.py",
    "allowed_batch_sizes": SIZES,
    "pad_variable_length": True,
    "length_buckets": [4, 8],
    "padding_values": ["ids=7"],
    "lengths_input": "length",
}


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    cpu = str(min(os.sched_getaffinity(0)))
    return start_for_module(
        {
            "tokens": TOKENS | {"cpus": [cpu]},
            "picky": {"path": "picky.py"},
            "surroundings": {"path": "surroundings.py"},
            "cold": {"path": "matmul.py", "warm_up": "off"},
        },
        frontend_cpus=cpu,
    )


def ask(port: int, ids: list[int]) -> dict[str, Any]:
    with Connection(port) as connection:
        answer = connection.ask(fast("tokens", instances({"ids": ids})))
    assert answer.status == 200, answer.body
    (prediction,) = answer.json["predictions"]
    return dict(prediction)


@pytest.mark.parametrize("length", [0, 1, 4, 5, 8, 9, 30])
def test_an_answer_is_as_long_as_its_request_and_not_as_its_bucket(
    server: Server, length: int
) -> None:
    ids = list(range(length))
    answer = ask(server.port, ids)
    assert answer["doubled"] == [2 * number for number in ids]
    assert answer["sum"] == sum(ids), "the model was told the true length"
    assert answer["batch"][1] == next((edge for edge in (4, 8) if edge >= length), length)


def test_many_at_once_get_their_own_answers_from_batches_of_allowed_sizes(server: Server) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = [[100 * n + i for i in range(n % 11)] for n in range(96)]
        answers = list(pool.map(lambda ids: ask(server.port, ids), texts))
    for ids, answer in zip(texts, answers, strict=True):
        assert answer["doubled"] == [2 * number for number in ids]
        assert answer["sum"] == sum(ids)
        assert answer["batch"][0] in SIZES


def test_over_v2_the_length_is_no_input_and_shapes_are_the_requests_own(server: Server) -> None:
    with Connection(server.port) as connection:
        metadata = connection.ask(request("/v2/models/tokens", method="GET")).json
        tensor = {"name": "ids", "datatype": "INT64", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
        answer = connection.ask(
            request("/v2/models/tokens/infer", json.dumps({"inputs": [tensor]}).encode())
        )
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["ids"]
    outputs = {output["name"]: output for output in answer.json["outputs"]}
    assert outputs["doubled"]["shape"] == [2, 3]
    assert outputs["doubled"]["data"] == [2, 4, 6, 8, 10, 12]
    assert outputs["batch"]["data"] == [4, 4] * 2


def test_one_that_is_refused_in_a_padded_batch_is_refused_alone(server: Server) -> None:
    with Connection(server.port) as connection:
        refused = connection.ask(fast("tokens", instances({"ids": [666]})))
    assert (refused.status, refused.error) == (400, "not that number")
    assert ask(server.port, [1])["sum"] == 1


def test_the_operator_sees_the_time_of_each_size(server: Server) -> None:
    listed = subprocess.run(
        [*COMMAND, "models", "--pid", str(server.pid)], capture_output=True, text=True, check=True
    ).stdout
    tokens, picky, cold = (
        listed.partition(f"\n{name}: ")[2] for name in ("tokens", "picky", "cold")
    )
    assert "batches: of 1, 4, 8 instances, padded to 4, 8, eager" in tokens
    for size in ("1 x 4 ", "4 x 8 ", "8 x 8 "):
        assert f" {size}" in tokens.partition("picky")[0]
    assert "warm-up: none" in picky.partition("cold")[0]
    assert "warm-up: none" in cold


def test_the_log_has_the_times_of_warm_up_and_the_places_of_processes(server: Server) -> None:
    assert "warm-up: 1 x 4 " in server.stderr
    assert (
        "warm-up of picky with x FP32 [1, 1]: InvalidInput: no ones; "
        "the values were made up, so the model serves" in server.stderr
    )
    assert "placement: frontends and collector on CPUs " in server.stderr


def test_processes_run_on_their_configured_cpus(server: Server) -> None:
    cpu = min(os.sched_getaffinity(0))
    for title in ("worker tokens/0", "collector", "frontend 0"):
        assert os.sched_getaffinity(server.role(title)) == {cpu}, title
    assert os.sched_getaffinity(server.role("worker cold/0")) == os.sched_getaffinity(0)


def test_a_worker_keeps_the_memory_that_a_run_has_freed(server: Server) -> None:
    names, values = zip(*WORKER_HEAP.items(), strict=True)
    with Connection(server.port) as connection:
        answer = connection.ask(fast("surroundings", instances(*names)))
    assert answer.json["predictions"] == [*values]


START = {
    "nothing-to-pad": (
        "path = 'matmul.py'\npad_variable_length = true\n",
        "matmul.py: pad_variable_length is set, but no input has a dimension of any size (-1)",
    ),
    "no-such-input": (
        "path = 'tokens.py'\npad_variable_length = true\nlengths_input = 'n'\n",
        "but there is no input 'n'; there is: ids, length",
    ),
    "elements-of-nothing": (
        "path = 'nap.py'\nmax_batch_elements = 9\n",
        "nap.py: max_batch_elements needs a model that declares its inputs",
    ),
    "cost-that-nothing-says": (
        "path = 'nap.py'\nmax_batch_cost = 9\n",
        "nap.py: max_batch_cost needs a model file without inputs and with a function cost(inst",
    ),
    "cost-of-a-model-with-inputs": (
        "path = 'matmul.py'\nmax_batch_cost = 9\n",
        "matmul.py: max_batch_cost needs a model file without inputs",
    ),
    "instances-that-it-refuses": (
        "path = 'picky.py'\nwarm_up_file = 'ones.json'\n",
        "line 15: warm-up of m with x FP32 [1, 1]: InvalidInput: no ones; the instances are those ",
    ),
    "cpus-that-are-not-there": (
        "path = 'matmul.py'\ncpus = ['99999']\n",
        'the configuration names CPUs "99999": these cannot all be used',
    ),
}


@pytest.mark.parametrize(("keys", "words"), only(START, "instances-that-it-refuses"))
def test_an_impossible_configuration_ends_the_start_in_words(
    tmp_path: Path, keys: str, words: str
) -> None:
    models = Path(__file__).with_name("models")
    for source in models.glob("*.py"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / "ones.json").write_text('{"instances": [[1]]}')
    (tmp_path / "ringbatch.toml").write_text(f"[server]\nport = 0\n[models.m]\n{keys}")
    ended = subprocess.run(
        [*COMMAND, "serve", "--config", "ringbatch.toml", *SMALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    remove_dead_engines()
    assert ended.returncode == 2
    assert words in ended.stderr
