"""An ASGI application, imported by its name: DIRECTORY/MODULE:NAME."""

import importlib
import os
import sys
import traceback
from typing import Final, NoReturn

from ringbatch.frontend.http.asgi import App
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background import delayed

_END_S: Final = 2.0
"""Seconds for the end of a process that has only imported an application. Threads of the
application, or its work at exit, may keep it for ever."""


def imported(target: str) -> App:
    """Import the application; its directory becomes the first for modules, for good.

    Args:
        target: ``DIRECTORY/MODULE:NAME``; the module may be one of a package, with dots.

    Raises:
        StartupError: in words, with the line of the module if there is one.
    """
    module_path, _, name = target.rpartition(":")
    directory, _, module_name = module_path.rpartition("/")
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Of the packages above it each is looked for by itself.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise StartupError(_words(target, error)) from None
        raise StartupError(
            f'app "{module_name}:{name}": there is no module {error.name} in {directory}, and none '
            "of that name is installed"
        ) from None
    except Exception as error:
        raise StartupError(_words(target, error)) from None
    app = getattr(module, name, None)
    if app is None:
        raise StartupError(f"{module.__file__}: there is no `{name}`, which should be the app")
    if not callable(app):
        raise StartupError(
            f"{module.__file__}: `{name}` is of the type {type(app).__name__}, but it must be an "
            "ASGI application, such as FastAPI() or falcon.asgi.App()"
        )
    found: App = app
    return found


def _words(target: str, error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return f"app {target}: {error.filename}, line {error.lineno}: {error.msg}"
    directory = target.rpartition("/")[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(f"{directory}/")]
    where = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    return f"app {target}: {where}{reason}"


def main(arguments: list[str]) -> int:
    """Try the import: ``python -m ringbatch.frontend.routes.loading DIRECTORY/MODULE:NAME``.

    The exit status is 2 if it cannot be imported, and the last line on standard error says why.
    """
    (target,) = arguments
    try:
        imported(target)
    except StartupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _end(status: int) -> NoReturn:
    delayed("the end of the process", _END_S, lambda: os._exit(status))
    sys.exit(status)


if __name__ == "__main__":
    given, sys.argv[1:] = sys.argv[1:], []
    _end(main(given))
