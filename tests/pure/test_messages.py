"""Tasks and reports as words, and lines of JSON on a socket pair."""

import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.batched import LARGEST_BATCH
from ringbatch.engine.ipc.messages import (
    BatchTask,
    Report,
    ReportKind,
    read_reports,
    read_tasks,
    report_words,
    task_words,
)
from ringbatch.engine.process.control_socket import ControlSocket
from ringbatch.engine.process.role_commands import (
    ATTACH_SEGMENT,
    START_COLLECTOR,
    TO_COLLECTOR,
    AttachSegment,
    ReadTable,
    ReclaimWorker,
    StartCollector,
)
from ringbatch.engine.process.role_events import FROM_FRONTEND
from ringbatch.engine.process.startup import watch
from ringbatch.shm.descriptors import TASK_WORDS
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.host.messages import Failed, MalformedMessage, Ready, encode
from ringbatch.shm.ring import CorruptRingError
from ringbatch.shm.slot import Reason

words = st.integers(0, 2**64 - 1)
all_tasks = st.builds(
    BatchTask,
    mark=st.tuples(words, words, st.sampled_from(Reason), words).map(lambda own: BatchMark(*own)),
    references=st.lists(words, min_size=1, max_size=20),
)
all_reports = st.builds(Report, kind=st.sampled_from(ReportKind), first=words, second=words)


@given(st.lists(all_tasks, max_size=5))
def test_tasks_taken_together_come_apart_as_they_were(several: list[BatchTask]) -> None:
    run = [word for task in several for word in task_words(*task)]
    assert list(read_tasks(run)) == several


def test_two_of_the_largest_tasks_fit_into_a_ring() -> None:
    mark = BatchMark(1, LARGEST_BATCH, Reason.FULL, 0)
    assert 2 * len(task_words(mark, [0] * LARGEST_BATCH)) <= TASK_WORDS


@given(st.lists(all_reports, max_size=5))
def test_reports_taken_together_come_apart_as_they_were(several: list[Report]) -> None:
    run = [word for report in several for word in report_words(*report)]
    assert read_reports(run) == several


IMPOSSIBLE = {
    "length-zero": [0, 1, 2, 3],
    "length-below-its-own-head": [3, 1, 2, 3],
    "length-beyond-the-words": [5, 1, 2, 3],
    "length-enormous": [2**64 - 1, 1, 2, 3],
    "a-whole-one-and-a-rest": [4, 1, 2, 3, 9],
    "longer-than-a-report": [5, 1, 2, 3, 4],
    "of-no-kind": [report_words(ReportKind.DONE, 1)[0], len(ReportKind), *[0] * 7],
}


@pytest.mark.parametrize("run", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_words_that_are_no_reports_are_none(run: list[int]) -> None:
    assert read_reports(run) is None


def test_a_task_for_no_reason_is_a_corrupt_ring() -> None:
    with pytest.raises(CorruptRingError, match="reason"):
        read_tasks([7, 0, 1, len(Reason), 1, 0, 5])


@pytest.mark.parametrize("length", [0, 4, 7, 2**64 - 1])
def test_a_task_of_impossible_length_is_a_corrupt_ring(length: int) -> None:
    with pytest.raises(CorruptRingError, match="words"):
        read_tasks([length, 1, 2, 0, 4, 5])


@pytest.fixture
def ends() -> Iterator[tuple[ControlSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    control = ControlSocket(ours)
    yield control, theirs
    control.close()
    theirs.close()


def test_a_message_of_one_end_reaches_the_other(
    ends: tuple[ControlSocket, socket.socket],
) -> None:
    control, theirs = ends
    other = ControlSocket(theirs)
    assert control.send(Failed("ä\n"))
    assert other.receive(FROM_FRONTEND) == Failed("ä\n")


def test_several_messages_that_came_together_are_received_one_by_one(
    ends: tuple[ControlSocket, socket.socket],
) -> None:
    control, theirs = ends
    third = encode(ReclaimWorker(3, killed=True))
    theirs.sendall(encode(StartCollector("/s", "info")) + encode(ReadTable()) + third[:9])
    assert control.receive(START_COLLECTOR) == StartCollector("/s", "info")
    assert control.receive(TO_COLLECTOR) == ReadTable()
    theirs.sendall(third[9:])
    assert control.receive(TO_COLLECTOR) == ReclaimWorker(3, killed=True)


def test_a_message_that_comes_in_pieces_is_received_whole(
    ends: tuple[ControlSocket, socket.socket],
) -> None:
    control, theirs = ends
    message = AttachSegment("x" * 1_000_000)
    sender = threading.Thread(target=theirs.sendall, args=(encode(message),))
    sender.start()
    assert control.receive(ATTACH_SEGMENT) == message
    sender.join()


def test_an_unexpected_message_is_named(ends: tuple[ControlSocket, socket.socket]) -> None:
    control, theirs = ends
    theirs.sendall(encode(ReadTable()))
    with pytest.raises(MalformedMessage, match="ReadTable"):
        control.receive(ATTACH_SEGMENT)


def test_the_end_of_the_other_process_is_none_and_a_half_message_is_no_message(
    ends: tuple[ControlSocket, socket.socket],
) -> None:
    control, theirs = ends
    theirs.sendall(encode(ReadTable()) + b'{"type"')
    theirs.close()
    assert control.receive(TO_COLLECTOR) == ReadTable()
    assert control.receive(TO_COLLECTOR) is None
    assert control.send(Ready()) is False


def test_an_end_with_unread_data_left_is_none_too(
    ends: tuple[ControlSocket, socket.socket],
) -> None:
    """The kernel resets such a connection instead of closing it."""
    control, theirs = ends
    assert control.send(Ready())
    theirs.close()
    assert control.receive(TO_COLLECTOR) is None


@pytest.mark.parametrize("last", [b"", b"nonsense\n"])
def test_messages_are_handed_on_until_the_supervisor_is_gone_or_makes_no_sense(
    ends: tuple[ControlSocket, socket.socket], last: bytes
) -> None:
    control, theirs = ends
    seen: SimpleQueue[object] = SimpleQueue()
    theirs.sendall(encode(ReadTable()) + last)
    if not last:
        theirs.close()
    watch(control, TO_COLLECTOR, seen.put, lambda: seen.put("end"))
    assert [seen.get(timeout=60) for _ in range(2)] == [ReadTable(), "end"]
