"""Rows of checks of the kernel, packages, ports, credentials and other engines."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from doctor_rows.hosts import (
    ENGINE,
    ERROR,
    KERNEL,
    MIB,
    NOTE,
    OK,
    PACKAGES,
    SOFTWARE,
    TAKEN,
    WARNING,
    config,
    row,
)
from ringbatch.engine.doctor import credential_checks, engine_checks, kernel_checks, software_checks
from ringbatch.engine.doctor.facts import Door, Engines, Features, Package

SOFTWARE_ROWS: Final = (
    row(kernel_checks.platform, NOTE, "cannot be known", "another user", kernel=None),
    row(
        kernel_checks.platform,
        ERROR,
        "Linux 6.1 on riscv64",
        "use another machine",
        kernel=replace(KERNEL, machine="riscv64", needed="another machine"),
    ),
    row(kernel_checks.platform, OK, "Linux 6.1 on x86_64"),
    row(
        kernel_checks.platform,
        OK,
        "Linux 6.1 on aarch64",
        kernel=replace(KERNEL, machine="aarch64"),
    ),
    row(
        kernel_checks.proc, ERROR, "not mounted", "mount /proc", kernel=replace(KERNEL, proc=False)
    ),
    row(
        kernel_checks.proc,
        WARNING,
        "/proc/net/tcp cannot be read",
        "with net",
        kernel=replace(KERNEL, sees_connections=False),
    ),
    row(
        kernel_checks.proc,
        NOTE,
        "hidepid=invisible",
        "nothing",
        kernel=replace(KERNEL, hidepid="invisible"),
    ),
    row(kernel_checks.proc, OK, "shows processes"),
    row(
        kernel_checks.features, NOTE, "SO_REUSEPORT cannot be known", "another user", features=None
    ),
    row(kernel_checks.features, OK, "SO_REUSEPORT: fine"),
    row(
        kernel_checks.features,
        ERROR,
        "POSIX semaphores: no",
        "/dev/shm",
        features=Features(semaphores="no"),
    ),
    row(
        kernel_checks.features,
        ERROR,
        "named pipes in /dev/shm: no",
        "/dev/shm",
        features=Features(pipes="no"),
    ),
    row(
        kernel_checks.features, ERROR, "pidfd_open and", "Linux 5.3", features=Features(pidfd="no")
    ),
    row(
        kernel_checks.features,
        ERROR,
        "locks of open files",
        "mount /proc",
        features=Features(locks="no"),
    ),
    row(
        kernel_checks.features,
        ERROR,
        "memfd_create: no",
        "seccomp",
        features=Features(memory_files="no"),
    ),
    row(
        kernel_checks.features,
        ERROR,
        "PR_SET_PDEATHSIG: no",
        "seccomp",
        features=Features(parent_death="no"),
    ),
    row(
        kernel_checks.features,
        ERROR,
        "SO_REUSEPORT: no",
        "seccomp",
        features=Features(shared_ports="no"),
    ),
    row(
        kernel_checks.features,
        WARNING,
        "new connections",
        "CAP_NET_ADMIN",
        features=Features(refusing_connections="no"),
    ),
    row(
        kernel_checks.features,
        NOTE,
        "SCHED_BATCH: no",
        "sched_setscheduler",
        features=Features(batch_scheduling="no"),
    ),
    row(
        kernel_checks.features,
        NOTE,
        "monotonic clock: no",
        "glibc",
        features=Features(monotonic_waits="no"),
    ),
    row(software_checks.python, NOTE, "cannot be known", "another user", software=None),
    row(
        software_checks.python,
        ERROR,
        "CPython 3.10.2",
        "3.11 to",
        software=replace(SOFTWARE, python=(3, 10, 2)),
    ),
    row(
        software_checks.python,
        ERROR,
        "PyPy 3.12.1",
        "CPython",
        software=replace(SOFTWARE, implementation="PyPy"),
    ),
    row(
        software_checks.python,
        NOTE,
        "3.15.0",
        "tested",
        software=replace(SOFTWARE, python=(3, 15, 0)),
    ),
    row(software_checks.python, OK, "CPython 3.12.1"),
    row(
        software_checks.packages,
        NOTE,
        "not installed as a distribution",
        "pip install",
        software=replace(SOFTWARE, packages=()),
    ),
    row(software_checks.packages, OK, "gunicorn 23.0.0, uvicorn 0.54.0"),
    row(
        software_checks.packages,
        ERROR,
        "grpcio is not installed",
        "pip install 'ringbatch[grpc]', or in a clone '.[grpc]'",
        configured=config({"grpc_port": 0}),
    ),
    row(
        software_checks.packages,
        ERROR,
        "opentelemetry-proto is not installed",
        "pip install 'ringbatch[otel]', or in a clone '.[otel]'",
        software=replace(
            SOFTWARE,
            packages=(
                Package(name="opentelemetry-proto", version=None, bounds=">=1", extra="otel"),
            ),
        ),
        configured=config({"control_port": 0, "trace_endpoint": "http://127.0.0.1:1"}),
    ),
    row(
        software_checks.packages,
        ERROR,
        "aiohttp is not installed",
        "pip install 'ringbatch[http]', or in a clone '.[http]'",
        software=replace(
            SOFTWARE,
            packages=(Package(name="aiohttp", version=None, bounds=">=3.10", extra="http"),),
        ),
        configured=config({"pass_through": "http://127.0.0.1:1"}),
    ),
    row(
        software_checks.packages,
        OK,
        "gunicorn 23.0.0",
        software=replace(
            SOFTWARE,
            packages=(
                PACKAGES[0],
                Package(name="aiohttp", version=None, bounds=">=3.10", extra="http"),
            ),
        ),
        configured=config(runtime="http", path=("http://127.0.0.1:1", "http://127.0.0.1:2")),
    ),
    row(
        software_checks.packages,
        ERROR,
        "onnxruntime is not installed",
        "pip install 'ringbatch[onnx]', or in a clone '.[onnx]'",
        software=replace(
            SOFTWARE,
            packages=(Package(name="onnxruntime", version=None, bounds=">=1.20", extra="onnx"),),
        ),
        configured=config(path=Path("m.onnx")),
    ),
    row(
        software_checks.packages,
        ERROR,
        "gunicorn is not installed",
        "install ringbatch again",
        software=replace(SOFTWARE, packages=(replace(PACKAGES[0], version=None),)),
    ),
    row(
        software_checks.packages,
        ERROR,
        "uvicorn 0.55.0 is installed, and <0.55,>=0.34 is asked for",
        "pip install 'uvicorn<0.55,>=0.34'",
        software=replace(SOFTWARE, packages=(replace(PACKAGES[1], version="0.55.0"),)),
    ),
    row(software_checks.compiled, OK, "ringbatch 0.1.0, compiled"),
    row(
        software_checks.compiled,
        NOTE,
        "ringbatch 0.1.0, not compiled",
        "RINGBATCH_COMPILE=1",
        software=replace(SOFTWARE, compiled=False),
    ),
    row(engine_checks.ports, NOTE, "cannot be known", "another user", doors=None),
    row(engine_checks.ports, OK, "8080 is free"),
    row(
        engine_checks.ports,
        NOTE,
        "40000 is free now, and among the ports 32768 to 60999",
        "below 32768",
        doors=(Door(key="grpc_port", host="a", port=40000),),
    ),
    row(
        engine_checks.ports,
        OK,
        "40000 is free",
        doors=(Door(key="grpc_port", host="a", port=40000),),
        asked=False,
    ),
    row(
        engine_checks.ports,
        ERROR,
        "cannot listen on 127.0.0.1:80: Permission denied",
        "choose another address, in [server] host, or another port, in [server] port; ports below "
        "1024 need a privilege",
        doors=(Door(key="port", host="127.0.0.1", port=80, refusal="Permission denied"),),
    ),
    row(
        engine_checks.ports,
        ERROR,
        "cannot listen on nowhere:9090: Name or service not known",
        "choose another address, in [server] control_host",
        doors=(
            Door(
                key="control_port",
                home="control_host",
                host="nowhere",
                port=9090,
                refusal="Name or service not known",
            ),
        ),
    ),
    row(
        engine_checks.ports,
        ERROR,
        "process 12 (nginx: master) has it",
        "stop what has it",
        doors=(replace(TAKEN, holders=((12, "nginx: master"),)),),
    ),
    row(
        engine_checks.ports, ERROR, "who has it cannot be seen", "stop what has it", doors=(TAKEN,)
    ),
    row(
        engine_checks.ports,
        OK,
        "/run/a.sock is free",
        "",
        doors=(Door(key="unix_socket", path="/run/a.sock"),),
    ),
    row(
        engine_checks.ports,
        ERROR,
        "cannot listen on /run/a.sock: no directory",
        "choose another path",
        doors=(Door(key="unix_socket", path="/run/a.sock", refusal="no directory"),),
    ),
    row(
        engine_checks.ports,
        ERROR,
        "process 12 (nginx: master) has it",
        "choose another path",
        doors=(replace(TAKEN, key="unix_socket", path="/a", holders=((12, "nginx: master"),)),),
    ),
    row(
        engine_checks.ports, NOTE, "who has it cannot be seen", "stop", doors=(TAKEN,), asked=False
    ),
    row(
        engine_checks.ports,
        NOTE,
        "process 12 (ringbatch: supervisor) has it",
        "stop it before another",
        doors=(replace(TAKEN, holders=((12, "ringbatch: supervisor"),)),),
    ),
    row(
        engine_checks.ports,
        NOTE,
        "process 7 (ringbatch: supervisor) has it",
        "stop it before another",
        doors=(replace(TAKEN, holders=((7, "ringbatch: supervisor"),)),),
        engines=Engines(running=(ENGINE,)),
        configured=config({"name": "prod"}),
    ),
    row(
        engine_checks.ports,
        ERROR,
        "process 7 (ringbatch: supervisor) has it",
        "stop what has it",
        doors=(replace(TAKEN, holders=((7, "ringbatch: supervisor"),)),),
        engines=Engines(running=(ENGINE,)),
        configured=config({"name": "other"}),
    ),
    *(
        row(
            engine_checks.ports,
            NOTE,
            f"process {pid} ({title}) has it",
            "nothing where that is ringbatch@NAME.socket of the engine to be examined",
            doors=(replace(TAKEN, holders=((pid, title),)),),
        )
        for pid, title in (
            (1, "/sbin/init splash"),
            (1, "/usr/lib/systemd/systemd --switched-root"),
            (812, "/usr/lib/systemd/systemd --user"),
        )
    ),
    *(
        row(
            engine_checks.ports,
            ERROR,
            f"({holders[-1][1]}) has it",
            "stop what has it",
            doors=(replace(TAKEN, key=key, holders=holders),),
            engines=Engines(running=(ENGINE,)),
            configured=config({"name": "other"}),
        )
        for key, holders in (
            ("grpc_port", ((1, "/sbin/init"),)),
            ("port", ((1, "nginx: master"),)),
            ("port", ((1, "/sbin/init"), (7, "ringbatch: supervisor"))),
        )
    ),
    row(credential_checks.credentials, NOTE, "cannot be known", "another user", credentials=None),
    row(credential_checks.credentials, OK, "can be used"),
    row(
        credential_checks.credentials,
        ERROR,
        "/k.pem: cannot be read: Permission denied",
        "let the engine's user read it",
        credentials="/k.pem: cannot be read: Permission denied",
    ),
    row(credential_checks.exposure, NOTE, "cannot be known", "another user", exposed=None),
    row(credential_checks.exposure, OK, "no setting lets strangers"),
    row(
        credential_checks.exposure,
        WARNING,
        "keys travel in plain",
        "set TLS",
        exposed=(("keys travel in plain", "set TLS"),),
    ),
    row(
        engine_checks.engines,
        NOTE,
        "which engines run cannot be known",
        "another user",
        engines=None,
    ),
    row(engine_checks.engines, OK, "none of this user runs"),
    row(
        engine_checks.engines,
        OK,
        "prod (process 7) serves a, b with 1024 MiB",
        engines=Engines(running=(ENGINE,)),
    ),
    row(
        engine_checks.engines,
        NOTE,
        "of another version of ringbatch: /ringbatch.8.x",
        "that version's commands",
        engines=Engines(of_other_versions=("/ringbatch.8.x",)),
    ),
    row(
        engine_checks.engines,
        NOTE,
        "6 of other users: /0, /1, /2, /3, /4 and 1 more",
        "as those users",
        engines=Engines(of_others=tuple(f"/{n}" for n in range(6))),
    ),
    row(engine_checks.leftovers, OK, "none"),
    row(
        engine_checks.leftovers,
        WARNING,
        "2 files in /dev/shm, 20 MiB: ringbatch.9.x, sem.ringbatch.9.x.c",
        "the next start removes them",
        engines=Engines(left=("ringbatch.9.x", "sem.ringbatch.9.x.c"), left_bytes=20 * MIB),
    ),
)
