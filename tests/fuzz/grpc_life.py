"""Lives of a frontend for gRPC: two clients whose calls begin, end, are cancelled and answered.

What a client sends between two turns of the loop is one read: calls that begin, pieces, resets and
windows in any order, while answers stand in the lane that nobody has looked for. Afterwards each
call has ended as its client and the engine had it end, and nothing is held for any.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fuzz.limits import Difference
from grpc_harness import INFER, STREAM, Call, Client
from grpc_service_harness import MAX_REQUEST_BYTES, Harness, message, numbers_in, streamed
from http2_harness import frame, settings, widen

from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.http2.frames import INTERNAL_ERROR, NO_ERROR, PING
from ringbatch.shm.engine_slots import Request

WATCH: Final = "/grpc.health.v1.Health/Watch"
LIVE: Final = "/inference.GRPCInferenceService/ServerLive"
BROKEN: Final = "/broken"
"""A method whose code raises before it serves anybody."""
_MOST_IN_FLIGHT: Final = 180
"""Most requests under way, so that every call finds a slot."""
_TURNS: Final = 12
_STEPS: Final = 10
_BURST: Final = 12
"""Calls that begin together: enough for the gateway to submit them, and to look for answers."""
_SHORT_S: Final = 0.002
"""A deadline that passes while its call waits."""


class _Asked:
    """gRPC call, with the answers that its client may expect.

    Attributes:
        call: of the client.
        numbers: of its requests, in order.
        path: of its method.
        rest: bytes of its body that are to be sent.
        open: whether its client has not ended the body.
        deadline: whether its client waits a short time only.
        cancelled: whether its client has taken it back.
    """

    def __init__(self, call: Call, path: str, numbers: list[int]) -> None:
        self.call = call
        self.path = path
        self.numbers = numbers
        self.rest = b""
        self.open = False
        self.deadline = False
        self.cancelled = False

    @property
    def over(self) -> bool:
        """True if the client knows the call's end."""
        return self.cancelled or self.call.status is not None or self.call.reset is not None

    def expect(self) -> None:
        """Return where it has ended as it may; raises `Difference`."""
        call = self.call
        if self.cancelled:
            return
        if self.path == BROKEN:
            _same("a broken call", INTERNAL_ERROR, call.reset)
            return
        # A client that is answered before the end of its body is told to send no more.
        _same(f"reset of {self.path}", NO_ERROR, call.reset or NO_ERROR)
        if self.deadline and call.status is not None and call.status[0] == "DEADLINE_EXCEEDED":
            return
        _same(f"end of {self.path}", ("OK", ""), call.status)
        if self.path == INFER:
            _same("an answer", [self.numbers], [numbers_in(data) for data in call.messages])
        elif self.path == STREAM:
            found = [numbers_in(one.infer_response) for one in streamed(call)]
            _same("answers", [[number] for number in self.numbers], found)


class _Life:
    def __init__(self, chance: random.Random, failures: list[str]) -> None:
        loop: Any = asyncio.get_running_loop()
        self._loop = loop
        self._chance = chance
        self._failures = failures
        loop.set_exception_handler(lambda _, context: failures.append(repr(context)))
        self._harness = Harness(clock=lambda: int(loop.time() * 1e9))
        self._harness.methods[BROKEN] = MethodHandler(False, False, _break)
        self._clients = [self._connect() for _ in range(2)]
        self._unanswered: list[Request] = []
        self._asked: list[_Asked] = []
        self._next = 0
        self._steps: tuple[tuple[Callable[[Client], None], int], ...] = (
            (self._infer, 4),
            (self._burst, 3),
            (self._begin, 2),
            (self._stream, 2),
            (self._go_on, 6),
            (self._watch, 1),
            (self._live, 1),
            (self._broken, 1),
            (self._cancel, 8),
            (self._window, 1),
            (self._ping, 1),
        )

    async def turn(self) -> None:
        """Play the reads of both clients, and events between them."""
        chance = self._chance
        calls, weights = zip(*self._steps, strict=True)
        for client in chance.sample(self._clients, 2):
            client.held = client.held or bytearray()
            for step in chance.choices(calls, weights, k=chance.randrange(1, _STEPS)):
                step(client)
            if chance.random() < 0.7:
                self._answer(chance.random())
            if client.reading:
                self._deliver(client)
        drawn = chance.random()
        if drawn < 0.5:
            await asyncio.sleep(0)
        elif drawn < 0.6:
            self._loop.now_s += 2 * _SHORT_S
            await asyncio.sleep(0)
        elif drawn < 0.7:
            for client in self._clients:
                client.connection.tick()
        elif drawn < 0.8:
            for client in self._clients:
                client.connection.resume_writing()
        elif drawn < 0.85:
            chance.choice(self._clients).connection.pause_writing()
        elif drawn < 0.9:
            self._leave(chance.randrange(2))

    async def finish(self) -> int:
        """Let all calls end, compare their ends, and return the number of calls."""
        for client in self._clients:
            client.connection.resume_writing()
            client.held = client.held or bytearray()
            for asked in self._of(client):
                while not asked.over and asked.open:
                    self._send_on(asked)
                if asked.path == WATCH:
                    self._cancel_one(asked)
            client.held += settings(window=1 << 20)
        for _ in range(100):
            for client in self._clients:
                if client.reading and client.held:
                    self._deliver(client)
            self._answer(1.0)
            await asyncio.sleep(0)
            self._harness.gateway.collect()
        for client in self._clients:
            client.absorb()
            _same("the connection's end", False, client.gone())
            _same("reading", True, client.reading)
        for asked in self._asked:
            asked.expect()
        _same("exceptions", [], self._failures)
        for client in self._clients:
            connection = client.connection
            _same("streams", {}, connection.core.streams)
            _same("calls", 0, connection._under_way())
        _same("slots in use", 0, self._harness.lane.in_flight)
        _same("tasks", {asyncio.current_task()}, asyncio.all_tasks())
        self._harness.settings.budget.take(8 * MAX_REQUEST_BYTES)
        return len(self._asked)

    def _connect(self) -> Client:
        client = self._harness.connect()
        client.send(widen(0, 1 << 24))
        return client

    def _deliver(self, client: Client) -> None:
        """Deliver the client's bytes, in one read or in two."""
        held, client.held = bytes(client.held or b""), None
        cut = self._chance.randrange(len(held) + 1) if self._chance.random() < 0.3 else 0
        if cut:
            client.send(held[:cut])
        if client.reading:
            client.send(held[cut:])
        else:
            client.held = bytearray(held[cut:])

    def _answer(self, share: float) -> None:
        """Answer some of the engine's requests; no frontend looks for the answers yet."""
        self._unanswered += self._harness.submitted()
        self._chance.shuffle(self._unanswered)
        count = int(len(self._unanswered) * share + 0.5)
        now, self._unanswered = self._unanswered[:count], self._unanswered[count:]
        self._harness.publish(*now)

    def _leave(self, number: int) -> None:
        """Replace a client by another, after it hangs up."""
        client = self._clients[number]
        for asked in self._of(client):
            asked.cancelled = True
        client.close()
        client.connection.connection_lost(None)
        self._clients[number] = self._connect()

    def _of(self, client: Client) -> list[_Asked]:
        return [asked for asked in self._asked if asked.call.client is client]

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _add(self, client: Client, path: str, numbers: list[int], **more: Any) -> _Asked:
        data = [message(number) for number in numbers] if path in (INFER, STREAM) else [b""]
        asked = _Asked(client.call(path, *data, **more), path, numbers)
        self._asked.append(asked)
        return asked

    def _infer(self, client: Client) -> None:
        if self._harness.lane.in_flight + _BURST > _MOST_IN_FLIGHT:
            return
        timeout = self._chance.choice([None, None, "1n", f"{int(_SHORT_S * 1e3)}m"])
        asked = self._add(client, INFER, [self._number()], timeout=timeout)
        asked.deadline = timeout is not None

    def _burst(self, client: Client) -> None:
        if self._harness.lane.in_flight + _BURST <= _MOST_IN_FLIGHT:
            for _ in range(_BURST):
                self._add(client, INFER, [self._number()])

    def _begin(self, client: Client) -> None:
        """Begin a call whose message comes in pieces."""
        number = self._number()
        timeout = self._chance.choice([None, f"{int(_SHORT_S * 1e3)}m"])
        asked = _Asked(client.call(INFER, end=False, timeout=timeout), INFER, [number])
        asked.deadline, asked.open = timeout is not None, True
        asked.rest = Call.framed(message(number))
        self._asked.append(asked)

    def _stream(self, client: Client) -> None:
        numbers = [self._number() for _ in range(self._chance.randrange(4))]
        self._add(client, STREAM, numbers, end=False).open = True

    def _go_on(self, client: Client) -> None:
        """Send more of a body, or its end."""
        open_ones = [asked for asked in self._of(client) if asked.open and not asked.over]
        if open_ones:
            self._send_on(self._chance.choice(open_ones))

    def _send_on(self, asked: _Asked) -> None:
        if asked.rest:
            cut = self._chance.randrange(1, len(asked.rest) + 1)
            asked.call.send_bytes(asked.rest[:cut])
            asked.rest = asked.rest[cut:]
        elif asked.path == STREAM and self._chance.random() < 0.5:
            asked.numbers.append(self._number())
            asked.call.send(message(asked.numbers[-1]))
        else:
            asked.call.finish()
            asked.open = False

    def _watch(self, client: Client) -> None:
        self._add(client, WATCH, [])

    def _live(self, client: Client) -> None:
        self._add(client, LIVE, [])

    def _broken(self, client: Client) -> None:
        self._add(client, BROKEN, [])

    def _cancel(self, client: Client) -> None:
        left = [asked for asked in self._of(client) if not asked.over]
        for asked in self._chance.sample(left, min(len(left), self._chance.choice([1, 1, 10]))):
            self._cancel_one(asked)

    def _cancel_one(self, asked: _Asked) -> None:
        if not asked.over:
            asked.call.cancel()
            asked.cancelled = True

    def _window(self, client: Client) -> None:
        client.windows(self._chance.choice([0, 10, 1 << 16]))

    def _ping(self, client: Client) -> None:
        client.send(frame(PING, 0, 0, bytes(8)))


def _break(_data: bytes | None, _call: Any) -> Any:
    raise ZeroDivisionError


def _same(subject: str, expected: object, found: object) -> None:
    if expected != found:
        raise Difference(f"{subject}: {expected!r} is expected, {found!r} found")


class _Failures(logging.Handler):
    """Handler that collects a frontend's logged failures, but for those of `BROKEN`."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        """Note a failure; see `logging.Handler.emit`."""
        error = (record.exc_info or (None, None))[1]
        if not isinstance(error, ZeroDivisionError):
            self._found.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def _failures_of(log: logging.Logger) -> Iterator[list[str]]:
    found: list[str] = []
    handler, disabled, spreads = _Failures(found), log.manager.disable, log.propagate
    log.addHandler(handler)
    logging.disable(logging.NOTSET)
    log.propagate = False
    try:
        yield found
    finally:
        log.propagate = spreads
        logging.disable(disabled)
        log.removeHandler(handler)


async def live_over_grpc(seed: int) -> int:
    """The life of that seed; how many calls there were.

    Raises:
        Difference: a call has not ended as it should, or something is left of it.
    """
    with _failures_of(logging.getLogger("ringbatch.frontend")) as failures:
        life = _Life(random.Random(seed), failures)
        for _ in range(_TURNS):
            await life.turn()
        return await life.finish()
