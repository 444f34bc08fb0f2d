"""The supervisor's end of a control socket, with everything that the other end may do."""

import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from ringbatch.engine.process.role_commands import AttachSegment, ReadTable
from ringbatch.engine.supervisor.channel import MAX_LINE_BYTES, Channel, Unread
from ringbatch.shm.host.messages import MalformedMessage

Ends = tuple[Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_a_message_is_sent_as_a_line_of_json(ends: Ends) -> None:
    channel, other = ends
    channel.send(AttachSegment("ä\n"))
    line = other.recv(1000)
    assert line.endswith(b"\n")
    assert json.loads(line) == {"type": "AttachSegment", "segment": "ä\n"}


def test_lines_come_whole_however_they_were_cut(ends: Ends) -> None:
    channel, other = ends
    assert channel.receive() == []
    other.sendall(b"on")
    assert channel.receive() == []
    other.sendall(b"e\ntwo\nthr")
    assert channel.receive() == [b"one", b"two"]
    other.sendall(b"ee\n")
    assert channel.receive() == [b"three"]


def test_the_end_is_reported_once_all_is_read(ends: Ends) -> None:
    channel, other = ends
    other.sendall(b"one\nhalf")
    other.close()
    assert channel.receive() == [b"one"]
    assert channel.receive() is None


def test_a_connection_that_breaks_is_an_end(ends: Ends) -> None:
    channel, other = ends
    channel.send(ReadTable())
    other.close()
    assert channel.receive() is None
    channel.send(ReadTable())


def test_an_unread_channel_is_found_out_and_nobody_waits(ends: Ends) -> None:
    channel, _ = ends

    def send_repeatedly() -> None:
        for _ in range(1 << 20):
            channel.send(ReadTable())

    with pytest.raises(Unread):
        send_repeatedly()


def test_a_message_that_fits_in_part_only_is_found_out(ends: Ends) -> None:
    channel, _ = ends
    with pytest.raises(Unread):
        channel.send(AttachSegment("x" * (8 << 20)))


def test_a_line_without_end_is_refused(ends: Ends) -> None:
    channel, other = ends
    stopping = threading.Event()

    def babble() -> None:
        while not stopping.is_set():
            try:
                other.send(b"x" * 4096)
            except OSError:
                return

    thread = threading.Thread(target=babble)
    thread.start()

    def hear() -> None:
        while True:
            assert channel.receive() == []

    with pytest.raises(MalformedMessage, match=f"more than {MAX_LINE_BYTES} bytes"):
        hear()
    stopping.set()
    channel.close()
    thread.join()


def test_the_last_words_end_though_a_child_of_the_dead_holds_the_other_end(ends: Ends) -> None:
    channel, other = ends
    other.sendall(b"one\n")
    held = socket.socket(fileno=os.dup(other.fileno()))
    try:
        other.close()
        held.sendall(b"two\nhal")
        assert channel.unread_lines() == [b"one", b"two"]
        with pytest.raises(BrokenPipeError):
            held.sendall(b"f\n")
    finally:
        held.close()


def test_a_connection_that_broke_has_no_last_words(ends: Ends) -> None:
    channel, other = ends
    channel.send(ReadTable())
    other.close()
    assert channel.unread_lines() == []
