"""models/sleep_20ms.py served by LitServe: its dynamic batching, one worker.

Its `timeout` is how long a request may take before it is answered with 504.
"""

import argparse
import os
import time
from typing import Any

import litserve


class Sleep(litserve.LitAPI):
    """`{"instances": [number]}` to `{"predictions": [twice that]}`, 20 ms a batch."""

    def setup(self, device: str) -> None:
        """Nothing is loaded."""

    def decode_request(self, request: dict[str, Any]) -> float:
        return float(request["instances"][0])

    def batch(self, inputs: list[float]) -> list[float]:
        return inputs

    def predict(self, inputs: list[float]) -> list[float]:
        """Answer the requests of one batch."""
        time.sleep(0.02)
        return [2.0 * value for value in inputs]

    def unbatch(self, output: list[float]) -> list[float]:
        return output

    def encode_response(self, output: float) -> dict[str, Any]:
        return {"predictions": [output]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    api = Sleep(
        max_batch_size=int(os.environ["BENCH_CAP"]),
        batch_timeout=0.001,
        api_path="/v1/models/sleep:predict",
    )
    server = litserve.LitServer(api, accelerator="cpu", timeout=1, workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="error",
        generate_client_file=False,
    )
