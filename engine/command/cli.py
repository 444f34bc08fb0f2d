"""Command-line interface: parses the arguments, and runs one command.

Flags are made from the same definitions as the keys of a configuration file, are laid over the
file, and are checked together with it; a wrong one is reported by its own name.
"""

import argparse
import errno
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.command import (
    actors,
    bench,
    check,
    completion,
    engine_arguments,
    examples,
    handover,
    manual,
    setting_spelling,
    sidecar,
    tune,
    units,
)
from ringbatch.engine.command.flags import add_flag, configure, given
from ringbatch.engine.command.lasting_imports import lasting_imports
from ringbatch.engine.command.parser import HelpFormatter, Parser
from ringbatch.engine.command.usage import usage_of
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import (
    Config,
    ConfigError,
    ModelConfig,
    Place,
    ServerConfig,
    load,
)
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.platform import is_compiled
from ringbatch.shm.host.standard_descriptors import hold_standard_descriptors

Fill = Callable[[argparse.ArgumentParser], None]
"""Adds arguments to a command."""

STARTUP_ERROR: Final = 2
INTERRUPTED: Final = 130

_UNFIT_FOR_FLAGS: Final = {"path"}
_NO_COMMAND: Final = (
    "found no COMMAND, such as serve in `ringbatch serve model.py`; `ringbatch --help` lists all"
)
_ABOUT: Final = "Put concurrent prediction requests together into batches and run each batch once."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; `argv` is without the program's name."""
    hold_standard_descriptors()
    arguments = argparse.Namespace()
    typed = sys.argv[1:] if argv is None else argv
    try:
        parser = _parser(typed)
        parser.parse_args(typed, arguments)
        if "command" not in arguments:
            parser.error(_NO_COMMAND)
        status: int = arguments.command(arguments)
    except StartupError as error:
        words = setting_spelling.words_for(arguments)
        print(setting_spelling.printed(words(str(error))), file=sys.stderr)
        return STARTUP_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        print(
            f"ringbatch: {error.strerror}: this process may have {most}; raise the limit "
            "(ulimit -n, LimitNOFILE=), or that of the host (fs.file-max)",
            file=sys.stderr,
        )
        return STARTUP_ERROR
    return status


def _serve(arguments: argparse.Namespace) -> int:
    config = configure(arguments)
    _notify(config, arguments)
    with lasting_imports():
        from ringbatch.engine.supervisor.run import run

    return run(config, lambda: configure(arguments))


def _handover(arguments: argparse.Namespace) -> int:
    config = configure(arguments)
    _notify(config, arguments)
    return handover.main(arguments, config, lambda: configure(arguments))


def _sidecar(arguments: argparse.Namespace) -> int:
    more: dict[Place, tuple[str, Any]] = {
        (*place, key): value
        for place, section in (
            (("server",), ServerConfig),
            (("models", sidecar.MODEL), ModelConfig),
        )
        for key, value in given(section, arguments).items()
    }
    config = sidecar.configuration(arguments, more)
    for line in sidecar.ignored(arguments):
        print(f"ringbatch: {line}", file=sys.stderr)
    _notify(config, arguments)
    with lasting_imports():
        from ringbatch.engine.supervisor.run import run

    return run(config)


def _doctor(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.doctor.examination import run

    sections = (ServerConfig, ModelConfig)
    said = arguments.model or arguments.config or arguments.name
    asked = bool(said) or any(given(section, arguments) for section in sections)
    words = setting_spelling.words_for(arguments)
    return run(lambda: configure(arguments), words, asked=asked, as_objects=arguments.json)


def _demo(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.demo.demo import run

    return run(arguments.requests, arguments.clients)


def _check(arguments: argparse.Namespace) -> int:
    if arguments.config is None and not arguments.model:
        raise ConfigError("check: say what to look at, --config FILE or a MODEL")
    config = configure(arguments)
    _notify(config, arguments)
    return check.main(
        config,
        every=arguments.settings,
        load=arguments.load,
        sockets_passed=arguments.sockets_passed,
        parity=arguments.parity,
        tolerance=arguments.tolerance,
    )


def _notify(config: Config, arguments: argparse.Namespace) -> None:
    words = setting_spelling.words_for(arguments)
    for line in config.notices:
        print(setting_spelling.printed(words(line)), file=sys.stderr)


def _reload(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.command.reload import main as reload_main

    return reload_main(arguments.engine, arguments.word, arguments.model)


def _status(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.report.status import main as status_main

    return status_main(arguments.engine or arguments.named)


def _models(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.report.models import main as table_main

    return table_main(arguments.engine or arguments.named)


def _top(arguments: argparse.Namespace) -> int:
    from ringbatch.engine.report.top import main as top_main

    engine = arguments.engine or arguments.named
    return top_main(engine, interval_s=arguments.interval, once=arguments.once)


def _units(arguments: argparse.Namespace) -> int:
    config = None if arguments.config is None else load(arguments.config)
    where = {"install": arguments.install, "root": arguments.root, "user": arguments.user}
    return units.main(config, arguments.config, **where)


def _completion(arguments: argparse.Namespace) -> int:
    print(completion.SHELLS[arguments.shell](usage_of(_parser())), end="")
    return 0


def _manual(_: argparse.Namespace) -> int:
    print(manual.page(usage_of(_parser()), _version()), end="")
    return 0


def _parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the program's parser.

    Args:
        words: of the command line. A command that is none of them gets no arguments, because all
            flags of all commands take longer to make than some commands. None for all of them.
    """
    parser = Parser("ringbatch", **_texts(_ABOUT, examples.OVERALL))
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    # `main` refuses a line without a command itself: argparse would not look at its flags first.
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, about: str, epilog: str, run: Any, *fills: Fill) -> None:
        command = commands.add_parser(name, help=about, **_texts(f"{about}.", epilog))
        command.set_defaults(command=run)
        for fill in fills if words is None or name in words else ():
            fill(command)

    add("serve", "serve models over HTTP", examples.SERVE, _serve, _add_serve)
    about = "replace a running engine without a failed request"
    add("handover", about, handover.EXAMPLES, _handover, _add_serve, handover.add_arguments)
    about = "put batching in front of a model server"
    add("sidecar", about, sidecar.EXAMPLES, _sidecar, _add_sidecar)
    about = "measure a model, and compare results"
    add("bench", about, bench.EXAMPLES, bench.main, bench.add_arguments)
    about = "find the best settings for a model on this host"
    add("tune", about, tune.EXAMPLES, tune.main, tune.add_arguments)
    about = "serve the digits model, send it real images, and stop"
    add("demo", about, examples.DEMO, _demo, _add_demo)
    about = "check a configuration and this host without serving"
    add("check", about, check.EXAMPLES, _check, _add_check)
    add("doctor", "examine this host", examples.DOCTOR, _doctor, _add_serve, _add_doctor)
    add("units", "write unit files for systemd", units.EXAMPLES, _units, _add_units)
    about = "print the counters of a running engine"
    add("status", about, examples.STATUS, _status, _add_engines)
    about = "print the models of a running engine"
    add("models", about, examples.MODELS, _models, _add_engines)
    about = "list the actors of engines in a Ray cluster"
    add("actors", about, actors.EXAMPLES, actors.main, actors.add_arguments)
    add("top", "show live figures of a running engine", examples.TOP, _top, _add_top)
    about = "apply a changed configuration to a running engine"
    add("reload", about, examples.RELOAD, _reload, _add_reload)
    about = "print a completion script for a shell"
    add("completion", about, examples.COMPLETION, _completion, _add_completion)
    add("manual", "print the manual page", examples.MANUAL, _manual)
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests",
        type=engine_arguments.count,
        default=2000,
        metavar="N",
        help="number of images that are sent (default: %(default)s)",
    )
    parser.add_argument(
        "--clients",
        type=engine_arguments.count,
        default=64,
        metavar="N",
        help="number of connections that send them at once (default: %(default)s)",
    )


def _add_check(parser: argparse.ArgumentParser) -> None:
    _add_serve(parser, without="needed without --config")
    parser.usage = "ringbatch check [MODEL ...] [--config FILE] [--load] [--parity] [options]"
    check.add_arguments(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ringbatch doctor [MODEL ...] [--name NAME] [--config FILE] [--json] [options]"
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_top(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ringbatch top [ENGINE] [--interval S] [--once]"
    parser.add_argument(
        "--interval",
        type=engine_arguments.seconds,
        default=1.0,
        metavar="S",
        help="seconds between two looks (default: %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="print the first interval, and exit")
    engine_arguments.add_flags_and_word(parser, "the one engine that runs")


def _add_reload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", nargs="?", metavar="ENGINE", help="the same as --engine ENGINE")
    parser.add_argument("--model", metavar="MODEL", help="a model (default: all changed models)")
    engine_arguments.add_flags(parser, "the one engine that runs")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=completion.SHELLS, help="the shell")


def _add_engines(parser: argparse.ArgumentParser) -> None:
    engine_arguments.add_flags_and_word(parser, "every engine of this user")


def _texts(about: str, epilog: str) -> dict[str, Any]:
    return {
        "description": about[0].upper() + about[1:],
        "epilog": epilog,
        "formatter_class": HelpFormatter,
        "allow_abbrev": False,
    }


def _add_serve(
    parser: argparse.ArgumentParser, *, without: str = "default: the bundled digits model"
) -> None:
    parser.usage = "ringbatch serve [MODEL ...] [--name NAME] [--config FILE] [options]"
    parser.add_argument(
        "model",
        nargs="*",
        action=engine_arguments.ModelsAction,
        metavar="MODEL",
        help="a model file, such as model.py or model.onnx, or addresses of model servers "
        f"({without})",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a configuration file, TOML; flags win over it"
    )
    server = parser.add_argument_group("the server")
    for setting in settings(ServerConfig).values():
        add_flag(server, setting)
    model = parser.add_argument_group("the model")
    model.add_argument(
        "--name",
        metavar="NAME",
        help="name of the model in requests (default: the stem of its file)",
    )
    for setting in settings(ModelConfig).values():
        if setting.key not in _UNFIT_FOR_FLAGS:
            add_flag(model, setting)


def _add_units(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--install", action="store_true", help="write them (default: print them)")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the configuration file of one engine, TOML"
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="root of the host's file system (default: %(default)s)",
    )
    place.add_argument("--user", action="store_true", help="for systemctl --user, below ~/.config")


def _add_sidecar(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ringbatch sidecar [--component-port N] [--port N] [options]"
    sidecar.add_arguments(parser)
    ours = parser.add_argument_group("beside these")
    for section in (ServerConfig, ModelConfig):
        for setting in settings(section).values():
            if setting.key in sidecar.KEYS:
                add_flag(ours, setting)


class _Version(argparse.Action):
    """Looks the version up only when asked for it."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        compiled = " (compiled)" if is_compiled() else ""
        print(f"ringbatch {_version()}{compiled}")
        parser.exit()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringbatch")
    except PackageNotFoundError:
        return "(not installed)"
