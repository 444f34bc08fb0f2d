"""Whole connections: a client's bytes and their times, and changes of the server's keys.

Some are sound, and a pure model says what each request of them is answered. Others are spoilt by
accidents, or flood the server with what costs little to send.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fuzz.mutate import Mutator, cuts
from fuzz.requests import BODY, CORPUS, GENERATE, TOKENS, V1, V2, bare, request

KEYS: Final = (b"first", b"second")
PROXY: Final = "10.0.0.1"
"""Address of the peer of every connection, a trusted proxy."""
IDLE_S: Final = 7
"""Longest time that a connection may be idle; other limits are the server's own."""
_PIECE_BYTES: Final = 1 << 15
MOMENT_S, WHILE_S, AGE_S = 2, 13, 100
"""Times in seconds: shorter than every limit, between limits, and longer than every limit.

The second is longer than the limit of a head, and twice shorter than that of a body. Sums of
the times on one connection stay on the same side, too.
"""


@dataclass(frozen=True)
class Seconds:
    """Pause in which nothing is sent."""

    count: int


@dataclass(frozen=True)
class Keys:
    """Change of the server's keys."""

    valid: tuple[bytes, ...]


@dataclass(frozen=True)
class Deaf:
    """End of the client's reading."""


@dataclass(frozen=True)
class Flood:
    """Flood of the same bytes, again and again."""

    piece: bytes
    count: int


Step = bytes | Seconds | Keys | Deaf | Flood


@dataclass(frozen=True)
class Ask:
    """A sound request.

    Attributes:
        data: it.
        key: the one that it shows in a header; empty for none.
        status: expected status if the key is one of the server's.
        open: whether it is served without a key.
        closes: whether it asks for the connection's end.
        stall: after so many bytes something else happens; none where they come one by one.
    """

    data: bytes
    key: bytes
    status: int
    open: bool = False
    closes: bool = False
    stall: tuple[int, Seconds | Keys] | None = None

    @property
    def begins(self) -> int:
        """Offset of the first line; empty ones may stand before it."""
        return len(self.data) - len(self.data.lstrip(b"\r\n"))

    @property
    def head_ends(self) -> int:
        """Offset of the body."""
        return self.data.index(b"\r\n\r\n", self.begins) + 4


Talk = Sequence[Ask | Seconds | Keys]


def expected(talk: Talk, *, asks_for_keys: bool) -> list[int]:
    """Return the expected answers on a connection: a status for each request, up to its end.

    A connection is over after a request that asks for that, and once a phase of it has taken too
    long. A request is judged where its head ends.
    """
    statuses: list[int] = []
    valid: tuple[bytes, ...] = KEYS
    for item in talk:
        if isinstance(item, Seconds):
            if item.count > IDLE_S:
                break
        elif isinstance(item, Keys):
            valid = item.valid
        else:
            at, event = item.stall or (len(item.data), Seconds(0))
            if isinstance(event, Keys) and at < item.head_ends:
                valid = event.valid
            allowed = item.open or not asks_for_keys or item.key in valid
            if isinstance(event, Keys):
                valid = event.valid
            elif at <= item.begins and event.count > IDLE_S:
                break
            elif item.begins < at < item.head_ends and event.count >= WHILE_S:
                return [*statuses, 408]
            elif item.head_ends <= at < len(item.data) and event.count >= AGE_S:
                return [*statuses, 408 if allowed else 401]
            statuses.append(item.status if allowed else 401)
            if item.closes:
                break
    return statuses


def steps_of(talk: Talk, chance: random.Random) -> list[Step]:
    """Return the talk as steps, in pieces as a network may bring them."""
    steps: list[Step] = []
    gathered = b""
    for item in talk:
        if isinstance(item, Ask):
            at, event = item.stall or (len(item.data), None)
            gathered += item.data[:at]
            if event is not None:
                steps += [*_cut(gathered, chance), event]
                gathered = item.data[at:]
        else:
            steps += [*_cut(gathered, chance), item]
            gathered = b""
    return [*steps, *_cut(gathered, chance)]


def sound(chance: random.Random) -> list[Ask | Seconds | Keys]:
    """Return the talk on a well-behaved connection."""
    talk: list[Ask | Seconds | Keys] = []
    waited = False
    for _ in range(chance.randrange(1, 6)):
        drawn = chance.random()
        if drawn < 0.12:
            talk.append(Keys(chance.choice([KEYS, KEYS[:1], KEYS[1:], ()])))
        elif drawn < 0.2 and not waited:
            waited = True
            talk.append(Seconds(chance.choice([MOMENT_S, WHILE_S, AGE_S])))
        ask = _ask(chance)
        if chance.random() < 0.2:
            at = chance.randrange(len(ask.data))
            events: list[Keys | Seconds] = [Keys(KEYS[:1]), Seconds(AGE_S), Seconds(WHILE_S)]
            event = chance.choice(events)
            ask = Ask(ask.data, ask.key, ask.status, ask.open, ask.closes, (at, event))
        talk.append(ask)
    return talk


_FORWARDED: Final = (
    b"1.2.3.4",
    b"9.9.9.9, 1.2.3.4 ",
    b"1.2.3.4, %b" % PROXY.encode(),
    b"2001:db8::1,\t[2001:db8::1]:80",
    b"unknown",
    b"",
    b"1.2.3.4,\xff",
)


_ACCEPTED: Final = (
    b"text/event-stream",
    b"TEXT/Event-Stream;q=0.5",
    b"application/json, text/event-stream",
    b"text/event-stream;q=0",
    b"*/*",
    b"text/event-stream\r\nAccept: */*",
)


def _ask(chance: random.Random) -> Ask:
    key = chance.choice([*KEYS, KEYS[0], KEYS[0], b"", b"none"])
    shown = chance.choice([b"X-API-Key: %b", b"Authorization: Bearer %b"])
    lines = [shown % key] if key else []
    if chance.random() < 0.3:
        lines.append(b"X-Forwarded-For: " + chance.choice(_FORWARDED))
    closes = chance.random() < 0.05
    if closes:
        lines.append(b"Connection: close")
    path = chance.choice([V1, V1, V2])
    if chance.random() < 0.25:
        path = chance.choice([path, GENERATE])
        lines.append(b"Accept: %b" % chance.choice(_ACCEPTED))
    kind = chance.randrange(7)
    if kind == 0:
        head = b"\r\n".join([b"GET /v2/health/live HTTP/1.1", b"Host: x", *lines, b"", b""])
        return Ask(head, key, 200, open=True, closes=closes)
    if kind == 1:
        return Ask(_in_chunks(chance, lines), key, 200, closes=closes)
    if kind == 2 and not closes:
        wish = chance.choice([b"h2c", b"websocket", b"TLS/1.2"])
        lines += [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: %b" % wish]
        lines += [b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"]
    if kind == 3:
        lines.append(b"Expect: 100-continue")
    blank = b"\r\n" * chance.choice([0, 0, 0, 0, 1, 2])
    return Ask(blank + request(*lines, path=path), key, 200, closes=closes)


def _in_chunks(chance: random.Random, lines: list[bytes]) -> bytes:
    trailers = chance.choice(
        [
            b"",
            b"X-API-Key: %b\r\n" % KEYS[0],
            b"Authorization: Bearer %b\r\n" % KEYS[0],
            b"X-Request-Timeout: 0.001\r\nX-Forwarded-User: root\r\n",
        ]
    )
    middle = chance.randrange(1, len(BODY))
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:middle], BODY[middle:])]
    body = b"".join([*chunks, b"0\r\n", trailers, b"\r\n"])
    return bare(*lines, b"Transfer-Encoding: chunked", body=body)


_FLOODS: Final = (
    (b"", b"\r\n"),
    (request()[:-1], b""),
    (b"POST " + V1, b"/"),
    (b"POST %b HTTP/1.1\r\n" % V1, b"a:b\r\n"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n", b"a:b\r\n"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"a"),
    (bare(b"Transfer-Encoding: chunked", body=b"0\r\n"), b"a:b\r\n"),
    (bare(b"Transfer-Encoding: chunked", body=b"0\r\na:"), b"b"),
    (bare(b"Transfer-Encoding: chunked", body=b"1;"), b"a=b;"),
    (bare(b"Transfer-Encoding: chunked", body=b""), b"1\r\n[\r\n"),
    (bare(b"Content-Length: 99999999", body=b""), b"["),
    (bare(b"Content-Length: 4096", body=b""), b"["),
    (bare(b"Content-Length: 4096", b"X-API-Key: first", body=b""), b"["),
)
_MANY: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    request(b"X-API-Key: first"),
    bare(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
)
_MANY_BYTES: Final = 1 << 13


def flood(chance: random.Random, size: int) -> list[Step]:
    """A connection that sends much of the same, requests in hundreds or so many bytes of other
    things, and may read nothing."""
    beginning, again = chance.choice(_FLOODS)
    if chance.random() < 0.2:
        beginning, again, size = b"", chance.choice(_MANY), _MANY_BYTES
    steps: list[Step] = [beginning] if beginning else []
    if chance.random() < 0.3:
        steps.append(Deaf())
    if again:
        steps.append(Flood(again, size // len(again)))
    return steps


_SPOILT: Final = (
    *CORPUS,
    *(_in_chunks(random.Random(seed), [b"X-API-Key: first"]) for seed in range(8)),
    *(_ask(random.Random(seed)).data for seed in range(40)),
)
_MUTATOR: Final = Mutator(
    _SPOILT,
    (
        *TOKENS,
        *(b"X-API-Key: first\r\n", b"X-API-Key: second\r\n", b"0\r\n\r\n", b"Upgrade: h2c\r\n"),
        *(b"Accept: text/event-stream\r\n", GENERATE),
        *(b"X-Forwarded-For: 1.2.3.4\r\n", b"X-Forwarded-For: 1.2.3.4, %b\r\n" % PROXY.encode()),
    ),
)


def spoilt(seed: int) -> list[Step]:
    """A connection on which anything may come, with silence and other keys between."""
    chance = random.Random(seed)
    steps: list[Step] = []
    waits = 0
    for piece in cuts(_MUTATOR.make(seed), seed):
        steps.append(piece)
        drawn = chance.random()
        if drawn < 0.1:
            steps.append(Keys(chance.choice([KEYS, KEYS[:1], KEYS[1:], ()])))
        elif drawn < 0.15:
            # The longest phase that this may not end, and the shortest that it must, are 30 s and
            # 10 s long.
            steps.append(Seconds(AGE_S if waits else chance.choice([MOMENT_S, WHILE_S, AGE_S])))
            waits += 1
        elif drawn < 0.17:
            steps.append(Deaf())
    return steps


def _cut(data: bytes, chance: random.Random) -> Iterator[bytes]:
    count = chance.choice([0, 0, 1, 2, 4])
    edges = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(count))})
    for start, end in pairwise(edges):
        yield data[start:end]


def pieces_of(step: bytes | Flood) -> list[bytes]:
    """Return the bytes of a step as they are sent, one piece after the other."""
    if isinstance(step, bytes):
        return [step]
    data = step.piece * max(_PIECE_BYTES // len(step.piece), 1)
    return [data] * max(step.count * len(step.piece) // len(data), 1)
