"""Discretion of errors: nothing of files, processes, memory, or the model's own words.

The kind of an exception is told, as clients may know the model's library.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from serve.client import Connection, escaped, fast, instances, request
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from tritonclient.utils import InferenceServerException

LEAKY = """
import os, sys
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]

class TheirOwnKindOfError(Exception):
    pass

def predict(x):
    what = int(x[0, 0])
    if what == 0:
        open("/srv/confidential/weights.bin")
    if what == 7:
        raise TheirOwnKindOfError(f"confidential {__file__} {os.getpid()}")
    if what == 2:
        return x[:, :0]
    if what == 3:
        return "confidential"
    if what == 4:
        import confidential_module
    if what == 5:
        raise KeyError(repr(sys.modules[__name__]))
    if what == 6:
        os._exit(1)
    return x
"""
CASES = (0, 2, 3, 4, 5, 6, 7)


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    leaky: Path = tmp_path_factory.mktemp("confidential") / "confidential.py"
    leaky.write_text(LEAKY)
    own = {"path": str(leaky), "max_batch_size": 1}
    return start_for_module({"m": own, "agent": own | {"kserve_errors": True}}, grpc_port=0)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.port) as made:
        yield made


def assert_discreet(text: str, server: Server) -> None:
    """Assert that a text reveals nothing of this machine."""
    secrets = (
        r"confidential|Traceback|File \"|\.py\b|site-packages|/dev/shm|ringbatch\.\d"
        r"|gunicorn|uvicorn|falcon|python|<module"
    )
    assert not re.search(secrets, text, re.IGNORECASE), text
    assert sys.prefix not in text
    for pid in server.living():
        assert not re.search(rf"\b{pid}\b", text), text


def v2_body(value: int) -> bytes:
    return b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[%d]}]}' % value


@pytest.mark.parametrize("case", CASES)
def test_a_model_that_fails_is_not_quoted(
    server: Server, connection: Connection, case: int
) -> None:
    asked = {
        "fast": fast("m", instances([case])),
        "falcon": escaped("m", instances([case])),
        "infer": request("/v2/models/m/infer", v2_body(case)),
        "agent": fast("agent", instances([case])),
    }
    for way, data in asked.items():
        answer = connection.ask(data)
        assert answer.status == (200 if way == "agent" else 503 if case == 6 else 500), answer.body
        assert_discreet(f"{answer.headers} {answer.body.decode()}", server)
    x = triton.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.full((1, 1), case, np.float32))
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("m", [x])
        assert_discreet(str(caught.value), server)


@pytest.mark.parametrize(
    "data",
    [
        request("/nothing", method="GET"),
        request("/", method="DELETE"),
        request("/v1/models/none:predict", b"{}"),
        request("/v1/models/m:predict", b"{"),
        request("/v1/models/m:predict", b"[[[["),
        request("/v2/models/m/infer", b"\xff\x00", headers={"Content-Encoding": "gzip"}),
        request("/v2/systemsharedmemory/region/r/register", b'{"key":"/x","byte_size":1}'),
        b"GET / HTTP/1.1\r\n\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=range(9),
)
def test_a_refusal_describes_the_request_alone(
    server: Server, connection: Connection, data: bytes
) -> None:
    answer = connection.ask(data)
    assert 400 <= answer.status < 505
    assert_discreet(f"{answer.headers} {answer.body.decode()}", server)


def test_a_refusal_over_grpc_is_discreet(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(server)}") as channel:
        for method, data in (("ModelInfer", b"\xff\xff"), ("Nothing", b"")):
            call: Any = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
            with pytest.raises(grpc.RpcError) as caught:
                call(data)
            assert_discreet(str(caught.value.details()), server)
