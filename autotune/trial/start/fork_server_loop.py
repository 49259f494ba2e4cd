"""Main function of the fork server: imports the script's modules, and forks trials.

The server runs in the script's interpreter, with a socket to the tuner. The server imports torch, waits for the names
of the script's other modules, imports these, checks that forks are sound, reports, and forks a supervisor for each
trial. The server runs nothing of the user's, starts no thread, and never touches a device. An import may write a
cache, so the server lives in a copy-on-write layer from the start of its interpreter on
(`autotune.sandbox.server_launch`). The server ends with the tuner.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from pathlib import Path

from autotune.protocol.codec import decode, encode
from autotune.protocol.forking import FURTHER_IMPORTS, GO_ON, ForkServerHello, ForkServerImports, ForkServerSpec
from autotune.sandbox import fork_callbacks, landlock, namespaces
from autotune.sandbox.process_tree import PR_SET_PDEATHSIG, ignore_signals, prctl
from autotune.sandbox.tree_removal import remove_tree
from autotune.trial.start import forked_start
from autotune.trial.start.fork_requests import serve, stand_down


def main(there: frozenset[str], spec_path: str, descriptor: str) -> None:
    """Prepares the process and serves until the tuner is gone.

    Args:
        there: Names of the modules in a bare interpreter.
        spec_path: Path of a `ForkServerSpec`.
        descriptor: The socket to the tuner.
    """
    ignore_signals()
    fork_callbacks.install()
    tuner = socket.socket(fileno=int(descriptor))
    # Imports take long, and the server reads nothing from the tuner meanwhile.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([tuner], [], [], 0)[0] and not tuner.recv(1, socket.MSG_PEEK):
        os._exit(0)  # The tuner was gone before.
    spec = decode(ForkServerSpec, Path(spec_path).read_text())
    try:
        if _prepare(spec, tuner, there):
            serve(tuner, forked_start.run)
    finally:
        stand_down()
        remove_tree(Path(spec.folder))
        os._exit(0)


def _prepare(spec: ForkServerSpec, tuner: socket.socket, there: frozenset[str]) -> bool:
    """Imports, checks, and reports the result; whether trials can be forked."""
    began, waited_s, reason, has_imported = time.monotonic(), 0.0, "", False
    try:
        if spec.layers is not None:
            namespaces.keep_rights_in_this_program()
        if spec.writable is not None:
            landlock.restrict(spec.writable, is_forked_from=True)
        os.chdir("/")
        forked_start.preload_torch(spec.imports)
        asked_at = time.monotonic()
        modules = _further_imports(spec, tuner)
        waited_s = time.monotonic() - asked_at
        forked_start.preload(modules)
        has_imported = True
        known_descriptors = frozenset({0, 1, 2, tuner.fileno()})
        reason = forked_start.why_not(known_descriptors, frozenset(spec.own_modules) - there)
    except BaseException as error:
        reason = f"the imports failed: {error!r:.300}"
    # From here on the socket tells of the tuner's end, and the server removes its folder.
    prctl(PR_SET_PDEATHSIG, 0)
    import_s = time.monotonic() - began - waited_s
    tuner.sendall(encode(ForkServerHello(reason=reason, import_s=import_s, has_imported=has_imported)).encode())
    return not reason


def _further_imports(spec: ForkServerSpec, tuner: socket.socket) -> tuple[str, ...]:
    """Waits for the modules to import after torch, which the probe may still have to find.

    Raises:
        EOFError: The tuner has given the server up.
    """
    if tuner.recv(len(GO_ON)) != GO_ON:
        raise EOFError("nobody asks for the imports")
    return decode(ForkServerImports, Path(spec.folder, FURTHER_IMPORTS).read_text()).modules
