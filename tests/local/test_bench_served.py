"""The engine that a measurement starts, what it says of itself, and where a server is."""

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ringbatch.bench.command.settings import Protocol
from ringbatch.bench.command.subject import Subject
from ringbatch.bench.load.target import Target
from ringbatch.bench.served.asking import Address, reached
from ringbatch.bench.served.engine import NAME, Served, command_of, served_at, started
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.engine.command import cli
from ringbatch.engine.config.document import ServerConfig

MODEL = '[models.mnist]\npath = "model.py"\n'
METRICS = (
    "ringbatch: serving metrics on http://127.0.0.1:9090/metrics, a page on http://127.0.0.1:9090/"
)


# What is started


@pytest.fixture
def file(short_folder: Path) -> Path:
    """Path for a configuration, beside its model."""
    (short_folder / "model.py").touch()
    return short_folder / "ringbatch.toml"


def served_by(
    monkeypatch: pytest.MonkeyPatch, file: Path, flags: Sequence[str] = ()
) -> ServerConfig:
    """Return the configuration that the engine itself reads from the command."""
    given: list[Any] = []
    stand_in = ModuleType("run")

    def run(config: Any, _reread: object) -> int:
        given.append(config)
        return 0

    vars(stand_in)["run"] = run
    monkeypatch.setitem(sys.modules, "ringbatch.engine.supervisor.run", stand_in)
    command = command_of(file, file.parent, flags)
    assert cli.main(command[command.index("serve") :]) == 0
    (config,) = given
    found: ServerConfig = config.server
    return found


def test_an_engine_beside_the_one_that_serves_by_its_file_takes_free_ports(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text(
        "[server]\nport = 8080\nshare_port = true\ngrpc_port = 9000\ncontrol_port = 9090\n"
        f"agent_check_port = 9777\n{MODEL}"
    )
    found = served_by(monkeypatch, file)
    assert (found.name, found.share_port) == (NAME, False)
    assert (found.port, found.grpc_port, found.control_port, found.agent_check_port) == (0, 0, 0, 0)
    assert served_by(monkeypatch, file, ["--grpc-port", "7"]).grpc_port == 7


def test_it_takes_unix_sockets_of_its_own_where_the_file_has_some(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text(
        f'[server]\nhost = "unix:/a"\nunix_socket_mode = "0600"\ngrpc_unix_socket = "/b"\n{MODEL}'
    )
    found = served_by(monkeypatch, file)
    assert (found.host, found.unix_socket) == ("127.0.0.1", None)
    assert found.grpc_unix_socket == str(file.parent / "grpc_unix_socket")


def test_an_engine_that_is_started_has_no_ports_more_than_its_file(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text(MODEL)
    found = served_by(monkeypatch, file)
    assert (found.port, found.grpc_port, found.agent_check_port) == (0, None, None)


@pytest.mark.parametrize("content", [None, b"[server", b"\xff", b"server = 3"])
def test_faults_of_a_file_are_left_to_the_engine(file: Path, content: bytes | None) -> None:
    if content is not None:
        file.write_bytes(content)
    command = command_of(file, file.parent)
    assert str(file) in command
    assert "--grpc-port" not in command


# What it says


def test_the_address_of_an_engine_is_read_from_its_log() -> None:
    assert served_at("ringbatch: loading mnist", 3) is None
    models = "ringbatch: serving mnist, metrics on http://127.0.0.1:1"
    assert served_at(models, 3) is None
    text = f"{models}\nringbatch: serving gRPC on 127.0.0.1:2\n{METRICS}"
    model, metrics, grpc = (Address("127.0.0.1", port) for port in (1, 9090, 2))
    assert served_at(text, 3) == Served(model, metrics, grpc, engine=NAME, pid=3)
    text = text.replace("gRPC on 127.0.0.1:2", "gRPC on unix:/run/g")
    assert served_at(text, 3) == Served(model, metrics, Address("/run/g", 0), engine=NAME, pid=3)


def test_an_engine_with_tls_is_refused_and_its_metrics_are_not_taken_for_it() -> None:
    with pytest.raises(CannotMeasure, match=r"serves over TLS.*without tls_certificate, tls_key"):
        served_at(f"ringbatch: serving mnist on https://127.0.0.1:1\n{METRICS}", 3)
    assert served_at(METRICS, 3) is None


# Where a server is


def subject_of(address: Address, **more: Any) -> Subject:
    served = Served(address, None, more.pop("grpc", None))
    protocol = more.pop("protocol", Protocol.V1)
    return Subject(served, "m", protocol, "/p", [b'{"inputs": []}'], [], [], True)


def target_of(monkeypatch: pytest.MonkeyPatch, subject: Subject) -> tuple[Target, list[bytes]]:
    """Return the target and the messages that load generators are given."""
    created: list[Any] = []
    monkeypatch.setattr(
        "ringbatch.bench.command.subject.Fleet", lambda *given, **_: created.append(given)
    )
    subject.fleet(1)
    ((_, target, messages, _, head),) = created
    return target, [*messages, head]


@pytest.mark.parametrize(
    ("family", "number"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_generators_get_the_address_that_answers_and_requests_the_name(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, number: str
) -> None:
    look_up = socket.getaddrinfo

    def of_both(host: str, *rest: Any, **more: Any) -> Any:
        hosts = ["::1", "127.0.0.1"] if host == "model.example.com" else [host]
        return [found for each in hosts for found in look_up(each, *rest, **more)]

    try:
        listener = socket.create_server((number, 0), family=family)
    except OSError:
        pytest.skip(f"this host has no {number}")
    monkeypatch.setattr(socket, "getaddrinfo", of_both)
    with listener:
        port = listener.getsockname()[1]
        name = Address("model.example.com", port)
        assert reached(name) == Address(number, port)
        target, sent = target_of(monkeypatch, subject_of(name))
        assert (target.host, target.port) == (number, port)
        assert f"\r\nHost: model.example.com:{port}\r\n".encode() in sent[0]
        grpc = subject_of(Address("127.0.0.1", 1), grpc=name, protocol=Protocol.GRPC)
        target, sent = target_of(monkeypatch, grpc)
        assert (target.host, target.port) == (number, port)
        assert f"model.example.com:{port}".encode() in sent[1]


def test_an_unreachable_address_is_reported_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotMeasure, match=r"nothing serves at http://127\.0\.0\.1:1: "):
        subject_of(Address("127.0.0.1", 1)).fleet(1)

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(CannotMeasure, match="nothing serves at http://nobody:1: Name or service"):
        subject_of(Address("nobody", 1)).fleet(1)
    for host in ("a" * 64, "ö" * 64, ""):
        with pytest.raises(CannotMeasure, match="must be http://HOST:PORT"):
            Address.of(f"http://{host}:80")
    assert Address.of("http://[::1]:80") == Address("::1", 80)
    assert Address.of("http://zoë.example").authority == "xn--zo-ija.example:80"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_engine_that_is_started_as_a_signal_comes_is_stopped(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_ones: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def interrupted(*words: Any, **more: Any) -> Any:
        started_ones.append(start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        signal.raise_signal(number)
        return started_ones[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), started(tmp_path / "ringbatch.toml"):
            pytest.fail("nothing is asked")
    finally:
        signal.signal(signal.SIGTERM, before)
    (process,) = started_ones
    assert process.stdin is not None
    process.stdin.close()
    assert process.returncode is not None
