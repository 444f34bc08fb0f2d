"""Callbacks of a client's answers: which thread waits for those that another one runs."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest

from ringbatch.frontend import Interrupted
from ringbatch.frontend.client.callbacks import CallbackQueue
from ringbatch.frontend.client.calls import AnswerFuture, AsyncRequest
from ringbatch.frontend.client.waiter import ClosingWaiter

LONG_S = 100.0


class InterruptAt:
    """Interrupts `CallbackQueue._resolve` before one of the steps of the interpreter in it.

    Attributes:
        left: steps until then.

    Args:
        step: how many steps come before.
    """

    def __init__(self, step: int) -> None:
        self.left = step + 1

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "InterruptAt | None":
        """As a function for `sys.settrace`."""
        if frame.f_code is not CallbackQueue._resolve.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self.left:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def delivering(queue: CallbackQueue, run: Callable[[], None]) -> threading.Thread:
    """Return a thread that runs a function of the program."""
    queue.add(ClosingWaiter(run))
    thread = threading.Thread(target=queue.deliver, daemon=True)
    thread.start()
    return thread


def test_two_functions_that_close_the_client_do_not_wait_for_each_other() -> None:
    queue, both = CallbackQueue(), threading.Barrier(2)

    def close() -> None:
        both.wait(LONG_S)
        queue.wait_for_others(LONG_S)

    threads = [delivering(queue, close) for _ in range(2)]
    for thread in threads:
        thread.join(LONG_S / 2)
    assert not any(thread.is_alive() for thread in threads)


def test_a_function_that_never_ends_is_waited_for_as_long_as_the_limit() -> None:
    queue, entered, released = CallbackQueue(), threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        released.wait(LONG_S)

    thread = delivering(queue, hang)
    assert entered.wait(LONG_S)
    queue.wait_for_others(0.001)
    assert thread.is_alive()
    assert queue._waiting == 0
    released.set()
    thread.join(LONG_S)
    queue.wait_for_others(LONG_S)


def test_ctrl_c_at_any_step_loses_no_waiter() -> None:
    step, interrupted = 0, True
    while interrupted:
        queue, resolved, interrupted = CallbackQueue(), set[int](), False
        for number in range(3):
            queue.add(ClosingWaiter(partial(resolved.add, number)))
        before = sys.gettrace()
        sys.settrace(InterruptAt(step))
        try:
            queue.deliver()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(before)
        queue.deliver()
        assert resolved == {0, 1, 2}, step
        step += 1
    assert step > 30


@pytest.mark.parametrize("method", ["set_running_or_notify_cancel", "set_result"])
def test_ctrl_c_at_an_answer_fails_its_future(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = AsyncRequest.__new__(AsyncRequest)
    future = call.future = AnswerFuture(call)
    monkeypatch.setattr(AsyncRequest, "result", lambda _: 1)
    queue = CallbackQueue()
    queue.add(call)
    with monkeypatch.context() as patched:
        patched.setattr(future, method, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            queue.deliver()
    assert isinstance(future.exception(0), Interrupted)
