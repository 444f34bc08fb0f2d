"""Messages to systemd, which is played by a socket."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.supervisor.health_probe import LATE_S, Probe
from ringbatch.engine.systemd.health import Health
from ringbatch.engine.systemd.service import (
    Service,
    address_of,
    encode,
    loading_status,
    serving_status,
    watchdog_ns_of,
)
from ringbatch.engine.systemd.sockets import expect, passed
from ringbatch.shm.errors import StartupError

S = 1_000_000_000
WATCHDOG_S = 8


class Manager:
    """A service manager, a service of its own, and their clock."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(name)
        self.now_ns = 100 * S
        self.answers = True
        shown = name.replace("\0", "@")
        self.service = Service(
            {"NOTIFY_SOCKET": shown, **environment}, lambda: self.answers, lambda: self.now_ns
        )

    def received(self) -> list[dict[str, str]]:
        """Return all messages since the last call."""
        messages = []
        with suppress(BlockingIOError):
            while True:
                lines = self.socket.recv(4096).decode().splitlines()
                messages.append(dict(line.split("=", 1) for line in lines))
        return messages

    def turn(self, collector_ns: int | None = None) -> int:
        """The supervisor's turn while it serves; how often the watchdog was fed in it."""
        self.service.serves("serving m", self.now_ns if collector_ns is None else collector_ns)
        asking = self.service._health._asking
        if asking is not None:
            asking.join()
        return sum("WATCHDOG" in message for message in self.received())


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, short_folder: Path) -> Iterator[Manager]:
    names = {"path": str(short_folder / "notify"), "abstract": f"\0ringbatch-test-{os.getpid()}"}
    usec = {"WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000), "WATCHDOG_PID": str(os.getpid())}
    found = Manager(names[request.param], usec)
    yield found
    found.socket.close()


@pytest.mark.parametrize(
    ("name", "address"),
    [("/run/x", "/run/x"), ("@x/y", "\0x/y"), ("vsock:1:2", None), ("", None)],
)
def test_where_messages_go(name: str, address: str | None) -> None:
    assert address_of({"NOTIFY_SOCKET": name}) == address


def test_a_message_has_a_line_for_each_field_with_any_text() -> None:
    assert encode({"STATUS": "a\nREADY=1", "X": "1"}) == b"STATUS=a READY=1\nX=1"


@pytest.mark.parametrize("letter", ["m", "é", "\udc80", "\U0001d11e"])
def test_a_message_is_never_so_long_that_systemd_passes_over_it(letter: str) -> None:
    text = f"loading m{letter * 5000}, last: 17 s"
    status, extension = encode({"STATUS": text, "EXTEND_TIMEOUT_USEC": "1"}).splitlines()
    assert 900 < len(status) < 1100
    status_text = status.decode()
    assert status_text.startswith("STATUS=loading ")
    assert status_text.endswith(", last: 17 s")
    assert extension == b"EXTEND_TIMEOUT_USEC=1"


def test_a_message_holds_nothing_for_which_systemd_would_pass_over_it() -> None:
    assert encode({"STATUS": "a\0b \udc80"}) == b"STATUS=a b \\udc80"


@pytest.mark.parametrize(
    ("environment", "watchdog_ns"),
    [
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "7"}, 5 * S),
        ({"WATCHDOG_USEC": "5000000"}, 5 * S),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_its_named_process(
    environment: dict[str, str], watchdog_ns: int | None
) -> None:
    assert watchdog_ns_of(environment, 7) == watchdog_ns


@pytest.mark.parametrize(
    ("models", "text"),
    [
        (["mnist", "mnist", "digits"], "loading mnist, digits"),
        ([], "starting the frontends"),
    ],
)
def test_people_read_of_pending_models_during_a_start(models: list[str], text: str) -> None:
    assert loading_status(models) == text


@pytest.mark.parametrize(
    ("models", "ready", "workers", "text"),
    [
        (["mnist"], 1, 1, "serving mnist on U; 1 model, 1 worker"),
        (["mnist", "digits"], 4, 4, "serving mnist, digits on U; 2 models, 4 workers"),
        (["mnist"], 1, 4, "serving mnist on U; 1 model, 1 of 4 workers"),
    ],
)
def test_people_read_of_served_models(
    models: list[str], ready: int, workers: int, text: str
) -> None:
    assert serving_status(models, "U", ready, workers) == text


def test_a_start_asks_for_more_time_every_second(manager: Manager) -> None:
    for _ in range(8):
        manager.service.loads("loading m")
        manager.now_ns += S // 4
    manager.service.is_ready()
    first, second, ready = manager.received()
    assert (first["STATUS"], second["STATUS"]) == ("loading m: 0 s", "loading m: 1 s")
    assert int(first["EXTEND_TIMEOUT_USEC"]) > 5_000_000
    assert ready == {"READY": "1"}
    assert manager.service.next_ns is not None


def test_a_start_asks_for_more_time_however_many_models_it_loads(manager: Manager) -> None:
    manager.service.loads(loading_status(f"a-model-of-20-letters-{n}" for n in range(200)))
    (message,) = manager.received()
    assert int(message["EXTEND_TIMEOUT_USEC"]) > 5_000_000
    assert message["STATUS"].endswith("a-model-of-20-letters-199: 0 s")


def test_a_status_is_sent_once(manager: Manager) -> None:
    manager.service.serves("serving m", 0)
    manager.service.serves("serving m", 0)
    assert [message["STATUS"] for message in manager.received()] == ["serving m"]


def test_a_change_is_announced_and_its_failure_stays_to_be_read(manager: Manager) -> None:
    manager.service.begins_change()
    begun = manager.received()
    manager.now_ns += 1_000_000
    manager.service.begins_change()
    # A service manager that has asked in between takes no earlier message for the answer.
    assert manager.received() == [{"RELOADING": "1", "MONOTONIC_USEC": str(100_001_000)}]
    manager.service.serves("serving m", 0)
    (meanwhile,) = manager.received()
    manager.service.ends_change("")
    assert manager.received() == []
    manager.service.ends_change("m: no such file")
    assert manager.received() == [{"READY": "1"}]
    manager.service.serves("serving m", 0)
    (after,) = manager.received()
    assert begun == [{"RELOADING": "1", "MONOTONIC_USEC": str(100_000_000)}]
    assert "EXTEND_TIMEOUT_USEC" in meanwhile
    assert after["STATUS"] == "serving m; the last change failed: m: no such file"


def test_a_stop_announces_its_longest_duration(manager: Manager) -> None:
    manager.service.stops("stopping", 12.5)
    assert manager.received() == [
        {"STOPPING": "1", "STATUS": "stopping", "EXTEND_TIMEOUT_USEC": "12500000"}
    ]


def turns(manager: Manager, seconds: int, collector_ns: int | None = None) -> int:
    """Return the number of watchdog messages in that time.

    The collector moves unless its last sign of life is given.
    """
    fed = 0
    for _ in range(seconds * 2):
        manager.now_ns += S // 2
        fed += manager.turn(collector_ns)
    return fed


def test_the_watchdog_is_fed_four_times_in_its_interval(manager: Manager) -> None:
    manager.turn()
    assert turns(manager, WATCHDOG_S) == 4


def test_a_hung_collector_starves_the_watchdog(manager: Manager) -> None:
    manager.turn()
    assert turns(manager, WATCHDOG_S)
    hung_ns = manager.now_ns
    # What it had done until then may count once more.
    assert turns(manager, WATCHDOG_S, hung_ns) <= 1
    assert turns(manager, WATCHDOG_S, hung_ns) == 0
    assert turns(manager, WATCHDOG_S)


def test_frontends_that_do_not_answer_starve_the_watchdog(manager: Manager) -> None:
    manager.turn()
    manager.answers = False
    assert turns(manager, WATCHDOG_S) <= 1
    assert turns(manager, WATCHDOG_S) == 0
    manager.answers = True
    assert turns(manager, WATCHDOG_S)


def test_without_a_service_manager_nothing_is_planned() -> None:
    service = Service({}, lambda: True)
    service.loads("loading m")
    service.serves("serving m", 1)
    assert service.next_ns is None
    assert service._health._asking is None


def test_a_service_manager_that_is_gone_is_reported_once(
    short_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(short_folder / "gone")
    service = Service({"NOTIFY_SOCKET": path}, lambda: True)
    service.is_ready()
    service.serves("serving m", 1)
    words = f"NOTIFY_SOCKET {path}: No such file or directory; the service manager does not learn"
    (message,) = caplog.messages
    assert message.startswith(words)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        service.is_ready()
    service.is_ready()
    assert [message.partition(";")[0] for message in caplog.messages[1:]] == [
        f"NOTIFY_SOCKET {path}: Connection refused"
    ]


def test_a_service_manager_that_does_not_read_is_not_reported(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4096):
        manager.service.is_ready()
    assert caplog.messages == []
    assert len(manager.received()) < 4096, "its queue was full"


def test_health_is_asked_for_by_one_at_a_time() -> None:
    health = Health(lambda: True)
    assert not health.proven(1)
    assert health._asking is not None
    health._asking.join()
    assert health.proven(2)
    assert not Health(lambda: False).proven(1)


def test_a_moment_without_threads_ends_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    health, probe = Health(lambda: True), Probe(lambda: True, lambda: None)
    with monkeypatch.context() as none_left:
        none_left.setattr(threading.Thread, "start", refuse)
        assert not health.proven(1)
        assert not probe.succeeds()
    assert not health.proven(1)
    probe.succeeds()
    for asking in (health._asking, probe._asking):
        assert asking is not None
        asking.join()
    assert health.proven(2)
    assert probe.succeeds()


# Sockets


def listening(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    return socket.create_server((host, port), reuse_port=True)


def test_only_the_process_that_is_meant_takes_sockets() -> None:
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    assert passed(environment, os.getpid()) == []
    assert passed({}, os.getpid()) == []


def test_sockets_of_the_configured_address_are_taken() -> None:
    with listening() as one, listening(port=one.getsockname()[1]) as two:
        port = one.getsockname()[1]
        expect([one, two], "127.0.0.1", port, 2)
        expect([one], "localhost", port, 2)
        expect([one], "127.0.0.1", 0, 2)


@pytest.mark.parametrize(
    ("host", "change", "frontends", "match_text"),
    [
        ("127.0.0.1", 1, 1, "host and port are"),
        ("127.0.0.2", 0, 1, "host and port are"),
        ("127.0.0.1", 0, 3, "2 sockets for 3 frontends"),
        ("no.such.invalid", 0, 1, "is no address"),
    ],
)
def test_other_sockets_are_refused_in_words(
    host: str, change: int, frontends: int, match_text: str
) -> None:
    with listening() as one:
        port = one.getsockname()[1]
        sockets = [one] * (2 if frontends > 1 else 1)
        with pytest.raises(StartupError, match=match_text):
            expect(sockets, host, port + change, frontends)


class ListeningIpv6(socket.socket):
    """Socket of IPv6 that seems to listen, also on a host without IPv6."""

    family = socket.AF_INET6

    def getsockname(self) -> Any:
        return "::1", 80, 0, 0

    def getsockopt(self, *_: Any) -> Any:
        return 1


def test_an_ipv6_address_stands_in_brackets() -> None:
    words = r"a socket on \[::1\]:80, .* are \[::2\]:8080;"
    with ListeningIpv6() as bound, pytest.raises(StartupError, match=words):
        expect([bound], "::2", 8080, 1)


def test_a_unix_socket_is_passed_where_one_is_configured(short_folder: Path) -> None:
    path = str(short_folder / "s")
    with socket.socket(socket.AF_UNIX) as unix, listening() as tcp:
        unix.bind(path)
        unix.listen()
        port = tcp.getsockname()[1]
        expect([unix], None, 8080, 2, path)
        expect([tcp, unix], "127.0.0.1", port, 1, path)
        with pytest.raises(StartupError, match=f"no Unix socket, and .* the Unix socket {path}"):
            expect([tcp], "127.0.0.1", port, 1, path)
        with pytest.raises(StartupError, match=f"the Unix socket {path}, and .* no Unix socket"):
            expect([tcp, unix], "127.0.0.1", port, 1, None)
        with pytest.raises(StartupError, match="systemd passes"):
            expect([tcp, unix], None, port, 1, path)
        with pytest.raises(StartupError, match=f"systemd passes no socket on 127.0.0.1:{port};"):
            expect([unix], "127.0.0.1", port, 1, path)


def test_a_socket_that_does_not_listen_is_refused() -> None:
    with socket.socket() as idle, pytest.raises(StartupError, match="no TCP port listens"):
        expect([idle], "127.0.0.1", 0, 1)


def test_a_probe_without_a_yes_says_so_once() -> None:
    now = [100.0]
    late: list[float] = []
    probe = Probe(lambda: False, lambda: late.append(now[0]), lambda: now[0])
    for now[0] in (100.0, 100.0 + LATE_S / 2, 100.0 + LATE_S, 100.0 + 2 * LATE_S):
        assert not probe.succeeds()
        assert probe._asking is not None
        probe._asking.join()
    assert late == [100.0 + LATE_S]


def test_a_probe_that_succeeds_in_time_is_never_late() -> None:
    now = [0.0]
    probe = Probe(lambda: True, lambda: pytest.fail("it is late"), lambda: now[0])
    probe.succeeds()
    assert probe._asking is not None
    probe._asking.join()
    now[0] = 2 * LATE_S
    assert probe.succeeds()
