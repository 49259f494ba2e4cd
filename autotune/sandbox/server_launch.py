"""Starts a fork server inside layers: the start of the interpreter runs inside as well.

Run with `python -I -S`; standard library only. The launcher hands the tuner a descriptor of its first mount namespace,
for the supervisors of the server's trials, and executes the script's interpreter with the rights to mount layers.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from autotune.protocol.codec import decode, encode
from autotune.protocol.forking import HOME, ForkServerHello, ForkServerSpec
from autotune.sandbox import namespaces, overlay
from autotune.sandbox.process_tree import PR_SET_PDEATHSIG, ignore_signals, prctl


def main(spec_path: str, descriptor: str, *command: str) -> None:
    """Enters the layers and executes the command; sends the tuner the reason of a failure.

    Args:
        spec_path: A `ForkServerSpec` as JSON, with layers.
        descriptor: The socket to the tuner.
        command: What to execute.
    """
    ignore_signals()
    tuner = socket.socket(fileno=int(descriptor))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        layers = decode(ForkServerSpec, Path(spec_path).read_text()).layers
        assert layers is not None
        if not namespaces.can_mount():
            namespaces.own_users()
            namespaces.unshare(namespaces.CLONE_NEWNS)
        home = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        socket.send_fds(tuner, [HOME], [home])
        os.close(home)
        overlay.enter(layers)
        namespaces.keep_rights_in_next_program()
        os.set_inheritable(int(descriptor), True)
        os.execvp(command[0], command)
    except (OSError, LookupError, ValueError) as error:
        tuner.sendall(encode(ForkServerHello(reason=f"its layers cannot be mounted: {error}")).encode())
        os._exit(1)
