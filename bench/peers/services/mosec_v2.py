"""models/matmul16.py and models/image.py served by mosec, its dynamic batching, one worker.

BENCH_MODEL says which model, BENCH_CODEC what a request is: "json" or "orjson", the V2 JSON of one
instance with the codec of that name, or "raw", the bytes of one instance and nothing else.
"""

import os
from typing import Any

import numpy as np
import orjson
from mosec import Server, Worker
from numpy.typing import NDArray

MODEL, CODEC = os.environ["BENCH_MODEL"], os.environ["BENCH_CODEC"]

W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)

PREDICT, SHAPE = {
    "matmul16": (lambda x: x @ W, (16,)),
    "image": (lambda x: x[:, :, 112, 112], (3, 224, 224)),
}[MODEL]


class Raw(Worker):
    """The bytes of one instance to the bytes of its answer."""

    resp_mime_type = "application/octet-stream"

    def deserialize(self, data: bytes) -> NDArray[np.float32]:
        return np.frombuffer(data, "<f4").reshape(SHAPE)

    def serialize(self, data: NDArray[np.float32]) -> bytes:
        return data.tobytes()

    def forward(self, data: list[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Run the requests of one batch as one array."""
        return list(PREDICT(np.stack(data)))


class Json(Worker):
    """V2 JSON, the values of one instance as a flat list, with mosec's own codec."""

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the requests of one batch as one array."""
        rows = [request["inputs"][0]["data"] for request in data]
        y = PREDICT(np.array(rows, np.float32).reshape(-1, *SHAPE))
        shape = [1, *y.shape[1:]]
        return [
            {
                "model_name": MODEL,
                "outputs": [{"name": "y", "datatype": "FP32", "shape": shape, "data": row}],
            }
            for row in y.tolist()
        ]


class Orjson(Json):
    """The same with orjson as codec."""

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        {"json": Json, "orjson": Orjson, "raw": Raw}[CODEC],
        num=1,
        max_batch_size=32,
        max_wait_time=1,
        route=f"/v2/models/{MODEL}/infer",
    )
    server.run()
