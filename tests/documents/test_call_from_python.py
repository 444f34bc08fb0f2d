"""The how-to page of `Client`: its code, against README's model."""

import asyncio
from typing import Any, Final

import numpy as np
from documents.pages import example
from serve.server import Server

from ringbatch.frontend import Client

PAGE: Final = "docs/how-to/call-from-python.md"


def test_the_client_gets_answers(served: Server) -> None:
    code = example(PAGE, "client").replace("Client()", f"Client({served.pid})")
    names: dict[str, Any] = {}
    exec(f"{code}\n    late = future.result()", names)
    outputs, errors = names["outputs"], names["errors"]
    assert not errors
    assert names["y"].shape == (3, 10)
    # They may have been in batches of different sizes, which add up in different orders.
    assert np.allclose(names["y"], outputs, rtol=1e-5)
    assert np.allclose(names["y"], names["late"], rtol=1e-5)


def test_asyncio_gets_an_answer_and_parts(served: Server) -> None:
    names: dict[str, Any] = {}
    exec(example(PAGE, "asyncio"), names)
    with Client(served.pid) as client:
        x = np.ones((3, 16), np.float32)
        y = asyncio.run(names["answer"](client, x))
        (part,) = asyncio.run(names["parts"](client, x))
    assert y.shape == (3, 10)
    assert np.allclose(y, part, rtol=1e-5)
