"""The container file and the compose file: what they say twice is the same, and is there."""

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Final

from ringbatch.engine.config.settings import ServerConfig

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = "systemd/container"
CONTAINERFILE: Final = (ROOT / FOLDER / "Containerfile").read_text()
COMPOSE: Final = (ROOT / FOLDER / "compose.yaml").read_text()


def only(pattern: str, text: str) -> str:
    """Return the group of the only match."""
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) == 1, f"{pattern}: {found}"
    return str(found[0])


def test_it_copies_the_folders_of_the_source() -> None:
    lines = re.findall(r"^COPY (?!--)(.+)$", CONTAINERFILE, re.MULTILINE)
    copied = {name for line in lines for name in line.split()[:-1]}
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    packages = re.findall(r"^[\w.]+ = (.+)$", config["options"]["package_dir"], re.MULTILINE)
    assert {"setup.py", "setup.cfg", "systemd", *packages} <= copied
    assert len(packages) == 5
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_extras_are_some_of_ringbatch() -> None:
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    extras = only(r"^ARG EXTRAS=(.+)$", CONTAINERFILE).split(",")
    assert set(extras) <= config["options.extras_require"].keys()


def test_the_port_is_the_default_one() -> None:
    port = ServerConfig().port
    assert only(r"^EXPOSE (\d+)$", CONTAINERFILE) == str(port)
    assert only(r"http://127\.0\.0\.1:(\d+)/v2/health/ready", CONTAINERFILE) == str(port)
    assert only(r'- "\d+:(\d+)"', COMPOSE) == str(port)


def test_it_is_no_root_and_stops_as_the_supervisor_does() -> None:
    assert int(only(r"^USER (\d+):\d+$", CONTAINERFILE)) > 0
    assert only(r"^STOPSIGNAL (\w+)$", CONTAINERFILE) == "SIGTERM"
    assert int(only(r"stop_grace_period: (\d+)s", COMPOSE)) > ServerConfig().drain_s


def test_compose_builds_that_file_and_mounts_the_served_folder() -> None:
    assert only(r"dockerfile: (\S+)", COMPOSE) == f"{FOLDER}/Containerfile"
    assert (ROOT / FOLDER / only(r"context: (\S+)", COMPOSE)).resolve() == ROOT
    configuration = only(r'"--config", "([^"]+)"', CONTAINERFILE)
    assert Path(only(r"- \.\S*:(\S+):ro", COMPOSE)) == Path(configuration).parent
