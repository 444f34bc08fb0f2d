"""Unit files: what `systemd-analyze` says of them, and what is written for which configuration."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from errno import EACCES
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.command import units
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
ENGINE = Engine(
    name="prod",
    host="127.0.0.1",
    port=9000,
    path=None,
    mode="0660",
    group=None,
    frontends=3,
    stop_s=30.0,
    gpu=False,
    credentials={},
)
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
    analysis = analyze(
        "verify", "./ringbatch@prod.service", "./ringbatch@prod.socket", f"./{SLICE}", cwd=folder
    )
    assert (analysis.returncode, analysis.stdout, analysis.stderr) == (0, "", "")


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
    analysis = analyze("security", "--offline=yes", f"./{SERVICE}", cwd=folder).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", analysis)
    assert found is not None, analysis
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
    # The first line removes the template's addresses.
    assert drop_in.splitlines()[-4:] == ["ListenStream=", line, line, line]


def test_the_drop_in_has_the_unix_socket_of_the_configuration() -> None:
    both = replace(ENGINE, path="/run/ringbatch/prod.sock", mode="0600", group="www-data")
    text = listening(both, user=False)
    assert text.splitlines()[-6:] == [
        "ListenStream=127.0.0.1:9000",
        "ListenStream=/run/ringbatch/prod.sock",
        "SocketMode=0600",
        "SocketUser=ringbatch",
        "SocketGroup=www-data",
        "RemoveOnStop=yes",
    ]
    alone = replace(both, host=None, group=None)
    assert "9000" not in listening(alone, user=False)
    assert "SocketGroup=ringbatch\n" in listening(alone, user=False)
    assert not {"SocketUser", "SocketGroup"} & set(listening(alone, user=True).split("="))


def listening(engine: Engine, *, user: bool) -> str:
    found = files(TEXTS, ["/x"], engine, user=user)
    (text,) = (text for path, text in found.items() if path.endswith("/address.conf"))
    return text


def test_a_stop_may_take_longer_than_its_longest_wait() -> None:
    found = files(TEXTS, ["/x"], engine(stop_s=600.0), user=False)
    assert "TimeoutStopSec=660\n" in found[f"{DROP_IN}/settings.conf"]


def test_drop_ins_are_written_where_they_are_needed() -> None:
    plain = files(TEXTS, ["/x"], ENGINE, user=False)
    more = files(TEXTS, ["/x"], engine(gpu=True, credentials={"api_keys": "/k"}), user=False)
    assert more.keys() - plain.keys() == {f"{DROP_IN}/gpu.conf", f"{DROP_IN}/credentials.conf"}
    assert "LoadCredential=api_keys:/k\n" in more[f"{DROP_IN}/credentials.conf"]


def test_a_users_manager_gets_its_permitted_settings() -> None:
    found = files(TEXTS, ["/x"], ENGINE, user=True)
    service = found[f"systemd/user/{SERVICE}"]
    assert {path.split("/")[0] for path in found} == {"systemd"}
    assert not re.search(r"(?m)^(User|Protect\w+|PrivateUsers|OOMScoreAdjust)=", service)
    assert "--config %E/ringbatch/%i.toml" in service
    assert re.search(r"(?m)^WatchdogSec=", service)
    assert "WantedBy=default.target" in service


def test_an_end_by_a_second_signal_is_no_failure_to_start_again_after() -> None:
    """A shell gives who was ended by a signal 128 and its number."""
    (found,) = re.findall(r"(?m)^SuccessExitStatus=(.*)$", TEXTS[SERVICE])
    assert {*map(int, found.split())} == {
        128 + number for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    }


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
    (tmp_path / "host").mkdir()
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


@pytest.mark.parametrize("name", ["hsot", "a-file"])
def test_a_root_that_is_no_directory_is_refused_and_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "a-file").touch()
    root = tmp_path / name
    assert main(["units", "--install", "--root", str(root)]) == 2
    expected = f'ringbatch: --root: found "{root}", but it must be a directory that exists'
    assert capsys.readouterr().err.startswith(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


def test_a_root_for_a_users_manager_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(SystemExit, match="2"):
        main(["units", "--install", "--user", "--root", str(tmp_path)])
    assert "argument --root: not allowed with argument --user" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unprivileged_user_reads_how_to_install_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(EACCES, os.strerror(EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main(["units", "--install", "--root", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(
        ": Permission denied; run this as root, or give --user for units of your own\n"
    )


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


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A host's file system, with the configuration of an engine where its units look for it."""
    (tmp_path / "etc/ringbatch").mkdir(parents=True)
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/m.onnx").touch()
    configure(tmp_path)
    return tmp_path


def configure(image: Path, model: str = "srv/m.onnx", more: str = "") -> Path:
    config = image / "etc/ringbatch/prod.toml"
    config.write_text(f'[models.m]\npath = "{image / model}"\n{more}')
    return config


def install(image: Path, config: Path) -> int:
    return main(["units", "--install", "--root", str(image), "--config", str(config)])


def test_an_install_with_all_in_its_place_prints_nothing(
    image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(image, configure(image)) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["a b", "ä", "a%i", "a@b", "a\\b"])
def test_a_file_whose_name_no_unit_can_have_is_refused(
    name: str, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure(image).rename(image / f"etc/ringbatch/{name}.toml")
    assert install(image, config) == 2
    assert f'found the name "{name}", but that of a unit must be' in capsys.readouterr().err
    assert not (image / "etc/systemd").exists()


@pytest.mark.parametrize("place", ["prod.toml", "etc/ringbatch/prod.conf"])
def test_a_file_that_the_units_do_not_read_is_reported(
    place: str, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure(image).rename(image / place)
    assert install(image, config) == 0
    message = (
        f"ringbatch: {config}: ringbatch@prod reads {image}/etc/ringbatch/prod.toml, not this\n"
    )
    assert capsys.readouterr().err == message


def test_a_file_that_a_user_has_in_place_is_the_one_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "ringbatch").mkdir()
    (tmp_path / "m.py").touch()
    config = tmp_path / "ringbatch/prod.toml"
    config.write_text('[models.m]\npath = "../m.py"\n')
    assert main(["units", "--install", "--user", "--config", str(config)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("folder", ["home/me", "root", "run/user/7", "tmp", "var/tmp"])
def test_a_model_that_the_service_does_not_see_is_reported(
    folder: str, image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_command", lambda: ["/opt/ringbatch"])
    (image / folder).mkdir(parents=True)
    (image / folder / "m.onnx").touch()
    config = configure(image, f"{folder}/m.onnx")
    assert install(image, config) == 0
    assert capsys.readouterr().err.startswith(
        f"ringbatch: {config}: [models.m] path: the service does not see /{folder}/m.onnx, because"
    )


def test_a_link_to_a_file_that_the_service_does_not_see_is_reported(
    image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_command", lambda: ["/opt/ringbatch"])
    (image / "root").mkdir()
    (image / "srv/m.onnx").rename(image / "root/m.onnx")
    (image / "srv/m.onnx").symlink_to("../root/m.onnx")
    assert install(image, configure(image)) == 0
    assert "the service does not see /root/m.onnx" in capsys.readouterr().err


def test_an_installation_in_a_home_sees_models_there(
    image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_command", lambda: ["/home/me/ringbatch"])
    (image / "home/me").mkdir(parents=True)
    (image / "home/me/m.onnx").touch()
    assert install(image, configure(image, "home/me/m.onnx")) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("mode", "is_warned"), [(0o700, True), (0o754, True), (0o711, False)])
def test_an_installation_that_the_service_cannot_enter_is_reported(
    mode: int,
    is_warned: bool,
    image: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = image / "opt/mine/.venv/bin/ringbatch"
    script.parent.mkdir(parents=True)
    script.touch()
    (image / "opt/mine").chmod(mode)
    monkeypatch.setattr(units, "_command", lambda: ["/opt/mine/.venv/bin/ringbatch"])
    assert install(image, configure(image)) == 0
    warning = (
        "ringbatch: the service cannot run /opt/mine/.venv/bin/ringbatch, because its user, "
        "ringbatch, may not enter /opt/mine; install ringbatch in /opt/ringbatch, with a Python "
        "that every user can run\n"
    )
    assert capsys.readouterr().err == (warning if is_warned else "")


def test_on_this_host_the_interpreter_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_command", lambda: ["/opt/ringbatch/bin/ringbatch"])
    script, interpreter = units._programs(Path("/"))
    assert script == Path("/opt/ringbatch/bin/ringbatch")
    assert interpreter == Path(sys.executable).resolve()
    assert [*units._programs(Path("/mnt/image"))] == [script]


def test_credentials_lie_where_the_host_has_them(image: Path) -> None:
    config = configure(image)
    folder = image / "etc/ringbatch/prod.credentials"
    folder.mkdir()
    (folder / "api_keys").touch()
    assert install(image, config) == 0
    assert (
        "LoadCredential=api_keys:/etc/ringbatch/prod.credentials/api_keys\n"
        in (image / DROP_IN / "credentials.conf").read_text()
    )


def test_files_that_are_not_needed_any_more_are_removed_and_nothing_else(
    image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    credentials = image / "etc/ringbatch/prod.credentials"
    credentials.mkdir()
    (credentials / "api_keys").touch()
    config = configure(image, more='device = "cuda:0"\n')
    assert install(image, config) == 0
    own = image / DROP_IN / "own.conf"
    own.write_text("[Service]\nNice=1\n")
    (credentials / "api_keys").unlink()
    configure(image)
    capsys.readouterr()
    assert install(image, config) == 0
    assert {path.name for path in (image / DROP_IN).iterdir()} == {"settings.conf", "own.conf"}
    out = capsys.readouterr().out
    for name in ("gpu", "credentials"):
        assert f"removed {image / DROP_IN / name}.conf\n" in out
    own.rename(image / DROP_IN / "gpu.conf")
    (image / DROP_IN / "odd.conf").mkdir()
    assert install(image, config) == 2
    assert "odd.conf: Is a directory" in capsys.readouterr().err
    (image / DROP_IN / "odd.conf").rmdir()
    assert install(image, config) == 0
    assert (image / DROP_IN / "gpu.conf").exists(), "somebody else has written it"


def test_without_install_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["units"]) == 0
    assert "# /etc/systemd/system/ringbatch@.service\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "message"),
    [("port = 0", "port that is known"), ('host = "no.such.invalid"', "is no address")],
)
def test_an_address_that_no_socket_can_have_is_refused(
    section: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").touch()
    config = tmp_path / "prod.toml"
    config.write_text(f'[server]\n{section}\n[models.m]\npath = "m.py"\n')
    assert main(["units", "--config", str(config)]) == 2
    assert message in capsys.readouterr().err
