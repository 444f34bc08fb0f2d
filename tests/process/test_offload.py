"""The process for large bodies: what it answers, and how it ends.

Tests frontend/offload/role.py.
"""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from frontend_harness import typed
from start_times import running

from ringbatch.frontend.offload.process import Broken, Process
from ringbatch.frontend.request.offload import read_v1
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import dumps

VALUE = (dumps((typed(),)).decode(), 8, None)
BODY = b'{"instances":[[1,2],[3,4]]}'


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.close()


def pid_of(process: Process) -> int:
    started = process._process
    assert started is not None
    return started.pid


def test_it_returns_values_and_bytes_and_is_started_once(process: Process) -> None:
    for _ in range(2):
        (encoded, columns), data = process.call(read_v1, VALUE, [BODY])
        assert (encoded, columns, len(data)) == ({"parts": [[2, 0]]}, False, 1)
        assert data[0].readonly
        assert data[0].cast("B").cast("f").tolist() == [1, 2, 3, 4]
    first = pid_of(process)
    process.call(read_v1, VALUE, [BODY + b" " * (1 << 24)])
    assert pid_of(process) == first


def test_errors_are_those_of_the_function(process: Process) -> None:
    with pytest.raises(InvalidRequest, match=r"instances\[0\] is 1, but"):
        process.call(read_v1, VALUE, [b'{"instances":[1]}'])
    with pytest.raises(Broken, match="ValueError: not enough values to unpack"):
        process.call(read_v1, [], [BODY])
    process.call(read_v1, VALUE, [BODY])


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGABRT])
def test_one_that_was_killed_costs_one_request_and_another_is_started(
    ends: signal.Signals, process: Process
) -> None:
    process.call(read_v1, VALUE, [BODY])
    first = pid_of(process)
    os.kill(first, ends)
    with pytest.raises(Broken, match="the process for large bodies has ended"):
        process.call(read_v1, VALUE, [BODY])
    process.call(read_v1, VALUE, [BODY])
    assert pid_of(process) != first


@pytest.mark.parametrize("passes", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_goes_on_at_a_signal_to_all_processes(passes: signal.Signals, process: Process) -> None:
    process.call(read_v1, VALUE, [BODY])
    first = pid_of(process)
    os.kill(first, passes)
    process.call(read_v1, VALUE, [BODY])
    assert pid_of(process) == first


def test_it_ends_with_its_connection(process: Process, wait_until: Callable[..., object]) -> None:
    process.call(read_v1, VALUE, [BODY])
    pid, connection = pid_of(process), process._connection
    assert connection is not None
    connection.close()
    wait_until(lambda: running(pid) is None, "it ends")


def test_once_closed_it_is_started_no_more(process: Process) -> None:
    process.call(read_v1, VALUE, [BODY])
    pid = pid_of(process)
    process.close()
    assert running(pid) is None
    with pytest.raises(Broken, match="the frontend ends"):
        process.call(read_v1, VALUE, [BODY])
