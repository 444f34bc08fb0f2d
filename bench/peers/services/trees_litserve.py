"""A model of trees_models.py behind LitServe: its dynamic batching, one worker."""

import argparse
import os
from pathlib import Path
from typing import Any

import litserve
from trees_models import load


class Trees(litserve.LitAPI):
    """`{"instances": [row]}` to `{"predictions": [label]}`, one instance each."""

    def setup(self, device: str) -> None:
        self._predict = load(os.environ["BENCH_KIND"], Path(os.environ["BENCH_FILE"]))

    def decode_request(self, request: dict[str, Any]) -> list[float]:
        row: list[float] = request["instances"][0]
        return row

    def batch(self, inputs: list[list[float]]) -> list[list[float]]:
        return inputs

    def predict(self, inputs: list[list[float]]) -> list[int]:
        """Run the requests of one batch at once."""
        return [int(label) for label in self._predict(inputs)]

    def unbatch(self, output: list[int]) -> list[int]:
        return output

    def encode_response(self, output: int) -> dict[str, Any]:
        return {"predictions": [output]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    api = Trees(max_batch_size=32, batch_timeout=0.001, api_path="/v1/models/trees:predict")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="error",
        generate_client_file=False,
    )
