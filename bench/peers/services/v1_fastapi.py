"""Models of work.py behind FastAPI: each request is one call of the model, nothing is batched.

A model that calculates is called in the event loop, which is the quickest way; one that sleeps is
called in a thread, one call at a time, because there is one of it.
"""

import threading
from collections.abc import Callable
from typing import Annotated, Any

import work
from fastapi import Body, FastAPI, Request
from fastapi.responses import ORJSONResponse

app = FastAPI()


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Answer that the service is ready."""
    return {"ready": True}


def add_blocking(name: str, predict: Callable[[work.Rows], work.Rows]) -> None:
    """Serve one model that sleeps."""
    alone = threading.Lock()

    @app.post(work.path(name))
    def answer(body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        with alone:
            return {"predictions": predict(body["instances"])}


def add(name: str, predict: Callable[[work.Rows], work.Rows]) -> None:
    """Serve one model that calculates."""

    @app.post(work.path(name))
    async def answer(request: Request) -> ORJSONResponse:
        return ORJSONResponse({"predictions": predict((await request.json())["instances"])})


for name, predict in work.models().items():
    (add_blocking if name in work.blocking() else add)(name, predict)
