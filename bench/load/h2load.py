"""`h2load`, the load generator for HTTP/2, with a gRPC message as the body.

It knows nothing of gRPC: a call that failed is an answer with status 200 like any other, but one
without a message. So a run counts only if the bytes of its answers are those of right ones.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from load.generators import LoadFailed, ToolMissing

WARM_UP_REQUESTS = 2000


@dataclass(frozen=True)
class H2Run:
    """Figures of a run of h2load. The latencies are of a closed loop.

    Attributes:
        connections: number of connections.
        streams: calls under way on each at once.
        requests: number of requests.
        requests_per_s: their rate.
        mean_ms: mean time for a request.
        max_ms: the longest.
        p50_ms: half of the requests were answered as quickly.
    """

    connections: int
    streams: int
    requests: int
    requests_per_s: float
    mean_ms: float
    max_ms: float
    p50_ms: float


def require() -> None:
    """Raise ToolMissing unless it is installed."""
    if shutil.which("h2load") is None:
        raise ToolMissing("h2load is not installed: apt-get install nghttp2-client")


def framed(message: bytes) -> bytes:
    """Return a message as it stands in a gRPC body: not compressed, behind its length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def h2load(
    url: str, request: bytes, answer_bytes: int, connections: int, streams: int, seconds: float
) -> H2Run:
    """Send one message over and over, after a warm-up.

    Args:
        url: with the path of the method.
        request: the message.
        answer_bytes: of each right answer, framed.
        connections, streams: see `H2Run`.
        seconds: so long, however many requests each connection gets to send.

    Raises:
        LoadFailed: requests failed, or answers were not of that length.
    """
    with tempfile.TemporaryDirectory(prefix="bench-h2load-") as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(framed(request))

        def run(extent: str) -> H2Run:
            command = f"h2load {extent} -c {connections} -m {streams}".split()
            headers = ("-H", "content-type: application/grpc", "-H", "te: trailers")
            done = subprocess.run(
                [*command, "-d", str(body), f"--log-file={log}", *headers, url],
                capture_output=True,
                text=True,
                timeout=seconds + 60,
            )
            if done.returncode != 0:
                words = done.stderr or done.stdout
                raise LoadFailed(f"h2load ended with {done.returncode}:\n{words}")
            p50_ms = median_ms(log.read_text())
            log.unlink()
            return parse(done.stdout, answer_bytes, connections, streams, p50_ms)

        run(f"-n {WARM_UP_REQUESTS}")
        return run(f"-D {round(seconds * 1e3)}ms")


def median_ms(log: str) -> float:
    """The median of what requests took, from its log: for each a line with its start, its status
    and the microseconds that it took, and perhaps more, tabs between them.

    Raises:
        LoadFailed: there is none.
    """
    took_us = [int(line.split("\t")[2]) for line in log.splitlines()]
    if not took_us:
        raise LoadFailed("h2load logged no request")
    return median(took_us) / 1e3


def parse(text: str, answer_bytes: int, connections: int, streams: int, p50_ms: float) -> H2Run:
    """Read what it printed.

    Raises:
        LoadFailed: see `h2load`.
    """
    rate = re.search(r"^finished in .*, ([\d.]+) req/s", text, re.M)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    traffic = re.search(r"\((\d+)\) data$", text, re.M)
    times = re.search(r"^time for request: +\S+ +(\S+) +(\S+)", text, re.M)
    if rate is None or counts is None or traffic is None or times is None:
        raise LoadFailed(f"h2load printed no summary:\n{text}")
    succeeded, *bad = (int(number) for number in counts.groups())
    answers, rest = divmod(int(traffic[1]), answer_bytes)
    # At the end of a run, calls may have their message and not yet their status.
    right = not rest and succeeded <= answers <= succeeded + connections * streams
    if any(bad) or not succeeded or not right:
        raise LoadFailed(f"of {succeeded} answers not all have {answer_bytes} bytes:\n{text}")
    mean_ms, max_ms = _ms(times[2]), _ms(times[1])
    return H2Run(connections, streams, succeeded, float(rate[1]), mean_ms, max_ms, p50_ms)


def _ms(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise LoadFailed(f"h2load printed a time of {text}")
