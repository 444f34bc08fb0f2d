"""Run of one batch whose model yields its answer in parts.

Each yield is a part for every row of the batch. A request that wants parts gets them as they come.
The others get one answer, see `ringbatch.engine.worker.joined_parts`. If the model raises, requests
of which no part is out run again, as in any batch. The others fail: their clients have begun to
read.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, Final

from ringbatch.engine.models.model import InvalidInput, error_text
from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.part_stream import NotTaken, PartStream, TooLarge
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.slot import Status
from ringbatch.shm.uniform_batch import UniformBatch

logger = logging.getLogger("ringbatch.worker")

PATIENCE_NS: Final = 1_000_000_000
"""Time that a worker waits, behind its last part, for frontends that do not take theirs."""
PAUSE_S: Final = 0.001
PROGRESS_NS: Final = 100_000_000
"""Interval at which the collector learns that a batch goes on."""


class PartsRunner(Runner):
    """Runner of a model whose `predict` is a generator.

    Args:
        setup: as for `Runner`.
        pause: sleeps for some seconds.
    """

    def __init__(self, setup: RunnerSetup, *, pause: Callable[[float], object]) -> None:
        super().__init__(setup)
        self._pause = pause
        self._streams: dict[int, PartStream] = {}
        """Streams of the run's requests that want parts and are not answered, by reference."""
        self._progress_ns = 0

    def _run_uniform(
        self, uniform: UniformBatch, mark: BatchMark
    ) -> tuple[bool, BaseException | None]:
        """Run nothing: requests are looked at one by one, as each may want parts."""
        return False, None

    def _call(self, arguments: Any, rows: list[int]) -> Any:
        """Return all parts as one answer, for values that no client has sent."""
        with closing(self._parts(arguments, rows)) as parts:
            return self._joined([self._codec.kept(results) for results in parts])

    def _run_readable(self, arguments: Any, readable: list[Request], mark: BatchMark) -> None:
        wants, slots = self._slots.wants_parts, self._slots
        self._streams = {r.ref: PartStream(slots, r, mark.batch) for r in readable if wants(r.ref)}
        # A worker has died of it, and the collector that knew is gone too.
        begun = [stream.request for stream in self._streams.values() if stream.part_is_out]
        self._fail(begun, Status.CUT_OFF, "", mark)
        left = {request.ref for request in readable if slots.is_open(request.ref)}
        if not left:
            return
        keeps = len(self._streams) < len(readable)
        found: list[Any] = []
        with closing(self._parts(arguments, [request.rows for request in readable])) as parts:
            for results in parts:
                if keeps:
                    results = self._codec.kept(results)
                    found.append(results)
                self._put(results, readable, mark)
                self._give_up(readable, left, mark)
                slots.flush()
                if not left:
                    return
                self._report_progress(mark)
        self._wait_for_room(mark)
        self._end(readable, left, found, mark)

    def _unanswered(
        self, readable: list[Request], error: BaseException, mark: BatchMark
    ) -> list[Request]:
        """Fail the requests of which a part is out; return the others that have no answer."""
        begun = [s.request for s in self._streams.values() if s.part_is_out]
        if begun:
            self._failed(self._of_one(error, mark) if len(readable) > 1 else error, begun, mark)
        is_open = self._slots.is_open
        return [request for request in readable if is_open(request.ref)]

    def _of_one(self, error: BaseException, mark: BatchMark) -> BaseException:
        """Return an error of one of several requests as all of them may see it.

        Nobody knows which request `InvalidInput` is about, and its text may hold what that one's
        client has sent. So only the log has the text.
        """
        if not isinstance(error, InvalidInput):
            return error
        text = error_text(error)
        logger.error(
            "model %s refused one of several requests: %s; %s", self._name, text, self._batch(mark)
        )
        return WrongResult("it refused one of several requests behind parts of them; send it again")

    def _parts(self, arguments: Any, rows: list[int]) -> Generator[Any, None, None]:
        """Yield the checked results of each yield of the model."""
        arguments, spare = self._fitted(arguments, rows)
        steps = self._predict(*arguments)
        with closing(steps):
            while True:
                started_ns = self._clock_ns()
                try:
                    returned = next(steps)
                    self._fork_guard.check()
                except StopIteration:
                    return
                except BaseException as error:
                    self._fork_guard.check(error)
                    raise
                finally:
                    ended_ns = self._clock_ns()
                    self.run_ns += ended_ns - started_ns
                    self.runs.went_on(started_ns, ended_ns)
                yield self._codec.check(returned, rows, spare)

    def _joined(self, found: list[Any]) -> Any:
        if not found:
            raise WrongResult("predict yielded nothing")
        return self._codec.joined(found)

    def _put(self, results: Any, readable: list[Request], mark: BatchMark) -> None:
        """Write the parts of one yield to all that want them.

        Args:
            results: of the yield.
            readable: the requests.
            mark: of their batch.
        """
        streams = self._streams
        if not streams:
            return
        parts = self._codec.parts(results, readable)
        for request, part in zip(readable, parts, strict=True):
            stream = streams.get(request.ref)
            if stream is not None:
                self._write(stream, part, mark)
        self._answered = True

    def _write(self, stream: PartStream, part: bytes | WrongResult, mark: BatchMark) -> None:
        """Write a part of one request; fail this request alone if that is not possible."""
        request = stream.request
        if isinstance(part, WrongResult):
            self._failed(part, [request], mark)
            return
        try:
            if stream.put(part):
                self._slots.post_part(request.ref)
        except TooLarge as needed:
            if stream.part_is_out:
                text = f"a part of the answer needs {needed.result_bytes} bytes, and there are less"
                self._failed(WrongResult(text), [request], mark)
            else:
                # The frontend sends the request again, with as much.
                del self._streams[request.ref]
                stamped, size = self.runs.stamped(mark), needed.result_bytes
                now_ns = self._clock_ns()
                self._slots.answer(request.ref, Status.RESULT_TOO_LARGE, size, stamped, now_ns)
        except NotTaken as idle:
            self._fail([request], Status.CORRUPT, str(idle), mark)

    def _give_up(self, readable: list[Request], left: set[int], mark: BatchMark) -> None:
        """Answer requests that are cancelled or too late, and forget those that have an answer."""
        slots, now_ns = self._slots, self._clock_ns()
        left.intersection_update(slots.open_ones([r.ref for r in readable if r.ref in left]))
        gone = set(slots.given_up([*left], now_ns))
        for request in readable if gone else ():
            if request.ref in gone:
                late = (self._streams.get(request.ref) or request).deadline_ns <= now_ns
                status = Status.EXPIRED if late else Status.CANCELLED
                # Without a text: a frontend may still read parts where that would stand.
                slots.answer(request.ref, status, 0, self.runs.stamped(mark), now_ns)
                self._streams.pop(request.ref, None)
        left -= gone

    def _report_progress(self, mark: BatchMark) -> None:
        now_ns = self._clock_ns()
        if now_ns - self._progress_ns >= PROGRESS_NS:
            self._progress_ns = now_ns
            self._run_again(mark.batch)

    def _wait_for_room(self, mark: BatchMark) -> None:
        """Write the parts that wait for room; fail the requests whose frontends take none."""
        until_ns = self._clock_ns() + PATIENCE_NS
        while waiting := [stream for stream in self._streams.values() if stream.waits]:
            for stream in waiting:
                if stream.write_waiting():
                    self._slots.post_part(stream.request.ref)
            self._slots.flush()
            if self._clock_ns() >= until_ns:
                late = [stream.request for stream in self._streams.values() if stream.waits]
                text = "its frontend has not taken the parts of the answer"
                self._fail(late, Status.CORRUPT, text, mark)
                return
            self._pause(PAUSE_S)

    def _end(
        self, readable: list[Request], left: set[int], found: list[Any], mark: BatchMark
    ) -> None:
        """Answer the requests that are left: with an end, or with all parts as one."""
        streams, slots = self._streams, self._slots
        stamped, now_ns = self.runs.stamped(mark), self._clock_ns()
        for ref in streams:
            slots.answer(ref, Status.OK, 0, stamped, now_ns)
        wanted = [r.ref in left and r.ref not in streams and slots.is_open(r.ref) for r in readable]
        streams.clear()
        if not any(wanted):
            return
        targets = [
            request if want else request._replace(result_capacity=-1)
            for request, want in zip(readable, wanted, strict=True)
        ]
        sizes = self._codec.write(self._joined(found), targets)
        own = [number for number, want in enumerate(wanted) if want]
        self._answer([readable[n] for n in own], [sizes[n] for n in own], mark)

    def _fail(self, requests: list[Request], status: Status, text: str, mark: BatchMark) -> None:
        """Answer requests with a text; behind the parts that are out, if there are some."""
        whole = []
        for request in requests:
            stream = self._streams.pop(request.ref, None)
            if stream is None or not stream.part_is_out:
                whole.append(request)
                continue
            self.failed = True
            slots, room = self._slots, stream.room
            message = text.encode(errors="replace")[: 0 if room is None else room.size]
            if room is not None:
                slots.memory[room.start : room.start + len(message)] = message
                slots.store_answer_start([request.ref], room.start - request.result_offset)
            stamped, now_ns = self.runs.stamped(mark), self._clock_ns()
            slots.answer(request.ref, status, len(message), stamped, now_ns)
        super()._fail(whole, status, text, mark)
