"""An application of Starlette as a user would write it, for test_routes.py.

FastAPI is built on Starlette. It has a test in the second tier.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.from_thread
import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ringbatch.frontend import RequestError, http_answer, models


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, float]]:
    ready = await models.infer("echo", ["started"])
    yield {"greeting": ready[0]}
    last = await models.infer("echo", ["stopped"])
    Path("stopped").write_text(last[0])


argparse.ArgumentParser().parse_args()


async def refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    status, body, headers = http_answer(error)
    return Response(body, status, dict(headers))


async def greeting(request: Request) -> JSONResponse:
    return JSONResponse(str(request.state.greeting))


async def sums(request: Request) -> JSONResponse:
    y = await models.infer("matmul", np.array(await request.json(), np.float32))
    return JSONResponse([float(row.sum()) for row in y])


def threaded(request: Request) -> JSONResponse:
    row = anyio.from_thread.run(request.json)
    x = np.array([row], np.float32)
    return JSONResponse(float(anyio.from_thread.run(models.infer, "matmul", x).sum()))


def elsewhere(_request: Request) -> JSONResponse:
    try:
        asyncio.run(models.infer("echo", [1]))
    except Exception as error:  # whatever it is, the test reads its words
        return JSONResponse(f"{type(error).__name__}: {error}")
    return JSONResponse("answered")


uploads: list[str] = []


async def upload(request: Request) -> JSONResponse:
    uploads.append("begun")
    return JSONResponse(len(await request.body()))


async def begun(_request: Request) -> JSONResponse:
    return JSONResponse(uploads)


async def names(_request: Request) -> JSONResponse:
    return JSONResponse(list(models.names))


async def unknown(_request: Request) -> JSONResponse:
    return JSONResponse(await models.infer("nobody", [1]))


async def naps(request: Request) -> JSONResponse:
    timeout_s = float(request.query_params["timeout_s"])
    return JSONResponse(await models.infer("nap", [0.3], timeout_s=timeout_s))


async def defect(_request: Request) -> Response:
    raise ValueError("of the application")


async def stream(_request: Request) -> StreamingResponse:
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


async def endless(_request: Request) -> Endless:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield bytes(10_000)

    return Endless(parts())


async def ended(_request: Request) -> JSONResponse:
    return JSONResponse(ends)


async def leave(_request: Request) -> Response:
    raise SystemExit(3)


async def cancelled(_request: Request) -> Response:
    task = asyncio.ensure_future(asyncio.sleep(9))
    task.cancel()
    await task
    return Response()


app = Starlette(
    lifespan=lifespan,
    middleware=[
        Middleware(CORSMiddleware, allow_origins=["https://page.test"], allow_methods=["POST"])
    ],
    exception_handlers={RequestError: refused},
    routes=[
        Route("/", greeting),
        Route("/sums", sums, methods=["POST"]),
        Route("/threaded", threaded, methods=["POST"]),
        Route("/elsewhere", elsewhere, methods=["POST"]),
        Route("/upload", upload, methods=["POST"]),
        Route("/uploads", begun),
        Route("/names", names),
        Route("/unknown", unknown),
        Route("/naps", naps),
        Route("/defect", defect),
        Route("/stream", stream),
        Route("/endless", endless),
        Route("/ends", ended),
        Route("/exit", leave),
        Route("/cancelled", cancelled),
    ],
)
