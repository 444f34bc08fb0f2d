"""The frontends for gRPC as processes: started, killed, stopped under load, and gone after."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from serve.client import Connection, fast, instances
from serve.grpc_stub import Held, Stub, grpc_port, infer_request
from serve.server import COMMAND, SMALL, Server, Start
from tiers import exhaustive, first_of

from ringbatch.engine.supervisor.listener import listen
from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, SCHEMA

WaitUntil = Callable[..., Any]

CLIENTS = 8
WITHOUT = """
import sys
sys.modules["{missing}"] = None
from ringbatch.engine.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "held.py")


@pytest.fixture
def server(start: Start, held: Held) -> Server:
    models = {"held": {"path": held.path, "max_batch_size": 1}, "echo": {"path": "moody.py"}}
    return start(models, grpc_port=0, grpc_frontends=2, frontends=1, drain_s=20)


class Load:
    """Requests to the model "held" until the server is gone.

    Attributes:
        answered: number of right answers.
        failures: in words.
    """

    def __init__(self, port: int, held: Held) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._port = port
        self._held = held
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until no client finds a server any more."""
        for thread in self._threads:
            thread.join()

    def _run(self, client: int) -> None:
        number = client
        with Stub(self._port) as stub:
            while True:
                number += CLIENTS
                end = stub.start(self._held.request(number), patient=False)()
                expected = [number.to_bytes(8, "little")]
                right = end.code == "OK" and end.response.raw_output_contents == expected
                with self._lock:
                    self.answered += right
                    if not right and end.code != "UNAVAILABLE":
                        self.failures.append(f"{number}: {end}")
                if not right:
                    return


def test_a_killed_frontend_is_replaced_and_its_lane_adopted(
    server: Server, held: Held, wait_until: WaitUntil
) -> None:
    roles = ("grpc frontend 0", "grpc frontend 1")
    killed = [server.role(role) for role in roles]
    with Stub(grpc_port(server)) as stub, Connection(server.port) as connection:
        held.close()
        cut = stub.start(held.request(1))
        wait_until(lambda: server.status().frontends["requests"] >= 1, "it is in the engine")
        # Both, as the kernel chose which of them has the connection.
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert cut().code == "UNAVAILABLE"
        # Until it is gone, the channel may connect to the one that did not have the connection.
        wait_until(lambda: not {*killed} & {*server.living()}, "both are gone")
        # The HTTP frontend still serves.
        assert connection.ask(fast("echo", instances("a"))).json["predictions"] == ["a"]
        held.open()
        assert stub.start(held.request(2))().response.raw_output_contents[0][0] == 2

    def replaced() -> bool:
        titles = server.titles()
        found = [titles.get(f"ringbatch: {role}") for role in roles]
        return None not in found and not set(found) & set(killed)

    wait_until(replaced, "both are replaced")
    with Stub(grpc_port(server)) as stub:
        assert stub.health().response.status == 1
    assert server.status().collector["corrupt_slots"] == 0
    assert server.stderr.count("was killed by SIGKILL") == 2
    assert server.stop() == 0
    assert server.gone()


@exhaustive
def test_a_stop_under_load_answers_accepted_requests(
    server: Server, held: Held, wait_until: WaitUntil
) -> None:
    load = Load(grpc_port(server), held)
    wait_until(lambda: load.answered > 20 * CLIENTS or load.failures, "the load is under way")
    assert server.stop() == 0
    load.join()
    assert load.failures == []
    assert server.gone()
    assert "Traceback" not in server.stderr


def test_a_stop_waits_for_requests_in_the_engine_and_ends_idle_streams(
    server: Server, held: Held, wait_until: WaitUntil
) -> None:
    port = grpc_port(server)
    method = SCHEMA.services[INFERENCE_SERVICE]["ModelStreamInfer"]
    over = threading.Event()

    def nothing_more() -> Any:
        yield infer_request("nope")
        over.wait()

    with ExitStack() as stack:
        stack.callback(over.set)
        stub, other = (stack.enter_context(Stub(port)) for _ in range(2))
        stream = other.channel.stream_stream(
            f"/{INFERENCE_SERVICE}/ModelStreamInfer", None, method.response.FromString
        )(nothing_more(), wait_for_ready=True)
        assert next(stream).error_message
        held.close()
        waiting = stub.start(held.request(7))
        wait_until(lambda: server.status().frontends["requests"] >= 1, "it is in the engine")
        server.watch()
        server.process.send_signal(signal.SIGTERM)
        # The stream is ended as soon as nothing of it is under way; the request is not.
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ended.value.details() == "the server is stopping"
        held.open()
        assert waiting().response.raw_output_contents[0][0] == 7
    assert server.process.wait() == 0
    assert server.gone()


@pytest.mark.parametrize("calls", first_of([1, 0], 1))
def test_a_stop_is_no_failure_and_leaves_no_line_of_the_log_behind(
    start: Start, held: Held, calls: int
) -> None:
    server = start({"held": {"path": held.path}}, grpc_port=0, access_log="all")
    for number in range(calls):
        with Stub(grpc_port(server)) as stub:
            assert stub.start(held.request(number))().code == "OK"
    assert server.stop() == 0
    lines = server.stderr.splitlines()
    assert sum(" protocol=grpc " in line for line in lines) == calls
    assert not [line for line in lines if " ERROR " in line or " WARNING " in line]


@exhaustive
def test_nothing_is_left_of_a_killed_supervisor(server: Server, wait_until: WaitUntil) -> None:
    server.watch()
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not server.living(), "everything has ended")


@pytest.mark.parametrize("frontends", first_of([2, 1], 1))
def test_a_port_in_use_ends_the_start_in_words(tmp_path: Path, frontends: int) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        arguments = f"--grpc-port {port} --grpc-frontends {frontends}"
        completed = subprocess.run(
            [*COMMAND, "serve", *SMALL, "--port", "0", *arguments.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == (
        f"ringbatch: cannot listen on 127.0.0.1:{port}: the port is in use; stop what listens "
        "there, or choose another with --grpc-port\n"
    )


@pytest.mark.parametrize("missing", first_of(["hpack", "google", "google.protobuf"], 1))
def test_without_the_extra_the_start_ends_with_the_command_that_installs_it(
    tmp_path: Path, missing: str
) -> None:
    program = WITHOUT.format(missing=missing)
    completed = subprocess.run(
        [sys.executable, "-c", program, "serve", *SMALL, "--port", "0", "--grpc-port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (completed.returncode, completed.stdout) == (2, "")
    package = "hpack" if missing == "hpack" else "google.protobuf"
    assert completed.stderr == (
        f"ringbatch: --grpc-port: calls over gRPC need the package {package}, which is not "
        "installed; pip install 'ringbatch[grpc]', or in a clone '.[grpc]'\n"
    )
