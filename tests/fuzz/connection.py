"""Differential test of a connection: once through the fast lane, and once past it.

What the models are asked for and what the clients are answered must be the same, and nothing that
h11 reads otherwise may be served (`fuzz.strict`). Whatever is sent or kept back, some clock ends
every connection, and until then it holds little memory and takes little time.
"""

import asyncio
import hashlib
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import eq
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from fuzz.answers import Stream, answers_of
from fuzz.limits import Difference, Endless, Overrun
from fuzz.recorded import Seen, Transport
from fuzz.requests import BODY
from fuzz.strict import Parsed, check_head, first_stranger, requests_of
from fuzz.talk import (
    IDLE_S,
    KEYS,
    PROXY,
    Deaf,
    Flood,
    Keys,
    Seconds,
    Step,
    expected,
    flood,
    pieces_of,
    sound,
    spoilt,
    steps_of,
)
from fuzz.virtual_time import VirtualTimeLoop
from segment_fixture import local_segment, spec
from silent_recorder import silent_recorder
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import JSON, Answer, outcome
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S, FastLaneSettings
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.calls import Body, Reply
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.errors import ModelFailed
from ringbatch.shm.host.api_key_lines import KeyOptions
from ringbatch.shm.lane import Lane
from ringbatch.shm.tensor import Tensor

MAX_REQUEST_BYTES: Final = 1 << 12
FLOOD_BYTES: Final = 1 << 20
MEMORY_BYTES: Final = 6 << 20
"""Most memory that a connection may take beside its answers.

The largest head, of the shortest lines, is 2 MiB of objects, and some stand twice.
"""
CPU_S: Final = 1.0
"""Most CPU time that a connection may take, and as much again for each `FLOOD_BYTES`."""
_FLOOD_CPU_S: Final = 8.0
_FLOOD_EVERY: Final = 100
_NOW_NS: Final = 1_000_000_000
_CONTINUE: Final = 100
_REFUSALS: Final = frozenset({400, 408, 431})
_TURNS: Final = 6
"""Idle turns of the event loop before a connection counts as quiet."""
_TURNS_AT_MOST: Final = 5_000
_ENDS_IN_S: Final = 200
"""Some clock ends a connection on which nothing comes."""


class Pair:
    """Both ways into one process, whose models answer with what they were asked.

    Args:
        asks_for_keys: whether clients must have one of `KEYS`.
    """

    def __init__(self, *, asks_for_keys: bool = False) -> None:
        self._seen = Seen()
        self._keys = ApiKeys({}) if asks_for_keys else None
        tensor = Tensor("x", "FP32", [-1])
        segment = local_segment(spec(0, [tensor], [tensor], name="m"))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self._loop = loop
        gateway = Gateway(Lane(segment, 0, lambda: None), loop)
        service = Service(segment, gateway, lambda: _NOW_NS)
        service.predict = self.predict  # type: ignore[method-assign]
        service.infer = self.infer  # type: ignore[method-assign]
        service.generate = self.generate  # type: ignore[method-assign]
        service.expect_known = lambda *_: None  # type: ignore[method-assign]
        service.last_ending = cast(Any, lambda: None)  # type: ignore[method-assign]
        self._accounts = Accounts(trusted_proxies=[PROXY], keys=self._keys)
        self._app: Any = create_app(
            service, MAX_REQUEST_BYTES, keys=self._keys, accounts=self._accounts
        )
        self._config = Config(
            self._watched,
            lifespan="off",
            ws="none",
            log_config=None,
            interface="asgi3",
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
        )
        self._config.load()

    async def both(self, steps: Sequence[Step]) -> tuple[Seen, Seen]:
        """Return the records of the steps through the fast lane, and past it."""
        return await self._one(steps, fast=True), await self._one(steps, fast=False)

    async def _watched(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)
        self._seen.headers.append((scope["raw_path"], list(scope["headers"])))

    async def _one(self, steps: Sequence[Step], *, fast: bool) -> Seen:
        self._seen = seen = Seen()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        heads = HeadReader(MAX_REQUEST_BYTES, keys=self._keys, accounts=self._accounts)
        transport = Transport(seen)
        protocol = (
            self._fast_lane(state, heads)
            if fast
            else FallbackProtocol(self._config, state, {}, self._loop)
        )
        transport.protocol = protocol
        self._put_in_force(KEYS, state, heads)
        protocol.connection_made(transport)
        with _measured(seen, memory=any(isinstance(step, Flood) for step in steps)):
            for step in steps:
                if isinstance(step, Seconds):
                    await self._pass(step.count, state)
                elif isinstance(step, Keys):
                    self._put_in_force(step.valid, state, heads)
                elif isinstance(step, Deaf):
                    transport.turn_deaf()
                else:
                    await self._deliver(pieces_of(step), transport, state)
            await self._pass(_ENDS_IN_S, state)
        if not seen.closed:
            raise Endless(f"after {_ENDS_IN_S} s of silence the connection is open")
        for task in list(state.tasks):
            task.cancel()
        await self._settle(state)
        transport.protocol = None
        return seen

    async def _deliver(
        self, pieces: Sequence[bytes], transport: Transport, state: ServerState
    ) -> None:
        """Bytes have come. What is not read waits, and with it what comes later; where nothing is
        read any more, the rest is lost."""
        for piece in pieces:
            if not transport.is_reading():
                return
            transport.protocol.data_received(piece)
            await self._settle(state)

    def _put_in_force(
        self, valid: tuple[bytes, ...], state: ServerState, heads: HeadReader
    ) -> None:
        if self._keys is not None:
            self._keys.replace({hashlib.sha256(key).digest(): KeyOptions() for key in valid})
            heads.forget()
            for connection in list(state.connections):
                connection.forget()  # type: ignore[union-attr]

    async def _pass(self, seconds: int, state: ServerState) -> None:
        """Let time pass, as `TickingServer` does."""
        for _ in range(seconds):
            if self._seen.closed:
                return
            before = len(self._seen.written), len(self._seen.asked)
            self._loop.now_s += 1
            for connection in list(state.connections):
                connection.tick()  # type: ignore[union-attr]
            await asyncio.sleep(0)
            if self._seen.closed or before != (len(self._seen.written), len(self._seen.asked)):
                await self._settle(state)

    async def _settle(self, state: ServerState) -> None:
        quiet, before = 0, (-1, -1)
        for _ in range(_TURNS_AT_MOST):
            await asyncio.sleep(0)
            now = (len(self._seen.written), len(self._seen.asked))
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= _TURNS * (1 + 4 * bool(state.tasks)):
                return
        raise Endless("there is no end to it")

    def _fast_lane(self, state: ServerState, heads: HeadReader) -> FastLane:
        settings = FastLaneSettings(
            predictions=_Taken(self),
            heads=heads,
            response_heads=ResponseHeads(state),
            idle_timeout_s=IDLE_S,
            count_hand_over=lambda: None,
            stopping=lambda: False,
            leaving=lambda: False,
            close_grace_s=lambda: CLOSE_GRACE_S,
            budget=BodyBudget.of(MAX_REQUEST_BYTES),
            recorder=silent_recorder(),
            accounts=self._accounts,
        )
        return FastLane(settings, self._config, state, {}, self._loop)

    def taken(self, call: Callable[..., Stream | None], *arguments: Any) -> Stream | None:
        """Ask the models what came by the fast lane."""
        before = len(self._seen.asked)
        stream = call(*arguments)
        self._seen.taken += self._seen.asked[before:]
        return stream

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders | None = None,
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Stream | None:
        """See `PredictionService.predict`."""
        # The head itself has another form from each path.
        own = origin if isinstance(origin, bytes) and not origin.startswith(b"POST ") else None
        return self._answer(
            ("predict", name, bytes(body), timeout_ns, own, account), reply, in_parts
        )

    def infer(
        self,
        name: str,
        body: Body,
        json_bytes: int | None,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Stream | None:
        """See `PredictionService.infer`."""
        asked = ("infer", name, bytes(body), json_bytes, timeout_ns, account)
        return self._answer(asked, reply, in_parts)

    def generate(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Stream | None:
        """See `PredictionService.generate`."""
        asked = ("generate", name, bytes(body), timeout_ns, account)
        return self._answer(asked, reply, in_parts)

    def _answer(
        self, asked: tuple[Any, ...], reply: Reply, in_parts: InParts[Answer] | None
    ) -> Stream | None:
        self._seen.asked.append(asked)
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()
        whole = (200, b'{"asked":"%b"}' % digest.encode(), JSON)
        if in_parts is None or digest[0] in "01":
            reply(whole)
            return None
        # Sound connections have a status to expect.
        if digest[0] in "23" and asked[2] != BODY:
            reply(outcome(ModelFailed("before the first part")))
            return None
        return Stream(self._loop, whole, int(digest[0], 16) % 4, reply, in_parts)


class _Taken:
    """Recorder of the requests that the fast lane passes to the models."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def predict(self, *arguments: Any) -> Stream | None:
        """See `PredictionService.predict`."""
        return self._pair.taken(self._pair.predict, *arguments)

    def infer(self, *arguments: Any) -> Stream | None:
        """See `PredictionService.infer`."""
        return self._pair.taken(self._pair.infer, *arguments)

    def generate(self, *arguments: Any) -> Stream | None:
        """See `PredictionService.generate`."""
        return self._pair.taken(self._pair.generate, *arguments)

    def prepare(self, *_arguments: Any) -> None:
        """See `PredictionService.prepare`; every body is gathered."""

    def record_outside(self, *_arguments: Any) -> None:
        """See `PredictionService.record_outside`; nobody counts."""


async def live(pairs: Mapping[bool, Pair], seed: int) -> Seen:
    """The connection of that seed: sound, flooding, or spoilt.

    Args:
        pairs: by whether they ask for keys.
        seed: decides all.

    Raises:
        As `check`; Difference, too, where a sound one is not answered as the model says.
    """
    chance = random.Random(seed)
    asks_for_keys = chance.random() < 0.5
    if seed % _FLOOD_EVERY == _FLOOD_EVERY - 1:
        return await check(pairs[asks_for_keys], flood(chance, FLOOD_BYTES))
    if seed % 3:
        steps = spoilt(seed)
        check_head(b"".join(step for step in steps if isinstance(step, bytes)), MAX_REQUEST_BYTES)
        return await check(pairs[asks_for_keys], steps)
    talk = sound(chance)
    seen = await check(pairs[asks_for_keys], steps_of(talk, chance))
    wanted = expected(talk, asks_for_keys=asks_for_keys)
    statuses = [status for status, _, _ in answers_of(seen.written) if status != _CONTINUE]
    if statuses != wanted:
        raise Difference(f"answered with {statuses}, due was {wanted}")
    return seen


async def check(pair: Pair, steps: Sequence[Step]) -> Seen:
    """Let a connection take its course both ways.

    Returns:
        What came of it through the fast lane.

    Raises:
        Difference: it is not the same, or another parser would differ.
        Overrun: it takes too much.
        Endless: it never ends.
    """
    fast, slow = await pair.both(steps)
    deaf = Deaf() in steps
    if not _alike(fast.asked, slow.asked, deaf):
        raise Difference(f"asked {fast.asked}, past the fast lane {slow.asked}")
    answers, others = answers_of(fast.written), answers_of(slow.written)
    if not _alike(answers, others, deaf) and not _refused_sooner(answers, others):
        raise Difference(f"answers {answers}, past the fast lane {others}")
    _check_strictly(steps, fast, slow)
    for seen in (fast, slow):
        _check_budget(steps, seen)
    return fast


def _alike(some: Sequence[Any], others: Sequence[Any], deaf: bool) -> bool:
    """Return whether two records agree; if the client reads nothing, as far as both go."""
    return some == others or (deaf and all(map(eq, some, others)))


def _refused_sooner(answers: list[Any], others: list[Any]) -> bool:
    """Return whether only the last answers differ, each refusing a request before its head ends.

    The fast lane waits for that end.
    """
    if not answers or len(answers) != len(others) or answers[:-1] != others[:-1]:
        return False
    return {answers[-1][0], others[-1][0]} <= _REFUSALS


def _check_strictly(steps: Sequence[Step], fast: Seen, slow: Seen) -> None:
    """Check that no request is served that h11 reads otherwise.

    The fast lane also serves nothing that h11 refuses. Past it, llhttp reads the heads, and takes
    some that h11 does not.
    """
    if any(isinstance(step, Flood) for step in steps):
        return
    found, refused = requests_of(b"".join(step for step in steps if isinstance(step, bytes)))
    strangers = [first_stranger(fast.taken, found, _is_asked_for_by)]
    if not refused:
        strangers += [
            first_stranger(slow.asked, found, _is_asked_for_by),
            first_stranger(fast.headers, found, _has_the_headers_of),
            first_stranger(slow.headers, found, _has_the_headers_of),
        ]
    for stranger in strangers:
        if stranger is not None:
            raise Difference(f"h11 sees no such request: {stranger}")


def _is_asked_for_by(asked: tuple[Any, ...], request: Parsed) -> bool:
    _, name, body, *_ = asked
    # A name may be spelled in the target with escapes; past the fast lane they are undone.
    named = request.method == b"POST" and name.encode() in unquote_to_bytes(request.target)
    coded = request.values(b"content-encoding") not in ([], [b"identity"])
    return named and request.whole and (coded or body == request.body)


def _has_the_headers_of(served: tuple[bytes, list[tuple[bytes, bytes]]], request: Parsed) -> bool:
    # The Upgrade header may be missing, as no server behind is to act on it.
    headers, others = (
        [line for line in lines if line[0] != b"upgrade"] for lines in (served[1], request.headers)
    )
    return [(name.lower(), value.strip()) for name, value in headers] == others


def _check_budget(steps: Sequence[Step], seen: Seen) -> None:
    flooded = any(isinstance(step, Flood) for step in steps)
    limit_bytes = MEMORY_BYTES + 4 * (len(seen.written) + seen.unread_bytes)
    if seen.peak_bytes > limit_bytes:
        raise Overrun(f"it takes {seen.peak_bytes >> 10} KiB of memory")
    if seen.cpu_s > CPU_S + _FLOOD_CPU_S * flooded:
        raise Overrun(f"it takes {seen.cpu_s:.1f} s of CPU time")


@contextmanager
def _measured(seen: Seen, *, memory: bool) -> Iterator[None]:
    if memory:
        tracemalloc.start()
    began_s = time.process_time()
    try:
        yield
    finally:
        seen.cpu_s = time.process_time() - began_s
        if memory:
            seen.peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
