"""Cost of the engine's own work, without sockets: rings, wake-ups, decisions, copies, JSON.

Four tables. Between two processes: a message of 64 bytes and its echo, one at a time and many at
once, by ringbatch's lane, rings and doorbells and by what else Python has; beside them the least
that the kernel asks for such a wake-up (a bare futex). Within one process, best of many: the pieces
of a request's way, and copies of a batch's rows beside one memory copy of as many bytes.
"""

import argparse
import ctypes
import importlib
import mmap
import multiprocessing
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from host.children import end_with_parent
from hot_path import pieces
from hot_path.pieces import Piece
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table
from steps import SPEC

from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout, ring_size
from ringbatch.shm.ring import Inbox
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.wakeup import Wakeup, unlink

MESSAGE = bytes(range(64))
BURST = 32
"""Messages under way at once, where there are many."""
ROWS = (64, 3136, 602_112)
"""Bytes of one instance: 16 and 784 floats, and 3x224x224."""
REPETITIONS = 300
_SLOTS = 64
_FAR_NS = 1 << 62
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_FORK = multiprocessing.get_context("fork")

Exchange = Callable[[Sequence[bytes]], list[bytes]]
"""Sends messages to another process, and returns what that sends back."""


@dataclass(frozen=True)
class Between:
    """Times of an exchange between two processes.

    Attributes:
        trip_p50_us: median time of one message and its echo.
        burst_us: time of each of `BURST` messages that are under way together, with its echo.
    """

    trip_p50_us: float
    burst_us: float


class NotInstalled(RuntimeError):
    """A way takes a package that is not here."""


@contextmanager
def _process(target: Callable[[], None]) -> Iterator[None]:
    """Fork a process, which ends with the context, or with this process."""
    parent = os.getpid()

    def run() -> None:
        end_with_parent(parent)
        target()

    process = _FORK.Process(target=run, daemon=True)
    with warnings.catch_warnings():
        # From Python 3.12 on it warns where there are threads; what runs here takes none of their
        # locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


@contextmanager
def by_ringbatch() -> Iterator[Exchange]:
    """Exchange messages through slots and rings of a segment; the other side acts as a worker."""
    layout = Layout(
        lanes=1,
        slots=_SLOTS,
        lane_bytes=_SLOTS * PAGE,
        workers=1,
        models=1,
        model_table_bytes=PAGE,
    )
    segment = Segment.local(layout, (SPEC,))
    name = f"/ringbatch-bench-{os.getpid()}"
    path = f"/dev/shm{name}.bell"
    waking = Wakeup.create(name)
    Doorbell.create(path)
    bell = Doorbell.attach(path)

    def echo() -> None:
        engine_slots = EngineSlots(segment, 0, lambda _lane: bell.wake())
        submitted = Inbox(segment.words, layout.submissions_word, ring_size(_SLOTS), 1, _SLOTS)
        mark, memory = BatchMark(1, 1, Reason.IDLE, 0), segment.memory
        while True:
            waking.wait()
            for lane, references in submitted.take():
                for one in engine_slots.read_open(lane, references or [])[0]:
                    start, size = one.request_offset, one.request_bytes
                    memory[one.result_offset : one.result_offset + size] = memory[
                        start : start + size
                    ]
                    engine_slots.answer(one.ref, Status.OK, size, mark, 0)
            engine_slots.flush()

    lane = Lane(segment, 0, waking.wake)

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        for message in messages:
            lane.send(message, len(message), 0, 1, 0, _FAR_NS)
        lane.submit()
        answers: list[bytes] = []
        while len(answers) < len(messages):
            bell.wait()
            for slot in lane.collect():
                _, size, _ = lane.outcome(slot)
                start = lane.result_offset[slot]
                answers.append(bytes(segment.memory[start : start + size]))
                lane.release(slot)
        return answers

    try:
        with _process(echo):
            yield exchange
    finally:
        waking.close()
        bell.close()
        unlink(name)
        os.unlink(path)


@contextmanager
def by_queue() -> Iterator[Exchange]:
    """Exchange messages through a `multiprocessing.Queue` each way."""
    there, back = _FORK.Queue(), _FORK.Queue()

    def echo() -> None:
        while True:
            back.put(there.get())

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        for message in messages:
            there.put(message)
        return [back.get() for _ in messages]

    with _process(echo):
        yield exchange


@contextmanager
def by_connection() -> Iterator[Exchange]:
    """Exchange messages through a `multiprocessing.Pipe`, whose messages have a length."""
    here, there = _FORK.Pipe()

    def echo() -> None:
        while True:
            there.send_bytes(there.recv_bytes())

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        for message in messages:
            here.send_bytes(message)
        return [here.recv_bytes() for _ in messages]

    with _process(echo):
        yield exchange


@contextmanager
def by_pipe() -> Iterator[Exchange]:
    """Exchange messages through two bare pipes; each read takes all bytes that have come."""
    read_there, write_there = os.pipe()
    read_back, write_back = os.pipe()

    def echo() -> None:
        while True:
            os.write(write_back, os.read(read_there, 1 << 16))

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        for message in messages:
            os.write(write_there, message)
        wanted, found = sum(map(len, messages)), b""
        while len(found) < wanted:
            found += os.read(read_back, 1 << 16)
        size = len(messages[0])
        return [found[start : start + size] for start in range(0, wanted, size)]

    with _process(echo):
        yield exchange
    for fd in (read_there, write_there, read_back, write_back):
        os.close(fd)


@contextmanager
def by_faster_fifo() -> Iterator[Exchange]:
    """Exchange messages through faster-fifo's queues in shared memory, many messages a call."""
    try:
        queue = importlib.import_module("faster_fifo").Queue
    except ImportError as error:
        raise NotInstalled(f"faster-fifo: {error}; pip install faster-fifo") from None
    there, back = queue(1 << 20), queue(1 << 20)

    def echo() -> None:
        while True:
            back.put_many(there.get_many(timeout=3600))

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        there.put_many(messages)
        found: list[bytes] = []
        while len(found) < len(messages):
            found += back.get_many(timeout=3600)
        return found

    with _process(echo):
        yield exchange


@contextmanager
def by_futex() -> Iterator[Exchange]:
    """Exchange bytes in shared memory by a futex each way, called through ctypes: the least cost.

    A word counts what was sent; the other side sleeps on it until it has another value.
    """
    memory = mmap.mmap(-1, PAGE)
    counters = (ctypes.c_uint32 * 2).from_buffer(memory)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    futex = _SYS_FUTEX[platform.machine()]
    addresses = [ctypes.c_void_p(ctypes.addressof(counters) + 4 * side) for side in (0, 1)]
    first, size = 64, len(MESSAGE)

    def sleep(side: int, seen: int) -> None:
        while counters[side] == seen:
            syscall(futex, addresses[side], _FUTEX_WAIT, seen, None, None, 0)

    def wake(side: int) -> None:
        counters[side] += 1
        syscall(futex, addresses[side], _FUTEX_WAKE, 1, None, None, 0)

    def echo() -> None:
        seen = 0
        while True:
            sleep(0, seen)
            seen += 1
            wake(1)

    def exchange(messages: Sequence[bytes]) -> list[bytes]:
        for index, message in enumerate(messages):
            memory[first + index * size : first + (index + 1) * size] = message
        before = counters[1]
        wake(0)
        sleep(1, before)
        starts = range(first, first + len(messages) * size, size)
        return [memory[start : start + size] for start in starts]

    with _process(echo):
        yield exchange


WAYS: Mapping[str, Callable[[], Any]] = {
    "ringbatch": by_ringbatch,
    "multiprocessing.Queue": by_queue,
    "multiprocessing.Pipe": by_connection,
    "os.pipe": by_pipe,
    "faster-fifo": by_faster_fifo,
    "bare futex": by_futex,
}


def between(way: str, repetitions: int) -> Between:
    """Measure one way; its echoes are checked.

    Raises:
        NotInstalled
    """
    with WAYS[way]() as exchange:
        many = [MESSAGE] * BURST
        for _ in range(20):
            assert exchange([MESSAGE]) == [MESSAGE], f"{way} echoes something else"
            assert exchange(many) == many, f"{way} echoes something else"
        return Between(
            statistics.median(_times_us(lambda: exchange([MESSAGE]), repetitions)),
            statistics.median(_times_us(lambda: exchange(many), repetitions)) / BURST,
        )


def best_ns(piece: Piece, repetitions: int) -> float:
    """Return the shortest of many runs of a piece, divided by the requests that it serves."""
    best = float("inf")
    for _ in range(repetitions):
        piece.before()
        began_ns = time.perf_counter_ns()
        piece.run()
        took_ns = time.perf_counter_ns() - began_ns
        piece.after()
        best = min(best, took_ns)
    return best / piece.serves


def copies(row_bytes: int, size: int, repetitions: int) -> dict[str, float]:
    """Return nanoseconds for each row of a batch: gathered, scattered, copied by memcpy at once."""
    source, target = (np.zeros(size * row_bytes, np.uint8) for _ in range(2))
    to, start, count = target.ctypes.data, source.ctypes.data, size * row_bytes
    copy = Piece(lambda: ctypes.memmove(to, start, count), size)
    return {
        "gather": best_ns(pieces.gather(size, row_bytes), repetitions),
        "scatter": best_ns(pieces.scatter(size, row_bytes), repetitions),
        "memcpy": best_ns(copy, repetitions),
    }


def _times_us(call: Callable[[], object], repetitions: int) -> Iterator[float]:
    for _ in range(repetitions):
        began_ns = time.perf_counter_ns()
        call()
        yield (time.perf_counter_ns() - began_ns) / 1e3


def between_table(runs: Mapping[str, Sequence[Between]]) -> str:
    """Return the table of ways between two processes, with how many times ringbatch's they take."""
    ours = runs["ringbatch"]
    rows = []
    for way, found in runs.items():
        trips, bursts = ([getattr(one, key) for one in found] for key in asdict(found[0]))
        against = ratios(bursts, [one.burst_us for one in ours])
        rows.append([way, str(spread(trips)), str(spread(bursts)), number(against.median)])
    head = ["64 bytes and their echo", "alone, p50 us", f"each of {BURST}, us", "of ringbatch's"]
    return table(head, rows)


def main() -> int:
    """Measure; the exit status is 1 where a message by ringbatch takes longer than by a queue."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    options = parser.parse_args()
    report = Report("in_process", vars(options))
    missing: dict[str, str] = {}

    def run(turn: int, way: str) -> Between | None:
        try:
            found = between(way, options.repetitions)
        except NotInstalled as error:
            missing[way] = str(error)
            return None
        report.run(round=turn, way=way, result=asdict(found))
        return found

    runs = run_rounds(list(WAYS), options.rounds, run)
    report.put("not_installed", missing)
    report.print_text(
        between_table({way: cast(Any, r) for way, r in runs.items() if None not in r})
    )
    for words in missing.values():
        report.print_text(f"not measured: {words}")

    costs = {name: best_ns(make(), options.repetitions) for name, make in pieces.pieces().items()}
    report.run(pieces=costs)
    rows = [[name, number(ns)] for name, ns in costs.items()]
    report.print_text(table(["within one process, best", "ns for each"], rows))

    lines = []
    for row_bytes in ROWS:
        for size in (8, 32):
            found = copies(row_bytes, size, max(10, options.repetitions // 10))
            report.run(row_bytes=row_bytes, batch=size, result=found)
            lines.append([f"{row_bytes:,} bytes, {size} rows", *map(number, found.values())])
    report.print_text(table(["best, ns a row", "gather", "scatter", "memcpy"], lines))

    by_queue = [one for one in runs["multiprocessing.Queue"] if one is not None]
    ours = [one for one in runs["ringbatch"] if one is not None]
    against = ratios([one.burst_us for one in by_queue], [one.burst_us for one in ours])
    report.limit("multiprocessing.Queue's time of ringbatch's", against.median, at_least=2.0)
    few, many = (costs[f"{pieces.REPEATS} decisions, {n} waiting"] for n in (100, 10_000))
    report.limit("a decision with 10,000 waiting against 100", many / few, at_most=1.5)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
