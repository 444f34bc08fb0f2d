"""models/matmul16.py served by Ray Serve: the same JSON, its dynamic batching, one replica."""

import argparse
import signal
import sys
import threading

import numpy as np
import orjson
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)


@serve.deployment(max_ongoing_requests=1024)
class Matmul16:
    """`{"instances": [[16 floats]]}` to `{"predictions": [[10 floats]]}`, one instance each."""

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.001)
    async def predict(self, rows: list[list[float]]) -> list[list[float]]:
        """Run the requests of one batch as one matrix product."""
        return (np.array(rows, np.float32) @ W).tolist()

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        body = orjson.loads(await request.body())
        row = await self.predict(body["instances"][0])
        return Response(orjson.dumps({"predictions": [row]}), media_type="application/json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    ended = threading.Event()
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    serve.start(http_options={"host": "127.0.0.1", "port": parser.parse_args().port})
    serve.run(Matmul16.bind(), route_prefix="/v1/models/matmul16:predict")
    ended.wait()
    serve.shutdown()
    ray.shutdown()
    sys.exit(0)
