"""The program of device_model.py behind LitServe, its dynamic batching.

LitServe reads JSON or forms, so a row is base64 in JSON, and so is its answer.
"""

import argparse
import base64
from typing import Any

import litserve
from device_model import CAP, Program


class Api(litserve.LitAPI):
    """LitServe worker that runs the program on the device."""

    def setup(self, device: str) -> None:
        self._program = Program()

    def decode_request(self, request: dict[str, Any]) -> bytes:
        return base64.b64decode(request["row"])

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        return inputs

    def predict(self, inputs: list[bytes]) -> list[bytes]:
        """Run the rows of one batch."""
        return self._program.rows(inputs)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output: bytes) -> dict[str, str]:
        return {"row": base64.b64encode(output).decode()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    api = Api(max_batch_size=CAP, batch_timeout=0.001)
    # The program finds its device by itself.
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="error",
        generate_client_file=False,
    )
