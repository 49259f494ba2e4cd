"""Services and shared memory of a user's other programs, to see what reaches them."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from tests.sandbox.file_states import States

KEPT = b"kept"
OF_TRIALS = "24301"
"""Key of the scripts' own System V objects, 0x5EED, as the kernel prints numbers."""
QUEUE = b"/by-a-trial"


class Services:
    """Sockets that count messages, and a segment of System V with a content.

    Args:
        folder: For the sockets with paths.
    """

    def __init__(self, folder: Path) -> None:
        self._received: list[str] = []
        self._sockets: list[socket.socket] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.shmat.restype = ctypes.c_void_p
        key = int.from_bytes(os.urandom(3), "big") + 1
        self._segment = self._libc.shmget(key, 4096, 0o1600)
        self._memory = self._libc.shmat(self._segment, None, 0)
        ctypes.memmove(self._memory, KEPT, len(KEPT))
        abstract = f"sandbox-{folder.name}"
        self._serve("bus", socket.socket(socket.AF_UNIX), str(folder / "bus"))
        self._serve("docker", socket.socket(socket.AF_UNIX), str(folder / "docker.sock"))
        self._serve("abstract", socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), f"\0{abstract}")
        tcp = self._serve("tcp", socket.socket(), ("127.0.0.1", 0))
        udp = self._serve("udp", socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ("127.0.0.1", 0))
        self.variables = {
            "BUS_SOCKET": str(folder / "bus"),
            "DOCKER_SOCKET": str(folder / "docker.sock"),
            "ABSTRACT_SOCKET": abstract,
            "TCP_PORT": str(tcp.getsockname()[1]),
            "UDP_PORT": str(udp.getsockname()[1]),
            "SEGMENT": str(key),
        }
        """Where scripts find the services."""

    def states(self) -> States:
        """Messages received so far, the content of the segment, and objects of scripts in the kernel."""
        kernel = [f"{kind} {line}" for kind in ("shm", "sem", "msg") for line in _lines(f"/proc/sysvipc/{kind}")]
        return {
            "messages to services": list(self._received),
            "segment of System V": ctypes.string_at(self._memory, len(KEPT)) if self._memory else b"",
            "objects of System V": [line for line in kernel if OF_TRIALS in line.split()],
            "queues": self._has_queue(),
        }

    def close(self) -> None:
        """Ends the services."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._libc.shmctl(self._segment, 0, None)

    def _serve(self, name: str, server: socket.socket, address: str | tuple[str, int]) -> socket.socket:
        server.bind(address)
        if server.type == socket.SOCK_STREAM:
            server.listen()
        self._sockets.append(server)
        threading.Thread(target=self._receive, args=(name, server), daemon=True).start()
        return server

    def _receive(self, name: str, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                if server.type == socket.SOCK_STREAM:
                    server.accept()[0].close()
                elif not server.recv(1000):
                    return
                self._received.append(name)

    @staticmethod
    def _has_queue() -> bool:
        """Whether a queue of a script exists; removes the queue."""
        library = ctypes.CDLL("librt.so.1", use_errno=True)
        number = library.mq_open(QUEUE, os.O_RDONLY)
        if number < 0:
            return False
        os.close(number)
        library.mq_unlink(QUEUE)
        return True


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
