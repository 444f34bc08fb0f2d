"""Flags by which the supervisor passes the settings of logs and traces to a frontend."""

import argparse

from ringbatch.frontend.access.sampling import AccessSettings


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting; none of them is needed."""
    parser.add_argument("--access-log", choices=("off", "failures", "all"), default="off")
    parser.add_argument("--access-log-sample", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--access-log-slower-than-ms", type=float, metavar="MS")
    parser.add_argument("--server-timing", action="store_true", help="with every answer")
    parser.add_argument("--load-report", action="store_true", help="with every answer")
    parser.add_argument("--trace-sample", type=float, default=0.0, metavar="SHARE")


def given_access(given: argparse.Namespace) -> AccessSettings:
    """Return the settings in the flags."""
    return AccessSettings(
        given.access_log,
        given.access_log_sample,
        given.access_log_slower_than_ms,
        given.server_timing,
        given.load_report,
        given.trace_sample,
    )
