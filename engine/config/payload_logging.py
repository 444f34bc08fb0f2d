"""Settings of the payload log; see `ringbatch.engine.config.settings`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ringbatch.engine.config.kinds import (
    ATTRIBUTES,
    FILE,
    HEADER_NAMES,
    NAME,
    PAYLOAD_PLACE,
    SWITCH,
    choice,
    number,
    whole,
)
from ringbatch.engine.config.serving import MIB, ServingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadConfig(ServingConfig):
    """Of the section ``[server]``: what is kept of requests and answers, and where."""

    payload_log: Annotated[
        str | None,
        PAYLOAD_PLACE,
        "where requests and answers are kept, as CloudEvents: an address that takes them over "
        "HTTP, or a file of JSON Lines; by default nowhere",
    ] = None
    payload_log_sample: Annotated[
        float, number(1, zero=True), "share of the requests that payload_log keeps, from 0 to 1"
    ] = 1.0
    payload_log_mode: Annotated[
        Literal["all", "request", "response"],
        choice("all", "request", "response"),
        "which bodies payload_log keeps: all, those of requests, or those of answers",
    ] = "all"
    payload_log_failures: Annotated[
        bool, SWITCH, "keep answers in payload_log that have another status than 200 too"
    ] = True
    payload_log_body_bytes: Annotated[
        int,
        whole(0, 1024 * MIB),
        "bytes of each body that payload_log keeps at most; a longer one is cut off",
    ] = 64 << 10
    payload_log_headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers of requests that payload_log keeps; those with keys and cookies cannot be kept",
    ] = ()
    payload_log_attributes: Annotated[
        tuple[str, ...],
        ATTRIBUTES,
        "attributes of every event in payload_log",
    ] = ()
    payload_log_source: Annotated[
        str | None,
        NAME,
        "source of every event in payload_log, a URI; by default /ringbatch/ and the engine's name",
    ] = None
    payload_log_ca: Annotated[
        Path | None,
        FILE,
        "authorities, PEM, that must have signed the certificate at payload_log; by default those "
        "of the system",
    ] = None
    payload_log_file_bytes: Annotated[
        int,
        whole(1 << 10, 1 << 40),
        "bytes after which payload_log begins another file",
    ] = 100 * MIB
    payload_log_files: Annotated[int, whole(0, 10_000), "full files that payload_log keeps"] = 10
