"""Unit files: those in systemd/, with the paths and settings of one installation. Pure.

Those files are good as they are for an installation in /opt/ringbatch, so that people can read one
and the tools of systemd can check it. What differs elsewhere is replaced, line by line.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ringbatch.shm.host.authority import authority

SERVICE: Final = "ringbatch@.service"
SOCKET: Final = "ringbatch@.socket"
SLICE: Final = "ringbatch.slice"
SYSUSERS: Final = "sysusers.conf"
TMPFILES: Final = "tmpfiles.conf"
GPU: Final = "gpu.conf"
_KINDS: Final = ("service", "socket")
TEMPLATES: Final = (SERVICE, SOCKET, SLICE, SYSUSERS, TMPFILES, GPU)

_COMMAND: Final = "/opt/ringbatch/bin/ringbatch"
_CONFIGURATIONS: Final = "/etc/ringbatch"
USER: Final = "ringbatch"
"""The user and the group of the service."""
_OF_A_USER: Final = "%E/ringbatch"
_HOMES: Final = ("/home/", "/root/", "/run/user/")
_OF_EACH_SERVICE: Final = ("/tmp/", "/var/tmp/")
"""Folders of which a service has its own (PrivateTmp=)."""
WRITTEN: Final = "# Written by ringbatch units, which removes it where it is not needed any more.\n"
"""First line of files that are written for one engine."""
_STOP_BEYOND_DRAIN_S: Final = 60
"""The supervisor asks for what it needs itself; this is for one that cannot."""
_NOT_FOR_USERS: Final = frozenset(
    {
        *("User", "Group", "Slice", "OOMScoreAdjust", "LimitNOFILE"),
        *("CapabilityBoundingSet", "AmbientCapabilities", "NoExecPaths", "RemoveIPC"),
        *("PrivateMounts", "PrivateUsers", "PrivateDevices", "DevicePolicy", "PrivateTmp"),
        *("ProtectSystem", "ProtectHome", "ProtectProc", "ProtectClock", "ProtectHostname"),
        *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"),
        "ProtectControlGroups",
    }
)
"""Settings that the manager of one user may not set, or sets for no service."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Facts of one engine's configuration that its units must agree with.

    Attributes:
        name: behind the @ of its units; that of its configuration file without the ending.
        host: on which HTTP is served; None if a Unix socket stands in its place.
        port: the same.
        path: of the Unix socket on which HTTP is served; None if there is none.
        mode: permissions of that, in octal digits.
        group: group of the socket; None for the engine's own.
        frontends: how many serve it.
        stop_s: what a stop waits for load balancers and requests.
        gpu: whether a model runs on a GPU.
        credentials: files that systemd is to load, by the names that they get.
    """

    name: str
    host: str | None
    port: int
    path: str | None
    mode: str
    group: str | None
    frontends: int
    stop_s: float
    gpu: bool
    credentials: Mapping[str, str]


def files(
    templates: Mapping[str, str], command: Sequence[str], engine: Engine | None, *, user: bool
) -> dict[str, str]:
    """Return the files to write, by path below the root, or below a user's configuration folder.

    Args:
        templates: the files of `TEMPLATES`, by name.
        command: runs ringbatch: absolute paths and words.
        engine: whose drop-ins are written beside the templates; None for those alone.
        user: for the service manager of a user, not for the system's.
    """
    folder = "systemd/user" if user else "etc/systemd/system"
    found = {f"{folder}/{name}": templates[name] for name in (SERVICE, SOCKET, SLICE)}
    found[f"{folder}/{SERVICE}"] = _service(templates[SERVICE], command, user=user)
    if not user:
        found["etc/sysusers.d/ringbatch.conf"] = templates[SYSUSERS]
        found["etc/tmpfiles.d/ringbatch.conf"] = templates[TMPFILES]
    if engine is not None:
        service, listening = (f"{folder}/ringbatch@{engine.name}.{kind}.d" for kind in _KINDS)
        own = {
            f"{service}/settings.conf": _settings(engine),
            f"{listening}/address.conf": _address(engine, user=user),
        }
        if engine.credentials:
            own[f"{service}/credentials.conf"] = _credentials(engine.credentials)
        if engine.gpu and not user:
            own[f"{service}/gpu.conf"] = templates[GPU]
        found |= {path: WRITTEN + text for path, text in own.items()}
    return found


def configuration(name: str, *, user: bool) -> str:
    """Return the file that the units of an engine read, by its path as in `files`."""
    return f"ringbatch/{name}.toml" if user else f"{_CONFIGURATIONS[1:]}/{name}.toml"


def is_unseen(path: str, command: Sequence[str]) -> bool:
    """Return whether the service, of the system's manager, does not see a file of the host's.

    Args:
        path: absolute.
        command: as for `files`.
    """
    return path.startswith(_OF_EACH_SERVICE if _in_a_home(command) else _OF_EACH_SERVICE + _HOMES)


def _in_a_home(command: Iterable[str]) -> bool:
    return any(word.startswith(_HOMES) for word in command)


def _service(template: str, command: Sequence[str], *, user: bool) -> str:
    text = template.replace(_COMMAND, " ".join(map(_quoted, command)))
    if _in_a_home(command):
        text = text.replace("ProtectHome=yes", "ProtectHome=read-only")
    if not user:
        return text
    text = text.replace(_CONFIGURATIONS, _OF_A_USER).replace("multi-user.target", "default.target")
    lines = _without(text.splitlines(keepends=True), _NOT_FOR_USERS)
    return "".join(line for line in lines if "network-online.target" not in line)


def _without(lines: Iterable[str], keys: frozenset[str]) -> list[str]:
    return [line for line in lines if line.partition("=")[0] not in keys]


def _settings(engine: Engine) -> str:
    limit_s = int(engine.stop_s + _STOP_BEYOND_DRAIN_S)
    return (
        f"# stop_delay_s and drain_s: {engine.stop_s:g}; sockets come from the unit named here.\n"
        f"[Unit]\nRequires=ringbatch@{engine.name}.socket\n\n[Service]\nTimeoutStopSec={limit_s}\n"
    )


def _address(engine: Engine, *, user: bool) -> str:
    listen = ""
    if engine.host is not None:
        listen = f"ListenStream={authority(engine.host, engine.port)}\n" * engine.frontends
    if engine.path is not None:
        listen += f"ListenStream={engine.path}\nSocketMode={engine.mode}\n"
        # The file would be root's, as systemd makes it.
        owner = None if user else USER
        listen += "".join(
            f"{key}={value}\n"
            for key, value in (("SocketUser", owner), ("SocketGroup", engine.group or owner))
            if value is not None
        )
        listen += "RemoveOnStop=yes\n"
    return f"# Addresses and frontends of its configuration.\n[Socket]\nListenStream=\n{listen}"


def _credentials(paths: Mapping[str, str]) -> str:
    lines = "".join(f"LoadCredential={name}:{path}\n" for name, path in sorted(paths.items()))
    return f"# Read at every start, as root; the engine sees copies.\n[Service]\n{lines}"


def _quoted(word: str) -> str:
    """Return a word of a command so that systemd reads it back."""
    word = word.replace("%", "%%").replace("$", "$$")
    if not any(character in word for character in " \t\"'\\;"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
