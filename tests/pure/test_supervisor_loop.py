"""Supervisor's loop: its handling of unexpected exceptions."""

import logging
import socket
from collections.abc import Iterator

import pytest

from ringbatch.engine.supervisor.loop import Loop


class Fault(Exception):
    """Unexpected exception."""


def fail() -> None:
    raise Fault("a fault")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    reading, writing = socket.socketpair()
    yield reading, writing
    reading.close()
    writing.close()


def test_a_message_is_handled(ends: tuple[socket.socket, socket.socket]) -> None:
    reading, writing = ends
    loop, came = Loop(), []
    loop.watch(reading, lambda: came.append(reading.recv(10)))
    loop.turn(0)
    writing.send(b"one")
    loop.turn(None)
    assert (came, loop.broken) == ([b"one"], False)
    loop.forget(reading)
    loop.forget(reading)
    writing.send(b"two")
    loop.turn(0)
    assert came == [b"one"]


def test_a_watch_that_can_be_given_up_is_and_the_loop_goes_on(
    ends: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = ends
    loop = Loop()
    loop.watch(reading, fail, lambda: loop.forget(reading))
    writing.send(b"!")
    loop.turn(0)
    assert not loop.broken
    assert not loop.watches(reading)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "a fault" in caplog.text, "with where it came from"


def test_a_call_that_cannot_be_given_up_breaks_the_loop() -> None:
    loop = Loop()
    loop.guard(fail)
    assert loop.broken


def test_a_failing_release_breaks_the_loop() -> None:
    loop = Loop()
    loop.guard(fail, fail)
    assert loop.broken


def test_a_request_to_end_is_no_fault() -> None:
    loop = Loop()

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        loop.guard(leave)
    assert not loop.broken


def test_a_watch_forgotten_amid_a_turn_is_not_called(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    reading, writing = ends
    loop, called = Loop(), []

    def either(own: socket.socket, other: socket.socket) -> None:
        called.append(own)
        loop.forget(other)

    loop.watch(reading, lambda: either(reading, writing))
    loop.watch(writing, lambda: either(writing, reading))
    reading.send(b"!")
    writing.send(b"!")
    loop.turn(0)
    assert len(called) == 1
