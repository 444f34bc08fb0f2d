"""Continuous against static batches of a decoder, in the same engine.

Both decoders take 2 ms a step, whatever rows are live, and run at most 32 rows. The lengths of
answers are geometric with a mean of 50 steps, so that a static batch of 32 takes about 4.06 times
as many steps as its mean row. First, clients that ask again at once load each engine fully. Then
requests come at random and want parts, at 0.8 of the most that the continuous engine answered in
parts. The wait for the first part is compared with that of a queue in which nothing but steps takes
time, with the same requests.
"""

import argparse
import heapq
import json
import random
import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from host.server import HOST, Server
from load.answers import WrongAnswer
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, spread, table
from streams import percentile

CONTINUOUS: Final = "continuous"
STATIC: Final = "static"
IN_PARTS: Final = "continuous, in parts"
WAYS: Final = (CONTINUOUS, STATIC, IN_PARTS)
PLACES: Final = 32
MEAN_STEPS: Final = 50
STEP_MS: Final = 2.0
LEAST_GAIN: Final = 3.2
"""The least requests/s of continuous batches, by those of static ones."""
LOAD: Final = 0.8
MOST_STEPS: Final = 3
"""The most steps to the first part, beside the wait of the queue."""
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


def lengths(seed: int) -> Iterator[int]:
    """Yield geometric lengths of answers, without end."""
    chance = random.Random(seed)
    while True:
        steps = 1
        while chance.random() > 1 / MEAN_STEPS:
            steps += 1
        yield steps


def message(model: str, steps: int, *, in_parts: bool) -> bytes:
    """Return a request for an answer of so many steps."""
    body = b'{"instances":[%d]}' % steps
    accept = "Accept: text/event-stream\r\n" if in_parts else ""
    head = (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: {HOST}\r\n{accept}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(eq=False)
class Exchange:
    """A connection, and the answer that it waits for.

    Attributes:
        connection: to the server.
        steps: of the answer.
        sent_s: when it was asked for.
        data: of the answer, so far.
        first_s: when its first part came.
    """

    connection: socket.socket
    steps: int = 0
    sent_s: float = 0.0
    data: bytes = b""
    first_s: float = 0.0

    def ask(self, model: str, steps: int, now_s: float, *, in_parts: bool) -> None:
        """Send the next request."""
        self.steps, self.sent_s, self.data, self.first_s = steps, now_s, b"", 0.0
        self.connection.sendall(message(model, steps, in_parts=in_parts))

    def take(self, now_s: float, *, in_parts: bool) -> bool:
        """Read what has come; return whether the answer has ended.

        Raises:
            WrongAnswer: it is not the right one.
        """
        data = self.connection.recv(1 << 16)
        if not data:
            raise WrongAnswer("a connection has ended")
        self.data += data
        if in_parts:
            if not self.first_s and b"data: " in self.data:
                self.first_s = now_s
            if not self.data.endswith(_LAST_CHUNK):
                return False
            texts = [event[event.index(b"{") :] for event in self.data.split(b"\n\n")[:-1]]
        else:
            if not self.data.endswith(b"]]}"):
                return False
            texts = [self.data.partition(_HEAD_END)[2]]
        found = [value for text in texts for value in json.loads(text)["predictions"][0]]
        if found != [*range(self.steps)]:
            raise WrongAnswer(f"{found} and not the numbers below {self.steps}")
        return True


@dataclass
class Answers:
    """Answers of a run.

    Attributes:
        count: how many ended.
        first_ms: the times to their first parts.
    """

    count: int = 0
    first_ms: list[float] = field(default_factory=list)


def connected(port: int) -> Exchange:
    """Return a connection that waits for nothing."""
    connection = socket.create_connection((HOST, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Exchange(connection)


def saturate(
    port: int, model: str, clients: int, seconds: float, seed: int, *, in_parts: bool
) -> float:
    """Keep clients asking for some time; return the answers a second.

    Raises:
        WrongAnswer: an answer was not right.
    """
    own, count = lengths(seed), 0
    begun_s = time.monotonic()
    until_s = begun_s + seconds
    exchanges = [connected(port) for _ in range(clients)]
    with selectors.DefaultSelector() as selector:
        for exchange in exchanges:
            selector.register(exchange.connection, selectors.EVENT_READ, exchange)
            exchange.ask(model, next(own), begun_s, in_parts=in_parts)
        while (now_s := time.monotonic()) < until_s:
            for key, _ in selector.select(until_s - now_s):
                now_s = time.monotonic()
                if key.data.take(now_s, in_parts=in_parts):
                    count += 1
                    key.data.ask(model, next(own), now_s, in_parts=in_parts)
    for exchange in exchanges:
        exchange.connection.close()
    return count / seconds


def offer(port: int, rate: float, seconds: float, seed: int) -> Answers:
    """Send requests at random at a mean rate, and read their parts.

    Raises:
        WrongAnswer: an answer was not right.
    """
    own, chance, answers = lengths(seed), random.Random(seed), Answers()
    spare: deque[Exchange] = deque()
    next_s = time.monotonic()
    until_s = next_s + seconds
    with selectors.DefaultSelector() as selector:
        waiting = 0
        while waiting or next_s < until_s:
            now_s = time.monotonic()
            while next_s <= now_s and next_s < until_s:
                if not spare:
                    made = connected(port)
                    selector.register(made.connection, selectors.EVENT_READ, made)
                    spare.append(made)
                spare.popleft().ask(CONTINUOUS, next(own), next_s, in_parts=True)
                waiting += 1
                next_s += chance.expovariate(rate)
            wait_s = max(next_s - now_s, 0.0) if next_s < until_s else 1.0
            for key, _ in selector.select(wait_s):
                if key.data.take(time.monotonic(), in_parts=True):
                    waiting -= 1
                    answers.count += 1
                    answers.first_ms.append(1e3 * (key.data.first_s - key.data.sent_s))
                    spare.append(key.data)
        for exchange in spare:
            exchange.connection.close()
    return answers


def waits_ms(rate: float, step_ms: float, seconds: float, seed: int) -> list[float]:
    """Return the waits for a place in a queue of `PLACES` servers, in milliseconds.

    Requests come as in `offer`, each for as many steps of that length.
    """
    own, chance = lengths(seed), random.Random(seed)
    free_ms, now_ms, waits = [0.0] * PLACES, 0.0, []
    while now_ms < 1e3 * seconds:
        begins_ms = max(now_ms, free_ms[0])
        heapq.heapreplace(free_ms, begins_ms + next(own) * step_ms)
        waits.append(begins_ms - now_ms)
        now_ms += 1e3 * chance.expovariate(rate)
    return waits


def hold_to_limits(
    report: Report, rates: Mapping[str, Sequence[float]], first_ms: float, wait_ms: float
) -> None:
    """Compare the figures with what continuous batches are for."""
    pairs = zip(rates[CONTINUOUS], rates[STATIC], strict=True)
    gain = spread([own / other for own, other in pairs]).median
    report.limit("requests/s, continuous by static", gain, at_least=LEAST_GAIN)
    steps = (first_ms - wait_ms) / STEP_MS
    words = "steps to the first part beyond the queue's wait, p99"
    report.limit(words, steps, at_most=MOST_STEPS)


def main() -> int:
    """Run the rounds; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=3 * PLACES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    report = Report("continuous", {key: str(value) for key, value in vars(options).items()})
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        servers = {}
        for model in (CONTINUOUS, STATIC):
            (folder := Path(made) / model).mkdir()
            engine = Ringbatch(model, MODELS / f"{model}.py", 1, {"max_batch_size": PLACES})
            servers[model] = Server(engine.command(folder))
        with servers[CONTINUOUS], servers[STATIC]:

            def run(turn: int, way: str) -> float:
                model, in_parts = (CONTINUOUS, True) if way == IN_PARTS else (way, False)
                load = options.clients, options.seconds, turn
                rate = saturate(servers[model].port, model, *load, in_parts=in_parts)
                report.run(way=way, answers_per_s=rate)
                return rate

            rates = run_rounds(WAYS, options.rounds, run)
            rate = LOAD * spread(rates[IN_PARTS]).median
            port, seconds = servers[CONTINUOUS].port, options.rounds * options.seconds
            first_ms = percentile(offer(port, rate, seconds, 1).first_ms, 0.99)
    # The engine's own step is longer than the sleep, and says how long a place is taken.
    step_ms = 1e3 * PLACES * LOAD / (rate * MEAN_STEPS)
    wait_ms = percentile(waits_ms(rate, step_ms, seconds, 1), 0.99)
    report.run(way="at random", rate=rate, first_p99_ms=first_ms, wait_p99_ms=wait_ms)
    rows = [[way, number(spread(rates[way]).median)] for way in WAYS]
    report.print_text(table(["batches", "answers/s"], rows))
    report.print_text(
        f"\nat {rate:.0f} requests/s: first part p99 {first_ms:.1f} ms, of which the queue's wait "
        f"is {wait_ms:.1f} ms; a step takes {step_ms:.2f} ms"
    )
    hold_to_limits(report, rates, first_ms, wait_ms)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
