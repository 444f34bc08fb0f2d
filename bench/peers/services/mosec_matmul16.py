"""models/matmul16.py served by mosec: the same JSON in and out, its dynamic batching, one worker.

mosec's own JSON codec is the standard library's, with `indent=2` on the way out. orjson in its
place is what a user after speed would write, and bench/methods.md has both figures.
"""

import os
from typing import Any

import numpy as np
import orjson
from mosec import Server, Worker

W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)


class Matmul16(Worker):
    """`{"instances": [[16 floats]]}` to `{"predictions": [[10 floats]]}`, one instance each."""

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the requests of one batch as one matrix product."""
        x = np.array([request["instances"][0] for request in data], np.float32)
        return [{"predictions": [row]} for row in (x @ W).tolist()]


class Matmul16Orjson(Matmul16):
    """The same with orjson as codec."""

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Matmul16 if os.environ.get("BENCH_CODEC") == "json" else Matmul16Orjson,
        num=1,
        max_batch_size=32,
        max_wait_time=1,
        route="/v1/models/matmul16:predict",
    )
    server.run()
