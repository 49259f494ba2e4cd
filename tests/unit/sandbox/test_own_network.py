"""Addresses of a machine, by the kernel's tables."""

from __future__ import annotations

from autotune.sandbox.own_network import AF_INET, AF_INET6, _local_addresses

TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.1.2.0
        /24 link UNICAST
     |-- 10.1.2.3
        /32 host LOCAL
     |-- 10.1.2.255
        /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
Local:
     |-- 10.1.2.3
        /32 host LOCAL
"""
TABLE = """fe80000000000000021a2bfffe3c4d5e 02 40 20 80 eth0
20010db8000000000000000000000007 02 40 00 80 eth0
00000000000000000000000000000001 01 80 10 80 lo
"""


def test_each_address_of_the_machine_counts_once_and_the_loopbacks_own_do_not_count() -> None:
    sixth = bytes.fromhex("20010db8000000000000000000000007")
    assert _local_addresses(TRIE, TABLE) == [(AF_INET, bytes([10, 1, 2, 3])), (AF_INET6, sixth)]


def test_a_machine_without_tables_has_no_addresses() -> None:
    assert _local_addresses("", "") == []
