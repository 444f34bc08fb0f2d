"""Settings of the payload log, as the supervisor passes them to processes by flags."""

import argparse
import socket
from pathlib import Path

from ringbatch.frontend.payloads.settings import (
    ALL,
    REQUEST,
    RESPONSE,
    Delivery,
    EventSettings,
    Keeping,
)


def add_keeping_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a serving process."""
    parser.add_argument("--payload-fd", type=int, metavar="N", help="takes events")
    parser.add_argument("--payload-sample", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--payload-body-bytes", type=int, default=0, metavar="N")
    parser.add_argument("--payload-header", action="append", default=[], metavar="NAME")
    parser.add_argument("--payload-mode", default=ALL, choices=(ALL, REQUEST, RESPONSE))
    parser.add_argument("--payload-failures", action="store_true")
    parser.add_argument("--payload-source", default="", metavar="URI")
    parser.add_argument("--payload-attribute", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--payload-lines", action="store_true", help="events go to a file")


def given_keeping(given: argparse.Namespace) -> tuple[Keeping, int] | None:
    """Return what a serving process keeps, and the descriptor that takes it; None for nothing."""
    if given.payload_fd is None:
        return None
    pairs = (text.partition("=") for text in given.payload_attribute)
    attributes = {name: value for name, _, value in pairs}
    events = EventSettings(
        given.payload_mode,
        given.payload_failures,
        attributes | {"source": given.payload_source},
        given.payload_lines,
    )
    headers = frozenset(given.payload_header)
    keeping = Keeping(given.payload_sample, given.payload_body_bytes, headers, events)
    return keeping, given.payload_fd


def add_delivery_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the control process."""
    parser.add_argument("--payload-fd", type=int, metavar="N", help="has events")
    parser.add_argument("--payload-log", default="", metavar="URL|FILE")
    parser.add_argument("--payload-file-bytes", type=int, default=1 << 20, metavar="N")
    parser.add_argument("--payload-files", type=int, default=1, metavar="N")
    parser.add_argument("--payload-ca", type=Path, metavar="FILE")


def given_delivery(given: argparse.Namespace) -> tuple[Delivery, socket.socket] | None:
    """Return the settings of the delivery, and the socket with events; None for no delivery."""
    if given.payload_fd is None:
        return None
    delivery = Delivery(
        given.payload_log, given.payload_file_bytes, given.payload_files, given.payload_ca
    )
    return delivery, socket.socket(fileno=given.payload_fd)
