"""Arguments of ``ringbatch bench``, whose package is imported when it runs."""

import argparse
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from ringbatch.engine.command import engine_arguments
from ringbatch.shm.errors import StartupError

EXAMPLES: Final = """\
Measures a model as its clients see it. --config starts an engine on free ports of this host and
stops it afterwards; --url measures an engine that runs. Requests are made up from the model's
inputs, or come from --request.

It first finds the knee by halving: the highest rate whose p99 is within --slo-ms. Then it measures
a lone client, a closed loop, and rates below and above the knee. It does so in several rounds, each
with an engine of its own. Requests are sent when they are due, and times count from then. A run is
void if the load generator was late or answers were wrong. The result is a table, and the files
MODEL-UTC.json, .md and .html in --output. After Ctrl-C or SIGTERM it writes what it has measured.

With --stream the knee is the highest rate with two p99s within their limits: that of the time to
the first part, and that of the gap between two parts, over all parts.

--compare compares two JSON files, with intervals. It refuses files of different hosts.

exit status:
  0    measured, or nothing is proven to be worse
  1    with --compare: a figure is proven to be worse by more than --threshold
  2    there is no figure; with --compare: a figure is in one of the files alone
  130  stopped during the rounds; the files say so

examples:
  ringbatch bench --config ringbatch.toml
  ringbatch bench --config ringbatch.toml --model mnist --request body.json --slo-ms 10
  ringbatch bench --url http://127.0.0.1:8080 --control-url http://127.0.0.1:9090 --model mnist
  ringbatch bench --config ringbatch.toml --rates 100,1000,5000 --arrivals burst
  ringbatch bench --config ringbatch.toml --stream --slo-first-part-ms 100 --slo-gap-ms 20
  ringbatch bench --compare earlier.json later.json --threshold 0.03
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    subject = parser.add_argument_group("what is measured")
    choice = subject.add_mutually_exclusive_group(required=True)
    choice.add_argument(
        "--config", type=Path, metavar="FILE", help="start this configuration, TOML"
    )
    choice.add_argument(
        "--url",
        metavar="URL",
        help="ask the server there, http://HOST:PORT or unix:/PATH",
    )
    choice.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar="FILE",
        help="measure nothing; compare two results, the earlier one first",
    )
    subject.add_argument(
        "--control-url", metavar="URL", help="with --url: where its metrics are, http://HOST:PORT"
    )
    subject.add_argument(
        "--grpc-url", metavar="URL", help="with --url: where it serves gRPC, http://HOST:PORT"
    )
    engine_arguments.add_flags(subject, "the only one; with --url, for --protocol client")
    add_request(subject)
    add_stream(subject, "200", "50")
    subject.add_argument(
        "--own-heads",
        action="store_true",
        help="give each request a traceparent of its own, as behind a mesh or a gateway "
        "(default: all heads are the same)",
    )
    subject.add_argument(
        "--check",
        action="store_true",
        help="compare every answer with the first one to its request",
    )
    _add_load(parser.add_argument_group("the load"))
    _add_outcome(parser.add_argument_group("what comes of it"))


def add_request(group: argparse._ActionsContainer) -> None:
    """Add what says which model is asked, and for what."""
    group.add_argument("--model", metavar="NAME", help="the model (default: the only one)")
    group.add_argument(
        "--request",
        type=Path,
        metavar="FILE",
        help="the body of the request, JSON of V1, of V2, or of the form that --protocol names",
    )
    group.add_argument(
        "--protocol",
        choices=("v1", "v2", "generate", "completions", "chat", "grpc", "client"),
        help="how it is asked; generate is Triton's, completions and chat are OpenAI's, client is "
        "ringbatch's own, through shared memory. For grpc and client --request is one of V2 "
        "(default: of --request if that is of V1 or V2, else v1)",
    )
    group.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="HEADER",
        help='of each request, "NAME: VALUE"; may be given often',
    )


def add_stream(group: argparse._ActionsContainer, first_part: str, gap: str) -> None:
    """Add what asks for answers in parts, and their limits.

    Args:
        group: that they are added to.
        first_part: the usual limit of the first part, in words.
        gap: the same, of a further part.
    """
    group.add_argument(
        "--stream",
        action="store_true",
        help="ask for answers in parts, as server-sent events, and measure their parts",
    )
    group.add_argument(
        "--slo-first-part-ms",
        type=positive,
        metavar="MS",
        help=f"with --stream: milliseconds within which the first part comes "
        f"(default: {first_part})",
    )
    group.add_argument(
        "--slo-gap-ms",
        type=positive,
        metavar="MS",
        help=f"with --stream: milliseconds within which each further part comes (default: {gap})",
    )


def _add_load(load: argparse._ArgumentGroup) -> None:
    load.add_argument(
        "--slo-ms",
        type=positive,
        metavar="MS",
        help="milliseconds within which a whole answer is good (default: 20)",
    )
    load.add_argument(
        "--rates",
        type=_rates,
        default=(),
        metavar="LIST",
        help="requests/s to look at, with commas (default: shares of the knee, and overload)",
    )
    load.add_argument(
        "--arrivals",
        choices=("poisson", "constant", "burst"),
        default="poisson",
        help="how requests come; burst is ten at a time (default: %(default)s)",
    )
    load.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="let them come at these instants, seconds, a line each, in place of rates",
    )
    load.add_argument(
        "--duration-s",
        type=engine_arguments.seconds,
        default=2.0,
        metavar="S",
        help="seconds of one run; slow models get longer ones (default: %(default)g)",
    )
    counts = (
        ("--rounds", 5, "rounds, in each of which every load runs once"),
        ("--connections", 64, "connections of the closed loop"),
        ("--max-connections", 1024, "connections that an open loop may open"),
        ("--generators", 1, "processes that send"),
    )
    for flag, default, about in counts:
        load.add_argument(
            flag,
            type=engine_arguments.count,
            default=default,
            metavar="N",
            help=f"{about} (default: %(default)s)",
        )
    load.add_argument(
        "--one-engine",
        action="store_true",
        help="with --config: one engine serves all rounds (default: each round has its own, "
        "as one start may differ from another)",
    )
    load.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of chance (default: %(default)s)"
    )
    load.add_argument(
        "--max-lag-ms",
        type=positive,
        metavar="MS",
        help="p99 of the generator's own lag above which a run is void "
        "(default: a quarter of the shortest limit, and no less than 2)",
    )
    load.add_argument(
        "--even-if-busy", action="store_true", help="measure though the host does other things"
    )


def _add_outcome(outcome: argparse._ArgumentGroup) -> None:
    outcome.add_argument(
        "--output",
        type=Path,
        default=Path("ringbatch-bench"),
        metavar="DIR",
        help="where files are written (default: %(default)s)",
    )
    outcome.add_argument(
        "--threshold",
        type=positive,
        default=0.03,
        metavar="SHARE",
        help="with --compare: how much worse is too much (default: %(default)g)",
    )
    outcome.add_argument(
        "--even-if-unlike",
        action="store_true",
        help="with --compare: compare though hosts or requests differ",
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure, or compare; the exit status.

    Raises:
        StartupError: there is no figure, and why.
    """
    from ringbatch.bench.command import main as bench
    from ringbatch.bench.command.settings import Protocol, Settings
    from ringbatch.bench.load.arrivals import Kind, recorded

    _expect_with_url(arguments)
    if arguments.compare is not None:
        unlike = arguments.even_if_unlike
        return bench.compare(arguments.compare, arguments.threshold, even_if_unlike=unlike)
    trace: tuple[int, ...] = ()
    if arguments.trace is not None:
        try:
            trace = recorded(arguments.trace.read_text())
        except OSError as error:
            raise StartupError(f"--trace {arguments.trace}: {error.strerror}") from None
        except ValueError as error:
            raise StartupError(f"--trace {arguments.trace}: {error}") from None
    limits = limits_in(arguments)
    if arguments.slo_ms is not None:
        if arguments.stream:
            raise StartupError(
                f"--slo-ms {arguments.slo_ms:g}: that is for whole answers; with --stream give "
                "--slo-first-part-ms and --slo-gap-ms"
            )
        limits["slo_ms"] = arguments.slo_ms
    settings = Settings(
        model=arguments.model,
        config=arguments.config,
        url=arguments.url,
        control_url=arguments.control_url,
        grpc_url=arguments.grpc_url,
        engine=arguments.engine,
        request=arguments.request,
        protocol=arguments.protocol and Protocol(arguments.protocol),
        headers=arguments.header,
        own_heads=arguments.own_heads,
        stream=arguments.stream,
        **limits,
        rates=arguments.rates,
        arrivals=Kind.REPLAY if trace else Kind(arguments.arrivals),
        trace=trace,
        seconds=arguments.duration_s,
        rounds=arguments.rounds,
        connections=arguments.connections,
        connections_max=arguments.max_connections,
        generators=arguments.generators,
        one_engine=arguments.one_engine,
        check=arguments.check,
        lag_max_ms=arguments.max_lag_ms,
        even_if_busy=arguments.even_if_busy,
        output=arguments.output,
        seed=arguments.seed,
    )
    return bench.run(settings)


def limits_in(arguments: argparse.Namespace) -> dict[str, float]:
    """Return the limits of parts that are given, by the names of a measurement's settings.

    Raises:
        StartupError: they are given without ``--stream``.
    """
    names = ("slo_first_part_ms", "slo_gap_ms")
    limits = {
        name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None
    }
    if limits and not arguments.stream:
        name, limit = next(iter(limits.items()))
        flag = name.replace("_", "-")
        raise StartupError(f"--{flag} {limit:g}: that is for answers in parts, see --stream")
    return limits


def _expect_with_url(arguments: argparse.Namespace) -> None:
    """Refuse addresses and a name for an engine that is started, as it has its own."""
    given = {
        "--control-url": arguments.control_url,
        "--grpc-url": arguments.grpc_url,
        "--engine": arguments.engine,
    }
    for flag, value in given.items():
        if value is not None and arguments.url is None:
            raise StartupError(f"{flag} {value}: that is for an engine that runs, see --url")


def positive(text: str) -> float:
    """Return a number above 0, as argparse has types.

    Raises:
        argparse.ArgumentTypeError: the text is none.
    """
    with suppress(ValueError):
        if 0 < (found := float(text)) < inf:
            return found
    raise argparse.ArgumentTypeError(f'found "{text}", but it must be a number above 0')


def _rates(text: str) -> tuple[float, ...]:
    return tuple(positive(part.strip()) for part in text.split(","))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable() or not text.isascii():
        raise argparse.ArgumentTypeError(f'found "{text}", but it must be "NAME: VALUE" in ASCII')
    return name.strip(), value.strip()
