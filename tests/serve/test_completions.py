"""Completions and chats on a real engine, over HTTP/1.1 and HTTP/2, by OpenAI's package and raw."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from string import ascii_lowercase
from typing import Any

import httpx
import pytest
from decoders import continued
from dev_shm import takes
from serve import completions
from serve.client import Connection, request
from serve.completions import (
    CHATS,
    COMPLETIONS,
    DECODER,
    asked,
    chat,
    events,
    figures,
    has_openai,
    refused,
)
from serve.server import Server
from text_generators import LIMIT, tokenizer, tokens

pytestmark = takes(30)

WaitUntil = Callable[..., Any]


server, client, folder = completions.server, completions.client, completions.folder


def test_a_completion_goes_on_to_its_length(client: httpx.Client) -> None:
    answer = asked(client, prompt="Grüße € ", max_tokens=25)
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Grüße € Grüße € G", "length")
    assert answer["usage"] == {"prompt_tokens": 12, "completion_tokens": 25, "total_tokens": 37}
    assert answer["model"] == "repeating"


def test_a_completion_ends_with_the_model_s_own_end(client: httpx.Client) -> None:
    (choice,) = asked(client, prompt="Hi. There", max_tokens=100)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Hi.", "stop")


def test_a_body_that_cannot_be_read_counts_for_the_model_that_it_names(
    server: Server, client: httpx.Client
) -> None:
    before = server.status().models["repeating"].refused
    for members in ({"messages": 1}, {"messages": chat("a"), "n": "x"}, {"nonsense": 1}):
        assert client.post(CHATS, json={"model": "repeating", **members}).status_code == 400
    assert client.post(CHATS, content=b'{"model": "repeating"').status_code == 400
    assert server.status().models["repeating"].refused == before + 3


def test_tokens_are_a_prompt_too(client: httpx.Client) -> None:
    ids = tokenizer().encode("ab").ids
    (choice,) = asked(client, prompt=ids, max_tokens=3)["choices"]
    assert choice["text"] == "aba"


@pytest.mark.parametrize("http2", [False, True])
def test_events_join_to_the_whole_answer(server: Server, *, http2: bool) -> None:
    address = f"http://127.0.0.1:{server.port}"
    with httpx.Client(
        base_url=address, timeout=60, trust_env=False, http1=not http2, http2=http2, verify=False
    ) as client:
        for members in ({"prompt": "a€b"}, {"prompt": "Hello there.", "stop": ["re", "x"]}):
            whole = asked(client, max_tokens=20, **members)
            *parts, last = events(client, max_tokens=20, **members)
            assert len(parts) > 1
            text = "".join(part["choices"][0]["text"] for part in parts)
            assert text == whole["choices"][0]["text"]
            assert last["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_a_chat_is_answered_from_its_template(client: httpx.Client) -> None:
    answer = asked(client, CHATS, messages=chat("Hi."), max_completion_tokens=30)
    (choice,) = answer["choices"]
    # The special tokens of the template have no text.
    assert choice["message"] == {"role": "assistant", "content": "Hi.", "refusal": None}
    assert answer["usage"]["prompt_tokens"] == 5
    first, *parts, last, usage = events(
        client, CHATS, messages=chat("Hi."), stream_options={"include_usage": True}
    )
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == "Hi."
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"] == answer["usage"]


def test_a_seed_reaches_the_model(client: httpx.Client) -> None:
    (choice,) = asked(client, prompt="abc", seed=1, temperature=0.5, max_tokens=4)["choices"]
    assert choice["text"] == "bcab"


def test_a_long_prompt_is_read_by_another_process(client: httpx.Client) -> None:
    prompt = "0123456789" * 300
    long = {"messages": chat(prompt), "max_tokens": 11, "user": "u" * (1 << 14)}
    (choice,) = asked(client, CHATS, **long)["choices"]
    assert choice["message"]["content"] == "0123456789"
    *parts, last = events(client, CHATS, **long)
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == "0123456789"
    assert last["choices"][0]["finish_reason"] == "length"
    status, error = refused(client, CHATS, **long | {"model": "nothing"})
    assert (status, error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "members", "status", "words"),
    [
        (COMPLETIONS, {"prompt": "a" * LIMIT}, 400, "maximum context length is 4096"),
        (COMPLETIONS, {"prompt": "a", "n": 129}, 400, "up to 128 choices"),
        (CHATS, {"messages": chat("a"), "n": 129}, 400, "up to 128 choices"),
        (COMPLETIONS, {"prompt": "a", "top_p": 0.5}, 400, "has no input of that name"),
        (COMPLETIONS, {"prompt": "a", "model": "x"}, 404, 'no model "x"'),
        (COMPLETIONS, {"prompt": "a", "model": None}, 400, '"model" is missing'),
        (COMPLETIONS, {"prompt": ["a", ""], "stream": True}, 400, "prompt 1 has no tokens"),
        (COMPLETIONS, {"prompt": ["a"] * 65, "n": 2}, 400, "for each of the 65 texts"),
        (CHATS, {"messages": chat("a"), "prompt": ["a", "b"]}, 400, 'unknown member "prompt"'),
        (CHATS, {"messages": chat("a"), "model": "bare"}, 400, "has no chat template"),
        (CHATS, {"messages": [{"role": "tool", "content": "a"}]}, 400, "unknown role tool"),
        (CHATS, {"messages": chat("a"), "tools": [{}]}, 400, '"tools" is a list'),
    ],
)
def test_refusals_have_openai_s_form(
    client: httpx.Client, path: str, members: dict[str, Any], status: int, words: str
) -> None:
    found, error = refused(client, path, **members)
    assert found == status
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"


def test_too_long_a_prompt_has_openai_s_code(client: httpx.Client) -> None:
    _, error = refused(client, prompt="a", max_tokens=LIMIT)
    assert error["code"] == "context_length_exceeded"


def test_a_body_that_is_no_json_is_refused(server: Server) -> None:
    with Connection(server.port) as connection:
        answer = connection.ask(request(COMPLETIONS, b"{"))
    assert answer.status == 400
    assert "no JSON" in answer.json["error"]["message"]


def test_a_model_that_fails_ends_the_answer_with_an_error(client: httpx.Client) -> None:
    *parts, last = events(client, prompt="!ab", max_tokens=9)
    assert "".join(part["choices"][0]["text"] for part in parts) == "!ab"
    assert last["error"]["type"] == "server_error"
    status, error = refused(client, prompt="!ab", max_tokens=9)
    assert (status, error["type"]) == (500, "server_error")


def test_a_stop_ends_the_row_at_once_and_counts_as_an_answer(
    server: Server, client: httpx.Client, wait_until: WaitUntil
) -> None:
    before = figures(server)
    (choice,) = asked(client, prompt="abc", max_tokens=LIMIT - 3, stop="ca")["choices"]
    assert choice["text"] == "ab"
    wait_until(lambda: figures(server)["cancelled"] == before["cancelled"] + 1, "the row has ended")
    after = figures(server)
    assert after["200"] == before["200"] + 1
    assert after["499"] == before["499"]


def test_a_client_that_leaves_ends_its_row(
    server: Server, client: httpx.Client, wait_until: WaitUntil
) -> None:
    before = figures(server)
    body = {"model": "repeating", "prompt": "abc", "max_tokens": LIMIT - 3}
    with client.stream("POST", COMPLETIONS, json=body | {"stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    wait_until(lambda: figures(server)["cancelled"] == before["cancelled"] + 1, "the row has ended")
    with Connection(server.port) as connection:
        connection.send(request(COMPLETIONS, json.dumps(body).encode()))
        wait_until(lambda: figures(server)["live"] == 1, "the row is live")
    wait_until(lambda: figures(server)["cancelled"] == before["cancelled"] + 2, "the row has ended")
    assert figures(server)["499"] == before["499"] + 2


@pytest.mark.parametrize("stream", [True, False], ids=["events", "whole"])
@pytest.mark.parametrize("path", [COMPLETIONS, CHATS], ids=["completion", "chat"])
def test_an_answer_goes_on_behind_the_death_of_its_worker(
    server: Server, client: httpx.Client, wait_until: WaitUntil, path: str, stream: bool
) -> None:
    asks: dict[str, Any] = {"prompt": "a"} if path == COMPLETIONS else {"messages": chat("a")}
    body = asks | {"model": "spelling", "max_tokens": 200, "stream": stream}
    begins = 1 if path == COMPLETIONS else 0
    alphabet = (ascii_lowercase * 9)[begins : begins + 200]
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(client.post, path, json=body)
        wait_until(lambda: figures(server)["live"] == 1, "the row is live")
        os.kill(server.role("worker spelling/0"), signal.SIGKILL)
        answer = asking.result()
    assert answer.status_code == 200, answer.text
    if stream:
        lines = [line for line in answer.text.split("\n\n") if line]
        assert lines.pop() == "data: [DONE]"
        choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
        texts = [c.get("text") or c.get("delta", {}).get("content") or "" for c in choices]
        assert "".join(texts) == alphabet
        assert choices[-1]["finish_reason"] == "length"
    else:
        (choice,) = answer.json()["choices"]
        text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        assert (text, choice["finish_reason"]) == (alphabet, "length")
        assert answer.json()["usage"]["completion_tokens"] == 200


def test_whole_answers_are_compressed_and_events_are_not(client: httpx.Client) -> None:
    body = {"model": "repeating", "prompt": "Hi."}
    accepts = {"Accept-Encoding": "gzip, identity;q=0"}
    answer = client.post(COMPLETIONS, json=body, headers=accepts)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["choices"][0]["text"] == "Hi."
    streamed = client.post(COMPLETIONS, json=body | {"stream": True}, headers=accepts)
    assert "content-encoding" not in streamed.headers
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_it_is_among_the_models_and_in_the_document(client: httpx.Client) -> None:
    names = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert "repeating" in names
    assert client.get("/v1/models/repeating").json()["object"] == "model"
    assert {COMPLETIONS, CHATS} <= client.get("/openapi.json").json()["paths"].keys()


def test_other_protocols_take_and_give_tokens(client: httpx.Client) -> None:
    path = "/v2/models/repeating/generate"
    answer = client.post(path, json={"input_ids": [1, 2], "max_tokens": 3})
    assert answer.json()["token"] == [1, 2, 1]


@has_openai
def test_the_openai_package_works_unchanged(server: Server) -> None:
    openai: Any = import_module("openai")
    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        plain = client.completions.create(model="repeating", prompt="Hi.", stop=["zz"])
        assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("Hi.", "stop")
        assert plain.usage.total_tokens == 7
        answer = client.chat.completions.create(model="repeating", messages=chat("Hi."))
        assert answer.choices[0].message.content == "Hi."
        messages = [{"role": "user", "content": "Hi."}, answer.choices[0].message.model_dump()]
        assert client.chat.completions.create(model="repeating", messages=messages).id
        stream = client.chat.completions.create(
            model="repeating",
            messages=chat("Hi."),
            stream=True,
            stream_options={"include_usage": True},
        )
        *parts, last = stream
        texts = [part.choices[0].delta.content or "" for part in parts]
        assert "".join(texts) == "Hi."
        assert last.usage.completion_tokens == 5
        for chunk in client.completions.create(
            model="repeating", prompt="abc", max_tokens=LIMIT - 3, stream=True
        ):
            assert chunk.choices[0].text == "a"
            break
        with pytest.raises(openai.BadRequestError) as refusal:
            client.completions.create(model="repeating", prompt="a" * LIMIT)
        assert refusal.value.code == "context_length_exceeded"
        with pytest.raises(openai.APIError, match="raised"):
            for _ in client.completions.create(model="repeating", prompt="!ab", stream=True):
                pass


@has_openai
def test_the_openai_package_works_unchanged_on_an_event_loop(server: Server) -> None:
    openai: Any = import_module("openai")

    async def answers() -> list[str]:
        url = f"http://127.0.0.1:{server.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:

            async def streamed(text: str) -> str:
                stream = await client.chat.completions.create(
                    model="repeating", messages=chat(text), max_tokens=12, stream=True
                )
                return "".join([part.choices[0].delta.content or "" async for part in stream])

            async def whole(text: str) -> str:
                answer = await client.completions.create(model="repeating", prompt=text)
                return str(answer.choices[0].text)

            return await asyncio.gather(*(f(text) for f in (streamed, whole) for text in TEXTS))

    assert asyncio.run(answers()) == [*TEXTS, *TEXTS]


TEXTS = ("one.", "two €.", "three.")


def test_an_exported_decoder_gives_the_same_text_beside_any_rows(
    server: Server, client: httpx.Client
) -> None:
    """Rows of several lengths, more than there are places, and one worker that dies under them."""
    prompts = [ascii_lowercase[: 1 + number % 5] for number in range(24)]
    most = [3 + number % 11 for number in range(24)]
    wanted = [
        continued(DECODER, tokens(prompt), count)
        for prompt, count in zip(prompts, most, strict=True)
    ]

    def ask(number: int) -> Any:
        body = {"input_ids": tokens(prompts[number]), "max_tokens": most[number], "temperature": 0}
        found = client.post("/v2/models/decoder/generate", json=body)
        assert found.status_code == 200, found.text
        return found.json()["token"]

    with ThreadPoolExecutor(12) as pool:
        found = [pool.submit(ask, number) for number in range(24)]
        os.kill(server.role("worker decoder/0"), signal.SIGKILL)
        assert [one.result() for one in found] == wanted
        # A text, of which the same tokens are made.
        text = tokenizer().decode(wanted[0], skip_special_tokens=False)
        body = {"model": "decoder", "prompt": prompts[0], "max_tokens": most[0], "temperature": 0}
        choice = client.post(COMPLETIONS, json=body).json()["choices"][0]
    assert choice["text"] == text


def test_a_seeded_text_goes_on_behind_a_death_as_if_nothing_had_been(
    server: Server, client: httpx.Client
) -> None:
    prompts = [ascii_lowercase[number : number + 3] for number in range(12)]
    options = {"temperature": 1.5, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": 0.5}

    def ask(number: int) -> Any:
        body = {"input_ids": tokens(prompts[number]), "max_tokens": 50, "seed": number, **options}
        found = client.post("/v2/models/decoder/generate_stream", json=body)
        assert found.status_code == 200, found.text
        lines = [line for line in found.text.split("\n\n") if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: "))["token"] for line in lines]

    with ThreadPoolExecutor(12) as pool:
        wanted = [*pool.map(ask, range(12))]
        assert len({*map(tuple, wanted)}) == 12
        before = figures(server)["resumed"]
        # Whether a row has parts out as its worker dies is a matter of luck.
        while figures(server)["resumed"] == before:
            asked = [pool.submit(ask, number) for number in range(12)]
            wait([asked[0]])
            os.kill(server.role("worker decoder/0"), signal.SIGKILL)
            assert [one.result() for one in asked] == wanted
