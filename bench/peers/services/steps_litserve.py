"""models/steps_1ms.py behind LitServe's continuous batching loop, one worker.

The loop gives an author's `step` all rows at once, and rows join between two steps. LitServe names
no content type for its streams, so the service does.
"""

import argparse
import json
import os
import time
from typing import Any

import litserve
from litserve.loops.continuous_batching_loop import ContinuousBatchingLoop, Output
from litserve.utils import LitAPIStatus

PLACES = int(os.environ["BENCH_PLACES"])


class Count(litserve.LitAPI):
    """`{"n": 5}` to five events."""

    def setup(self, device: str) -> None:
        """Begin without rows."""
        self.rows: dict[str, list[int]] = {}

    def add_request(self, uid: str, request: dict[str, Any]) -> None:
        """Let a row join."""
        self.rows[uid] = [request["n"], 0]

    def has_capacity(self) -> bool:
        return len(self.rows) < PLACES

    def has_active_requests(self) -> bool:
        return bool(self.rows)

    def step(self, _before: Any) -> list[Output]:
        """Return the next number of each row, and the end of each that has ended."""
        time.sleep(0.001)
        outputs = []
        for uid, row in [*self.rows.items()]:
            outputs.append(Output(uid, row[1], LitAPIStatus.OK))
            row[1] += 1
            if row[1] >= row[0]:
                del self.rows[uid]
                outputs.append(Output(uid, None, LitAPIStatus.FINISH_STREAMING))
        return outputs

    def encode_response(self, output: int | None) -> str:
        return "" if output is None else f"data: {json.dumps({'number': output})}\n\n"


class Named:
    """ASGI middleware that names events as such."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"] == "/predict":
                message["headers"] = [*message["headers"], (b"content-type", b"text/event-stream")]
            await send(message)

        await self.app(scope, receive, sent)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    server = litserve.LitServer(
        Count(stream=True, max_batch_size=PLACES, loop=ContinuousBatchingLoop()),
        accelerator="cpu",
        timeout=60,
        workers_per_device=1,
        middlewares=[Named],
        fast_queue=os.environ.get("BENCH_FAST_QUEUE") == "1",
    )
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="error",
        generate_client_file=False,
    )
