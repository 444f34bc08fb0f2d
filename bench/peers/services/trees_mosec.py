"""A model of trees_models.py behind mosec: its dynamic batching, one worker, orjson."""

import os
from pathlib import Path
from typing import Any

import orjson
from mosec import Server, Worker
from trees_models import load


class Trees(Worker):
    """`{"instances": [row]}` to `{"predictions": [label]}`, one instance each."""

    def __init__(self) -> None:
        self._predict = load(os.environ["BENCH_KIND"], Path(os.environ["BENCH_FILE"]))

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the requests of one batch at once."""
        labels = self._predict([request["instances"][0] for request in data])
        return [{"predictions": [int(label)]} for label in labels]


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Trees, num=1, max_batch_size=32, max_wait_time=1, route="/v1/models/trees:predict"
    )
    server.run()
