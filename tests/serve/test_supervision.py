"""Supervision: after any fault of its processes, the engine serves or is gone."""

import os
import re
import resource
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from open_files import open_files
from serve import supervised
from serve.client import Connection, Response, fast, instances, request
from serve.server import COMMAND, Server, Start, configured
from serve.supervised import serves
from start_times import start_time_of
from tiers import exhaustive, first_of, only

WaitUntil = Callable[..., Any]
WriteModel = Callable[..., Path]

server = supervised.server

UNRULY: dict[str, dict[str, Any]] = {"unruly": {"path": "unruly.py"}}
WORKER = "worker unruly/0"
CMSG_BYTES = socket.CMSG_SPACE(struct.calcsize("3i"))
GIVES_UP: dict[str, dict[str, Any]] = {"weary": {"path": "weary.py"}}
REALTIME = 35
"""A signal that Python's table of names has not."""


@pytest.fixture(scope="module")
def both(start_for_module: Start) -> Iterator[Server]:
    """Server that must end well, whatever tests have done to its workers."""
    server = start_for_module(UNRULY | GIVES_UP)
    yield server
    assert server.stop() == 0
    assert "SIGABRT" not in server.stderr
    assert "Traceback" not in server.stderr


def notifications(listening: socket.socket) -> Iterator[tuple[int, str]]:
    """Yield all messages to systemd: the process that each is from, and its text."""
    credentials = struct.Struct("3i")
    with suppress(BlockingIOError):
        while True:
            text, ((_, _, sender),), *_ = listening.recvmsg(10_000, CMSG_BYTES)
            yield credentials.unpack(sender)[0], text.decode()


def ask(server: Server, action: str) -> int:
    """Let the model do something, and return the process id that it answers."""
    with Connection(server.port) as connection:
        answer = connection.ask(fast("unruly", instances(action)))
    assert answer.status == 200, answer.body
    return int(answer.json["predictions"][0])


def replaced(server: Server, role: str, pid: int) -> bool:
    """Return whether another process has that role."""
    return server.titles().get(f"ringbatch: {role}", pid) != pid


def ready(server: Server) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(request("/v2/health/ready", method="GET"))


@exhaustive
@pytest.mark.parametrize(
    "role",
    first_of(["frontends", WORKER, "collector", "frontend 0", "grpc frontend 0", "control"], 1),
)
def test_a_realtime_signal_is_a_death_as_any_other(
    start: Start, wait_until: WaitUntil, role: str
) -> None:
    more = {"grpc_port": 0} if "grpc" in role else {}
    server = start(UNRULY, control_port=0, **more)
    ended = server.role(role)
    os.kill(ended, REALTIME)
    wait_until(lambda: replaced(server, role, ended), "another process is there")
    wait_until(lambda: serves(server), "it serves")
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("group", first_of(["own", "the worker's"], 1))
def test_children_of_a_killed_worker_go_with_it_and_keep_nothing_waiting(
    both: Server, wait_until: WaitUntil, group: str
) -> None:
    child = ask(both, f"fork {group}")
    born = start_time_of(child)
    worker = both.role(WORKER)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: replaced(both, WORKER, worker), "another worker is there")
    wait_until(lambda: serves(both), "it serves")
    wait_until(lambda: start_time_of(child) != born, "the child has ended")


def test_a_worker_whose_device_is_lost_says_so_and_ends_without_being_killed_by_its_libraries(
    both: Server, wait_until: WaitUntil
) -> None:
    worker = both.role(WORKER)
    with Connection(both.port) as connection:
        answer = connection.ask(fast("unruly", instances("lose the device is gone")))
    assert (answer.status, "died while it ran" in answer.error) == (503, True), answer.body
    wait_until(lambda: replaced(both, WORKER, worker), "another worker is there")
    wait_until(lambda: serves(both), "it serves")
    assert both.stderr.count("ended with status 1: the device is gone") == 2


def test_a_model_that_asks_for_another_process_gets_one_and_its_request_runs_there(
    both: Server,
) -> None:
    worker = both.role("worker weary/0")
    with Connection(both.port) as connection:
        answer = connection.ask(fast("weary", instances("restart")))
    assert answer.status == 200, answer.body
    assert answer.json["predictions"] == [both.role("worker weary/0")] != [worker]
    assert both.stderr.count("ended with status 1: its device is gone") == 1
    assert "Traceback" not in both.stderr


@exhaustive
def test_only_workers_have_sessions_of_their_own(start: Start, wait_until: WaitUntil) -> None:
    """Linux shares the cores out among sessions first (autogroup): with one each, a frontend waited
    for hundreds of milliseconds beside a collector and a worker."""
    server = start(UNRULY, control_port=0, grpc_port=0, frontends=2)

    def serving() -> int:
        """Return the number of frontends; their numbers are those of the lanes that they found."""
        return sum(title.startswith("ringbatch: frontend ") for title in server.titles())

    wait_until(lambda: serving() == 2, "both frontends are there")
    titles = server.titles()
    leaders = {title: os.getsid(pid) for title, pid in titles.items()}
    worker = f"ringbatch: {WORKER}"
    assert leaders.pop(worker) == titles[worker]
    assert {"ringbatch: collector", "ringbatch: control"} <= titles.keys()
    assert set(leaders.values()) == {os.getsid(server.pid)}, leaders


@exhaustive
def test_a_stop_ends_the_children_of_workers(start: Start) -> None:
    server = start(UNRULY)
    children = [ask(server, "fork the worker's"), ask(server, "fork own")]
    born = list(map(start_time_of, children))
    assert server.stop() == 0
    assert all(start_time_of(child) != when for child, when in zip(children, born, strict=True))
    assert server.gone()


NONSENSE = {
    "no-json": "nonsense\n",
    "no-object": "[1]\n",
    "another-type": '{"type": "Failed", "reason": 3}\n',
    "no-such-message": '{"type": "What"}\n',
    "the-collectors": '{"type": "Hung", "worker": 0}\n',
    "a-number-of-nobody": '{"type": "Reclaimed", "worker": 99, "explained": true}\n',
    "no-tensors": '{"type": "Signature", "inputs": [3], "outputs": []}\n',
    "bytes": "\x00\udcff\n",
}


@exhaustive
@pytest.mark.parametrize("words", only(NONSENSE, "another-type"))
def test_a_worker_that_sends_nonsense_is_ended(
    start: Start, wait_until: WaitUntil, words: str
) -> None:
    server = start(UNRULY)
    worker = ask(server, f"say {words}")
    wait_until(lambda: replaced(server, WORKER, worker), "another worker is there")
    wait_until(lambda: serves(server), "it serves")
    assert f"{WORKER} [{worker}]" in server.stderr
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


@exhaustive
def test_a_worker_that_says_things_without_end_is_ended(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start(UNRULY | {"other": {"path": "moody.py"}})
    worker = server.role(WORKER)
    with Connection(server.port) as connection:
        connection.send(fast("unruly", instances("babble")))
        wait_until(lambda: replaced(server, WORKER, worker), "another worker is there")
        with Connection(server.port) as other:
            assert other.ask(fast("other", instances(1))).status == 200


@exhaustive
def test_half_a_line_keeps_nothing_waiting(start: Start, wait_until: WaitUntil) -> None:
    server = start(UNRULY)
    ask(server, 'say {"type": ')
    worker = server.role(WORKER)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: replaced(server, WORKER, worker), "another worker is there")
    ask(server, 'say {"type": ')
    assert server.stop() == 0


STANDARD: Final = 3
"""Descriptors that every process has."""


def no_descriptors(pid: int) -> tuple[int, int]:
    """Leave a process the descriptors that it has, and none of those that it closes; the limits
    that it had."""
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return resource.prlimit(pid, resource.RLIMIT_NOFILE, (STANDARD, most))


@exhaustive
@pytest.mark.parametrize("role", first_of([WORKER, "collector", "control", "grpc frontend 0"], 1))
def test_a_process_that_cannot_be_started_again_is_tried_later(
    start: Start, wait_until: WaitUntil, role: str
) -> None:
    server = start(UNRULY, grpc_port=0, control_port=0)
    ended = server.role(role)
    before = no_descriptors(server.pid)
    os.kill(ended, signal.SIGKILL)
    wait_until(lambda: "may have no more files open" in server.stderr, "a try")
    if role == WORKER:
        wait_until(lambda: b"may have no more files open" in ready(server).body, "the reason")
        assert ready(server).status == 503
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: replaced(server, role, ended), "another process is there")
    wait_until(lambda: serves(server), "it serves")
    wait_until(lambda: ready(server).status == 200, "readiness is green")
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_a_first_start_without_descriptors_ends_in_words(server: Callable[..., Server]) -> None:
    # The segment's doorbells take some too, and most belong to no process that is started.
    program = ("prlimit", "--nofile=12:4096", *COMMAND)
    own = server({"unruly": {"path": "unruly.py", "workers": 8}}, program=program)
    assert own.process.wait() == 2
    last = own.stderr.splitlines()[-1]
    assert last.startswith("ringbatch: worker unruly/")
    assert last.endswith("its supervisor may have no more files open (ulimit -n)")
    assert "Traceback" not in own.stderr
    assert own.gone()


@exhaustive
def test_a_stop_ends_though_all_processes_are_stopped(
    server: Callable[..., Server], wait_until: WaitUntil
) -> None:
    own = server(UNRULY, grpc_port=0, control_port=0, drain_s=1.0).wait_ready()
    roles = [pid for pid in own.living() if pid != own.pid]
    own.process.send_signal(signal.SIGTERM)
    for pid in roles:
        os.kill(pid, signal.SIGSTOP)
    own.process.send_signal(signal.SIGCONT)
    own.process.wait()
    wait_until(own.gone, "nothing is left")


@exhaustive
def test_a_collector_that_dies_while_workers_load_is_replaced(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    arguments = configured(tmp_path, UNRULY)
    (tmp_path / "hold").touch()
    server = Server(tmp_path, *arguments)
    try:
        wait_until(lambda: "collector: ready" in server.stderr, "the collector is ready")
        killed = server.role("collector")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: replaced(server, "collector", killed), "another one is there")
        (tmp_path / "hold").unlink()
        server.wait_ready()
        assert serves(server)
        assert server.stop() == 0
        assert not re.search("Assertion|Traceback", server.stderr)
    finally:
        server.destroy()


@exhaustive
@pytest.mark.parametrize("role", ["frontends", WORKER, "collector", "grpc frontend 0", "control"])
def test_where_its_working_directory_is_removed_its_processes_are_replaced_all_the_same(
    server: Callable[..., Server], tmp_path: Path, wait_until: WaitUntil, role: str
) -> None:
    within = ("/bin/sh", "-c", 'mkdir release && cd release && exec "$@"', "sh", *COMMAND)
    own = server(UNRULY, program=within, grpc_port=0, control_port=0).wait_ready()
    (tmp_path / "release").rmdir()
    pid = own.role(role)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: replaced(own, role, pid), "another process has the role")
    wait_until(lambda: serves(own), "it serves")
    words = f"the working directory is gone; {role} starts in /"
    wait_until(lambda: words in own.stderr, "it says so")
    assert own.stop() == 0
    assert "Traceback" not in own.stderr


@exhaustive
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_the_fork_server_processes_are_replaced_all_the_same(
    server: Callable[..., Server], wait_until: WaitUntil, number: signal.Signals
) -> None:
    own = server(UNRULY).wait_ready()
    os.kill(own.role("fork server"), number)
    for role in (WORKER, "collector", "frontends"):
        pid = own.role(role)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda role=role, pid=pid: replaced(own, role, pid), "another has the role")
        wait_until(lambda: serves(own), "it serves")
    assert "the fork server is gone" in own.stderr
    assert own.stop() == 0
    assert "Traceback" not in own.stderr


@exhaustive
@pytest.mark.parametrize("closed", ["<&- >&-", "<&-", ">&-"])
def test_closed_standard_descriptors_are_no_descriptors_of_the_engines(
    server: Callable[..., Server], wait_until: WaitUntil, closed: str
) -> None:
    own = server(UNRULY, program=("/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND))
    wait_until(
        lambda: own.process.poll() is not None or "frontends: ready" in own.stderr, "a start"
    )
    assert own.process.poll() is None, own.stderr
    for pid in own.living():
        held = [target for number, target in open_files(pid).items() if number <= 2]
        assert not any(where.startswith(("socket:", "anon")) for where in held), held
    assert own.stop() == 0
    assert "Traceback" not in own.stderr


@exhaustive
def test_a_server_without_standard_error_serves(server: Callable[..., Server]) -> None:
    own = server(UNRULY, program=("/bin/sh", "-c", 'exec "$@" <&- 2>&-', "sh", *COMMAND))
    own.wait_ready()
    for pid in own.living():
        held = [target for number, target in open_files(pid).items() if number in (0, 2)]
        assert not any(where.startswith(("socket:", "anon")) for where in held), held
    assert own.stop() == 0


@exhaustive
def test_a_start_that_fails_with_a_closed_standard_error_has_its_status(
    server: Callable[..., Server],
) -> None:
    own = server(
        {"m": {"path": "absent.py"}},
        program=("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND),
    )
    assert own.process.wait() == 2


@exhaustive
def test_a_service_managers_words_are_for_the_supervisor_alone(
    server: Callable[..., Server], tmp_path: Path
) -> None:
    own_environment = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "1000000",
        "WATCHDOG_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
        "GUNICORN_FD": "0",
        "GUNICORN_PID": "1",
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notified:
        notified.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        notified.bind(own_environment["NOTIFY_SOCKET"])
        own = server(UNRULY, environment=own_environment).wait_ready()
        assert serves(own)
        for pid in own.living():
            if pid != own.pid:
                # The process may end in between.
                with suppress(FileNotFoundError, ProcessLookupError):
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    names = {variable.partition(b"=")[0].decode() for variable in variables}
                    assert not names & own_environment.keys()
        assert own.stop() == 0
        messages = list(notifications(notified))
    assert {pid for pid, _ in messages} == {own.pid}
    assert [text for _, text in messages if "READY=1" in text]


@exhaustive
@pytest.mark.parametrize(
    "number",
    first_of(["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTTIN", "SIGTTOU", "SIGWINCH", "SIGPIPE"], 1),
)
def test_a_signal_that_means_something_to_other_servers_ends_nobody(
    start: Start, wait_until: WaitUntil, number: str
) -> None:
    """As from ``pkill -USR1 -f ringbatch``."""
    server = start(UNRULY, control_port=0, grpc_port=0)
    before = server.titles()
    assert len(before) == 9
    # The supervisor comes last, so that it has seen the others' ends when it speaks.
    for title, pid in sorted(before.items(), key=lambda each: each[1] == server.pid):
        # Gunicorn's arbiter has its frontends replaced on SIGHUP, which another test looks at.
        if (title, number) != ("ringbatch: frontends", "SIGHUP"):
            os.kill(pid, signal.Signals[number])
    words = {"SIGHUP": "on SIGHUP", "SIGWINCH": "", "SIGPIPE": ""}
    message = words.get(number, f"{number} does nothing here")
    wait_until(lambda: message in server.stderr, "the supervisor says so")
    assert serves(server)
    assert server.titles() == before
    assert "was killed" not in server.stderr
    assert server.stop() == 0
