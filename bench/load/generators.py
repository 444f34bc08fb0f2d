"""The load generators: `wrk` for as much as a server takes, `hey` for a count of what it answered.

Both come from Debian packages; where one is missing the run says so and stops.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

JSON: Mapping[str, str] = {"Content-Type": "application/json"}
_WRK_MARK = "bench-summary "
_OWN_HEADS = """
local requests, sent = {}, 0
function init(args)
  for number = 1, 10000 do
    wrk.headers["traceparent"] = string.format("00-%032x-%016x-01", number, number)
    requests[number] = wrk.format()
  end
end

function request()
  sent = sent % #requests + 1
  return requests[sent]
end
"""


class ToolMissing(RuntimeError):
    """A load generator is not installed; the message has the command that installs it."""


class LoadFailed(RuntimeError):
    """A run whose figure must not be used: requests failed, or the tool itself did."""


@dataclass(frozen=True)
class Post:
    """The one request that a run repeats.

    Attributes:
        path, body, headers: parts of the request.
        own_heads: whether each request has its own ``traceparent``, as behind a mesh or a
            gateway.
    """

    path: str
    body: str | bytes
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    own_heads: bool = False


@dataclass(frozen=True)
class WrkRun:
    """Figures of a run of wrk.

    Latencies are those of a closed loop: each connection waits for its answer before it sends the
    next request, so a stalled server is asked less often.
    """

    connections: int
    seconds: float
    requests: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True)
class HeyRun:
    """Figures of a run of hey.

    Attributes:
        percentiles_s: percent to seconds; with few requests hey leaves out the high ones.
        statuses: HTTP status to how often it was answered.
        errors: requests that got no answer at all.
    """

    average_s: float
    fastest_s: float
    slowest_s: float
    requests_per_s: float
    percentiles_s: Mapping[int, float]
    statuses: Mapping[int, int]
    errors: int


def require_tools() -> None:
    """Raise ToolMissing unless both generators are installed."""
    for tool in ("wrk", "hey"):
        if shutil.which(tool) is None:
            raise ToolMissing(f"{tool} is not installed: apt-get install wrk hey")


def wrk_version() -> str | None:
    """Return what wrk says about itself, such as ``4.1.0``; None where it is not installed."""
    if shutil.which("wrk") is None:
        return None
    text = subprocess.run(["wrk", "-v"], capture_output=True, text=True).stdout
    return text.split("[")[0].removeprefix("wrk").strip()


def wrk(url: str, post: Post, connections: int, seconds: float, timeout_s: float = 10.0) -> WrkRun:
    """Post one request over and over from one thread.

    Raises:
        LoadFailed: an answer was not 2xx or 3xx, a connection broke, or wrk itself failed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-wrk-") as folder:
        script = Path(folder, "post.lua")
        script.write_text(wrk_script(post, _body_file(post, Path(folder))))
        text = _run(
            [
                *f"wrk -t1 -c{connections} -d{seconds:g}s --timeout {timeout_s:g}s -s".split(),
                *(str(script), url),
            ],
            limit_s=seconds + timeout_s + 30,
        )
    return parse_wrk(text, connections)


def wrk_script(post: Post, body_file: Path) -> str:
    """Return the Lua script of one run, which reads the body from a file.

    Without own heads, wrk builds the request once. With them, `init` builds many in advance,
    because a `request` function runs for each request. `done` prints the summary, because wrk's
    own text rounds and drops percentiles.
    """
    headers = "\n".join(
        f"wrk.headers[ {_lua_string(name)} ] = {_lua_string(value)}"
        for name, value in post.headers.items()
    )
    return f"""\
local file = assert(io.open({_lua_string(str(body_file))}, "rb"))
wrk.body = file:read("*a")
file:close()
wrk.method = "POST"
wrk.path = {_lua_string(post.path)}
{headers}
{_OWN_HEADS if post.own_heads else ""}
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{_WRK_MARK}{{"requests":%d,"duration_us":%d,"connect":%d,"read":%d,"write":%d,'
      .. '"status":%d,"timeout":%d,"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d}}\\n',
    summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
"""


def parse_wrk(text: str, connections: int) -> WrkRun:
    """Read what the script of `wrk_script` printed.

    Raises:
        LoadFailed: the summary is absent, counts a failed request, or counts no request.
    """
    lines = [line for line in text.splitlines() if line.startswith(_WRK_MARK)]
    if len(lines) != 1:
        raise LoadFailed(f"wrk printed no summary:\n{text}")
    found = json.loads(lines[0].removeprefix(_WRK_MARK))
    failed = {
        key: found[key]
        for key in ("connect", "read", "write", "status", "timeout")
        if found[key] != 0
    }
    if failed:
        raise LoadFailed(f"{failed} of {found['requests']} requests failed")
    if found["requests"] == 0:
        raise LoadFailed("no request was answered")
    seconds = found["duration_us"] / 1e6
    return WrkRun(
        connections=connections,
        seconds=seconds,
        requests=found["requests"],
        requests_per_s=found["requests"] / seconds,
        p50_ms=found["p50_us"] / 1e3,
        p99_ms=found["p99_us"] / 1e3,
        p999_ms=found["p999_us"] / 1e3,
        max_ms=found["max_us"] / 1e3,
    )


def hey(url: str, post: Post, connections: int, seconds: float) -> HeyRun:
    """Post one request over and over from `connections` workers.

    Raises:
        LoadFailed: hey itself failed. Answers that are not 200 are in the result, not an error.
    """
    with tempfile.TemporaryDirectory(prefix="bench-hey-") as folder:
        text = _run(
            [
                *f"hey -z {seconds:g}s -c {connections} -m POST -D".split(),
                str(_body_file(post, Path(folder))),
                *(part for item in post.headers.items() for part in ("-H", ": ".join(item))),
                url + post.path,
            ],
            limit_s=seconds + 60,
        )
    return parse_hey(text)


def parse_hey(text: str) -> HeyRun:
    """Read hey's report.

    Raises:
        LoadFailed: it has no summary.
    """
    try:
        return HeyRun(
            average_s=_hey_number(text, "Average"),
            fastest_s=_hey_number(text, "Fastest"),
            slowest_s=_hey_number(text, "Slowest"),
            requests_per_s=_hey_number(text, "Requests/sec"),
            percentiles_s={
                int(percent): float(value)
                for percent, value in re.findall(r"^\s+(\d+)%+ in ([\d.]+) secs$", text, re.M)
                if percent != "0"
            },
            statuses={
                int(status): int(count)
                for status, count in re.findall(r"^\s+\[(\d+)\]\s+(\d+) responses$", text, re.M)
            },
            errors=sum(
                int(count)
                for count in re.findall(r"^\s+\[(\d+)\]\s+", text.partition("Error dist")[2], re.M)
            ),
        )
    except ValueError as error:
        raise LoadFailed(f"hey printed no summary ({error}):\n{text}") from None


def _hey_number(text: str, name: str) -> float:
    found = re.search(rf"^\s*{re.escape(name)}:\s+([\d.]+)", text, re.M)
    if found is None:
        raise ValueError(f"no {name}")
    return float(found[1])


def _body_file(post: Post, folder: Path) -> Path:
    file = folder / "body"
    file.write_bytes(post.body.encode() if isinstance(post.body, str) else post.body)
    return file


def _lua_string(text: str) -> str:
    level = "=" * next(n for n in range(1, 100) if f"]{'=' * n}]" not in text)
    return f"[{level}[{text}]{level}]"


def _run(argv: list[str], limit_s: float) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s)
    except FileNotFoundError:
        raise ToolMissing(f"{argv[0]} is not installed: apt-get install wrk hey") from None
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{argv[0]} was still running after {limit_s:g} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{argv[0]} ended with {done.returncode}:\n{done.stderr or done.stdout}")
    return done.stdout
