"""Models of work.py behind LitServe: its dynamic batching, one worker each."""

import argparse
from typing import Any

import litserve
import work


class Predict(litserve.LitAPI):
    """`{"instances": [instance]}` to `{"predictions": [row]}`, one instance each."""

    def __init__(self, name: str) -> None:
        super().__init__(
            max_batch_size=work.CAP,
            batch_timeout=work.WAIT_MS / 1e3,
            api_path=work.path(name),
        )
        self.name = name

    def setup(self, device: str) -> None:
        """Look up what the model computes, in the worker's process."""
        self.compute = work.models()[self.name]

    def decode_request(self, request: dict[str, Any]) -> Any:
        return request["instances"][0]

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Answer the requests of one batch."""
        return self.compute(inputs)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"predictions": [output]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    server = litserve.LitServer(
        [Predict(name) for name in work.models()],
        accelerator="cpu",
        timeout=work.TIMEOUT_S,
        workers_per_device=1,
    )
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="error",
        generate_client_file=False,
    )
