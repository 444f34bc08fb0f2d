"""gRPC as messages, so that a test can send what no client library would, and see all of the end of
a call."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
from serve.server import Server

from ringbatch.frontend.grpc.messages import (
    HEALTH_SERVICE,
    INFERENCE_SERVICE,
    SCHEMA,
    inference,
)

HELD = """
import time
from pathlib import Path
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "INT64", [])]
gate = Path(__file__).with_suffix(".gate")
def predict(x):
    while gate.exists():
        time.sleep(0.005)
    return x
"""

_SERVES = re.compile(r"^ringbatch: serving gRPC on 127\.0\.0\.1:(\d+)$", re.MULTILINE)


def grpc_port(server: Server) -> int:
    """Return the gRPC port of a running server."""
    found = _SERVES.search(server.stdout)
    assert found is not None, server.stdout
    return int(found[1])


class End(NamedTuple):
    """End of a call.

    Attributes:
        code: the name of its status.
        text: beside that.
        response: the response; None where there is none.
        batch_id: empty where it has none.
    """

    code: str
    text: str
    response: Any
    batch_id: str


class Stub:
    """A channel to 127.0.0.1 of its own; a context manager."""

    def __init__(self, port: int) -> None:
        # Otherwise all channels of a process to one address are one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def health(self, service: str = "") -> End:
        """Call the health service's Check."""
        request = SCHEMA.services[HEALTH_SERVICE]["Check"].request(service=service)
        return self.start(request.SerializeToString(), "Check", HEALTH_SERVICE)()

    def start(
        self,
        request: bytes,
        method: str = "ModelInfer",
        service: str = INFERENCE_SERVICE,
        timeout_s: float | None = None,
        patient: bool = True,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> "Started":
        """Send a request.

        Args:
            request: the bytes of the message.
            method, service: to which.
            timeout_s: the deadline of the call.
            patient: whether to wait for a server where there is none.
            metadata: of the call.
        """
        begin = self.channel.unary_unary(f"/{service}/{method}")
        future = begin.future(request, timeout=timeout_s, wait_for_ready=patient, metadata=metadata)
        return Started(future, SCHEMA.services[service][method].response)

    def infer(
        self,
        model: str,
        *inputs: dict[str, Any],
        metadata: Sequence[tuple[str, str]] = (),
        **fields: Any,
    ) -> End:
        """Call ModelInfer."""
        return self.start(infer_request(model, *inputs, **fields), metadata=metadata)()


class Started:
    """A call whose request is sent; calling it waits for its end."""

    def __init__(self, future: Any, response: Any) -> None:
        self._future = future
        self._response = response

    def __call__(self) -> End:
        code, text = self._future.code(), self._future.details()
        trailing = dict(self._future.trailing_metadata() or ())
        response, batch_id = None, trailing.get("x-batch-id", "")
        if code is grpc.StatusCode.OK:
            response = self._response.FromString(self._future.result())
            if "parameters" in response.DESCRIPTOR.fields_by_name:
                batch_id = response.parameters["batch_id"].string_param
        return End(code.name, text, response, batch_id)

    def cancel(self) -> None:
        """Cancel the call."""
        self._future.cancel()


def infer_request(model: str, *inputs: dict[str, Any], **fields: Any) -> bytes:
    """Return a ModelInferRequest."""
    message = inference("ModelInferRequest")(model_name=model, inputs=inputs, **fields)
    data: bytes = message.SerializeToString()
    return data


class Held:
    """A model that holds its batches while a file exists."""

    def __init__(self, path: Path) -> None:
        path.write_text(HELD)
        self.path = str(path)
        self._gate = path.with_suffix(".gate")

    def close(self) -> None:
        """Hold the batches from now on."""
        self._gate.touch()

    def open(self) -> None:
        """Let the held batches go on."""
        self._gate.unlink(missing_ok=True)

    def request(self, number: int = 0, model: str = "held") -> bytes:
        """A request of one instance to it, where it is called `model`."""
        tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
        raw = number.to_bytes(8, "little")
        return infer_request(model, tensor, raw_input_contents=[raw])
