"""Falcon's application with a service whose answers are scripted."""

import asyncio
from functools import cache
from typing import Any

from falcon.testing import Result, TestClient
from segment_fixture import local_segment, spec

from ringbatch.frontend.codec.outcome import JSON, outcome
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.request.calls import Body, Reply
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.frontend.v2.regions import NOTHING_SHARED, Regions
from ringbatch.shm.errors import Draining, ModelNotFound, ModelNotReady
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.region_registry import Registry
from ringbatch.shm.tallies import Protocol

MAX_REQUEST_BYTES = 100


SINCE_S = 1_790_000_000


class ScriptedService:
    """Service with two models, `good` and one that is not ready; it echoes the size of a body."""

    models = ("good", "loading")
    regions = Regions(Registry.attach(local_segment(spec())), NOTHING_SHARED)
    specs = ()
    origins = Origins(())
    stopping = False
    model_control = False
    since_s = SINCE_S

    def __init__(self) -> None:
        self.ended: list[tuple[Protocol, int, str]] = []

    def record_outside(
        self, protocol: Protocol, code: int, name: str = "", accepted_ns: int = 0
    ) -> None:
        self.ended.append((protocol, code, name))

    def last_ending(self) -> Any:
        return None

    def check(self, name: str, version: str = "") -> ModelSpec:
        if name == "loading":
            raise ModelNotReady("still loading")
        if name != "good" or version not in ("", "2"):
            raise ModelNotFound(f"no {name}")
        return spec(name=name)

    def expect_known(self, name: str, version: str = "") -> None:
        if name not in self.models:
            self.check(name, version)

    def expect_ready(self) -> None:
        if self.stopping:
            raise Draining
        for name in self.models:
            self.check(name)

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int,
        origin: bytes | None,
        account: int,
        in_parts: object,
    ) -> None:
        name, _, version = name.partition("/versions/")
        try:
            self.check(name, version)
        except (ModelNotFound, ModelNotReady) as error:
            reply(outcome(error))
        else:
            later = asyncio.get_running_loop().call_soon
            later(reply, (200, b'{"echo":%d}' % len(body), JSON))


def client(service: Any) -> TestClient:
    return TestClient(create_app(service, MAX_REQUEST_BYTES))


@cache
def usual_client() -> TestClient:
    return client(ScriptedService())


def ask(method: str, path: str, **options: Any) -> Result:
    return usual_client().simulate_request(method, path, **options)
