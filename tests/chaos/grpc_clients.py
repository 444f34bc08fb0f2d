"""Clients of chaos over gRPC."""

import asyncio
import time
from typing import Any

import grpc
from chaos.clients import Scene
from chaos.keyed import INPUTS, NONCES, keyed
from serve.grpc_stub import infer_request

from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, inference

_METHOD = f"/{INFERENCE_SERVICE}/ModelInfer"
_WORD = 8
_PAUSE_S = 0.05


class GrpcClient:
    """gRPC client with a channel of its own that sends requests until told to stop.

    Args:
        killing: whether frontends are killed, whose calls then end with UNAVAILABLE.
    """

    def __init__(self, scene: Scene, number: int, port: int, *, killing: bool) -> None:
        self._scene = scene
        self._number = number
        self._port = port
        self._killing = killing

    async def run(self) -> None:
        """Send requests until the scene is over."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}", options) as channel:
            call = channel.unary_unary(_METHOD)
            count = 0
            while self._scene.going:
                count += 1
                began = time.monotonic()
                await self._ask(call, count)
                left_s = self._scene.pause_s() - (time.monotonic() - began)
                if left_s > 0:
                    await asyncio.sleep(left_s)

    async def _ask(self, call: Any, count: int) -> None:
        scene, ledger = self._scene, self._scene.ledger
        values = (self._number, count, scene.source.randrange(NONCES), 0)
        tensor = {"name": "x", "datatype": "INT64", "shape": [1, INPUTS]}
        raw = b"".join(value.to_bytes(_WORD, "little") for value in values)
        request = infer_request("keyed", tensor, raw_input_contents=[raw])
        label = f"gRPC request {count} of client {self._number}"
        ledger.sent += 1
        sent_at = time.monotonic()
        try:
            data = await call(request, wait_for_ready=True, timeout=scene.timeout_s)
        except grpc.aio.AioRpcError as error:
            name, text = error.code().name, error.details() or ""
            if name == "UNAVAILABLE" and self._killing:
                ledger.broken += 1
                await asyncio.sleep(_PAUSE_S)
            elif text:
                ledger.refused[f"{name} {text}"] += 1
            else:
                ledger.fail(f"{label}: {name} without words")
            return
        now = time.monotonic()
        response = inference("ModelInferResponse").FromString(data)
        expected = b"".join(v.to_bytes(_WORD, "little") for v in keyed(values, scene.key))
        if list(response.raw_output_contents) == [expected]:
            ledger.answered(sent_at, now)
        else:
            ledger.fail(f"{label}, {values}: the wrong answer {response!r}")
