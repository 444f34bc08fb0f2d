"""Reading of systemd-logind's settings for the logout of a user; see logind.conf(5)."""

import os
import pwd
import re
from pathlib import Path
from typing import Final

from ringbatch.engine.doctor.facts import Login
from ringbatch.shm.cpus import text_of

_FOLDERS: Final = ("etc", "run", "usr/local/lib", "usr/lib")
"""Folders of its configuration; a file in an earlier one hides those in later ones."""
_SETTING: Final = re.compile(r"^[ \t]*RemoveIPC[ \t]*=[ \t]*(\S*)", re.MULTILINE | re.IGNORECASE)
_NO: Final = ("no", "n", "false", "f", "off", "0")
_SYSTEM_USERS: Final = 999
"""The largest id of a system user, as systemd is built for."""


def login(root: Path = Path("/"), user_id: int | None = None) -> Login | None:
    """Return the treatment of this user's names in /dev/shm at a logout; None without logins.

    Args:
        root: the folder of ``etc``, ``run``, ``usr`` and ``var``.
        user_id: by default that of this process.
    """
    if not (root / "run/systemd/users").is_dir():
        return None
    user_id = os.geteuid() if user_id is None else user_id
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:
        name = str(user_id)
    return Login(
        user=name,
        system=user_id <= _SYSTEM_USERS,
        removes=_removes(root),
        lingers=(root / "var/lib/systemd/linger" / name).exists(),
    )


def _removes(root: Path) -> bool:
    folders = [root / folder / "systemd" for folder in _FOLDERS]
    named = (folder / "logind.conf" for folder in folders)
    texts = [text for text in map(text_of, named) if text][:1]
    drops: dict[str, Path] = {}
    for folder in reversed(folders):
        drops |= {path.name: path for path in (folder / "logind.conf.d").glob("*.conf")}
    texts += [text_of(drops[name]) for name in sorted(drops)]
    values = [value for text in texts for value in _SETTING.findall(text)]
    return not values or values[-1].lower() not in _NO
