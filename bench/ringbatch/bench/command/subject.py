"""Subject of a measurement: a model of a server, the requests for it, and its metrics."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import orjson

from ringbatch.bench.command.bodies import OPENAI, bodies_for, path_of
from ringbatch.bench.command.first_answers import first_answers
from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.load.answers import post
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.served.asking import Address, ask, excerpt, reached
from ringbatch.bench.served.engine import Served, supervisor_at
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.machine import CpuTimes, cpu_times
from ringbatch.bench.served.metrics import Metrics, parse
from ringbatch.shm.errors import how_to_install

_JSON: Final = ("Content-Type", "application/json")
_EVENTS: Final = ("Accept", "text/event-stream")
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
        in_parts: whether answers come in parts, as events.
        stream_s: how long the longest first answer in parts took, in seconds; else 0.
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
    in_parts: bool = False
    stream_s: float = 0.0

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
            generators: number of processes.
            check: True to compare answers with the known ones.

        Raises:
            CannotMeasure: no server answers at the target.
        """
        target, messages, head = self._wired()
        answers = self.answers if check or self.in_parts else ()
        return Fleet(generators, target, messages, answers, head, compares=check)

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
        wire = Wire.EVENTS if self.in_parts else Wire.HTTP1
        openai = self.protocol in OPENAI
        target = Target(at.host, at.port, wire, own_heads=self.own_heads, openai=openai)
        return target, posts, b""

    def settle(self) -> None:
        """Wait until a lone request is answered: what was given up may still run.

        Raises:
            CannotMeasure: none is.
        """
        give_up_at = time.monotonic() + _SETTLE_LIMIT_S
        while True:
            left_s = max(give_up_at - time.monotonic(), 0.1)
            address, body = self.served.address, self.bodies[0]
            status, *_ = ask(address, "POST", self.path, body, self.headers, left_s)
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

    def in_steps(self) -> bool:
        """Return whether the model works in steps, as far as its metrics tell."""
        places = (self.metrics() or {}).get("ringbatch_model_row_places", {})
        return any(("model", self.model) in labels for labels in places)

    def metrics(self) -> Metrics | None:
        """Return the engine's metrics; None if their address is not known."""
        control = self.served.control
        if control is None:
            return None
        status, text, _ = ask(control, "GET", "/metrics", patience_s=_METRICS_PATIENCE_S)
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
    protocol, bodies = bodies_for(address, model, settings)
    if settings.own_heads and protocol is Protocol.CLIENT:
        raise CannotMeasure("--own-heads: a Client sends no heads; ask over v1, v2 or grpc")
    _expect_reachable(served, protocol)
    path = path_of(protocol, model, stream=settings.stream)
    headers = [_JSON, *settings.headers]
    openai = settings.stream and protocol in OPENAI
    if settings.stream and not any(name.lower() == "accept" for name, _ in headers):
        headers.append(_EVENTS)
    first = first_answers(address, path, bodies, headers, settings, openai=openai)
    return Subject(
        served,
        model,
        protocol,
        path,
        bodies,
        headers,
        first.bodies,
        made_up=settings.request is None,
        own_heads=settings.own_heads,
        in_parts=settings.stream,
        stream_s=first.longest_s if settings.stream else 0.0,
    )


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


def _only_model(address: Address, headers: Sequence[tuple[str, str]]) -> str:
    status, text, _ = ask(address, "GET", "/v1/models", headers=headers)
    try:
        names = [str(name) for name in orjson.loads(text)["models"]]
    except (ValueError, TypeError, KeyError):
        raise CannotMeasure(
            f"{address}/v1/models answers with status {status}, and not which models there are: "
            f"{excerpt(text)}"
        ) from None
    if len(names) != 1:
        found = ", ".join(names) or "there is none"
        raise CannotMeasure(f"say with --model which one is to be measured: {found}")
    return names[0]
