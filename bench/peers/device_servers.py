"""Servers of one program on a device: ringbatch, and peers beside the torch of this interpreter.

Peers run in this interpreter and not in an environment of their own: torch with CUDA takes
gigabytes.
"""

import base64
import importlib.util
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from host.server import HOST, Command, free_port
from load.device_ways import MODEL, PREFIX
from load.made_rows import Row

from peers.servers import SERVICES, Ringbatch, Section

CAP: Final = 32
SIZES: Final = [1, 2, 4, 8, 16, 32]
_START_S: Final = 120.0


def ringbatch(
    device: str, file: Path, frontends: int, clients: int, grpc_port: int, workers: int
) -> Ringbatch:
    """Return ringbatch's server of a program, for so many processes with a `Client`."""
    settings: dict[str, Any] = {"runtime": "torch", "max_batch_size": CAP, "autocast": "FP16"}
    settings |= {"workers": workers}
    if device != "cpu":
        settings |= {
            "device": device,
            "cuda_graphs": "required",
            "allowed_batch_sizes": SIZES,
        }
    more: Section = {
        "client_lanes": clients,
        "grpc_port": grpc_port,
        "grpc_frontends": frontends,
        "shared_memory_prefixes": [PREFIX],
    }
    return Ringbatch(MODEL, file, frontends, settings, more)


@dataclass(frozen=True)
class DevicePeer:
    """A peer with a program on a device.

    Attributes:
        package: that it needs beside torch, with its version.
        script: of services/.
        ready_path: answers once it serves.
        body: of a request for one row; and its type.
        stop: what asks it to end.
    """

    package: str
    script: str
    ready_path: str
    body: Callable[[bytes], bytes]
    content_type: str
    stop: signal.Signals

    @property
    def obstacle(self) -> str:
        """Why it cannot run here; empty if it can."""
        name = self.package.partition("==")[0]
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed beside torch: pip install {self.package}"
        return ""

    def command(self, folder: Path, file: Path, device: str, row: Row) -> Command:
        """Return the command that serves a program."""
        port = free_port()
        more = f"--address {HOST} --log-level error --path {folder / 'sockets'}".split()
        argv = [sys.executable, str(SERVICES / self.script), "--port", str(port)]
        return Command(
            argv=[*argv, *(more if self.script == MOSEC_SCRIPT else [])],
            port=port,
            ready_path=self.ready_path,
            env={
                "BENCH_FILE": str(file),
                "BENCH_DEVICE": device,
                "BENCH_SHAPE": json.dumps(row.shape),
                "BENCH_DTYPE": row.dtype,
                "BENCH_CAP": str(CAP),
            },
            start_timeout_s=_START_S,
            stop_signal=self.stop,
            stop_timeout_s=60,
        )


def in_base64(row: bytes) -> bytes:
    """Return a row as LitServe's service takes it."""
    return json.dumps({"row": base64.b64encode(row).decode()}).encode()


MOSEC_SCRIPT: Final = "device_mosec.py"
PEERS: Final = {
    "mosec": DevicePeer(
        "mosec==0.9.8",
        MOSEC_SCRIPT,
        "/",
        lambda row: row,
        "application/octet-stream",
        signal.SIGTERM,
    ),
    "LitServe": DevicePeer(
        "litserve==0.2.19",
        "device_litserve.py",
        "/health",
        in_base64,
        "application/json",
        signal.SIGINT,
    ),
}
