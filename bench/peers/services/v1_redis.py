"""A Redis queue between FastAPI and a worker that polls it: the usual way to batch with Redis.

The web process pushes each request to a list, with an id, and looks every POLL_S whether its answer
is there. A worker looks every POLL_S, takes up to a batch from the list's head, runs it, and sets
an answer for each id. Started as a program this starts Redis, the workers and the web process.
"""

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import orjson
import redis
import uvicorn
import work
from fastapi import FastAPI, Request, Response
from redis.asyncio import Redis

POLL_S = float(os.environ.get("BENCH_POLL_MS", "5")) / 1e3
KEPT_S = 60
MOST_WAITING = 8192
READY = "workers that poll"

app = FastAPI()


def redis_socket() -> str:
    """Return the path of Redis's socket."""
    return os.environ["BENCH_REDIS"]


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Answer that the service is ready."""
    return {"ready": True}


def add(name: str, queue: "Redis[Any]") -> None:
    """Serve one model."""

    @app.post(work.path(name))
    async def answer(request: Request) -> Response:
        key = uuid.uuid4().hex
        (instance,) = orjson.loads(await request.body())["instances"]
        await queue.rpush(name, orjson.dumps([key, instance]))
        while (found := await queue.getdel(key)) is None:
            await asyncio.sleep(POLL_S)
        return Response(found, media_type="application/json")


def poll(name: str) -> None:
    """Answer a model's requests for ever, as a worker."""
    predict, queue = work.models()[name], redis.Redis(unix_socket_path=redis_socket())
    queue.incr(READY)
    while True:
        taken = queue.lpop(name, work.CAP)
        if not taken:
            time.sleep(POLL_S)
            continue
        keys, instances = zip(*map(orjson.loads, taken), strict=True)
        answers = queue.pipeline(transaction=False)
        for key, row in zip(keys, predict(list(instances)), strict=True):
            answers.set(key, orjson.dumps({"predictions": [row]}), ex=KEPT_S)
        answers.execute()


def main() -> None:
    """Start everything and serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--poll", metavar="MODEL")
    options = parser.parse_args()
    if options.poll:
        poll(options.poll)
        return
    workers = int(os.environ.get("BENCH_WORKERS", "1"))
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        os.environ["BENCH_REDIS"] = str(Path(folder, "socket"))
        store = ["redis-server", "--port", "0", "--unixsocket", redis_socket(), "--save", ""]
        children = [subprocess.Popen([*store, "--dir", folder], stdout=subprocess.DEVNULL)]
        while not listens(redis_socket()):
            if children[0].poll() is not None:
                raise SystemExit("redis-server ended")
            time.sleep(0.01)
        names = [name for name in work.models() for _ in range(workers)]
        children += [subprocess.Popen([sys.executable, __file__, "--poll", n]) for n in names]
        store_client = redis.Redis(unix_socket_path=redis_socket())
        while int(store_client.get(READY) or 0) < len(names):
            time.sleep(0.01)
        for name in work.models():
            add(name, Redis(unix_socket_path=redis_socket(), max_connections=MOST_WAITING))
        # uvicorn sends itself the signal that ended it again, which must not skip what follows.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            uvicorn.run(app, port=options.port, log_level="error")
        finally:
            for child in reversed(children):
                child.send_signal(signal.SIGTERM)
                child.wait()


def listens(path: str) -> bool:
    """Return whether a process listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


if __name__ == "__main__":
    main()
