"""Inference clients of the kserve SDK, asking a server; prints their results as JSON.

A program of its own, because the SDK and tritonclient both register the messages of the protocol
under one name in the one pool of protobuf that a process has.

    python kserve_sdk.py HTTP_PORT GRPC_PORT
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import InferResponse, RequestedOutput

ARRAYS = {
    "long": np.array([[1, 2], [2**60, 4]]),
    "half": np.array([[0.5, 65504.0]], np.float16),
    "strings": np.array([[b"a"], [b"\xc3\xa4\xc3\xb6"]], object),
    "matmul": np.ones((2, 16), np.float32),
}
DATATYPES = {"long": "INT64", "half": "FP16", "strings": "BYTES", "matmul": "FP32"}
RAW_ONLY = "half"
"""JSON has no FP16 in V2, and neither have the typed contents of gRPC."""


def request(model: str, *, binary: bool, binary_output: bool | None = None) -> InferRequest:
    """A request to a model with one input and one output, all in one form."""
    array = ARRAYS[model]
    tensor = InferInput("x", list(array.shape), DATATYPES[model])
    tensor.set_data_from_numpy(array, binary_data=binary)
    wanted = None
    if binary_output is not None:
        wanted = [RequestedOutput("y", {"binary_data": binary_output})]
    return InferRequest(model, [tensor], request_id=f"of {model}", request_outputs=wanted)


def found(response: InferResponse) -> Any:
    """An answer, as JSON can carry it."""
    (output,) = response.outputs
    return [
        response.model_name,
        response.id,
        output.name,
        output.datatype,
        list(output.shape),
        output.as_numpy().tolist(),
    ]


async def refused(call: Callable[[], Awaitable[Any]]) -> str:
    """Return the client's error for a call that fails."""
    try:
        await call()
    except Exception as error:
        return str(error)
    return "not refused"


async def over_v1(url: str) -> dict[str, Any]:
    """The REST client, speaking V1."""
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:

        async def predict(instance: list[float]) -> Any:
            return await client.infer(url, {"instances": [instance]}, model_name="matmul")

        return {
            "live": await client.is_server_live(url),
            "model ready": await client.is_model_ready(url, "matmul"),
            "predictions": (await predict([1.0] * 16))["predictions"],
            "refused": await refused(lambda: predict([1.0] * 15)),
        }


async def over_v2(url: str) -> dict[str, Any]:
    """The REST client, speaking V2 in JSON and in binary."""
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:

        async def infer(model: str, binary: bool, binary_output: bool | None) -> Any:
            asked = request(model, binary=binary, binary_output=binary_output)
            return found(await client.infer(url, asked, model_name=model))

        answers = {
            model: [
                await infer(model, binary, binary_output)
                for binary in ((True,) if model == RAW_ONLY else (True, False))
                for binary_output in ((True,) if model == RAW_ONLY else (True, False, None))
            ]
            for model in ARRAYS
        }
        return {
            "live": await client.is_server_live(url),
            "ready": await client.is_server_ready(url),
            "model ready": await client.is_model_ready(url, "matmul"),
            "unknown ready": await client.is_model_ready(url, "unknown"),
            "answers": answers,
            "refused": await refused(
                lambda: client.infer(url, request("long", binary=True), model_name="unknown")
            ),
        }


async def over_grpc(target: str) -> dict[str, Any]:
    """The gRPC client, with raw and with typed contents."""
    async with InferenceGRPCClient(target) as client:
        answers = {
            model: [
                found(await client.infer(request(model, binary=binary)))
                for binary in ((True,) if model == RAW_ONLY else (True, False))
            ]
            for model in ARRAYS
        }
        return {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model ready": await client.is_model_ready("matmul"),
            "answers": answers,
        }


async def main(http_port: str, grpc_port: str) -> None:
    """Make every call."""
    url = f"http://127.0.0.1:{http_port}"
    results = {
        "v1": await over_v1(url),
        "v2": await over_v2(url),
        "grpc": await over_grpc(f"127.0.0.1:{grpc_port}"),
    }
    # Strings of raw contents stay bytes there.
    print(json.dumps(results, default=bytes.decode))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
