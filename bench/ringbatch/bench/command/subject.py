"""Subject of a measurement: a model of a server, the requests for it, and its metrics."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import quote

import numpy as np
import orjson

from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.load.answers import post
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request, tensors_of
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.served.asking import Address, ask, reached
from ringbatch.bench.served.engine import Served, supervisor_at
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.machine import CpuTimes, cpu_times
from ringbatch.bench.served.metrics import Metrics, parse
from ringbatch.bench.served.signature import inputs_of, protocol_of, v1_body, v2_body
from ringbatch.shm.errors import how_to_install

_MADE_UP: Final = 16
"""Different requests, so that none is answered by having been seen."""
_JSON: Final = ("Content-Type", "application/json")
_SHOWN: Final = 400
_METRICS_PATIENCE_S: Final = 10.0
_SETTLE_LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class Subject:
    """A model that answers.

    Attributes:
        served: the server.
        model: its name.
        protocol: that it is asked in.
        path: of its predictions over HTTP, where one request is asked before and after each run.
        bodies: of the requests over HTTP.
        headers: of each request.
        answers: the bodies of their answers.
        made_up: whether the requests are.
        own_heads: whether each request has a ``traceparent`` of its own.
    """

    served: Served
    model: str
    protocol: Protocol
    path: str
    bodies: Sequence[bytes]
    headers: Sequence[tuple[str, str]]
    answers: Sequence[bytes]
    made_up: bool
    own_heads: bool = False

    @property
    def where(self) -> str:
        """The protocol, and where it is spoken."""
        if self.protocol is Protocol.CLIENT:
            return "shared memory, by a Client"
        if self.protocol is Protocol.GRPC:
            return f"gRPC at {self.served.grpc}"
        return f"HTTP at {self.served.address}{self.path}"

    def fleet(self, generators: int, *, check: bool = False) -> Fleet:
        """Start processes that send the requests.

        Args:
            generators: how many.
            check: True to compare answers with the known ones.

        Raises:
            CannotMeasure: no server answers at the target.
        """
        target, messages, head = self._wired()
        return Fleet(generators, target, messages, self.answers if check else (), head)

    def _wired(self) -> tuple[Target, Sequence[bytes], bytes]:
        """Return the target of requests, the requests, and over gRPC the header block of each.

        Raises:
            CannotMeasure: no server answers at the target.
        """
        served = self.served
        if self.protocol is Protocol.CLIENT:
            return Target("", 0, Wire.CLIENT, served.engine, self.model), self.bodies, b""
        if self.protocol is Protocol.GRPC:
            assert served.grpc is not None
            at = reached(served.grpc)
            target = Target(at.host, at.port, Wire.GRPC, own_heads=self.own_heads)
            calls = [prefixed(infer_request(self.model, body)) for body in self.bodies]
            metadata = [header for header in self.headers if header != _JSON]
            head = call_head(served.grpc.authority, metadata, enters=self.own_heads)
            return target, calls, head
        at, host = reached(served.address), served.address.authority
        posts = [post(host, self.path, body, self.headers) for body in self.bodies]
        return Target(at.host, at.port, own_heads=self.own_heads), posts, b""

    def settle(self) -> None:
        """Wait until a lone request is answered: what was given up may still run.

        Raises:
            CannotMeasure: none is.
        """
        give_up_at = time.monotonic() + _SETTLE_LIMIT_S
        while True:
            left_s = max(give_up_at - time.monotonic(), 0.1)
            address, body = self.served.address, self.bodies[0]
            status, _ = ask(address, "POST", self.path, body, self.headers, left_s)
            if status == 200:
                return
            if time.monotonic() > give_up_at:
                raise CannotMeasure(f"a lone request is answered with status {status}")
            time.sleep(0.1)

    def cpu_times(self) -> CpuTimes:
        """Return the host's CPU times; those of an unknown server count for no process."""
        served = self.served
        pid = served.pid or supervisor_at(served.address)
        return cpu_times(None if pid is None else (pid, os.getpid()))

    def metrics(self) -> Metrics | None:
        """Return the engine's metrics; None if their address is not known."""
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
        protocol = settings.protocol or Protocol.V1
        bodies = _made_up(address, model, protocol, settings)
    else:
        protocol, body = _given(settings)
        bodies = [body]
    if settings.own_heads and protocol is Protocol.CLIENT:
        raise CannotMeasure("--own-heads: a Client sends no heads; ask over v1, v2 or grpc")
    _expect_reachable(served, protocol)
    v1 = protocol is Protocol.V1
    name = quote(model, safe="")
    path = f"/v1/models/{name}:predict" if v1 else f"/v2/models/{name}/infer"
    answers = [_answer(address, path, body, headers, settings) for body in bodies]
    made_up = settings.request is None
    own = settings.own_heads
    return Subject(served, model, protocol, path, bodies, headers, answers, made_up, own)


def _expect_reachable(served: Served, protocol: Protocol) -> None:
    if protocol is not Protocol.GRPC:
        return
    if find_spec("hpack") is None:
        raise CannotMeasure(
            "--protocol grpc needs the package hpack, which is not installed; "
            f"{how_to_install('grpc')}"
        )
    if served.grpc is None:
        raise CannotMeasure("--protocol grpc: say --grpc-url, where it serves gRPC")


def _given(settings: Settings) -> tuple[Protocol, bytes]:
    """Return the protocol of the request in the file, and the request."""
    assert settings.request is not None
    try:
        body = settings.request.read_bytes()
        own = Protocol(protocol_of(body))
        protocol = settings.protocol or own
        if protocol in (Protocol.GRPC, Protocol.CLIENT):
            if own is not Protocol.V2:
                raise ValueError(f"for --protocol {protocol} it must be a request of V2")
            tensors_of(body)
        return protocol, body
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


def _made_up(address: Address, model: str, protocol: Protocol, settings: Settings) -> list[bytes]:
    path = f"/v2/models/{quote(model, safe='')}"
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
    make = v1_body if protocol is Protocol.V1 else v2_body
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
