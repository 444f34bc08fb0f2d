"""``python -m ringbatch.frontend``: the frontends of an engine, for its supervisor."""

import argparse
import sys

from ringbatch.frontend.access import flags as access_flags
from ringbatch.frontend.payloads.flags import add_keeping_flags, given_keeping
from ringbatch.frontend.security.credential_flags import add_flags, given_credentials
from ringbatch.frontend.server.arbiter import run
from ringbatch.frontend.server.gunicorn_worker import FrontendOptions
from ringbatch.shm.account import CLASS_NAMES
from ringbatch.shm.errors import StartupError


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM, and return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        run(
            _options(given),
            listen_fds=given.listen_fd,
            frontends=given.frontends,
            log_level=given.log_level,
            parent_pid=given.parent_pid,
        )
    except StartupError as error:
        sys.stderr.write(f"ringbatch: the frontends cannot start: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend", description=__doc__)
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument(
        "--listen-fd",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="a bound TCP socket; given once, or once for each frontend",
    )
    parser.add_argument("--frontends", required=True, type=int, metavar="N", help="processes")
    parser.add_argument("--max-request-bytes", required=True, type=int, metavar="N")
    parser.add_argument(
        "--shared-memory-prefix",
        action="append",
        default=[],
        metavar="NAME",
        help="how names of objects may begin that clients share; given once for each",
    )
    parser.add_argument("--compress-answers", action="store_true", help="where clients accept it")
    parser.add_argument("--max-connections", type=int, default=1 << 14, metavar="N")
    parser.add_argument("--idle-timeout-s", type=float, default=75.0, metavar="S")
    parser.add_argument("--pass-through", metavar="URL", help="server for requests for other paths")
    parser.add_argument("--app", metavar="DIR/MODULE:NAME", help="an application for other paths")
    parser.add_argument("--own-paths", default="keys", metavar="WHO", help="who may use ours")
    parser.add_argument("--unix-fd", type=int, metavar="N", help="a Unix socket that listens")
    parser.add_argument("--cors-origin", action="append", default=[], metavar="ORIGIN")
    parser.add_argument("--trusted-proxy", action="append", default=[], metavar="NETWORK")
    parser.add_argument("--highest-class", choices=CLASS_NAMES, default="interactive")
    parser.add_argument("--http2", action="store_true", help="speak HTTP/2 too")
    add_flags(parser)
    access_flags.add_flags(parser)
    add_keeping_flags(parser)
    parser.add_argument("--drain-s", required=True, type=float, metavar="S")
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", type=int, metavar="PID", help="end when this process ends")
    return parser


def _options(given: argparse.Namespace) -> FrontendOptions:
    return FrontendOptions(
        given.segment,
        given.max_request_bytes,
        given.drain_s,
        shared_memory_prefixes=tuple(given.shared_memory_prefix),
        compress_answers=given.compress_answers,
        credentials=given_credentials(given),
        max_connections=given.max_connections,
        idle_timeout_s=given.idle_timeout_s,
        pass_through=given.pass_through,
        access=access_flags.given_access(given),
        app=given.app,
        http2=given.http2,
        own_paths=given.own_paths,
        cors_origins=tuple(given.cors_origin),
        unix_fd=given.unix_fd,
        keeping=given_keeping(given),
        trusted_proxies=tuple(given.trusted_proxy),
        highest=CLASS_NAMES[given.highest_class],
    )


if __name__ == "__main__":
    sys.exit(main())
