"""Stopping and dying under load: what was accepted is answered, and nothing stays behind."""

import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from open_files import open_files
from serve.client import Closed, Connection, assert_serves, escaped, fast, instances, request
from serve.load import BROKEN, CLIENTS, Load
from serve.server import Server, Start
from tiers import exhaustive, first_of, only

WaitUntil = Callable[..., Any]

MODELS: dict[str, dict[str, Any]] = {
    "matmul": {"path": "matmul.py"},
    "echo": {"path": "moody.py"},
}
DRAIN_S = 10.0
HELD = """
import os, time
from pathlib import Path
def load():
    while Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
def predict(instances):
    return [os.getpid() for _ in instances]
"""


@pytest.fixture
def privileged() -> bool:
    return True


@pytest.fixture
def server(start: Start, privileged: bool) -> Server:
    return start(MODELS, frontends=2, drain_s=DRAIN_S, privileged=privileged)


each_operator = pytest.mark.parametrize(
    "privileged", only({"unprivileged": False, "privileged": True}, "unprivileged")
)


@pytest.fixture
def load(server: Server, wait_until: WaitUntil) -> Iterator[Load]:
    """Load under way."""
    load = Load(server)
    wait_until(lambda: load.answered > 20 * CLIENTS, "the load is under way")
    yield load
    load.stop()


def refused(port: int) -> bool:
    """Return whether the port refuses connections."""
    try:
        Connection(port).close()
    except ConnectionRefusedError:
        return True
    return False


def goes_on(load: Load, wait_until: WaitUntil) -> None:
    """Wait until many more requests are answered."""
    wanted = load.answered + 50 * CLIENTS
    wait_until(lambda: load.answered >= wanted or load.failures, "more requests are answered")


def kill_9(server: Server, role: str, wait_until: WaitUntil) -> None:
    """Kill the process with that role, and wait until another has it."""
    killed = server.role(role)
    os.kill(killed, signal.SIGKILL)
    wait_until(
        lambda: server.titles().get(f"ringbatch: {role}", killed) != killed, "another is there"
    )


@each_operator
@pytest.mark.parametrize("number", first_of([signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], 1))
def test_a_stop_under_load_answers_everything_that_was_accepted(
    server: Server, load: Load, number: signal.Signals
) -> None:
    began = time.monotonic()
    # Ctrl-C reaches everything in the terminal's foreground.
    (os.killpg if number == signal.SIGINT else os.kill)(server.pid, number)
    assert server.process.wait() == 0
    # The drain limit is a promise of the server's own, and far above what this takes.
    assert time.monotonic() - began < DRAIN_S
    load.join()
    assert (load.failures, load.refused, load.unaccepted) == ([], CLIENTS, 0)
    assert server.gone()
    assert "Traceback" not in server.stderr


@exhaustive
def test_a_stop_right_after_the_start_loses_nothing(server: Server) -> None:
    """Both frontends take part from the moment the server says that it serves."""
    load = Load(server)
    assert server.stop() == 0
    load.join()
    assert (load.failures, load.refused, load.unaccepted) == ([], CLIENTS, 0)
    assert "Error" not in server.stderr


@each_operator
def test_a_stop_lets_in_clients_that_have_begun_to_connect(
    server: Server, wait_until: WaitUntil
) -> None:
    with server.listeners() as listeners:
        assert len(listeners) == 2
        for listener in listeners:
            # The client is connected, and the server waits for more before it thinks so too: as
            # for as long as the client's last packet of the handshake is on its way.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
    with ExitStack() as stack:
        begun = [stack.enter_context(Connection(server.port)) for _ in range(8)]
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refused(server.port), "new connections are refused")
        for number, connection in enumerate(begun):
            connection.send(fast("echo", instances(number)))
        answers = [connection.receive() for connection in begun]
        assert [answer.json["predictions"] for answer in answers] == [[n] for n in range(8)]
    assert server.process.wait() == 0
    assert server.gone()


@exhaustive
def test_a_stop_finishes_begun_requests_without_free_descriptors(
    server: Server, wait_until: WaitUntil
) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(4)]
        for number, connection in enumerate(connections):
            connection.send(fast("echo", instances("sleep", number)))
        wait_until(lambda: server.status().frontends["requests"] >= 4, "they are in the engine")
        for frontend in range(2):
            pid = server.role(f"frontend {frontend}")
            taken = open_files(pid).keys()
            first_free = min(set(range(len(taken) + 1)) - taken)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, first_free))
        server.process.send_signal(signal.SIGTERM)
        answers = [connection.receive() for connection in connections]
        assert [a.json["predictions"] for a in answers] == [["sleep", n] for n in range(4)]
    assert server.process.wait() == 0
    assert "Traceback" not in server.stderr


@exhaustive
def test_a_stop_does_not_wait_for_ever_for_half_open_connections(server: Server) -> None:
    with server.listeners() as listeners:
        for listener in listeners:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1000)
    with Connection(server.port):
        assert server.stop() == 0
    assert server.gone()


def test_a_start_that_fails_without_privileges_says_why(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import no_such_module\n")
    arguments = ("model.py", "--port", "0")
    server = Server(tmp_path, *arguments, privileged=False)
    assert server.process.wait() == 2
    assert "no_such_module" in server.stderr.splitlines()[-1]
    assert "Traceback" not in server.stderr


def test_a_stop_waits_for_running_requests_on_every_path_and_refuses_new_ones(
    server: Server, wait_until: WaitUntil
) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(4)]
        for number, connection in enumerate(connections):
            build = escaped if number % 2 else fast
            connection.send(build("echo", instances("sleep", number)))
        idle = stack.enter_context(Connection(server.port))
        half = stack.enter_context(Connection(server.port))
        data = fast("echo", instances("half"))
        half.send(data[:-1])
        wait_until(lambda: server.status().frontends["requests"] >= 4, "they are in the engine")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refused(server.port), "new connections are refused")
        half.send(data[-1:])
        answers = [connection.receive() for connection in connections]
        assert [a.json["predictions"] for a in answers] == [["sleep", n] for n in range(4)]
        assert {answer.headers["connection"] for answer in answers} == {"close"}
        assert half.receive().json["predictions"] == ["half"]
        assert idle.ended()
    assert server.process.wait() == 0
    assert server.gone()


def test_a_stop_has_load_balancers_turn_away_before_it_closes_a_connection(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start(MODELS, stop_delay_s=1000.0)
    with Connection(server.port) as kept, Connection(server.port) as idle:

        def closes_connection() -> bool:
            answer = kept.ask(fast("echo", instances("kept")))
            assert answer.json["predictions"] == ["kept"]
            return answer.headers.get("connection") == "close"

        assert not closes_connection()
        worker = server.role("worker echo/0")
        server.process.send_signal(signal.SIGTERM)

        def ready() -> bool:
            with Connection(server.port) as connection:
                answer = connection.ask(request("/v2/health/ready", method="GET"))
            return answer.status == 200

        wait_until(lambda: not ready(), "it is not ready any more")
        wait_until(closes_connection, "a connection that is kept ends with an answer")
        assert kept.ended()
        # Requests that come all the same are served, though a worker dies.
        os.kill(worker, signal.SIGKILL)
        with Connection(server.port) as late:
            answer = late.ask(fast("echo", instances("late")))
        assert (answer.json["predictions"], answer.headers["connection"]) == (["late"], "close")
        assert idle.ask(fast("echo", instances("idle"))).json["predictions"] == ["idle"]
        # A second signal ends the wait.
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 128 + signal.SIGTERM
    assert server.gone()
    assert "did not stop within" not in server.stderr


@exhaustive
def test_a_stop_is_in_order_though_processes_are_stopped(server: Server) -> None:
    with Connection(server.port) as connection:
        assert connection.ask(fast("echo", instances(1))).status == 200
        for role in ("frontends", "collector", "worker echo/0"):
            os.kill(server.role(role), signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
    assert "did not stop within" not in server.stderr


@exhaustive
def test_a_stop_does_not_wait_longer_than_the_drain_limit(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"nap": {"path": "nap.py"}}, drain_s=1.0)
    with Connection(server.port) as connection:
        connection.send(fast("nap", instances({"nap_s": 1000})))
        wait_until(lambda: server.status().models["nap"].requests, "it is in the engine")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
        assert connection.ended()
    assert "requests cut off without an answer, because drain_s is over: 1 (" in server.stderr
    assert server.gone()


@exhaustive
def test_a_second_signal_ends_it_at_once(start: Start, wait_until: WaitUntil) -> None:
    server = start({"nap": {"path": "nap.py"}}, drain_s=1000.0)
    with Connection(server.port) as connection:
        connection.send(fast("nap", instances({"nap_s": 1000})))
        wait_until(lambda: server.status().models["nap"].requests, "it is in the engine")
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping on SIGINT" in server.stderr, "the stop has begun")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait() == 128 + signal.SIGINT
    assert server.gone()


def test_kill_9_of_the_supervisor_and_a_new_start_on_the_same_port(
    start: Start, server: Server, load: Load, wait_until: WaitUntil
) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    load.join()
    new = start(MODELS, port=server.port)
    assert_serves(new.port)
    wait_until(server.gone, "nothing of the old one is left")
    assert new.stop() == 0
    assert new.gone()


@exhaustive
def test_kill_9_of_a_worker_under_load_fails_no_request(
    server: Server, load: Load, wait_until: WaitUntil
) -> None:
    for _ in range(2):
        kill_9(server, "worker echo/0", wait_until)
        goes_on(load, wait_until)
    load.stop()
    assert (load.failures, load.retried) == ([], 0)
    assert server.status().collector["worker_deaths"] == 2


@exhaustive
def test_a_spare_goes_on_for_the_only_worker_while_the_next_one_loads(
    start: Start, wait_until: WaitUntil, tmp_path: Path
) -> None:
    held = tmp_path / "held.py"
    held.write_text(HELD)
    server = start({"held": {"path": str(held), "spares": 1}})
    (tmp_path / "hold").touch()
    with Connection(server.port) as connection:
        first = connection.ask(fast("held", instances(0))).json["predictions"][0]
        os.kill(first, signal.SIGKILL)
        second = connection.ask(fast("held", instances(0))).json["predictions"][0]
        assert second != first
        (tmp_path / "hold").unlink()

        def both() -> bool:
            states = server.status().states.values()
            return all(state.startswith("ready") for state in states)

        wait_until(both, "the next spare")
        assert connection.ask(fast("held", instances(0))).json["predictions"] == [second]


@exhaustive
def test_kill_9_of_a_worker_that_has_a_batch_to_go_on_with_fails_neither(
    start: Start, wait_until: WaitUntil
) -> None:
    server = start({"nap": {"path": "nap.py", "max_batch_size": 1}})

    def given(batches: int) -> bool:
        return sum(server.status().models["nap"].batches.values()) == batches

    with Connection(server.port) as one, Connection(server.port) as other:
        # From now on its batches are known to be short.
        assert one.ask(fast("nap", instances({"nap_s": 0}))).status == 200
        one.send(fast("nap", instances({"nap_s": 2})))
        wait_until(lambda: given(2), "it runs")
        other.send(fast("nap", instances({"nap_s": 0})))
        wait_until(lambda: given(3), "the other is to follow")
        os.kill(server.role("worker nap/0"), signal.SIGKILL)
        assert one.receive().status == other.receive().status == 200
    assert server.status().models["nap"].retried == 2


def test_kill_9_of_the_collector_under_load_fails_no_request(
    server: Server, load: Load, wait_until: WaitUntil
) -> None:
    for _ in range(2):
        kill_9(server, "collector", wait_until)
        goes_on(load, wait_until)
    load.stop()
    assert (load.failures, load.retried) == ([], 0)
    assert_serves(server.port)


@exhaustive
def test_kill_9_of_a_frontend_breaks_its_own_connections_only(
    server: Server, wait_until: WaitUntil
) -> None:
    killed = server.role("frontend 0")
    with ExitStack() as stack:
        connections: list[Connection] = []

        def owners() -> list[int | None]:
            return server.served_by([connection.port for connection in connections])

        def spread() -> bool:
            found = owners()
            if len(found) >= 8 and None not in found and len(set(found)) == 2:
                return True
            # The kernel may give any number of them to the same frontend.
            if len(found) < 8 or None not in found:
                connections.append(stack.enter_context(Connection(server.port)))
            return False

        wait_until(spread, "both frontends have connections")
        served_by = owners()
        for number, connection in enumerate(connections):
            connection.send(fast("echo", instances("sleep", number)))
        wait_until(lambda: server.status().frontends["requests"] >= len(connections), "they run")
        os.kill(killed, signal.SIGKILL)
        for number, (owner, connection) in enumerate(zip(served_by, connections, strict=True)):
            if owner == killed:
                with pytest.raises(Closed):
                    connection.receive()
            else:
                assert connection.receive().json["predictions"] == ["sleep", number]

    def replaced() -> bool:
        """Return whether a connection that the new frontend has accepted is answered."""
        with Connection(server.port) as connection:
            answer = connection.ask(fast("echo", instances("new")))
            assert answer.json["predictions"] == ["new"]
            return server.serves(connection.port) not in {*served_by, None}

    wait_until(replaced, "the replacement has a lane and serves")
    frontends = [title for title in server.titles() if title.startswith("ringbatch: frontend ")]
    assert len(frontends) == 2


def sockets_of(pid: int) -> int:
    """Return the number of open sockets of a process."""
    return sum(target.startswith("socket:") for target in open_files(pid).values())


@exhaustive
def test_kill_9_of_a_frontend_under_load_fails_nothing_elsewhere(
    server: Server, load: Load, wait_until: WaitUntil
) -> None:
    killed = server.role("frontend 1")
    goes_on(load, wait_until)
    # The kernel spreads connections as it likes; some of these are no client's.
    held = sockets_of(killed)
    os.kill(killed, signal.SIGKILL)
    wait_until(
        lambda: sum("frontend " in title for title in server.titles()) == 2, "a new one is there"
    )
    goes_on(load, wait_until)
    load.stop()
    broken = [failure for failure in load.failures if not failure.startswith(BROKEN)]
    assert broken == []
    assert len(load.lost) <= held
    assert server.status().collector["corrupt_slots"] == 0


@exhaustive
def test_all_that_can_be_read_answers_while_it_lives(server: Server) -> None:
    answers = {
        "/": {"status": "alive"},
        "/v1/models": {"models": ["matmul", "echo"]},
        "/v1/models/echo": {"name": "echo", "ready": True},
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
    }
    with Connection(server.port) as connection:
        for path, expected in answers.items():
            answer = connection.ask(request(path, method="GET"))
            assert (answer.status, answer.json) == (200, answer.json | expected)
