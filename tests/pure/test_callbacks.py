"""Callbacks of a client's answers: which thread waits for those that another one runs."""

import threading
from collections.abc import Callable

from ringbatch.frontend.client.callbacks import CallbackQueue
from ringbatch.frontend.client.waiter import ClosingWaiter

LONG_S = 100.0


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
