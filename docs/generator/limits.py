"""The table of fixed limits, from the constants of the code."""

from typing import Final, NamedTuple

from ringbatch.engine import metrics
from ringbatch.engine.collector import dead_batches, lingering
from ringbatch.engine.config import addresses, batched, dimensions, text_rules
from ringbatch.engine.process import respawn
from ringbatch.engine.runtimes.upstreams import choice
from ringbatch.engine.worker import part_stream
from ringbatch.frontend.access import sampling
from ringbatch.frontend.codec import (
    event_stream,
    limit_messages,
    outcome,
    request_ids,
    resumption,
)
from ringbatch.frontend.falcon import completion_resources
from ringbatch.frontend.grpc import answers_in_parts, status
from ringbatch.frontend.http import content_coding, fallback, head_framing, phases, refusal_pacing
from ringbatch.frontend.page import subscribers
from ringbatch.frontend.payloads import log
from ringbatch.frontend.request import offload
from ringbatch.frontend.streams import connection
from ringbatch.shm import (
    chain,
    descriptors,
    engine_name,
    layout,
    model_metrics,
    model_spec,
    request_context,
    upstream_words,
)

_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Limit(NamedTuple):
    """A limit that no setting changes."""

    subject: str
    value: str
    beyond: str


def size(number: int) -> str:
    """Return a number of bytes in the largest unit that divides it."""
    found = (f"{number // unit} {name}" for unit, name in _UNITS if number % unit == 0)
    return next(found, f"{number} bytes")


LIMITS: Final[tuple[tuple[str, tuple[Limit, ...]], ...]] = (
    (
        "Names and numbers",
        (
            Limit("engine's name", f"{engine_name.MAX_CHARACTERS} characters", "no start"),
            Limit("path of a Unix socket", f"{addresses._MOST_PATH_BYTES} bytes", "no start"),
            Limit("workers of an engine, spares included", f"{layout.MAX_WORKERS:,}", "no start"),
            Limit("versions of models in an engine", f"{layout.MAX_MODELS:,}", "no load"),
            Limit("lanes of frontends and clients", f"{layout.MAX_LANES:,}", "no start"),
            Limit("requests in flight of a lane", f"{layout.MAX_SLOTS:,}", "no start"),
            Limit("shared memory of an engine", size(layout.MAX_BYTES), "no start"),
            Limit("steps of a chain", f"{chain.MAX_STEPS}", "no start"),
            Limit("addresses of a model's servers", f"{upstream_words.UPSTREAMS}", "no start"),
            Limit("instances in a batch", f"{batched.LARGEST_BATCH:,}", "no start"),
            Limit("registered regions of shared memory", f"{layout.MAX_REGIONS}", "503"),
        ),
    ),
    (
        "Requests over HTTP",
        (
            Limit("bytes of a request's head", size(head_framing.MAX_HEAD_BYTES), "431"),
            Limit("lines of a request's head", f"{head_framing.MAX_HEADERS}", "431"),
            Limit("time of a request's head", f"{phases.HEAD_TIMEOUT_S} s", "408"),
            Limit(
                "time of a body",
                f"{phases.BODY_TIMEOUT_S} s for each {size(phases.LEAST_RECEIVED_BYTES)}",
                "408",
            ),
            Limit(
                "time in which a client takes an answer",
                f"{phases.WRITE_TIMEOUT_S} s for each {size(phases.LEAST_TAKEN_BYTES)}",
                "the connection ends",
            ),
            Limit(
                "parts of an answer that a client leaves unread",
                size(event_stream.MOST_UNREAD_BYTES),
                "an event with an error, and the answer ends",
            ),
            Limit(
                "parts of a gRPC stream that a client leaves unread",
                size(answers_in_parts.MOST_UNREAD_BYTES),
                "a response with an error ends the request of the next part",
            ),
            Limit(
                "times that an answer in parts goes on after its worker's death",
                f"{resumption.MOST_RESUMPTIONS}, behind up to {size(resumption.MOST_KEPT_BYTES)}",
                "an error ends the answer",
            ),
            Limit("time without a part", f"{event_stream.SILENCE_S:g} s", "a comment is sent"),
            Limit("pipelined requests", f"{fallback.MAX_PIPELINED}", "they wait"),
            Limit(
                "refusals a second of a frontend, on connections that ask before `Retry-After`",
                f"{10**9 // refusal_pacing.TURN_NS:,}",
                f"they wait, for up to {refusal_pacing.LONGEST_NS // 10**6} ms",
            ),
            Limit(
                "requests at once on an HTTP/2 connection",
                f"{connection.MOST_STREAMS}",
                "they wait",
            ),
            Limit(
                "body or message of a request other than inference",
                size(limit_messages.MAX_CONTROL_BYTES),
                "413",
            ),
            Limit("default of `max_request_bytes`", size(dimensions.REQUEST_BYTES), "413"),
            Limit(
                "id, parameters and headers for a model", size(request_context.MOST_BYTES), "413"
            ),
            Limit("`X-Request-Id`", f"{request_ids.MAX_ID} characters", "another id is made"),
            Limit(
                "answers that are compressed", f"from {size(content_coding.MIN_ENCODED_BYTES)}", ""
            ),
            Limit(
                "JSON body that a frontend reads itself",
                f"{size(offload.LARGE_BODY_BYTES)}, of texts {size(offload.LARGE_TEXTS_BYTES)}, "
                f"of completions {size(completion_resources.LARGE_PROMPT_BYTES)}",
                "another process reads it",
            ),
            Limit("text of an error over gRPC", f"{status._LONGEST_TEXT:,} characters", "cut off"),
        ),
    ),
    (
        "Batches and workers",
        (
            Limit("workers that may die with one request", f"{dead_batches.MAX_DEATHS}", "503"),
            Limit(
                "time that such a request is refused afterwards",
                f"{outcome.REFUSED_S} s",
                "it may run again",
            ),
            Limit("wait of a batch for returning clients", f"{lingering.MOST_NS // 10**6} ms", ""),
            Limit(
                "parts of a request that wait for its frontend",
                f"{part_stream.MOST_WAITING}",
                "500",
            ),
            Limit(
                "rows that a worker of a model in steps runs at once",
                f"{model_spec.MOST_PLACES:,}",
                "no start",
            ),
            Limit("delay of a restart", f"{respawn.MOST_DELAY_S:g} s", ""),
            Limit(
                "elements of a batch of texts, by default", f"{text_rules.BATCH_TOKENS} tokens", ""
            ),
            Limit(
                "`Retry-After` of a model server that is kept", f"{choice.LONGEST_HOLD_S:g} s", ""
            ),
        ),
    ),
    (
        "Observation",
        (
            Limit("values of a model's own metrics", f"{model_metrics.MOST_VALUES}", "not counted"),
            Limit("buckets of a histogram", f"{metrics.MOST_BUCKETS}", "no load"),
            Limit("lines of failures in the access log", f"{sampling.FAILURES_PER_S} a second", ""),
            Limit("slowest requests that are kept", f"{descriptors.SLOW_REQUESTS} a lane", ""),
            Limit("open pages", f"{subscribers.MAX_SUBSCRIBERS}", "503"),
            Limit("payload events that wait", size(log.MOST_WAITING_BYTES), "dropped and counted"),
        ),
    ),
)
"""Limits by the title of their table."""


def tables() -> str:
    """Return a table for each group of limits."""
    parts = []
    for title, limits in LIMITS:
        rows = [f"| {one.subject} | {one.value} | {one.beyond} |" for one in limits]
        parts += [
            f"## {title}",
            "\n".join(["| limit | value | beyond it |", "|---|---|---|", *rows]),
        ]
    return "\n\n".join(parts)
