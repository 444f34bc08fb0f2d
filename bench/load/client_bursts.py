"""Program that holds a `Client` and measures it once for each line that it reads.

`python client_bursts.py ENGINE TRIPS REQUESTS` says that it is ready. Each line of standard input
is answered by a JSON list: requests/s one after the other, from the median round trip, and
requests/s of a bulk. It imports no other module of the benchmarks, because the installation that
runs it may be older than they are.
"""

import json
import sys
import time
from statistics import median

import numpy as np

from ringbatch.frontend import Client

MODEL = "matmul16"
WEIGHTS = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)
"""Weights of models/matmul16.py."""


def main() -> int:
    """Measure until the end of input; the exit status is 1 if an answer is wrong or missing."""
    engine, trips, requests = map(int, sys.argv[1:])
    instances = np.random.RandomState(0).standard_normal((requests, 16)).astype(np.float32)
    with Client(engine) as client:
        print("ready", flush=True)
        for _ in sys.stdin:
            took_s = []
            for index in range(trips):
                began_s = time.perf_counter()
                client.infer(MODEL, instances[index % requests, np.newaxis])
                took_s.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
            outputs, errors = client.infer_many(MODEL, instances)
            bulk_s = time.perf_counter() - began_s
            if errors or not np.allclose(outputs, instances @ WEIGHTS, rtol=1e-4, atol=1e-4):
                print(f"{len(errors)} of {requests} requests failed, or wrong", file=sys.stderr)
                return 1
            print(json.dumps([1 / median(took_s), requests / bulk_s]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
