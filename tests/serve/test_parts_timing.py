"""The timing of answers in parts, on every way in, and clients that pass over it."""

import re
from importlib import import_module
from typing import Any, Final

import httpx
import pytest
from dev_shm import takes
from serve import completions
from serve.completions import CHATS, COMPLETIONS, chat, has_openai
from serve.server import Server
from text_generators import tokens

pytestmark = takes(30)

server, client, folder = completions.server, completions.client, completions.folder

ASK: Final = {"X-Server-Timing": "1"}
GENERATE: Final = "/v2/models/repeating/generate_stream"
COUNT: Final = 5
NUMBER: Final = r"\d+\.\d{3}"
BATCHED: Final = rf'queue;dur={NUMBER}, .*batch;desc="[^"]+"'
"""Phases of a row that the model has ended. One that has enough tokens is ended by the frontend."""
TIMING: Final = re.compile(
    rf": server-timing: (?:read;dur={NUMBER}, )?(?:{BATCHED}|wait;dur={NUMBER}), "
    rf"total;dur=({NUMBER}), first_part;dur=({NUMBER}), "
    rf'part_gap;dur=({NUMBER});desc="mean of (\d+)", longest_part_gap;dur=({NUMBER})'
)
OPENAI: Final = {"model": "repeating", "max_tokens": COUNT, "stream": True}
BODIES: Final[dict[str, tuple[str, Any]]] = {
    "generate": (GENERATE, {"input_ids": tokens("abc"), "max_tokens": COUNT}),
    "completion": (
        COMPLETIONS,
        OPENAI | {"prompt": "abc"},
    ),
    "chat": (
        CHATS,
        OPENAI | {"messages": chat("abc")},
    ),
}


def blocks(server: Server, way: str, headers: dict[str, str], **versions: Any) -> list[str]:
    """The events and comments of an answer."""
    path, body = BODIES[way]
    with httpx.Client(timeout=60, trust_env=False, verify=False, **versions) as client:
        address = f"http://127.0.0.1:{server.port}{path}"
        answer = client.post(address, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert "server-timing" not in answer.headers
    assert answer.text.endswith("\n\n")
    return answer.text.removesuffix("\n\n").split("\n\n")


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("way", BODIES)
def test_a_client_that_asks_gets_the_timing_behind_the_last_event(
    server: Server, way: str, *, http2: bool
) -> None:
    versions = {"http1": not http2, "http2": http2}
    plain = blocks(server, way, {}, **versions)
    *found, last = blocks(server, way, ASK, **versions)
    assert len(found) == len(plain)
    assert not any(block.startswith(":") for block in (*found, *plain))
    timing = TIMING.fullmatch(last)
    assert timing is not None, last
    total, first, gap, gaps, longest = map(float, timing.groups())
    assert gaps == len(found) - 1
    assert gap <= longest
    # The last event of a completion is made once its row has ended.
    assert first < first + gap * gaps <= total + 5


def test_a_get_of_an_event_source_has_it_behind_its_end(
    server: Server, client: httpx.Client
) -> None:
    ids = [("input_ids", token) for token in tokens("abc")]
    answer = client.get(GENERATE, params=[*ids, ("max_tokens", 2)], headers=ASK)
    *_, end, last, nothing = answer.text.split("\n\n")
    assert (end, nothing) == ("event: end\ndata:", "")
    assert TIMING.fullmatch(last) is not None


def test_an_error_before_the_first_part_has_it_in_its_head(
    server: Server, client: httpx.Client
) -> None:
    body = {"model": "repeating", "prompt": "!abcdefgh", "stream": True}
    answer = client.post(COMPLETIONS, json=body, headers=ASK)
    assert answer.status_code == 500
    assert "total;dur=" in answer.headers["server-timing"]
    assert "server-timing" not in answer.text


@has_openai
def test_the_openai_package_passes_over_it(server: Server) -> None:
    openai: Any = import_module("openai")
    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="repeating", messages=chat("Hi."), stream=True, n=2, extra_headers=ASK
        )
        texts = {0: "", 1: ""}
        for part in stream:
            for choice in part.choices:
                texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "Hi.", 1: "Hi."}
