"""Background threads and tasks: one that fails ends its process or is tried again, and says so."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ringbatch.frontend.codec.limit_messages import no_thread_now
from ringbatch.frontend.request.thread_queue import ThreadQueue
from ringbatch.shm.errors import Overloaded, StartupError
from ringbatch.shm.host import background, background_tasks

ESSENTIAL = {
    "thread": "background.essential_thread('the bell', fails)\ntime.sleep(60)",
    "thread that exits": "background.essential_thread('the bell', sys.exit)\ntime.sleep(60)",
    "task": """
async def work():
    fails()
async def serve():
    task = background_tasks.essential_task('the bell', work())
    await asyncio.sleep(60)
asyncio.run(serve())
""",
}
HEAD = """
import asyncio, sys, time
from ringbatch.shm.host import background, background_tasks
from ringbatch.shm.host.process import log_to_stderr
log_to_stderr("test", "warning")
def fails():
    raise ValueError("out of tune")
"""


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Refuse new threads, as the system may, until the returned function is called."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return monkeypatch.undo


@pytest.mark.parametrize("kind", ESSENTIAL)
def test_an_essential_thread_or_task_ends_its_process_when_it_fails(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", HEAD + ESSENTIAL[kind]],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "the bell failed, which ends this process" in done.stderr


def test_an_essential_thread_that_ends_in_order_ends_nothing() -> None:
    background.essential_thread("the bell", lambda: None).join(60)


def test_the_next_turn_comes_after_one_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException | None] = [
        MemoryError(),
        MemoryError(),
        RuntimeError("can't start new thread"),
        None,
        MemoryError(),
        None,
    ]
    left, pauses = list(errors), list[float]()

    def turn() -> bool:
        error = left.pop(0)
        if error is not None:
            raise error
        return bool(left)

    background.repeating_thread("the watch", turn, pauses.append).join(60)
    assert not left
    assert pauses == [background.AFTER_ERROR_S] * 4
    messages = [str(record.exc_info and record.exc_info[1]) for record in caplog.records]
    assert messages == ["", "can't start new thread", ""], "the same is not said twice in a row"
    assert {record.message for record in caplog.records} == {"the watch failed, and is tried again"}


def test_short_work_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        raise ValueError("out of tune")

    thread = background.short_thread("the question", work)
    assert thread is not None
    thread.join(60)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.records[0].message == "the question failed"


def test_a_short_task_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("out of tune")

    async def serve() -> None:
        await asyncio.wait([background_tasks.short_task("a tune", work())])

    asyncio.run(serve())
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("ringbatch.process", "a tune failed")
    ]


@pytest.mark.parametrize("called_off", [False, True])
def test_delayed_work_is_done_unless_it_is_called_off(called_off: bool) -> None:
    done, before = threading.Event(), threading.enumerate()
    call_off = background.delayed("the word", 30.0 if called_off else 0.0, done.set)
    if called_off:
        call_off()
        (thread,) = (t for t in threading.enumerate() if t.name == "the word" and t not in before)
        thread.join(60)
    assert done.wait(0 if called_off else 60) is not called_off


def test_without_a_thread_the_start_is_refused_in_words(no_threads: Callable[[], None]) -> None:
    words = r"no thread for the bell: can't start new thread; raise .*ulimit -u"
    with pytest.raises(StartupError, match=words):
        background.essential_thread("the bell", lambda: None)
    with pytest.raises(StartupError, match=words):
        background.repeating_thread("the bell", bool)
    no_threads()


def test_without_a_thread_short_work_is_left_to_the_caller(
    no_threads: Callable[[], None],
) -> None:
    assert background.short_thread("the question", lambda: None) is None
    background.delayed("the word", 0.0, lambda: None)()
    no_threads()


def test_without_a_thread_work_is_done_at_once(no_threads: Callable[[], None]) -> None:
    async def main() -> None:
        assert await background_tasks.in_thread(threading.get_ident) == threading.get_ident()
        no_threads()
        assert await background_tasks.in_thread(threading.get_ident) != threading.get_ident()

    asyncio.run(main())


def test_a_request_without_a_thread_is_refused_and_the_next_one_is_not(
    no_threads: Callable[[], None],
) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as thread:
            queue = ThreadQueue(lambda: thread, 100)
            with pytest.raises(Overloaded, match=str(no_thread_now())):
                queue.submit(lambda: 1, 10)
            assert queue.size == 0
            no_threads()
            assert await queue.submit(lambda: 2, 10) == 2

    asyncio.run(main())
