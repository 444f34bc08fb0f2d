"""Timelines of a documentation page, played by the real collector on a made-up clock.

A timeline is a text drawing with a column for each millisecond:

    max_batch_size = 4; a run takes 8 ms
    ms        0         10        20
    arrive    a  b
    worker    [a-----][b-----]
    closed    idle    idle

Its first line has the settings. A letter is a request; capital letters are longer requests.
`closed` has the reason of each batch, where its run begins. `deadline` has the letters of requests
that have one, `504` those that are answered so. `crash` has the numbers of workers that crash.
"""

import heapq
import re
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from collector_harness import CollectorHarness
from segment_fixture import FAR_NS, pack, spec

from ringbatch.engine.ipc.messages import BatchTask
from ringbatch.shm.cost_profile import Trial, write
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status, slot_of
from ringbatch.shm.tensor import Tensor

MS: Final = 1_000_000
_INDENT: Final = 10
_SETTING: Final = re.compile(r"(\w+) = \"?(\w+)\"?")
_RUN: Final = re.compile(r"a run takes (\d+) ms")
_RETURN: Final = re.compile(r"(\w) comes back after (\d+) ms")
_FROM_RUN: Final = re.compile(r"after (\d+) runs")
_LONG, _SHORT = 32, 4
"""Elements of a capital letter's request, and of any other."""

Letters = list[tuple[int, str]]
"""Instants, in milliseconds, with the letters of requests."""


class Batch(NamedTuple):
    """Run of a worker: its first millisecond, its length, its requests, why the batch closed."""

    began: int
    took: int
    worker: int
    letters: str
    reason: str
    end: str = "]"


@dataclass
class Script:
    """The part of a drawing that is given, from which the rest follows.

    Attributes:
        first: the line of the settings.
        scale: the line of the milliseconds.
        workers: the number of lines for workers.
        arrive: when requests come.
        deadline: their deadlines, by letter.
        crash: when workers crash, with their places in the drawing: the collector gives the first
            batch to the worker with the highest number, which is drawn first.
    """

    first: str
    scale: str
    workers: int = 0
    arrive: Letters = field(default_factory=list)
    deadline: dict[str, int] = field(default_factory=dict)
    crash: Letters = field(default_factory=list)

    @property
    def settings(self) -> dict[str, str]:
        """The settings by name."""
        return dict(_SETTING.findall(self.first))

    @property
    def run_ms(self) -> int:
        """Length of each run, in milliseconds."""
        found = _RUN.search(self.first)
        assert found, f"how long does a run take? {self.first}"
        return int(found[1])

    @property
    def return_ms(self) -> dict[str, int]:
        """Time from an answer to the next request of the same client, by letter."""
        return {letter: int(ms) for letter, ms in _RETURN.findall(self.first)}

    @property
    def runs_before(self) -> int:
        """The runs that are over when the drawing begins."""
        found = _FROM_RUN.search(self.first)
        return int(found[1]) if found else 0

    @property
    def model(self) -> ModelSpec:
        """The model that the settings describe."""
        settings = self.settings
        unlike = any(letter.isupper() for _, letter in self.arrive)
        made = spec(
            inputs=[Tensor("x", "FP32", [-1])] if unlike else [],
            policy=settings.get("policy", "eager"),
            max_batch_size=int(settings.get("max_batch_size", 32)),
            max_latency_ns=int(settings.get("max_latency_ms", 500)) * MS,
            workers=tuple(range(self.workers)),
        )
        return replace(made, max_batch_elements=int(settings.get("max_batch_elements", 0)))


def read(drawing: str) -> Script:
    """Parse a drawing."""
    first, scale, *lines = drawing.splitlines()
    assert scale.startswith("ms"), scale
    script = Script(first, scale)
    for line in lines:
        label, rest = line[:_INDENT].strip(), line[_INDENT:]
        letters = [(at, letter) for at, letter in enumerate(rest) if letter != " "]
        if label == "arrive":
            script.arrive = letters
        elif label == "deadline":
            script.deadline = {letter: at for at, letter in letters}
        elif label == "crash":
            script.crash = letters
        else:
            script.workers += label.startswith("worker")
    return script


def play(script: Script) -> str:
    """Return the drawing of what the collector does with a script."""
    return _Player(script).play()


class _Player:
    """A collector, its workers and its clients."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._model = script.model
        self._harness = CollectorHarness(self._model)
        if script.settings.get("warm_up") != "off":
            trials = [Trial(rows, 0, script.run_ms * MS) for rows in (1, 32)]
            for worker in self._harness.workers:
                write(self._harness.segment, worker.number, trials)
        self._harness.begin()
        self._events: list[tuple[int, int, str]] = []
        self._held: list[list[BatchTask]] = [[] for _ in self._harness.workers]
        """Batches that each worker holds, of which it runs the first."""
        self._began = [0 for _ in self._harness.workers]
        self._letters: dict[int, str] = {}
        """Letter of the request in each slot."""
        self._arrived: Letters = []
        self._late: Letters = []
        self._batches: list[Batch] = []

    def play(self) -> str:
        script = self._script
        for place, letter in enumerate(script.return_ms):
            self._at(place, letter=letter)
        for at, letter in script.arrive:
            if letter not in script.return_ms:
                self._at(at, letter=letter)
        for at, number in script.crash:
            self._at(at, letter=number)
        origin, columns = None if script.runs_before else 0, len(script.scale) - _INDENT
        while self._events and (origin is None or self._events[0][0] <= origin + columns):
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, worker, letter = heapq.heappop(self._events)
                if letter.isdigit():
                    self._crash(self._script.workers - int(letter), now)
                elif letter:
                    self._send(letter, now)
                elif worker >= 0:
                    self._finish(worker, now)
            self._look(now)
            if origin is None and len(self._batches) == script.runs_before:
                origin = now
        assert origin is not None, "not so many runs"
        return self._draw(origin, columns)

    def _at(self, at: int, worker: int = -1, letter: str = "") -> None:
        heapq.heappush(self._events, (at, worker, letter))

    def _send(self, letter: str, now: int) -> None:
        payload, key_bytes = letter.encode(), 0
        if self._model.inputs:
            size = _LONG if letter.isupper() else _SHORT
            payload, key_bytes = pack(self._model.inputs, [[[0.0] * size]])
        deadline = self._script.deadline.get(letter)
        slot = self._harness.clients[0].send(
            payload,
            key_bytes=key_bytes,
            accepted_ns=now * MS,
            deadline_ns=FAR_NS if deadline is None else deadline * MS,
        )
        self._letters[slot] = letter
        self._arrived.append((now, letter))

    def _crash(self, number: int, now: int) -> None:
        self._ended(number, now, "X")
        self._held[number].clear()
        self._harness.dies(number, now * MS)

    def _finish(self, number: int, now: int) -> None:
        if not self._held[number]:
            return
        task = self._ended(number, now)
        self._harness.workers[number].finish(task, run_ns=self._script.run_ms * MS)
        if self._held[number]:
            self._begin(number, now)

    def _ended(self, number: int, now: int, end: str = "]") -> BatchTask:
        task = self._held[number].pop(0)
        letters = "".join(self._letters[slot_of(ref)] for ref in task.references)
        reason, began = Reason(task.mark.reason).name.lower(), self._began[number]
        self._batches.append(Batch(began, now - began, number, letters, reason, end))
        return task

    def _begin(self, number: int, now: int) -> None:
        self._began[number] = now
        self._at(now + self._script.run_ms, worker=number)

    def _look(self, now: int) -> None:
        next_ns = self._harness.step(now * MS)
        for slot, reply in self._harness.clients[0].collect().items():
            letter = self._letters[slot]
            if reply.answer.status == Status.EXPIRED:
                self._late.append((now, letter))
            if letter in self._script.return_ms:
                self._at(now + self._script.return_ms[letter], letter=letter)
        for worker in self._harness.workers:
            given = worker.tasks()
            if given and not self._held[worker.number]:
                self._begin(worker.number, now)
            self._held[worker.number] += given
        if next_ns is not None and next_ns < FAR_NS:
            assert next_ns % MS == 0, "the drawing has no column for this"
            self._at(next_ns // MS)

    def _draw(self, origin: int, columns: int) -> str:
        script = self._script
        shown = [batch for batch in sorted(self._batches) if batch.began >= origin]
        shown = [batch for batch in shown if batch.began + batch.took <= origin + columns]
        lines = [script.first, script.scale, _line("arrive", self._arrived, origin, columns)]
        if script.deadline:
            given = [(at, letter) for letter, at in script.deadline.items()]
            lines.append(_line("deadline", given, origin, columns))
        for place in range(1, script.workers + 1):
            name = "worker" if script.workers == 1 else f"worker {place}"
            own = [batch for batch in shown if batch.worker == script.workers - place]
            boxes = [(b.began, f"[{b.letters.ljust(b.took - 2, '-')}{b.end}") for b in own]
            lines.append(_line(name, boxes, origin, columns))
            lines.append(_line("closed", [(b.began, b.reason) for b in own], origin, columns))
        if script.crash:
            lines.append(_line("crash", script.crash, origin, columns))
        if self._late:
            lines.append(_line("504", self._late, origin, columns))
        return "\n".join(lines)


def _line(label: str, texts: Letters, origin: int, columns: int) -> str:
    """Return a line with a label and these texts at their columns."""
    line = [" "] * columns
    for at, text in texts:
        if 0 <= at - origin < columns:
            line[at - origin : at - origin + len(text)] = text
    return (label.ljust(_INDENT) + "".join(line)).rstrip()
