"""A FastAPI application as a user would write it, for test_routes.py."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.from_thread
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ringbatch.frontend import RequestError, http_answer, models


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, float]]:
    ready = await models.infer("echo", ["started"])
    yield {"greeting": ready[0]}
    last = await models.infer("echo", ["stopped"])
    Path("stopped").write_text(last[0])


argparse.ArgumentParser().parse_args()
app = FastAPI(lifespan=lifespan)
app.add_middleware(CORSMiddleware, allow_origins=["https://page.test"], allow_methods=["POST"])


@app.exception_handler(RequestError)
async def refused(_request: Request, error: RequestError) -> Response:
    status, body, headers = http_answer(error)
    return Response(body, status, dict(headers))


@app.get("/")
async def greeting(request: Request) -> str:
    return str(request.state.greeting)


@app.post("/sums")
async def sums(rows: list[list[float]]) -> list[float]:
    y = await models.infer("matmul", np.array(rows, np.float32))
    return [float(row.sum()) for row in y]


@app.post("/threaded")
def threaded(row: list[float]) -> float:
    x = np.array([row], np.float32)
    return float(anyio.from_thread.run(models.infer, "matmul", x).sum())


@app.post("/elsewhere")
def elsewhere() -> str:
    try:
        asyncio.run(models.infer("echo", [1]))
    except Exception as error:  # whatever it is, the test reads its words
        return f"{type(error).__name__}: {error}"
    return "answered"


uploads: list[str] = []


@app.post("/upload")
async def upload(request: Request) -> int:
    uploads.append("begun")
    return len(await request.body())


@app.get("/uploads")
async def begun() -> list[str]:
    return uploads


@app.get("/names")
async def names() -> list[str]:
    return list(models.names)


@app.get("/unknown")
async def unknown() -> None:
    await models.infer("nobody", [1])


@app.get("/naps")
async def naps(timeout_s: float) -> list[float]:
    answer: list[float] = await models.infer("nap", [0.3], timeout_s=timeout_s)
    return answer


@app.get("/defect")
async def defect() -> None:
    raise ValueError("of the application")


@app.get("/stream")
async def stream() -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        for number in range(3):
            yield str((await models.infer("echo", [number]))[0])

    return StreamingResponse(parts())


ends: list[str] = []


class Endless(StreamingResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            ends.append("ended")


@app.get("/endless")
async def endless() -> Endless:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield bytes(10_000)

    return Endless(parts())


@app.get("/ends")
async def ended() -> list[str]:
    return ends


@app.get("/exit")
async def leave() -> None:
    raise SystemExit(3)


@app.get("/cancelled")
async def cancelled() -> None:
    task = asyncio.ensure_future(asyncio.sleep(9))
    task.cancel()
    await task
