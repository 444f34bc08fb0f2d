"""KServe's batcher as a small server: the algorithm of its agent, in asyncio, before the model.

One loop holds one batch. It looks every 100 µs, and runs the batch when it is full, or when it has
been open for the wait; while the model runs, nobody is taken in. The algorithm is that of
kserve/kserve, pkg/batcher/handler.go, written anew. Where that ticks while nobody waits, this waits
for the first request, which changes no time of any answer.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import work
from fastapi import FastAPI, Request
from fastapi.responses import ORJSONResponse

TICK_S = 1e-4

Waiting = tuple[Any, asyncio.Future[dict[str, Any]]]


class Batcher:
    """The loop before one model."""

    def __init__(self, predict: Callable[[work.Rows], work.Rows]) -> None:
        self._predict = predict
        self._arrived: asyncio.Queue[Waiting] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, instance: Any) -> dict[str, Any]:
        """Return the answer to one instance."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._arrived.put_nowait((instance, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            batch = [await self._arrived.get()]
            opened_s = time.monotonic()
            while len(batch) < work.CAP and time.monotonic() - opened_s < work.WAIT_MS / 1e3:
                while len(batch) < work.CAP and not self._arrived.empty():
                    batch.append(self._arrived.get_nowait())
                if len(batch) < work.CAP:
                    await asyncio.sleep(TICK_S)
            rows = await asyncio.to_thread(self._predict, [instance for instance, _ in batch])
            batch_id = str(uuid.uuid4())
            for (_, answer), row in zip(batch, rows, strict=True):
                if not answer.done():
                    answer.set_result({"message": "", "batchId": batch_id, "predictions": [row]})


app = FastAPI(default_response_class=ORJSONResponse)


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Answer that the service is ready."""
    return {"ready": True}


def add(name: str, batcher: Batcher) -> None:
    """Serve one model."""

    @app.post(work.path(name))
    async def answer(request: Request) -> ORJSONResponse:
        return ORJSONResponse(await batcher.ask((await request.json())["instances"][0]))


for name, predict in work.models().items():
    add(name, Batcher(predict))
