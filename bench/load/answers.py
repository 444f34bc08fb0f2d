"""Clients that look at every answer: no figure counts unless the answers under it are right."""

import http.client
import json
import threading
from collections.abc import Callable, Sequence
from email.message import Message
from typing import Any, NamedTuple, TypeVar

import numpy as np
from host.server import HOST
from numpy.typing import NDArray

from load.generators import Post

T = TypeVar("T")

MATMUL16_PATH = "/v1/models/matmul16:predict"
MATMUL16_W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)


class WrongAnswer(RuntimeError):
    """The server answered, and what it answered is not what numpy computes."""


def matmul16_instance(seed: int) -> list[float]:
    """Return the 16 values of one instance, with few digits, as a client would send them."""
    return [round(float(v), 3) for v in np.random.RandomState(seed).uniform(-1, 1, 16)]


def matmul16_post(seed: int = 0, path: str = MATMUL16_PATH) -> Post:
    """Return the request for one instance of the model in models/matmul16.py."""
    return Post(path, json.dumps({"instances": [matmul16_instance(seed)]}))


def matmul16_expected(seed: int) -> NDArray[np.float32]:
    """Return the [1, 10] answer to `matmul16_post(seed)`, computed here."""
    product: NDArray[np.float32] = np.array([matmul16_instance(seed)], np.float32) @ MATMUL16_W
    return product


class Answer(NamedTuple):
    """The headers, whose names have no case, and the body of an answer with status 200."""

    headers: Message
    body: bytes


class Client:
    """Keep-alive connection to a server."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
        self._connection.connect()

    def ask(self, post: Post) -> Answer:
        """Send one request and return its answer.

        Raises:
            WrongAnswer: the status is not 200.
        """
        self._connection.request("POST", post.path, post.body, post.headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise WrongAnswer(f"{post.path} answered {answer.status}: {body[:500]!r}")
        return Answer(answer.headers, body)

    def post(self, post: Post) -> dict[str, Any]:
        """Send one request and return the JSON object of its answer.

        Raises:
            WrongAnswer: the status is not 200, or the body is no JSON object.
        """
        text = self.ask(post).body
        try:
            body = json.loads(text)
        except ValueError:
            raise WrongAnswer(f"{post.path} answered no JSON: {text[:500]!r}") from None
        if not isinstance(body, dict):
            raise WrongAnswer(f"{post.path} answered no JSON object: {text[:500]!r}")
        return body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def check_matmul16(body: dict[str, Any], seed: int) -> None:
    """Raise WrongAnswer unless `body` is the answer to `matmul16_post(seed)`."""
    found = np.array(body.get("predictions"), np.float64)
    expected = matmul16_expected(seed)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
        raise WrongAnswer(f"expected {expected.tolist()}, found {body}")


def check_one(port: int, path: str = MATMUL16_PATH) -> None:
    """Send one request to a server of models/matmul16.py and check its answer."""
    client = Client(port)
    try:
        check_matmul16(client.post(matmul16_post(0, path)), 0)
    finally:
        client.close()


def check_crowd(port: int, path: str = MATMUL16_PATH, clients: int = 32, rounds: int = 4) -> None:
    """Send different requests at the same time, so that an answer given to another is seen."""

    def ask(client: Client, index: int, turn: int) -> None:
        seed = turn * clients + index
        check_matmul16(client.post(matmul16_post(seed, path)), seed)

    lock_step(port, clients, rounds, ask)


def lock_step(
    port: int, clients: int, rounds: int, ask: Callable[[Client, int, int], T]
) -> list[list[T]]:
    """Let `clients` connections each call `ask(client, index, turn)`, all at once in every round.

    Returns what they returned, [rounds][clients]. The first error any of them met is raised.
    """
    barrier = threading.Barrier(clients)
    results: list[list[Any]] = [[None] * clients for _ in range(rounds)]
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            client = Client(port)
            try:
                for turn in range(rounds):
                    barrier.wait(60)
                    results[turn][index] = ask(client, index, turn)
            finally:
                client.close()
        except threading.BrokenBarrierError:
            return
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    _join([threading.Thread(target=run, args=(index,)) for index in range(clients)])
    if errors:
        raise errors[0]
    return results


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
