"""Models of work.py behind mosec: its dynamic batching, one worker each, orjson as codec.

mosec's shortest wait is 1 ms.
"""

import os
from typing import Any

import orjson
import work
from mosec import Server, Worker


class Predict(Worker):
    """`{"instances": [instance]}` to `{"predictions": [row]}`, one instance each."""

    def __init__(self) -> None:
        self._predict = work.models()[os.environ["BENCH_SERVED"]]

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answer the requests of one batch."""
        rows = self._predict([request["instances"][0] for request in data])
        return [{"predictions": [row]} for row in rows]

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


if __name__ == "__main__":
    server = Server()
    for name in work.models():
        server.append_worker(
            Predict,
            num=1,
            max_batch_size=work.CAP,
            max_wait_time=max(1, int(work.WAIT_MS)),
            timeout=max(1, int(work.TIMEOUT_S)),
            route=work.path(name),
            env=[{"BENCH_SERVED": name}],
        )
    server.run()
