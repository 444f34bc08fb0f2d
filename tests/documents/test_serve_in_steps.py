"""The how-to page of models in steps: its model file and its commands, to the letter."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from documents.commands import printed, serving, write
from documents.pages import example, output_after, section, table, text_of
from serve.server import Server

from ringbatch.engine.worker import steps_runner
from ringbatch.engine.worker.parts_runner import PATIENCE_NS
from ringbatch.frontend.codec.resumption import MOST_KEPT_BYTES, MOST_RESUMPTIONS
from ringbatch.shm.model_spec import MOST_PLACES

STEPS: Final = "docs/how-to/serve-a-model-in-steps.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("steps")
    write(folder, "decode.py", example(STEPS, "decode.py"))
    with serving(folder, example(STEPS, "serve")) as started:
        yield started


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page's other models side by side, with the places of its command, or fewer."""
    folder = tmp_path_factory.mktemp("others")
    (places,) = re.findall(r"--max-batch-size (\d+)$", example(STEPS, "serve"))
    decode = example(STEPS, "decode.py")
    models = {
        "resumable": f"{decode}\n\n{example(STEPS, 'resumable')}",
        "pieces": f"{decode}\n\n{example(STEPS, 'pieces')}",
        "arrays": example(STEPS, "arrays.py"),
    }
    lines = ["[server]", f"name = 'steps-{os.getpid()}'"]
    for name, source in models.items():
        write(folder, f"{name}.py", source)
        size = 3 if name == "arrays" else places
        lines += [f"[models.{name}]", f"path = '{name}.py'", f"max_batch_size = {size}"]
    write(folder, "others.toml", "\n".join(lines))
    with serving(folder, "ringbatch serve --config others.toml") as started:
        yield started


def test_events_are_those_of_the_page(server: Server, tmp_path: Path) -> None:
    found = printed(example(STEPS, "events"), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(STEPS, "events"))


def test_the_joined_answer_is_that_of_the_page(server: Server, tmp_path: Path) -> None:
    found = printed(example(STEPS, "joined"), tmp_path, server)
    assert without_ids(found) == without_ids(output_after(STEPS, "joined"))


def without_ids(text: str) -> str:
    return re.sub(r'"batchId":"[^"]*"', "", text).strip()


def test_events_of_several_instances_are_refused(server: Server, tmp_path: Path) -> None:
    command = example(STEPS, "joined").replace('{"prompt"', '{"prompt": "all"}, {"prompt"')
    asked = command.replace("curl", "curl -H 'Accept: text/event-stream'")
    assert "2 instances" in json.loads(printed(asked, tmp_path, server))["error"]
    assert len(json.loads(printed(command, tmp_path, server))["predictions"]) == 2


def test_the_resumable_model_goes_on_behind_its_worker_s_death(others: Server) -> None:
    prompt = {"prompt": "all rows take", "limit": 9}
    url = f"http://127.0.0.1:{others.port}/v2/models/resumable/generate_stream"
    found = []
    with httpx.stream(
        "POST", url, json=prompt, timeout=60, trust_env=False, verify=False
    ) as answer:
        for line in answer.iter_lines():
            if line:
                found.append(json.loads(line.removeprefix("data: "))["words"])
                if len(found) == 2:
                    os.kill(others.role("worker resumable/0"), signal.SIGKILL)
    assert " ".join(found) == "one step at the same time and each of"


def test_prompts_in_pieces_send_nothing_until_they_are_read(others: Server, tmp_path: Path) -> None:
    def in_pieces(name: str) -> str:
        return printed(example(STEPS, name).replace("decode", "pieces"), tmp_path, others)

    def shown(name: str) -> str:
        return output_after(STEPS, name).replace("decode", "pieces")

    assert without_ids(in_pieces("events")) == without_ids(shown("events"))
    assert without_ids(in_pieces("joined")) == without_ids(shown("joined"))
    url = f"http://127.0.0.1:{others.port}/v2/models/pieces/generate_stream"
    prompt = {"prompt": "word " * 50 + "each of them", "limit": 2}
    with httpx.stream(
        "POST", url, json=prompt, timeout=60, trust_env=False, verify=False
    ) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert [json.loads(line)["words"] for line in lines] == ["ends", "when"]


def test_live_rows_of_the_model_with_a_cost_are_bounded(tmp_path: Path) -> None:
    text = [example(STEPS, "decode.py"), example(STEPS, "cost")]
    write(tmp_path, "decode.py", "\n\n".join(text))
    command = example(STEPS, "serve-cost").replace("1000", "20")
    with serving(tmp_path, command) as started:
        url = f"http://127.0.0.1:{started.port}/v1/models/decode:predict"

        def asked(limit: int, count: int = 1) -> httpx.Response:
            instances = [{"prompt": "all rows", "limit": limit}] * count
            return httpx.post(
                url, json={"instances": instances}, timeout=60, trust_env=False, verify=False
            )

        assert [len(words) for words in asked(5, 6).json()["predictions"]] == [5] * 6
        assert len(asked(18).json()["predictions"][0]) == 18
        refused = asked(19)
    assert refused.status_code == 400
    assert "the request costs 21, and max_batch_cost is 20" in refused.json()["error"]


def test_the_model_with_arrays_keeps_its_rows_apart(others: Server) -> None:
    instances = [{"first": n, "limit": n} for n in range(1, 8)]
    url = f"http://127.0.0.1:{others.port}/v1/models/arrays:predict"
    answer = httpx.post(
        url, json={"instances": instances}, timeout=60, trust_env=False, verify=False
    )
    fibonacci = [1, 1, 2, 3, 5, 8, 13]
    assert answer.json()["predictions"] == [[n * f for f in fibonacci[:n]] for n in range(1, 8)]


def test_numbers_of_resumption_are_those_of_the_code() -> None:
    text = " ".join(section(STEPS, "Go on after a worker's death").split())
    assert f"at most {MOST_RESUMPTIONS} times, and up to {MOST_KEPT_BYTES >> 20} MiB" in text


def test_reasons_and_numbers_of_the_page_are_those_of_the_code() -> None:
    reasons = [row[0].strip('`"') for row in table(STEPS, "reason")]
    assert reasons == [
        steps_runner.DONE,
        steps_runner.CANCELLED,
        steps_runner.DEADLINE,
        steps_runner.FAILED,
    ]
    assert f"no room for {PATIENCE_NS // 10**9} s" in section(STEPS, "How a row ends")
    assert f"from 1 to {MOST_PLACES:,}" in " ".join(text_of(STEPS).split())
