"""A process that calls `infer_many` over and over.

`python -m load.bulk_client ENGINE MODEL SHAPE DTYPE ROWS SECONDS` says that it is ready, waits for
a line, and prints rows/s.
"""

import json
import sys
import time

from load.made_rows import Row
from ringbatch.frontend import Client


def main() -> int:
    """Ask for so many seconds; the exit status is 1 if a row was not answered."""
    engine, model, shape, dtype, rows, seconds = sys.argv[1:]
    row = Row(tuple(json.loads(shape)), dtype)
    instances = row.values(int(rows))
    with Client(int(engine)) as client:
        client.infer_many(model, instances[:64])
        print("ready", flush=True)
        sys.stdin.readline()
        began, done = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < float(seconds):
            _, errors = client.infer_many(model, instances)
            if errors:
                print(next(iter(errors.values())), file=sys.stderr)
                return 1
            done += len(instances)
    print(done / took)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
