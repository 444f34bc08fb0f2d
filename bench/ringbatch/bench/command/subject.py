"""What is measured: a model of a server, the requests for it, and its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson

from ringbatch.bench.command.settings import Settings
from ringbatch.bench.load.answers import post
from ringbatch.bench.served.asking import Address, ask
from ringbatch.bench.served.engine import Served
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.metrics import Metrics, parse
from ringbatch.bench.served.signature import inputs_of, protocol_of, v1_body, v2_body

_MADE_UP: Final = 16
"""Different requests, so that none is answered by having been seen."""
_JSON: Final = ("Content-Type", "application/json")
_SHOWN: Final = 400
_METRICS_PATIENCE_S: Final = 10.0


@dataclass(frozen=True)
class Subject:
    """A model that answers.

    Attributes:
        served: the server.
        model: its name.
        path: of its predictions.
        bodies: of the requests.
        headers: of each request.
        answers: the bodies of their answers.
        made_up: whether the requests are.
    """

    served: Served
    model: str
    path: str
    bodies: Sequence[bytes]
    headers: Sequence[tuple[str, str]]
    answers: Sequence[bytes]
    made_up: bool

    @property
    def messages(self) -> list[bytes]:
        """The requests, whole."""
        host = str(self.served.address).removeprefix("http://")
        return [post(host, self.path, body, self.headers) for body in self.bodies]

    def metrics(self) -> Metrics | None:
        """What the engine says of itself now; None where it is not known where to ask."""
        control = self.served.control
        if control is None:
            return None
        status, text = ask(control, "GET", "/metrics", patience_s=_METRICS_PATIENCE_S)
        if status != 200:
            raise CannotMeasure(f"{control}/metrics answers with status {status}")
        return parse(text.decode())


def find(served: Served, settings: Settings) -> Subject:
    """Find the model, make its requests, and ask each of them once.

    Raises:
        CannotMeasure: there is no such model, its requests cannot be made up, or it refuses one.
    """
    address = served.address
    model = settings.model or _only_model(address, settings.headers)
    headers = [_JSON, *settings.headers]
    if settings.request is None:
        protocol = settings.protocol or "v1"
        bodies = _made_up(address, model, protocol, settings)
    else:
        protocol, body = _given(settings)
        bodies = [body]
    path = f"/v1/models/{model}:predict" if protocol == "v1" else f"/v2/models/{model}/infer"
    answers = [_answer(address, path, body, headers, settings) for body in bodies]
    return Subject(served, model, path, bodies, headers, answers, settings.request is None)


def _given(settings: Settings) -> tuple[str, bytes]:
    """The protocol of the request in the file, and the request."""
    assert settings.request is not None
    try:
        body = settings.request.read_bytes()
        return settings.protocol or protocol_of(body), body
    except OSError as error:
        raise CannotMeasure(f"{settings.request}: {error.strerror}") from None
    except ValueError as error:
        raise CannotMeasure(f"{settings.request}: {error}") from None


def _only_model(address: Address, headers: Sequence[tuple[str, str]]) -> str:
    status, text = ask(address, "GET", "/v1/models", headers=headers)
    try:
        names = [str(name) for name in orjson.loads(text)["models"]]
    except (ValueError, TypeError, KeyError):
        raise CannotMeasure(
            f"{address}/v1/models answers with status {status}, and not which models there are: "
            f"{_shown(text)}"
        ) from None
    if len(names) != 1:
        found = ", ".join(names) or "there is none"
        raise CannotMeasure(f"say with --model which one is to be measured: {found}")
    return names[0]


def _made_up(address: Address, model: str, protocol: str, settings: Settings) -> list[bytes]:
    path = f"/v2/models/{model}"
    status, text = ask(address, "GET", path, headers=settings.headers)
    if status != 200:
        raise CannotMeasure(f"{address}{path} answers with status {status}: {_shown(text)}")
    try:
        inputs = inputs_of(orjson.loads(text))
    except ValueError as error:
        raise CannotMeasure(f"{address}{path}: {error}") from None
    if not inputs:
        raise CannotMeasure(
            f"{model} does not say what it takes: give a request with --request FILE"
        )
    random = np.random.default_rng(settings.seed)
    make = v1_body if protocol == "v1" else v2_body
    return [make(inputs, random) for _ in range(_MADE_UP)]


def _answer(
    address: Address,
    path: str,
    body: bytes,
    headers: Sequence[tuple[str, str]],
    settings: Settings,
) -> bytes:
    status, text = ask(address, "POST", path, body, headers)
    if status != 200:
        made_up = settings.request is None
        which = "that was made up" if made_up else f"in {settings.request}"
        hint = "; give one with --request FILE" * made_up
        raise CannotMeasure(
            f"the request {which} is refused with status {status}: {_shown(text)}{hint}"
        )
    return text


def _shown(text: bytes) -> str:
    return text[:_SHOWN].decode(errors="replace")
