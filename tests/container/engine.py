"""A container engine, podman, with a store of its own, and the image that the container file makes.

The base image is made here with debootstrap, as podman could fetch it from nowhere else in a closed
network. Everything lies in one folder, in a mount namespace that ends with the tests.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FILE: Final = "systemd/container/Containerfile"
_BASE: Final = "docker.io/library/debian:trixie-slim"
_SUITE: Final = "trixie"
_TOOLS: Final = ("podman", "crun", "debootstrap", "unshare", "nsenter")
# crun refuses hosts that have both kinds of control groups; here it sees one.
_HOLD: Final = (
    "mount --make-rprivate / && mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo && read _"
)
_AUTHORITIES: Final = "/etc/authorities.pem"
_LIMIT_S: Final = 1500
_CUT_OFF: Final = re.compile(
    "Failed getting release file|Couldn't download|Temporary failure resolving|Could not resolve|"
    "Name or service not known|Network is unreachable|Failed to establish a new connection|"
    "Could not find a version that satisfies|Connection timed out|Could not connect to"
)
"""Words of tools that cannot reach the package registries."""


class NoRegistries(Exception):
    """Failed fetch: the image's parts are in package registries that this host does not reach."""


def why_not() -> str:
    """Return the reason why this machine cannot build and run containers; empty if it can."""
    if os.geteuid() != 0:
        return "only root can make a base image"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"there is no {', '.join(missing)} here"
    mount = "mount --make-rprivate / && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip()


class Engine:
    """podman in a mount namespace of its own, with a folder for images and containers.
    Args:
        folder: folder of images and containers.
        holder: a process in the mount namespace.
    """

    def __init__(self, folder: Path, holder: int) -> None:
        self._enter = ("nsenter", f"--target={holder}", "--mount", f"--wdns={ROOT}")
        self._podman = (
            *("podman", "--cgroup-manager=cgroupfs", f"--root={folder / 'store'}"),
            *(f"--runroot={folder / 'state'}", f"--tmpdir={folder / 'tmp'}"),
        )
        self._folder = folder

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `podman` with these words."""
        return self._do(*self._podman, *words, check=check)

    def build(self, tag: str) -> None:
        """Build the container file's image, not compiled; its steps reach the registries."""
        root = self._folder / "base"
        self._do("debootstrap", "--variant=minbase", _SUITE, str(root))
        if authorities := os.environ.get("PIP_CERT"):
            shutil.copy(authorities, f"{root}{_AUTHORITIES}")
            Path(root, "etc/pip.conf").write_text(f"[global]\ncert = {_AUTHORITIES}\n")
        archive = self._folder / "base.tar"
        self._do("tar", "-C", str(root), "-cf", str(archive), ".")
        self.run("import", "--quiet", str(archive), _BASE)
        self.run(
            *("build", "--isolation=chroot", "--pull-never", "--network=host", "--format=docker"),
            *("--build-arg=RINGBATCH_COMPILE=0", "--build-arg=EXTRAS=grpc"),
            *("--file", FILE, "--tag", tag, "."),
        )

    def configuration(self, tag: str) -> dict[str, Any]:
        """Return the image's configuration of its containers."""
        (image,) = json.loads(self.run("image", "inspect", tag).stdout)
        configuration: dict[str, Any] = image["Config"]
        configuration["Healthcheck"] = image["Healthcheck"]
        return configuration

    def _do(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._enter, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        transcript = f"{' '.join(words)}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        if check and done.returncode != 0 and (cut_off := _CUT_OFF.search(transcript)):
            raise NoRegistries(cut_off[0])
        assert done.returncode == 0 or not check, transcript
        return done


@contextmanager
def engine() -> Iterator[Engine]:
    """Yield a container engine, and remove its store and mounts afterwards."""
    # The path of podman's state must not have more than 50 characters.
    folder = Path(tempfile.mkdtemp(prefix="ringbatch-", dir="/tmp"))
    held = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdout.readline()
    # crun gives what a container has as its standard input to the container's user.
    null = os.stat(os.devnull)
    try:
        made = Engine(folder, held.pid)
        yield made
        made.run("rm", "--force", "--all", "--time=0", check=False)
        made.run("rmi", "--force", "--all", check=False)
    finally:
        os.chown(os.devnull, null.st_uid, null.st_gid)
        held.stdin.close()
        held.wait()
        held.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
