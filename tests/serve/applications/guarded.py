"""A FastAPI application that guards all it serves by a middleware, ringbatch's endpoints too."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response

from ringbatch.frontend import endpoints

TOKEN = "of-the-application"

app = FastAPI()


@app.middleware("http")
async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    if request.headers.get("x-token") != TOKEN:
        return Response("who are you?", 403)
    return await go_on(request)


@app.get("/")
async def greeting() -> str:
    return "welcome"


app.mount("/below", endpoints)
app.mount("/", endpoints)
