"""A model of trees_models.py behind FastAPI: each request is one call of the model."""

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from trees_models import load

predict = load(os.environ["BENCH_KIND"], Path(os.environ["BENCH_FILE"]))
app = FastAPI()


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Answer that the service is ready."""
    return {"ready": True}


@app.post("/v1/models/trees:predict")
async def answer(request: Request) -> dict[str, Any]:
    """Answer with the labels of all instances."""
    rows = (await request.json())["instances"]
    return {"predictions": [int(label) for label in predict(rows)]}
