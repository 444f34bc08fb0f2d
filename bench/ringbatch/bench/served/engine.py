"""An engine that is started for a measurement, and stopped after it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringbatch.bench.served.asking import Address
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.engines import running
from ringbatch.shm.errors import StartupError

_LOCAL: Final = ("127.0.0.1", "localhost", "::1")
NAME: Final = f"bench-{os.getpid()}"
"""Name of the started engine, which other programs do not use by accident."""
_SERVES: Final = re.compile(
    r"^ringbatch: serving (?!metrics on \S+/metrics, ).+ on (https?://\S+)$", re.MULTILINE
)
_METRICS: Final = re.compile(r"^ringbatch: serving metrics on (https?://\S+)/metrics", re.MULTILINE)
_GRPC: Final = re.compile(r"^ringbatch: serving gRPC on (\S+)$", re.MULTILINE)
_OTHER_PORTS: Final = ("grpc_port", "agent_check_port")
_SOCKETS: Final = ("unix_socket", "grpc_unix_socket")
_TAIL_LINES: Final = 15
_ENDED: Final = "the engine ended"
_START_LIMIT_S: Final = 600.0
_STOP_LIMIT_S: Final = 40.0
_END_S: Final = 1.0
"""Seconds by which an engine may outlive its connections."""
_LOOK_S: Final = 0.05


@dataclass(frozen=True)
class Served:
    """A server that answers.

    Attributes:
        address: of its clients.
        control: where its metrics are; None where that is not known.
        grpc: where it serves gRPC; None where it does not, or that is not known.
        engine: its name, or the process id of its supervisor; None where that is not known.
        pid: of its supervisor; None where it was not started for this.
    """

    address: Address
    control: Address | None
    grpc: Address | None = None
    engine: str | int | None = None
    pid: int | None = None


@contextmanager
def started(config: Path, flags: Sequence[str] = ()) -> Iterator[Served]:
    """Run an engine of that configuration, on free ports of this host alone; stop it at the end.

    Args:
        config: the configuration file.
        flags: of ``ringbatch serve``, which win over it.

    Raises:
        CannotMeasure: it does not start, and the message ends with its last words; or it serves
            over TLS.
    """
    with tempfile.TemporaryDirectory(prefix="ringbatch-bench-") as folder:
        log, process = Path(folder, "log"), None
        try:
            with log.open("wb") as output, _signals_wait():
                process = subprocess.Popen(
                    command_of(config, Path(folder), flags),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
            yield _ready(process, log)
        except CannotMeasure as error:
            assert process is not None, "only what runs cannot be measured"
            if _ENDED in str(error) or (status := _end_of(process)) is None:
                raise
            last = "\n".join([f"{error}", f"{_ENDED} with status {status}:", _tail(log)])
            raise CannotMeasure(last) from None
        finally:
            if process is not None:
                _stop(process)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM until the block ends.

    Otherwise a signal during the start of a process would leave that process running.
    """
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def command_of(config: Path, folder: Path, flags: Sequence[str] = ()) -> list[str]:
    """Return the command that starts it, on other ports than those of the file.

    Args:
        config: the configuration file.
        folder: for Unix sockets in the place of those that the file has.
        flags: of ``ringbatch serve``, which win over it.
    """
    return [
        *(sys.executable, "-P", "-m", "ringbatch.engine", "serve"),
        *("--config", str(config), "--engine-name", NAME),
        *("--host", "127.0.0.1", "--port", "0", "--no-share-port"),
        *("--control-host", "127.0.0.1", "--control-port", "0"),
        *_other_addresses(config, folder),
        *flags,
    ]


def supervisor_at(address: Address) -> int | None:
    """Return the supervisor of this user's engine that serves at an address, if there is one."""
    if address.host not in _LOCAL:
        return None
    with suppress(StartupError), running(None) as found:
        return next((s.pid for s in found if s.words[HeaderWords.PORT] == address.port), None)
    return None


def _other_addresses(config: Path, folder: Path) -> list[str]:
    """Return flags for the addresses that are taken only where the file has them."""
    try:
        server = tomllib.loads(config.read_text("utf-8")).get("server")
    except (OSError, ValueError, RecursionError):
        # The engine says what is wrong with it.
        return []
    others = dict.fromkeys(_OTHER_PORTS, "0") | {key: str(folder / key) for key in _SOCKETS}
    given = [key for key in others if isinstance(server, dict) and key in server]
    return [word for key in given for word in (f"--{key.replace('_', '-')}", others[key])]


def served_at(text: str, pid: int) -> Served | None:
    """Return the addresses of an engine by its output so far; None if it does not serve yet.

    Args:
        text: its output.
        pid: of its supervisor.

    Raises:
        CannotMeasure: it serves over TLS.
    """
    serves, metrics = _SERVES.search(text), _METRICS.search(text)
    if serves is None or metrics is None:
        return None
    if serves[1].startswith("https:") or metrics[1].startswith("https:"):
        raise CannotMeasure(
            "the configuration serves over TLS, in which load is not sent; measure with a copy "
            "without tls_certificate, tls_key and control_tls_certificate"
        )
    found = _GRPC.search(text)
    grpc = None if found is None else Address.of(_url(found[1]))
    return Served(Address.of(serves[1]), Address.of(metrics[1]), grpc, engine=NAME, pid=pid)


def _url(place: str) -> str:
    return place if place.startswith("unix:") else f"http://{place}"


def _ready(process: "subprocess.Popen[bytes]", log: Path) -> Served:
    give_up_at = time.monotonic() + _START_LIMIT_S
    while True:
        served = served_at(log.read_text(errors="replace"), process.pid)
        if served is not None:
            return served
        if process.poll() is not None:
            # What it wrote last may have come since.
            ended = f"{_ENDED} with status {process.returncode} before it served"
            raise CannotMeasure(f"{ended}:\n{_tail(log)}")
        if time.monotonic() > give_up_at:
            late = f"the engine is not ready in {_START_LIMIT_S:g} s"
            raise CannotMeasure(f"{late}:\n{_tail(log)}")
        time.sleep(_LOOK_S)


def _end_of(process: "subprocess.Popen[bytes]") -> int | None:
    """Return the engine's exit status; None while it runs."""
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return None


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        # What is left of the group; those in sessions of their own end with their parent.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
