"""``ringbatch units``: the unit files of this installation, printed or written."""

import os
import re
import socket
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from errno import EACCES
from importlib.resources import files as resources
from pathlib import Path
from typing import Final

from ringbatch.engine.config.credentials import NAMES
from ringbatch.engine.config.document import Config
from ringbatch.engine.config.paths import absence, absolute
from ringbatch.engine.config.problems import heading, quoted
from ringbatch.engine.systemd.units import (
    TEMPLATES,
    USER,
    WRITTEN,
    Engine,
    configuration,
    files,
    is_unseen,
)
from ringbatch.shm.errors import StartupError

EXAMPLES: Final = """\
Writes a template unit for engines, ringbatch@NAME.service, which serves /etc/ringbatch/NAME.toml,
with its sockets, a slice, and the user ringbatch. With --config it also writes drop-ins for the
engine of that file: the address of its sockets, the time of its stop, and its credentials. These
are files in NAME.credentials beside the configuration: tls_certificate, tls_key, tls_client_ca,
control_tls_certificate, control_tls_key or api_keys. It starts nothing.

exit status:
  0  printed, or written
  2  the configuration cannot run under systemd, or a file cannot be written

examples:
  ringbatch units                                        print them
  ringbatch units --install --config /etc/ringbatch/prod.toml
  ringbatch units --install --root /mnt/image            into the image of a host
  ringbatch units --install --user                       for systemctl --user
"""

_UNIT_NAME: Final = re.compile(r"[A-Za-z0-9:_.-]+")


def main(config: Config | None, path: Path | None, *, install: bool, root: Path, user: bool) -> int:
    """Print or write them, and say what to do next.

    Args:
        config: of the engine whose drop-ins are wanted too; None for none.
        path: of its file, whose name is the engine's.
        install: write them.
        root: of the host that they are for.
        user: for the service manager of this user.

    Raises:
        StartupError: they cannot be written, or nothing could be served with them.
    """
    if not root.is_dir():
        raise StartupError(
            f"--root: found {quoted(str(root))}, but it must be a directory that exists"
            f"{absence(absolute(root), str(root))}"
        )
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    below = absolute(home if user else root)
    engine = None
    if config is not None and path is not None:
        engine = _engine(config, path, root)
        if path.resolve() != (read := below / configuration(engine.name, user=user)).resolve():
            _warn(f"{path}: ringbatch@{engine.name} reads {read}, not this")
        if not user:
            _warn_of_unseen(config, path, root)
    if not user:
        _tell_of_closed_folders(root)
    folder = resources("ringbatch.engine.systemd") / "units"
    templates = {name: (folder / name).read_text() for name in TEMPLATES}
    found = files(templates, _command(), engine, user=user)
    if not install:
        for name, text in found.items():
            print(f"# /{name}\n{text}")
        return 0
    for name, text in found.items():
        _write(below / name, text)
        print(below / name)
    _remove_unwanted(below, found)
    _print_next_steps(engine, path, user=user)
    return 0


def _engine(config: Config, path: Path, root: Path) -> Engine:
    server = config.server
    if not _UNIT_NAME.fullmatch(path.stem):
        raise StartupError(
            f'{path}: found the name "{path.stem}", but that of a unit must be letters, digits, '
            "dots, dashes, underscores or colons"
        )
    host = None if server.tcp_host is None else _numeric(path, server.tcp_host, server.port)
    devices = [device for model in config.models for device in (model.device, *model.devices)]
    gpu = any(device.startswith("cuda") for device in devices)
    folder = path.with_suffix(".credentials")
    present = [name for name in NAMES if (folder / name).is_file()]
    credentials = {name: _on_host(folder / name, root) for name in present}
    stop_s = server.stop_delay_s + server.drain_s
    return Engine(
        path.stem,
        host,
        server.port,
        server.http_socket,
        server.unix_socket_mode,
        server.unix_socket_group,
        server.frontends,
        stop_s,
        gpu,
        credentials,
    )


def _numeric(path: Path, host: str, port: int) -> str:
    """Return the address of a host, as systemd takes no names."""
    if not port:
        raise StartupError(f"{path}: [server] port: systemd listens on a port that is known")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StartupError(f"{path}: [server] host: {host!r} is no address") from None
    return str(found[0][4][0])


def _on_host(path: Path, root: Path) -> str:
    """Return a file's path on the host whose file system is at `root`."""
    found, top = str(absolute(path)), str(absolute(root)).rstrip("/")
    return found.removeprefix(top) if found.startswith(f"{top}/") else found


def _warn_of_unseen(config: Config, path: Path, root: Path) -> None:
    for model in config.models:
        if isinstance(model.path, Path):
            places = (_on_host(place, root) for place in (model.path, model.path.resolve()))
            unseen = next((place for place in places if is_unseen(place, _command())), None)
            if unseen is not None:
                _warn(
                    f"{path}: {heading(('models', model.name))} path: the service does not see "
                    f"{unseen}, because it has no access to homes and a /tmp of its own; "
                    "/var/lib/ringbatch is a place for it"
                )


def _tell_of_closed_folders(root: Path) -> None:
    """Warn if the service's user may not enter a folder of what the service runs."""
    top = absolute(root)
    for program in _programs(top):
        place = top / program.relative_to("/")
        folders = [folder for folder in reversed(place.parents) if top in folder.parents]
        closed = next((folder for folder in folders if _is_closed(folder)), None)
        if closed is not None:
            _warn(
                f"the service cannot run {program}, because its user, {USER}, may not enter "
                f"{_on_host(closed, root)}; install ringbatch in /opt/ringbatch, with a Python "
                "that every user can run"
            )


def _programs(top: Path) -> Iterator[Path]:
    """Yield the script and, on this host, the interpreter behind it."""
    yield Path(_command()[0])
    if top == Path("/"):
        yield Path(sys.executable).resolve()


def _is_closed(folder: Path) -> bool:
    """Return whether the service's user may not enter a folder that exists; ACLs are not read."""
    try:
        if folder.stat().st_mode & stat.S_IXOTH:
            return False
        return USER not in (folder.owner(), folder.group())
    except OSError:
        return False
    except KeyError:  # the owner has no name
        return True


def _warn(line: str) -> None:
    print(f"ringbatch: {line}", file=sys.stderr)


def _remove_unwanted(below: Path, found: Mapping[str, str]) -> None:
    """Remove what was written for the engine before and is not written now."""
    wanted = {below / name for name in found}
    folders = {path.parent for path in wanted if path.parent.name.startswith("ringbatch@")}
    others = {path for folder in folders for path in folder.glob("*.conf")} - wanted
    for path in sorted(others):
        try:
            if path.read_bytes().startswith(WRITTEN.encode()):
                path.unlink()
                print(f"removed {path}")
        except OSError as error:
            raise _unwritten(path, error) from None


def _command() -> Sequence[str]:
    """Return the command that runs this installation of ringbatch."""
    script = Path(sysconfig.get_path("scripts"), "ringbatch")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "ringbatch.engine"]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # As a whole: systemd may read it at any time.
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text)
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError) -> StartupError:
    """Return the error for a unit file that cannot be written or removed."""
    do = "; run this as root, or give --user for units of your own" if error.errno == EACCES else ""
    return StartupError(f"{path}: {error.strerror}{do}")


def _print_next_steps(engine: Engine | None, path: Path | None, *, user: bool) -> None:
    name = "NAME" if engine is None else engine.name
    control = "systemctl --user" if user else "systemctl"
    steps = [] if user else ["systemd-sysusers", "systemd-tmpfiles --create"]
    steps += [f"{control} daemon-reload"]
    steps += [f"{control} enable --now ringbatch@{name}.socket ringbatch@{name}.service"]
    print("next:", *steps, sep="\n  ")
