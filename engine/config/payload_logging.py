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


# The subclass makes the methods, for these fields too: to make them takes milliseconds.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class PayloadConfig(ServingConfig):
    """Settings of the section ``[server]`` for the payload log: contents and destination."""

    payload_log: Annotated[
        str | None,
        PAYLOAD_PLACE,
        "destination of the payload log, which keeps requests and answers as CloudEvents: the "
        "address of an HTTP server, or a file of JSON Lines. By default nothing is kept",
    ] = None
    payload_log_sample: Annotated[
        float, number(1, zero=True), "share of the requests that payload_log keeps, from 0 to 1"
    ] = 1.0
    payload_log_mode: Annotated[
        Literal["all", "request", "response"],
        choice("all", "request", "response"),
        "bodies that payload_log keeps. all: those of requests and answers. request: those of "
        "requests. response: those of answers",
    ] = "all"
    payload_log_failures: Annotated[
        bool, SWITCH, "keep answers in payload_log that have another status than 200 too"
    ] = True
    payload_log_body_bytes: Annotated[
        int,
        whole(0, 1024 * MIB),
        "bytes of each body that payload_log keeps. A longer body is cut off",
    ] = 64 << 10
    payload_log_headers: Annotated[
        tuple[str, ...],
        HEADER_NAMES,
        "headers of requests that payload_log keeps. Those with keys and cookies cannot be kept",
    ] = ()
    payload_log_attributes: Annotated[
        tuple[str, ...],
        ATTRIBUTES,
        "attributes of every event in payload_log",
    ] = ()
    payload_log_source: Annotated[
        str | None,
        NAME,
        "source of every event in payload_log, a URI. By default /ringbatch/ and the engine's name",
    ] = None
    payload_log_ca: Annotated[
        Path | None,
        FILE,
        "certificate authorities, PEM, for a payload_log at https. By default those of the system",
    ] = None
    payload_log_file_bytes: Annotated[
        int,
        whole(1 << 10, 1 << 40),
        "size in bytes at which payload_log begins another file",
    ] = 100 * MIB
    payload_log_files: Annotated[
        int, whole(0, 10_000), "number of full files that payload_log keeps"
    ] = 10
