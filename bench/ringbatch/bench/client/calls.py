"""The calls of one run, each timed from the instant at which it was due.

In an open loop one thread sends what is due and waits for nothing; whichever thread finds an answer
notes the time. In a closed loop each caller is a thread that waits for its answer.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.bench.load.outcome import BROKEN, UNANSWERED, WRONG, Outcome
from ringbatch.frontend import (
    Client,
    ClientClosed,
    EngineGone,
    Interrupted,
    RequestError,
    http_answer,
)

Arrays = NDArray[Any] | dict[str, NDArray[Any]]
_TOLERANCE: Final = 1e-3
"""Relative, as for answers over other protocols."""
_ANSWERED: Final = 200
_FAILURES_MAX: Final = 1000
"""Failures after which a caller gives up: else it would ask a refusing engine forever."""


class Calls:
    """Calls of one run.

    Args:
        client: through which they go.
        model: that is asked.
        inputs: of the requests, sent in turn.
        right: the right answers in the same order; none where they are not compared.
        first: of the inputs, those that are sent first.
        begin_ns: of the run, on the monotonic clock.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        inputs: Sequence[Arrays],
        right: Sequence[dict[str, NDArray[Any]]],
        *,
        first: int,
        begin_ns: int,
    ) -> None:
        self._client, self._model = client, model
        self._inputs, self._right = inputs, right
        self._first, self._begin_ns = first, begin_ns
        self._ended: list[tuple[int, int, int, int]] = []
        """Due, taken, lag and status of each."""
        self._problems: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pending = 0
        self._pending_most = 0
        self._all_ended = threading.Event()

    def open_loop(self, due_ns: Sequence[int], seconds: float, grace_s: float) -> Outcome:
        """Send when it is due, from the begin of the run; wait for answers so long after it."""
        under_way: dict[int, tuple[int, int]] = {}
        for number, due in enumerate(due_ns):
            while (left := due - self._now_ns()) > 0:
                time.sleep(left / 1e9)
            lag = self._now_ns() - due
            with self._lock:
                self._pending += 1
                self._pending_most = max(self._pending_most, self._pending)
                under_way[number] = due, lag
            ended = partial(self._take, under_way, number)
            which = (self._first + number) % len(self._inputs)
            try:
                future = self._client.infer_async(self._model, self._inputs[which])
            except RequestError as error:
                failed: Future[Any] = Future()
                failed.set_exception(error)
                ended(failed)
            else:
                future.add_done_callback(ended)
        self._wait_for_all(self._begin_ns + int((seconds + grace_s) * 1e9))
        now = self._now_ns()
        with self._lock:
            for due, lag in under_way.values():
                self._ended.append((due, now - due, lag, UNANSWERED))
            under_way.clear()
            return self._outcome(seconds)

    def closed_loop(self, callers: int, seconds: float) -> Outcome:
        """Run threads that each ask again as soon as they have their answer."""
        until_ns = int(seconds * 1e9)
        while (left := -self._now_ns()) > 0:
            time.sleep(left / 1e9)
        threads = [
            threading.Thread(target=self._ask_again, args=(number, callers, until_ns))
            for number in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._pending_most = callers
        return self._outcome(seconds)

    def _ask_again(self, number: int, step: int, until_ns: int) -> None:
        mine, failures = [], 0
        while (due := self._now_ns()) < until_ns and failures < _FAILURES_MAX:
            which = (self._first + number) % len(self._inputs)
            number += step
            try:
                found = self._client.infer(self._model, self._inputs[which])
                took = self._now_ns() - due
                status = self._status_of(found, which)
            except RequestError as error:
                took = self._now_ns() - due
                status = self._failed(error)
                failures += 1
            mine.append((due, took, 0, status))
        with self._lock:
            self._ended += mine

    def _take(
        self, under_way: dict[int, tuple[int, int]], number: int, future: Future[Any]
    ) -> None:
        """Record the end of a call, in the thread that found it."""
        now = self._now_ns()
        error = future.exception()
        if error is None:
            status = self._status_of(future.result(), (self._first + number) % len(self._inputs))
        elif isinstance(error, RequestError):
            status = self._failed(error)
        else:
            raise error
        with self._lock:
            self._pending -= 1
            if number in under_way:
                due, lag = under_way.pop(number)
                self._ended.append((due, now - due, lag, status))
            if not self._pending:
                self._all_ended.set()

    def _wait_for_all(self, until_ns: int) -> None:
        while True:
            with self._lock:
                self._all_ended.clear()
                if not self._pending:
                    return
            left_ns = until_ns - time.monotonic_ns()
            if left_ns <= 0 or not self._all_ended.wait(left_ns / 1e9):
                return

    def _status_of(self, found: Any, which: int) -> int:
        if not self._right:
            return _ANSWERED
        return _ANSWERED if is_right(found, self._right[which]) else WRONG

    def _failed(self, error: RequestError) -> int:
        status = status_of(error)
        if status == BROKEN:
            with self._lock:
                self._problems[str(error)] = self._problems.get(str(error), 0) + 1
        return status

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns

    def _outcome(self, seconds: float) -> Outcome:
        ended = np.asarray(sorted(self._ended), np.int64).reshape(-1, 4)
        return Outcome(
            ended[:, 0].copy(),
            ended[:, 1].copy(),
            ended[:, 2].copy(),
            ended[:, 3].astype(np.int16),
            seconds,
            held_back=0,
            connections=self._pending_most,
            problems=self._problems,
        )


def status_of(error: RequestError) -> int:
    """As in an `Outcome`: where there will be no answer, as if a connection had broken."""
    if isinstance(error, EngineGone | ClientClosed | Interrupted):
        return BROKEN
    return http_answer(error).status


def is_right(found: Any, right: dict[str, NDArray[Any]]) -> bool:
    """Return whether a Client's answer is right; numbers may differ by a thousandth of their size.

    Args:
        found: the only output, or all by name.
        right: outputs by name.
    """
    outputs = found if isinstance(found, dict) else dict.fromkeys(right, found)
    if len(right) != len(outputs) or outputs.keys() != right.keys():
        return False
    return all(_is_same(outputs[name], array) for name, array in right.items())


def _is_same(found: NDArray[Any], right: NDArray[Any]) -> bool:
    if found.shape != right.shape:
        return False
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, right))
    return bool(np.allclose(found, right, rtol=_TOLERANCE, atol=1e-6, equal_nan=True))
