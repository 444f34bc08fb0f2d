"""Models of work.py behind Ray Serve: its dynamic batching, one replica each."""

import argparse
import signal
import threading
from collections.abc import Callable
from typing import Any

import orjson
import ray
import work
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=4096)
class Model:
    """`{"instances": [instance]}` to `{"predictions": [row]}`, one instance each."""

    def __init__(self, name: str) -> None:
        self._compute: Callable[[work.Rows], work.Rows] = work.models()[name]

    @serve.batch(max_batch_size=work.CAP, batch_wait_timeout_s=work.WAIT_MS / 1e3)
    async def predict(self, rows: list[Any]) -> list[Any]:
        """Run the requests of one batch."""
        return self._compute(rows)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        row = await self.predict(orjson.loads(await request.body())["instances"][0])
        return Response(orjson.dumps({"predictions": [row]}), media_type="application/json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    ended = threading.Event()
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    serve.start(http_options={"host": "127.0.0.1", "port": parser.parse_args().port})
    for name in work.models():
        serve.run(Model.bind(name), name=name, route_prefix=work.path(name))
    ended.wait()
    serve.shutdown()
    ray.shutdown()
