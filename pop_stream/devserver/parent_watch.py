"""A small parent for one server, so that the server cannot outlive whoever asked for it.

Run as a script by `ServerProcess`, with the interpreter's `-I -S`: it must import nothing but
the standard library, and little of that, because it stays in memory beside the server.

It starts the command it is given, writes that command's pid as one line on standard output
and waits for the command to end; its exit code is the command's. Standard input is the cord:
a line `stop SECONDS` asks for an orderly end, killed after that grace. The end of the input,
which the kernel brings about when the owner dies of whatever cause, means the same with the
grace from the command line. A cord works alike on Linux and macOS and, unlike Linux's parent
death signal, does not depend on which thread of the owner lives on.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType


def main(arguments: list[str]) -> int:
    """Start the server and stay until it ends.

    Args:
        arguments: Signal number that ends the server in order, seconds of grace once the
            owner is gone, `uid:gid` to run as or `-`, then the command.

    Returns:
        The server's exit code, 128 and the signal's number if a signal ended it.
    """
    stop_signal, grace, owner, *command = arguments
    identity = [int(part) for part in owner.split(":")] if owner != "-" else []
    server = subprocess.Popen(  # noqa: S603  the command is the project's own
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        user=identity[0] if identity else None,
        group=identity[1] if identity else None,
        extra_groups=[] if identity else None,
    )

    def forward(_number: int, _frame: FrameType | None) -> None:
        server.send_signal(int(stop_signal))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.close()
    threading.Thread(
        target=_stop_server, args=(server, int(stop_signal), float(grace)), daemon=True
    ).start()
    code = server.wait()
    return code if code >= 0 else 128 - code


def _stop_server(server: subprocess.Popen[bytes], stop_signal: int, grace: float) -> None:
    # Not sys.stdin: its lock, held by this thread, would abort the interpreter's shutdown.
    order = os.read(0, 64).split()
    server.send_signal(stop_signal)
    time.sleep(float(order[1]) if order else grace)
    # The main thread ends the process, and this thread with it, as soon as the server ends.
    server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
