"""Running one batch whose model another server runs: the clients' own text out, its text back.

As `runner`, for requests that stand in slots as `ringbatch.shm.forward_envelope` has them.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ringbatch.engine.models.model import Remote, ServerFailed
from ringbatch.engine.process.memory_limits import memory_words
from ringbatch.engine.worker.retry import Retry
from ringbatch.engine.worker.run_times import Runs
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.forward_envelope import BadEnvelope, Envelope, decode_envelope, list_start
from ringbatch.shm.slot import Status

logger = logging.getLogger("ringbatch.worker")

_REMEMBERED: Final = 64
_REMEMBERED_BYTES: Final = 2048
_OPENING, _CLOSING = b"[]"
_LOGGED: Final = 200


class Forwarder:
    """Runs batches of one model.

    Args:
        remote: asks the server.
        name: for messages.
        slots: answers for this worker.
        clock_ns: the monotonic clock.
        run_again: as for `Runner`.
    """

    def __init__(
        self,
        remote: Remote,
        name: str,
        slots: EngineSlots,
        clock_ns: Callable[[], int],
        run_again: Callable[[int], object] = lambda _batch: None,
    ) -> None:
        self._remote = remote
        self._name = name
        self._slots = slots
        self._memory = slots.memory
        self._clock_ns = clock_ns
        self._opened: dict[bytes, Envelope] = {}
        self._retry = Retry(name, slots, clock_ns, self._run, self._give_up, run_again)
        self.run_ns = 0
        """Time spent waiting for the server so far."""
        self.failed = False
        """True if a part of the latest batch failed."""
        self.runs = Runs()

    def run(self, references: list[int], mark: BatchMark, began_ns: int, _asked: int = 0) -> None:
        """As `Runner.run`; no chain has steps of this kind."""
        self.failed = False
        self.runs.begin(mark, began_ns)
        requests = self._slots.read_all(references, mark, self._clock_ns)
        asked, failure = self._run(requests, mark)
        if failure is not None:
            self._retry.answer(asked, mark, failure)

    def _run(
        self, requests: list[Request], mark: BatchMark
    ) -> tuple[list[Request], ServerFailed | None]:
        """Ask for requests together, as `ringbatch.engine.worker.retry.Run` has it."""
        asked = None
        # The bytes before the instances of the first sound envelope. The collector puts only equal
        # envelopes into a batch, so if one differs, its frontend has changed it since.
        front = b""
        sound, lists = [], []
        memory = self._memory
        for request in requests:
            start = request.request_offset
            payload = memory[start : start + request.request_bytes].tobytes()
            try:
                if asked is None:
                    asked, front = self._open(payload)
                if not payload.startswith(front) or payload[-1] != _CLOSING:
                    raise BadEnvelope("there is no list behind the envelope of the batch")
            except BadEnvelope:
                text = "the payload is not what its header says"
                self._fail([request], Status.CORRUPT, text, mark)
            else:
                sound.append(request)
                lists.append(payload[len(front) - 1 :])
        if asked is None or not sound:
            return [], None
        return sound, self._ask(asked, sound, lists, mark)

    def _open(self, payload: bytes) -> tuple[Envelope, bytes]:
        """Return the common envelope of a batch's requests, and the begin of each payload.

        Raises:
            BadEnvelope: this payload is not that of a request.
        """
        front = payload[: list_start(payload) + 1]
        found = self._opened.get(front)
        if found is None:
            found = decode_envelope(payload)
            if front[-1] != _OPENING:
                raise BadEnvelope("there is no list behind the envelope")
            if len(front) <= _REMEMBERED_BYTES:
                if len(self._opened) >= _REMEMBERED:
                    self._opened.clear()
                self._opened[front] = found
        return found, front

    def _ask(
        self, asked: Envelope, requests: list[Request], lists: list[bytes], mark: BatchMark
    ) -> ServerFailed | None:
        rows = [request.rows for request in requests]
        # The latest deadline decides; frontends answer the other clients in time.
        until_ns = max([request.deadline_ns for request in requests])
        started_ns = self._clock_ns()
        try:
            answers = self._remote.predictions(asked, lists, rows, until_ns)
        except ServerFailed as failure:
            return failure
        except MemoryError:
            text = f"there is no memory for the model server's answer{memory_words()}"
            return ServerFailed(Status.SERVER_BROKEN, text, isolates=True)
        except Exception as error:
            logger.exception("model %s: the model server's answer", self._name)
            text = f"the model server's answer led to {type(error).__name__}; see the server's log"
            return ServerFailed(Status.SERVER_BROKEN, text)
        finally:
            now_ns = self._clock_ns()
            self.run_ns += now_ns - started_ns
            self.runs.ran(started_ns, now_ns)
        self._answer_each(requests, answers, self.runs.stamped(mark), now_ns)
        return None

    def _answer_each(
        self,
        requests: Sequence[Request],
        results: Sequence[bytes],
        mark: BatchMark,
        finished_ns: int,
    ) -> None:
        """Write the results of requests, and answer them; without room, with the size."""
        answer, memory = self._slots.answer, self._memory
        for request, result in zip(requests, results, strict=True):
            start, size = request.result_offset, len(result)
            fits = size <= request.result_capacity
            if fits:
                memory[start : start + size] = result
            status = Status.OK if fits else Status.RESULT_TOO_LARGE
            answer(request.ref, status, size, mark, finished_ns)

    def _give_up(self, failure: BaseException, requests: list[Request], mark: BatchMark) -> None:
        assert isinstance(failure, ServerFailed), "nothing else is caught"
        text = " ".join(str(failure).split())
        batch_id = self._slots.batch_ids.text(mark.batch)
        logger.warning("model %s: %s; batch %s", self._name, text[:_LOGGED], batch_id)
        self._fail(requests, failure.status, str(failure), mark)

    def _fail(self, requests: list[Request], status: Status, text: str, mark: BatchMark) -> None:
        self.failed = True
        now_ns = self._clock_ns()
        stamped = self.runs.stamped(mark)
        for request in requests:
            self._slots.fail(request, status, text, stamped, now_ns)
