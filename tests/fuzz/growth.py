"""Bodies in which a piece comes again and again: how long decoders take for them, by CPU time.

No decoder takes more than in proportion to its bytes, and none holds the event loop for more than
`MOST_S`: what takes longer, another process reads, or it is read in turns.
"""

import gc
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from fuzz.bodies import CONNECTIONS, Talk
from fuzz.corpora import corpus_of
from fuzz.decoders import SPECS, TARGETS, read_texts_here
from fuzz.limits import Overrun
from fuzz.turns import MOST_S, Turns

from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import requests_of
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES, LARGE_TEXTS_BYTES
from ringbatch.frontend.texts.offloaded_texts import FORMS
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.generate import infer_request
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.request import decoded
from ringbatch.frontend.v2.shared_memory import OFF
from ringbatch.shm.model_spec import ModelSpec

SMALL_BYTES: Final = 1 << 18
TIMES: Final = 4
"""A larger input is so much larger."""
MOST_RATIO: Final = 2.5
"""Times that, and what takes so much longer is not linear: a quadratic decoder takes four times."""
WORTH_S: Final = 0.02
"""Least CPU time that is judged; less may be the garbage collector's."""
CLEAR_S: Final = 1.0
"""CPU time from which an input that takes too long is not tried again."""
LARGEST_BYTES: Final = 1 << 20
"""Largest input of a connection; tests/local/test_loop_held.py tries bodies of the limit."""
MAX_IN_FLIGHT: Final = 1024
MOST_BATCHES: Final = 1 << 16
"""Bound that lets requests of many small batches be judged too, in bounded time."""
_TRIES: Final = 4
_BOUND_TRIES: Final = 10
"""A neighbour on the same core may be busy for longer than a turn and the known work behind it."""
_EDGE: Final = re.compile(rb"[,\[{]")
_LONGEST: Final = 64
_PIECES: Final = 60

Reads = Callable[[bytes], object]
Run = Callable[[Turns], object]
"""Function that makes a decoder read an input, turn by turn."""
NAMES: Final = (*TARGETS, *CONNECTIONS)


class Repeated:
    """An input of which a piece comes again and again, as the seed chooses. Mostly it is one that
    is taken; of others little is read."""

    def __init__(self, target: str, seed: int) -> None:
        chance = random.Random(seed)
        reads, allowed = reader_of(target, MOST_BATCHES), TARGETS[target][1]
        for _ in range(_PIECES):
            data = chance.choice(corpus_of(target))
            edges = [0, *(found.end() for found in _EDGE.finditer(data)), len(data)]
            start = chance.choice(edges)
            ends = [edge for edge in edges if start < edge <= start + _LONGEST]
            end = chance.choice(ends or [min(start + 1, len(data))])
            self._before, self._piece, self._after = data[:end], data[start:end], data[end:]
            if not self._piece:
                continue
            try:
                reads(self.of_size(len(data) + 3 * len(self._piece)))
                return
            except allowed:
                continue
        self._piece = self._piece or b"0"

    def of_size(self, size: int) -> bytes:
        """Return an input of about so many bytes."""
        room = size - len(self._before) - len(self._after)
        return self._before + self._piece * max(room // len(self._piece), 1) + self._after


def runs_of(
    target: str, seed: int, max_in_flight: int, *, by_loop: bool = False
) -> Callable[[int], Run]:
    """Return a function that makes a run of about so many bytes, chosen by the seed.

    Args:
        target: its name.
        seed: of the bytes.
        max_in_flight: the most batches that a request may make.
        by_loop: whether to leave out the tokens of texts, which a thread makes.
    """
    if target in CONNECTIONS:
        return Talk(target, seed).of_size
    reads, allowed = reader_of(target, max_in_flight), TARGETS[target][1]
    if by_loop and target.startswith("texts "):
        reads = FORMS[target.split()[1]].read
    made = Repeated(target, seed)

    def read(data: bytes) -> None:
        with suppress(*allowed):
            reads(data)

    def run(size: int) -> Run:
        data = made.of_size(size)
        return lambda turns: turns.timed(read, data)

    return run


def check_growth(target: str, seed: int) -> bool:
    """Return whether the larger of two inputs took long enough to be judged.

    Raises:
        Overrun: it took far more than in proportion.
    """
    run = runs_of(target, seed, MOST_BATCHES)
    small, large = run(SMALL_BYTES), run(TIMES * SMALL_BYTES)
    most_s = large_s = small_s = 0.0
    for tries in range(1, _TRIES + 1):
        large_s = _turns_of(large).total_s
        if large_s < WORTH_S:
            return False
        small_s = max(_turns_of(small).total_s, WORTH_S / TIMES)
        most_s = MOST_RATIO * TIMES * small_s
        if large_s <= most_s:
            return True
        if tries == _TRIES or large_s > max(1.3 * most_s, CLEAR_S):
            break
    raise Overrun(f"the larger takes {large_s:.3f} s, a {TIMES}th of it {small_s:.3f} s")


def check_bound(target: str, seed: int) -> float:
    """Return the longest time for which the largest input holds the event loop, at best.

    Raises:
        Overrun: that is too long.
    """
    size = LARGEST_BYTES if target in CONNECTIONS else LARGE_BODY_BYTES
    if target.startswith("texts "):
        size = LARGE_TEXTS_BYTES
    run = runs_of(target, seed, MAX_IN_FLIGHT, by_loop=True)(size)
    least_s = 1e9
    for _ in range(_BOUND_TRIES):
        least_s = min(least_s, _turns_of(run).longest_s)
        if least_s <= MOST_S:
            return least_s
    raise Overrun(f"the event loop is held for {least_s:.3f} s")


def _turns_of(run: Run) -> Turns:
    with _no_collector():
        turns = Turns()
        run(turns)
    turns.close()
    return turns


@contextmanager
def _no_collector() -> Iterator[None]:
    # It would go through all that other tests of the process have left.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@cache
def reader_of(target: str, max_in_flight: int) -> Reads:
    """Return the function that reads a target's inputs, and does nothing else."""
    protocol, _, name = target.partition(" ")
    if protocol == "texts":
        return lambda data: read_texts_here(name, data, max_in_flight)
    makes = {"v1": _v1, "v2": _v2, "generate": _generate, "grpc": _grpc}.get(protocol)
    if makes is None:
        return TARGETS[target][0]
    return makes(next(model for model in SPECS if model.name == name), max_in_flight)


def _v1(model: ModelSpec, max_in_flight: int) -> Reads:
    return V1Model(model, None, max_in_flight).requests.parse


def _v2(model: ModelSpec, max_in_flight: int) -> Reads:
    requests = V2Model(model, OFF, max_in_flight).requests

    def read(data: bytes) -> Any:
        length, newline, body = data.partition(b"\n")
        json_bytes = int(length) if newline and length.isdigit() and len(length) < 9 else None
        return requests.parse(body, json_bytes)

    return read


def _generate(model: ModelSpec, max_in_flight: int) -> Reads:
    requests = V2Model(model, OFF, max_in_flight).requests
    return lambda data: requests.read(infer_request(decoded(data), model), data)


def _grpc(model: ModelSpec, max_in_flight: int) -> Reads:
    read, message = requests_of(model, OFF, max_in_flight).read, inference("ModelInferRequest")
    return lambda data: read(message.FromString(data))


assert set(FORMS) == {target.split()[1] for target in TARGETS if target.startswith("texts")}
