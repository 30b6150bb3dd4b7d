"""A PostgreSQL for the tests: that of UNDERSTUDY_TEST_POSTGRES, or one started on
loopback where it is installed.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIVEN = os.environ.get("UNDERSTUDY_TEST_POSTGRES", "")


@contextmanager
def postgres() -> Iterator[str | None]:
    """The URL of a server, with its password in it, or None where there is none."""
    if GIVEN:
        yield GIVEN
        return
    programs = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    if programs is None or (os.getuid() == 0 and shutil.which("setpriv") is None):
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from _started(programs.parent, Path(folder))


def _started(programs: Path, folder: Path) -> Iterator[str]:
    as_user: list[str] = []
    if os.getuid() == 0:  # the server refuses to run as root
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    secret = folder / "secret"
    secret.write_text("quiet-please")
    secret.chmod(0o644)

    def run(program: str, *words: str) -> None:
        subprocess.run(
            [*as_user, programs / program, *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    data = str(folder / "data")
    run(
        "initdb",
        "--no-sync",
        "-A",
        "scram-sha-256",
        "-U",
        "tester",
        f"--pwfile={secret}",
        "-D",
        data,
    )
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
    run("pg_ctl", "-w", "-D", data, "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://tester:quiet-please@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
