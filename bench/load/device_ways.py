"""Ways of asking a model on a device for one row, and for many."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from host.server import HOST, Server

from load.made_rows import REGION, Row
from ringbatch.bench.load.answers import post
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request
from ringbatch.bench.load.target import Target, Wire

MODEL: Final = "m"
PREFIX: Final = "ringbatch-bench-gpu"
"""Prefix of the names of clients' shared memory objects."""
_BENCH: Final = Path(__file__).resolve().parents[1]


class BulkDied(RuntimeError):
    """A process that calls `infer_many` has failed; the text has its last words."""


class Way(StrEnum):
    """Ways of asking."""

    CLIENT = "Client"
    V2 = "V2 binary"
    GRPC = "gRPC"
    SHARED = "shared memory"
    """V2 over HTTP, with the row in system shared memory."""
    BULK = "infer_many"


@contextmanager
def shared_row(row: Row, server: Server) -> Iterator[None]:
    """Have a row in shared memory that the server knows."""
    path = Path("/dev/shm") / f"{PREFIX}-{os.getpid()}"
    path.write_bytes(row.values().tobytes())
    try:
        body = json.dumps({"key": f"/{path.name}", "byte_size": row.size}).encode()
        address = f"{server.url}/v2/systemsharedmemory/region/{REGION}"
        urllib.request.urlopen(f"{address}/register", body).close()
        yield
        urllib.request.urlopen(f"{address}/unregister", b"").close()
    finally:
        path.unlink()


@contextmanager
def fleet(way: Way, generators: int, row: Row, server: Server, grpc_port: int) -> Iterator[Fleet]:
    """Run generators that ask for one row at a time."""
    if way is Way.CLIENT:
        target = Target("", 0, Wire.CLIENT, server.pid, MODEL)
        made = Fleet(generators, target, [row.in_json])
    elif way is Way.GRPC:
        call = prefixed(infer_request(MODEL, row.in_json))
        target = Target(HOST, grpc_port, Wire.GRPC)
        made = Fleet(generators, target, [call], call_head=call_head(HOST, []))
    else:
        body, text_bytes = row.by_reference if way is Way.SHARED else row.binary
        headers = [
            ("Content-Type", "application/octet-stream"),
            ("Inference-Header-Content-Length", str(text_bytes)),
        ]
        message = post(HOST, f"/v2/models/{MODEL}/infer", body, headers)
        made = Fleet(generators, Target(HOST, server.port), [message])
    with made:
        yield made


def bulk_rate(generators: int, row: Row, server: Server, rows: int, seconds: float) -> float:
    """Return rows/s of processes that call `infer_many` with so many rows, over and over.

    Raises:
        BulkDied: one has failed.
    """
    words = [json.dumps(row.shape), row.dtype, str(rows), str(seconds)]
    argv = [sys.executable, "-m", "load.bulk_client", str(server.pid), MODEL, *words]
    running = [
        subprocess.Popen(
            argv,
            cwd=_BENCH,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(generators)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise BulkDied(process.communicate()[1][-2000:])
        # All begin together, as each waits for this line.
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        rate = 0.0
        for process in running:
            out, errors = process.communicate()
            if process.returncode:
                raise BulkDied(errors[-2000:])
            rate += float(out)
        return rate
    finally:
        for process in running:
            process.kill()
            process.wait()
