"""A stand-in for ``python`` whose processes are forked from one that has imported torch.

To import torch, TorchRL, numba and the commands takes five seconds of a core, longer than most
commands that tests run. ``start`` imports them once, in a process of its own, and writes a program
into a folder. That program takes the arguments of ``python`` (``-c``, ``-m`` or a file). Its
environment, folder and open files are those of its caller, as is its exit code; SIGTERM is passed
on. Every call is a new process, so what a command imports, registers or sets is gone when it ends.
``multiprocessing`` can spawn its processes with it, too.

Tests of imports, of start times and of signals start ``sys.executable`` instead.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

IMPORTED = (
    "torch", "torchrl.collectors", "torchrl.envs", "torchrl.data", "torchrl.objectives", "hydra",
    "numba", "rich.table", "pytest", "agents.cli.main", "agents.cli.train", "agents.cli.eval",
    "agents.training.workers",
)  # fmt: skip
"""Slow imports. Not the compiled kernels, which read the environment."""
CALL = """#!{python} -ISs
import array, json, os, signal, socket, sys
files = [file for file in map(int, os.listdir("/dev/fd")) if os.path.exists(f"/dev/fd/{{file}}")]
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
call["files"] = files
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
server.sendmsg([b"x"], [rights])
server.sendall(json.dumps(call).encode() + b"\\n")
signal.signal(signal.SIGTERM, lambda *_: server.sendall(b"t"))
sys.exit(int(server.makefile().readline() or 70))
"""


@contextlib.contextmanager
def start(folder: Path) -> Iterator[Path]:
    """Yield the path of the stand-in; the process behind it ends with the block.

    Without Linux's ``pidfd_open`` it is ``python`` itself.
    """
    if not hasattr(os, "pidfd_open"):
        yield Path(sys.executable)
        return
    program, address = folder / "python", folder / "socket"
    program.write_text(CALL.format(python=sys.executable, address=str(address)))
    program.chmod(0o700)
    server = subprocess.Popen(
        [sys.executable, __file__, str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        yield program
    finally:
        server.stdin.close()  # ends it
        server.wait()
        server.stdout.close()


def serve(address: str) -> None:
    """Import, then fork a keeper for each call, until the other end of stdin is closed."""
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("numba").njit(lambda: 0)()  # numba registers what it can compile
    gc.freeze()  # a child copies no memory page of what is already there
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            keep(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def keep(connection: socket.socket) -> None:
    """Run a call in a child and answer with its exit code; end it if the caller has ended."""
    _, files, _, _ = socket.recv_fds(connection, 1, 250)
    call = json.loads(connection.makefile().readline())
    targets = call.pop("files")
    child = os.fork()
    if child == 0:
        connection.close()
        # First above all targets, because a target may be the number of another of these files.
        above = [fcntl.fcntl(file, fcntl.F_DUPFD, max([*targets, *files]) + 1) for file in files]
        for file in files:
            os.close(file)
        for source, target in zip(above, targets, strict=True):
            os.dup2(source, target)
            os.close(source)
        run(**call)
    for file in files:
        os.close(file)
    ended, runs = os.pidfd_open(child), True
    while runs and ended not in select.select([ended, connection], [], [])[0]:
        os.kill(child, signal.SIGTERM)
        runs = bool(connection.recv(1))  # nothing: the caller has ended
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(f"{code if code >= 0 else 128 - code}\n".encode())
    os._exit(0)


def run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Do in this process what ``python ARGUMENTS`` does, and end it."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    # Options of the interpreter, as `multiprocessing` hands them on, have had their effect.
    kind, *rest = dropwhile(lambda word: word[:1] == "-" and word not in ("-c", "-m"), arguments)
    code: Any = 0
    try:
        if kind == "-c":
            sys.argv, sys.path[:0] = ["-c", *rest[1:]], [""]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        elif kind == "-m":
            sys.argv, sys.path[:0] = rest, [folder]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[:0] = [kind, *rest], [str(Path(kind).resolve().parent)]
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    del sys.path[0]  # this folder, which callers do not see
    serve(sys.argv[1])
