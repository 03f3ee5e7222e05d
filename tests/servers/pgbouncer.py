"""A pgbouncer in transaction mode before a server, where there is one on the PATH; gone with the process that started it."""

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.servers import postgres
from tests.servers.ports import free_port

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=demora
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
"""


class Missing(Exception):
    """There is no pgbouncer on this machine."""

    def __init__(self) -> None:
        super().__init__("no pgbouncer on the PATH")


@functools.cache
def shared() -> str:
    """The address of one before this process's server."""
    program = shutil.which("pgbouncer")
    if program is None:
        raise Missing
    folder, port = Path(tempfile.mkdtemp(prefix="demora-pgbouncer-")), free_port()
    folder.chmod(0o755)
    (folder / "settings").write_text(_SETTINGS.format(server=postgres.shared().port, port=port))
    with (folder / "log").open("ab") as log:
        command = [program, str(folder / "settings")]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **postgres.unprivileged())
    atexit.register(_end, postgres.guard(process, folder), process, folder)
    deadline = time.monotonic() + postgres.PATIENCE
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"pgbouncer did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.02)
    return f"postgresql://demora@127.0.0.1:{port}/postgres"


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _end(guard: "subprocess.Popen[bytes]", process: "subprocess.Popen[bytes]", folder: Path) -> None:
    guard.kill()
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
