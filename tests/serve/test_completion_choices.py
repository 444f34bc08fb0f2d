"""Completions with several choices and several prompts: raw, and by OpenAI's package."""

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from string import ascii_lowercase
from typing import Any

import httpx
import pytest
from dev_shm import takes
from serve import completions
from serve.client import Connection, request
from serve.completions import (
    CHATS,
    COMPLETIONS,
    PLACES,
    asked,
    chat,
    events,
    figures,
    has_openai,
    joined,
    refused,
)
from serve.server import Server
from text_generators import LIMIT, tokens

pytestmark = takes(30)

WaitUntil = Callable[..., Any]
server, client, folder = completions.server, completions.client, completions.folder


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS], ids=["completion", "chat"])
def test_choices_begin_at_seeds_of_their_own(client: httpx.Client, path: str) -> None:
    asks: dict[str, Any] = {"prompt": "abcd"} if path == COMPLETIONS else {"messages": chat("abcd")}
    asks |= {"n": 3, "seed": 1, "max_tokens": 4}
    answer = asked(client, path, **asks)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    texts = [c["text"] if path == COMPLETIONS else c["message"]["content"] for c in choices]
    if path == COMPLETIONS:
        assert texts == ["bcda", "cdab", "dabc"]
    assert len({*texts}) == 3
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    prompt = answer["usage"]["prompt_tokens"]
    usage = {"prompt_tokens": prompt, "completion_tokens": 12, "total_tokens": prompt + 12}
    assert answer["usage"] == usage
    *parts, last = events(client, path, **asks, stream_options={"include_usage": True})
    assert joined(parts) == dict(enumerate(texts))
    assert (last["choices"], last["usage"]) == ([], usage)
    ends = [c["index"] for part in parts for c in part["choices"] if c["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]
    # Each has a part before any has its last one: the rows run together.
    begun = [part["choices"][0]["index"] for part in parts][: len(parts) // 2]
    assert {*begun} == {0, 1, 2}


@pytest.mark.parametrize("as_tokens", [False, True])
def test_prompts_are_answered_in_their_order_each_n_times(
    client: httpx.Client, *, as_tokens: bool
) -> None:
    prompts = ["abc", "Hi.", "x"]
    given = [tokens(prompt) for prompt in prompts] if as_tokens else prompts
    asks: dict[str, Any] = {"prompt": given, "n": 2, "seed": 1, "max_tokens": 3}
    answer = asked(client, **asks)
    found = [(one["index"], one["text"], one["finish_reason"]) for one in answer["choices"]]
    assert found == [
        (0, "bca", "length"),
        (1, "cab", "length"),
        (2, "i.", "stop"),
        (3, ".", "stop"),
        (4, "xxx", "length"),
        (5, "xxx", "length"),
    ]
    assert answer["usage"] == {"prompt_tokens": 7, "completion_tokens": 17, "total_tokens": 24}
    parts = [*events(client, **asks)]
    assert joined(parts) == {index: text for index, text, _ in found}


def test_many_long_prompts_are_read_by_another_process(client: httpx.Client) -> None:
    prompts = [letter * 300 for letter in ascii_lowercase]
    wait = asked(client, prompt=prompts, n=2, max_tokens=2)
    assert [one["text"] for one in wait["choices"]] == [
        x * 2 for x in ascii_lowercase for _ in "12"
    ]
    assert wait["usage"]["prompt_tokens"] == 26 * 300


def test_a_choice_that_fails_ends_the_others(
    server: Server, client: httpx.Client, wait_until: WaitUntil
) -> None:
    for stream in (True, False):
        before = figures(server)
        asks: dict[str, Any] = {"prompt": ["abc", "!ab", "xyz"], "max_tokens": LIMIT - 3}
        if stream:
            *parts, last = events(client, **asks)
            assert joined(parts)[1] == "!ab"
            error = last["error"]
        else:
            status, error = refused(client, **asks)
            assert status == 500
        assert error["type"] == "server_error"
        # The failed step may have ended their rows too, and they need not have begun again since.
        wait_until(
            lambda before=before: figures(server)["499"] == before["499"] + 2,
            "the others have been given up",
        )
        wait_until(lambda: figures(server)["live"] == 0, "their rows have ended")


def test_a_client_that_leaves_ends_all_choices(
    server: Server, client: httpx.Client, wait_until: WaitUntil
) -> None:
    before = figures(server)
    body = {"model": "repeating", "prompt": "abc", "n": 3, "max_tokens": LIMIT - 3}
    with client.stream("POST", COMPLETIONS, json=body | {"stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    wait_until(lambda: figures(server)["cancelled"] == before["cancelled"] + 3, "the rows ended")
    with Connection(server.port) as connection:
        connection.send(request(COMPLETIONS, json.dumps(body).encode()))
        wait_until(lambda: figures(server)["live"] == 3, "the rows are live")
    wait_until(lambda: figures(server)["cancelled"] == before["cancelled"] + 6, "the rows ended")
    assert figures(server)["499"] == before["499"] + 6


def test_choices_go_on_behind_the_death_of_their_worker(
    server: Server, client: httpx.Client, wait_until: WaitUntil
) -> None:
    body = {"model": "spelling", "prompt": ["a", "c"], "n": 2, "max_tokens": 200}
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(client.post, COMPLETIONS, json=body)
        wait_until(lambda: figures(server)["live"] == PLACES, "the rows are live")
        os.kill(server.role("worker spelling/0"), signal.SIGKILL)
        answer = asking.result()
    assert answer.status_code == 200, answer.text
    letters = ascii_lowercase * 9
    wanted = [letters[1:201], letters[1:201], letters[3:203], letters[3:203]]
    assert [choice["text"] for choice in answer.json()["choices"]] == wanted


@has_openai
def test_the_openai_package_reads_choices(server: Server) -> None:
    openai: Any = import_module("openai")
    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        several = client.completions.create(
            model="repeating", prompt=["ab", "x."], n=2, best_of=2, max_tokens=2, seed=0
        )
        assert [(one.index, one.text) for one in several.choices] == [
            (0, "ab"),
            (1, "ba"),
            (2, "x."),
            (3, "."),
        ]
        heard: dict[int, str] = {0: "", 1: "", 2: ""}
        for part in client.chat.completions.create(
            model="repeating", messages=chat("Hi."), n=3, stream=True
        ):
            for choice in part.choices:
                heard[choice.index] += choice.delta.content or ""
        assert heard == {0: "Hi.", 1: "Hi.", 2: "Hi."}
