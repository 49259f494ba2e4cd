"""A network of a process's own, with the loopback alone. Standard library only: the supervisor loads this file.

The loopback answers to all addresses of the machine: processes of a trial find each other by the machine's name.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import struct
from contextlib import suppress
from pathlib import Path

from autotune.sandbox import namespaces

CLONE_NEWNET = 0x40000000
AF_INET, AF_INET6, SOCK_DGRAM = 2, 10, 2
SIOCSIFFLAGS, SIOCSIFADDR = 0x8914, 0x8916
IFF_UP = 1
LOOPBACK = b"lo"
LOOPBACK_INDEX = 1
MAX_ADDRESSES = 64
LOCAL = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")


def enter() -> None:
    """Moves this process into a new network.

    Raises:
        OSError: The system does not permit a network namespace.
    """
    addresses = _local_addresses(_text("/proc/net/fib_trie"), _text("/proc/net/if_inet6"))
    namespaces.unshare(CLONE_NEWNET)
    _request(AF_INET, SIOCSIFFLAGS, struct.pack("16sH22x", LOOPBACK, IFF_UP))
    for number, (family, address) in enumerate(addresses[:MAX_ADDRESSES]):
        with suppress(OSError):  # Without an address the machine's name leads nowhere; all else works.
            if family == AF_INET:
                label = LOOPBACK + b":%d" % number
                _request(family, SIOCSIFADDR, struct.pack("16sHH4s16x", label, AF_INET, 0, address))
            else:
                _request(family, SIOCSIFADDR, struct.pack("16sIi", address, 128, LOOPBACK_INDEX))


def _request(family: int, request: int, argument: bytes) -> None:
    """Makes a request about an interface.

    Raises:
        OSError: The system refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.socket(family, SOCK_DGRAM, 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "no socket")
    try:
        fcntl.ioctl(descriptor, request, argument)
    finally:
        os.close(descriptor)


def _local_addresses(trie: str, table: str) -> list[tuple[int, bytes]]:
    """Family and bytes of the addresses of this machine, without the loopback's own.

    Args:
        trie: Text of /proc/net/fib_trie.
        table: Text of /proc/net/if_inet6.
    """
    found = [bytes(map(int, text.split("."))) for text in LOCAL.findall(trie)]
    fourth = [(AF_INET, address) for address in dict.fromkeys(found) if address[0] != 127]
    lines = [line.split() for line in table.splitlines()]
    sixth = [(AF_INET6, bytes.fromhex(words[0])) for words in lines if len(words) == 6 and words[3] == "00"]
    return fourth + sixth


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
