"""A server of text generators, and its answers; a test file takes the fixtures by name."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from decoders import weights, write_decoder
from serve.figures import figures as read
from serve.server import Server, Start
from text_generators import tokenizer, write_generator

COMPLETIONS = "/v1/completions"
CHATS = "/v1/chat/completions"
PLACES = 4
DECODER = weights(tokenizer().get_vocab_size(), seed=2)
has_openai = pytest.mark.skipif(find_spec("openai") is None, reason="not installed: openai")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generators")


@pytest.fixture(scope="module")
def server(start_for_module: Start, folder: Path) -> Server:
    model = {"path": str(write_generator(folder / "repeating")), "max_batch_size": PLACES}
    bare = {"path": str(write_generator(folder / "bare", template=None))}
    spelling = {
        "path": str(write_generator(folder / "spelling", model="spelling")),
        "max_batch_size": PLACES,
    }
    write_decoder(folder / "decoder", DECODER)
    decoder = {"path": str(folder / "decoder"), "max_batch_size": PLACES}
    return start_for_module(
        {"repeating": model, "bare": bare, "spelling": spelling, "decoder": decoder},
        control_port=0,
        http2=True,
        compress_answers=True,
        lane_bytes=1 << 22,
    )


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    address = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=address, timeout=60, trust_env=False, verify=False) as client:
        yield client


def asked(client: httpx.Client, path: str = COMPLETIONS, **members: Any) -> Any:
    answer = client.post(path, json={"model": "repeating", **members})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def refused(client: httpx.Client, path: str = COMPLETIONS, **members: Any) -> tuple[int, Any]:
    answer = client.post(path, json={"model": "repeating", **members})
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return answer.status_code, error


def events(client: httpx.Client, path: str = COMPLETIONS, **members: Any) -> Iterator[Any]:
    """The events of an answer, one by one, without the last, which has no JSON."""
    body = {"model": "repeating", "stream": True, **members}
    with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    found = [line.removeprefix("data: ") for line in lines]
    if found[-1] == "[DONE]":
        found.pop()
    yield from map(json.loads, found)


def chat(*contents: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content} for content in contents]


def figures(server: Server) -> Counter[str]:
    """Rows that have ended by reason, and requests by status."""
    address = f"http://127.0.0.1:{server.control_port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for one in read(text):
        if one.name == "repeating_ended_total":
            found[one.labels["reason"]] += int(one.value)
        elif one.name == "ringbatch_requests_total":
            found[one.labels["code"]] += int(one.value)
        elif one.name == "ringbatch_lane_resumed_total":
            found["resumed"] += int(one.value)
        elif one.name == "ringbatch_model_live_rows":
            found["live"] += int(one.value)
    return found


def joined(parts: list[Any]) -> dict[int, str]:
    """The text of each choice, of the events of an answer."""
    texts: dict[int, str] = {}
    for choice in [choice for part in parts for choice in part["choices"]]:
        piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
        texts[choice["index"]] = texts.get(choice["index"], "") + piece
    return texts
