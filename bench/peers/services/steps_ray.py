"""models/steps_1ms.py behind Ray Serve: a batch of generators, a yield a step for all its rows."""

import argparse
import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import orjson
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import StreamingResponse

PLACES = int(os.environ["BENCH_PLACES"])


@serve.deployment(max_ongoing_requests=4096)
class Count:
    """`{"n": 5}` to five events."""

    @serve.batch(max_batch_size=PLACES, batch_wait_timeout_s=0.001)
    async def count(self, lengths: list[int]) -> AsyncIterator[list[Any]]:
        """Yield the next number of each row of one batch, until the longest has ended."""
        for number in range(max(lengths)):
            # A sleep that holds the loop would hold up what was yielded before.
            await asyncio.sleep(0.001)
            text = b'data: {"number": %d}\n\n' % number
            yield [text if number < length else b"" for length in lengths]

    async def __call__(self, request: Request) -> StreamingResponse:
        """Answer one request."""
        length = orjson.loads(await request.body())["n"]

        async def parts() -> AsyncIterator[bytes]:
            async for text in self.count(length):
                if text:
                    yield text

        return StreamingResponse(parts(), media_type="text/event-stream")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    ended = threading.Event()
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    serve.start(http_options={"host": "127.0.0.1", "port": parser.parse_args().port})
    serve.run(Count.bind(), name="count", route_prefix="/predict")
    ended.wait()
    serve.shutdown()
    ray.shutdown()
