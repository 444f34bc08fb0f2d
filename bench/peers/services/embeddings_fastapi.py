"""sentence-transformers behind FastAPI: each request is one call of the model, one at a time, so
that it has as many threads as it is told and no more."""

import os
import threading
from typing import Any

import torch
from fastapi import FastAPI
from sentence_transformers import SentenceTransformer

torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
model = SentenceTransformer(os.environ["BENCH_MODEL"], device="cpu")
alone = threading.Lock()
app = FastAPI()


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Answer that the service is ready."""
    return {"ready": True}


@app.post("/v1/embeddings")
def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Answer with the vectors of all texts, in OpenAI's form."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    with alone:
        vectors = model.encode(texts, show_progress_bar=False)
    data = [
        {"object": "embedding", "index": index, "embedding": vector.tolist()}
        for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": body["model"]}
