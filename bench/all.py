"""Run every scenario with its defaults, one after the other; the exit status is 1 if any missed."""

import subprocess
import sys

from peers import BENCH

SCENARIOS = [
    "kserve_example",
    "redis_table",
    "speed",
    "v2",
    "grpc_unary",
    "grpc_scaling",
    "scaling",
    "in_process",
    "client",
    "overload",
    "sidecar",
    "upstreams",
    "batching",
    "lengths",
    "reload",
    "idle",
    "page",
]


def main() -> int:
    """Run them and print which met their limits."""
    failed = [
        name
        for name in SCENARIOS
        if subprocess.run([sys.executable, str(BENCH / f"{name}.py")]).returncode != 0
    ]
    print(f"missed: {', '.join(failed)}" if failed else "every limit met")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
