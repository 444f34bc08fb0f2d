"""``python -m serve.grpc_calls PORT``: gRPC calls to the model "held" without a pause, until
standard input ends; then prints how many got the right answer, and the ends of all others.

A program of its own, because one that has channels open cannot start processes.
"""

import json
import sys
import threading

from serve.grpc_stub import Stub, infer_request

CLIENTS = 2


def main(port: int) -> None:
    """Call, and print."""
    going = True
    answered = 0
    failures: list[str] = []
    lock = threading.Lock()

    def run(number: int) -> None:
        nonlocal answered
        with Stub(port) as stub:
            while going:
                number += CLIENTS
                raw = [number.to_bytes(8, "little")]
                tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
                end = stub.start(infer_request("held", tensor, raw_input_contents=raw))()
                right = end.code == "OK" and end.response.raw_output_contents == raw
                with lock:
                    answered += right
                    if not right:
                        failures.append(f"{end.code}: {end.text}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    going = False
    for thread in threads:
        thread.join()
    print(json.dumps({"answered": answered, "failures": failures}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
