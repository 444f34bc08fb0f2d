"""Unit files: what `systemd-analyze` says of them, and what is written for which configuration."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.command.cli import main
from ringbatch.engine.systemd.units import (
    GPU,
    SERVICE,
    SLICE,
    SOCKET,
    TEMPLATES,
    Engine,
    files,
)

FOLDER = Path(__file__).parents[2] / "systemd"
TEXTS = {name: (FOLDER / name).read_text() for name in TEMPLATES}
ENGINE = Engine("prod", "127.0.0.1", 9000, 3, 30.0, gpu=False, credentials={})
MOST_EXPOSED = 1.5
DROP_IN = "etc/systemd/system/ringbatch@prod.service.d"

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed here"
)


def engine(**changes: Any) -> Engine:
    return replace(ENGINE, **changes)


def analyze(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The units of an engine as they are installed, with a command that there is."""
    found = files(TEXTS, ["/bin/true"], ENGINE, user=False)
    for path, text in found.items():
        written = (
            tmp_path / Path(path).relative_to("etc/systemd/system") if "system/" in path else None
        )
        if written is not None:
            written.parent.mkdir(exist_ok=True)
            written.write_text(text)
    return tmp_path


@needs_analyze
def test_systemd_has_nothing_to_say_against_them(folder: Path) -> None:
    said = analyze(
        "verify", "./ringbatch@prod.service", "./ringbatch@prod.socket", f"./{SLICE}", cwd=folder
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


@needs_analyze
def test_systemd_would_say_so(folder: Path) -> None:
    unit = folder / SERVICE
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert "WatchdogSeconds" in analyze("verify", "./ringbatch@prod.service", cwd=folder).stderr


@needs_analyze
@pytest.mark.parametrize("drop_in", [None, GPU])
def test_the_service_is_hardly_exposed(
    folder: Path,
    drop_in: str | None,
    record_property: Callable[[str, object], None],
) -> None:
    if drop_in is not None:
        (folder / f"{SERVICE}.d").mkdir()
        (folder / f"{SERVICE}.d" / drop_in).write_text(TEXTS[drop_in])
    said = analyze("security", "--offline=yes", f"./{SERVICE}", cwd=folder).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    record_property(
        "figures", f"exposure of {SERVICE} with {drop_in or 'nothing else'}: {found[1]}"
    )
    assert float(found[1]) <= MOST_EXPOSED


def test_the_command_of_the_installation_stands_in_the_service() -> None:
    service = files(TEXTS, ["/srv/a b/python", "-m", "x%y"], None, user=False)[
        f"etc/systemd/system/{SERVICE}"
    ]
    commands = [line for line in service.splitlines() if line.startswith("Exec")]
    assert len(commands) == 3
    assert all('="/srv/a b/python" -m x%%y ' in line for line in commands)


@pytest.mark.parametrize(
    ("command", "home"),
    [("/usr/bin/x", "yes"), ("/home/me/x", "read-only"), ("/root/x", "read-only")],
)
def test_an_installation_in_a_home_can_be_read(command: str, home: str) -> None:
    service = files(TEXTS, [command], None, user=False)[f"etc/systemd/system/{SERVICE}"]
    assert f"\nProtectHome={home}\n" in service


@pytest.mark.parametrize(
    ("host", "line"),
    [("127.0.0.1", "ListenStream=127.0.0.1:9000"), ("::1", "ListenStream=[::1]:9000")],
)
def test_each_frontend_has_a_socket_at_the_configured_address(host: str, line: str) -> None:
    found = files(TEXTS, ["/x"], engine(host=host), user=False)
    drop_in = found["etc/systemd/system/ringbatch@prod.socket.d/address.conf"]
    # The first takes back those of the template.
    assert drop_in.splitlines()[-4:] == ["ListenStream=", line, line, line]


def test_a_stop_may_take_longer_than_what_it_waits_for() -> None:
    found = files(TEXTS, ["/x"], engine(stop_s=600.0), user=False)
    assert "TimeoutStopSec=660\n" in found[f"{DROP_IN}/settings.conf"]


def test_drop_ins_are_written_where_they_are_needed() -> None:
    plain = files(TEXTS, ["/x"], ENGINE, user=False)
    more = files(TEXTS, ["/x"], engine(gpu=True, credentials={"api_keys": "/k"}), user=False)
    assert more.keys() - plain.keys() == {f"{DROP_IN}/gpu.conf", f"{DROP_IN}/credentials.conf"}
    assert "LoadCredential=api_keys:/k\n" in more[f"{DROP_IN}/credentials.conf"]


def test_a_users_manager_gets_what_it_has_a_right_to() -> None:
    found = files(TEXTS, ["/x"], ENGINE, user=True)
    service = found[f"systemd/user/{SERVICE}"]
    assert {path.split("/")[0] for path in found} == {"systemd"}
    assert not re.search(r"(?m)^(User|Protect\w+|PrivateUsers|OOMScoreAdjust)=", service)
    assert "--config %E/ringbatch/%i.toml" in service
    assert re.search(r"(?m)^WatchdogSec=", service)
    assert "WantedBy=default.target" in service


def test_the_limit_of_memory_is_approached_slowly() -> None:
    most, high = map(int, re.findall(r"(?m)^Memory(?:High|Max)=(\d+)%", TEXTS[SLICE]))
    assert high == most * 0.9


def test_as_many_sockets_by_default_as_frontends() -> None:
    assert TEXTS[SOCKET].count("ListenStream=127.0.0.1:8080\n") == 2


def test_the_command_writes_them_below_a_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").touch()
    config = tmp_path / "prod.toml"
    config.write_text('[server]\nport = 9000\n[models.m]\npath = "m.py"\n')
    (tmp_path / "prod.credentials").mkdir()
    (tmp_path / "prod.credentials" / "api_keys").touch()
    assert (
        main(["units", "--install", "--root", str(tmp_path / "host"), "--config", str(config)]) == 0
    )
    written = {
        str(p.relative_to(tmp_path / "host"))
        for p in (tmp_path / "host").rglob("*.*")
        if p.is_file()
    }
    assert written == {
        *(f"etc/systemd/system/{name}" for name in (SERVICE, SOCKET, SLICE)),
        "etc/systemd/system/ringbatch@prod.socket.d/address.conf",
        *(f"{DROP_IN}/{name}.conf" for name in ("settings", "credentials")),
        "etc/sysusers.d/ringbatch.conf",
        "etc/tmpfiles.d/ringbatch.conf",
    }
    assert "systemctl enable --now ringbatch@prod.socket" in capsys.readouterr().out


def test_a_gpu_of_one_worker_alone_is_one_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").touch()
    config = tmp_path / "prod.toml"
    config.write_text('[models.m]\npath = "m.onnx"\nworkers = 2\ndevices = ["cpu", "cuda:1"]\n')
    assert main(["units", "--config", str(config)]) == 0
    assert f"# /{DROP_IN}/gpu.conf\n" in capsys.readouterr().out
    config.write_text('[models.m]\npath = "m.onnx"\n')
    assert main(["units", "--config", str(config)]) == 0
    assert "gpu.conf" not in capsys.readouterr().out


def test_without_install_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units"]) == 0
    assert "# /etc/systemd/system/ringbatch@.service\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "told"),
    [("port = 0", "port that is known"), ('host = "no.such.invalid"', "is no address")],
)
def test_what_no_socket_can_be_made_for_is_refused(
    section: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").touch()
    config = tmp_path / "prod.toml"
    config.write_text(f'[server]\n{section}\n[models.m]\npath = "m.py"\n')
    assert main(["units", "--config", str(config)]) == 2
    assert told in capsys.readouterr().err
