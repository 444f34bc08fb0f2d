"""models/steps_1ms.py behind mosec's worker of events.

A static batch runs until its longest row has ended.

orjson is the codec, as in v1_mosec.py. mosec's shortest wait for a batch is 1 ms.
"""

import os
import time
from typing import Any

import orjson
from mosec import Server, SSEWorker


class Count(SSEWorker):
    """`{"n": 5}` to five events."""

    def forward(self, data: list[dict[str, Any]]) -> list[None]:
        """Run the rows of one batch to their ends."""
        lengths = [request["n"] for request in data]
        for number in range(max(lengths)):
            time.sleep(0.001)
            text = f'{{"number": {number}}}'
            for index, length in enumerate(lengths):
                if number < length:
                    self.send_stream_event(text, index=index)
        return [None] * len(data)

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Count,
        num=1,
        max_batch_size=int(os.environ["BENCH_PLACES"]),
        max_wait_time=1,
        timeout=60,
        route="/predict",
    )
    server.run()
