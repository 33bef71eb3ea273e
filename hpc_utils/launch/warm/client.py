"""Replaces `python -m MODULE ...`: the warm process that the launch record (`$HPC_LAUNCH`) names runs it in a fork with
this process's environment, folder, streams, connection to mpiexec, umask, signal mask and processors. If the name is a path,
the fork also moves to this process's node, which may be one of several on this machine.

Signals are forwarded to the fork; this process ends as the fork does; if this process is killed, the fork is killed too. It
imports little of the standard library and nothing else, so that it starts in some 10 ms.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
MOST = 1 << 20  # bytes of a message: one packet
SPACES = ("net", "uts")  # the namespaces of a node that a rank must be in: its link and its name
PMI = "PMI_FD"  # the variable with the descriptor by which an MPI rank reaches its mpiexec
PR_SET_PDEATHSIG = 1

fork: socket.socket | None = None  # signals for the fork are sent here
early: list[int] = []


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end is this user's: any user may bind or connect to the name."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid == os.getuid()


def pass_on(number: int, _: object) -> None:
    if fork:
        with suppress(OSError):  # its end is about to be read
            fork.send(b"%d" % number)
    elif number == signal.SIGUSR1:  # kept until there is a fork
        early.append(number)
    else:
        end(-number)


def end(status: int) -> None:
    """End with this exit code, or by the signal -status if it is negative."""
    if status < 0:
        with suppress(OSError):  # SIGKILL's cannot be changed
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status)


def connection_to_mpiexec() -> list[int]:
    """Its descriptor. A process that is no rank of mpiexec, but below one, may have the variable alone."""
    with suppress(KeyError, ValueError, OSError):
        os.fstat(found := int(os.environ[PMI]))
        return [found]
    return []


def ask(server: str, run: str) -> str:
    """Return the server's reason to refuse; otherwise end with the fork, a rank of `run`."""
    global fork
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    umask = os.umask(0o077)
    os.umask(umask)
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    request |= {"umask": umask, "mask": sorted(mask), "processors": sorted(os.sched_getaffinity(0))}
    across_nodes, pmi = server.startswith("/"), connection_to_mpiexec()
    request["pmi"] = len(pmi)
    node = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in (SPACES if across_nodes else ())]
    former = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(server if across_nodes else f"\0{server}")
        if not is_own(connection):
            raise OSError(0, "its name belongs to another user")
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, *pmi, *node])
        pid, why = json.loads(connection.recv(MOST) or '[0, "the warm process has ended"]')
    except OSError as error:
        pid, why = 0, f"no warm process: {error.strerror}"
    for space in node:
        os.close(space)
    if not pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in former.items():
            signal.signal(number, handler)
        for number in early:
            os.kill(os.getpid(), number)
        return why
    fork = connection
    for number in early:
        pass_on(number, None)
    if not (status := connection.recv(MOST)):
        print("the warm process was killed, and this process with it", file=sys.stderr, flush=True)
    status = int(status or -signal.SIGKILL)
    if pmi and run and status not in (0, -signal.SIGTERM):
        note(run, int(os.environ["PMI_RANK"]), status)
    end(status)


def note(run: str, rank: int, status: int) -> None:
    """For `launch.failure`, as torchrun's wrapper does: mpiexec may end with the exit code of a rank that it has killed since."""
    with suppress(OSError), open(f"{run}/logs/failed{rank}.json", "w") as file:
        json.dump([{"rank": rank, "exit_code": status}], file)


def cold(record: dict[str, object], reason: str) -> None:
    """Become `python -m MODULE ...`, with the reason in the record."""
    if reason:
        print(f"cold start: {reason}", file=sys.stderr, flush=True)
        record = record | {"warm": "off", "cold": reason}
    arguments = [sys.executable, *sys.argv[1:]]
    os.execve(sys.executable, arguments, {**os.environ, "HPC_LAUNCH": json.dumps(record)})


if __name__ == "__main__":
    record = json.loads(os.environ.get("HPC_LAUNCH", "{}"))
    if sys.platform == "linux":  # as in hpc_utils.launch.process_tree
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != record.get("parent", os.getppid()):
            os._exit(1)
    server = record.get("warm", "off")
    cold(record, "" if server == "off" else ask(server, record.get("run", "")))
