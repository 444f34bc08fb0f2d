"""models/sleep_20ms.py served by mosec: its dynamic batching, one worker, orjson as codec.

The time limit is mosec's own, in milliseconds, for each stage of a request.
"""

import os
import time
from typing import Any

import orjson
from mosec import Server, Worker


class Sleep(Worker):
    """`{"instances": [number]}` to `{"predictions": [twice that]}`, 20 ms a batch."""

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answer the requests of one batch."""
        time.sleep(0.02)
        return [{"predictions": [2.0 * request["instances"][0]]} for request in data]

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Sleep,
        num=1,
        max_batch_size=int(os.environ["BENCH_CAP"]),
        max_wait_time=1,
        timeout=1,
        route="/v1/models/sleep:predict",
    )
    server.run()
