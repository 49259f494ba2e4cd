"""Starts processes that try to outlive it, then ends or waits as told."""

import os
import signal
import sys
import time

import pretend


def sleep_forever():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    time.sleep(600)
    os._exit(0)


def start_stray(kind):
    pid = os.fork()
    if pid:
        if kind == 2:
            os.waitpid(pid, 0)
        return
    if kind >= 1:
        os.setsid()
    if kind == 2:
        if os.fork():
            os._exit(0)
        os.setsid()
    sleep_forever()


def breed():
    """Forks as fast as it is killed."""
    while True:
        if os.fork() == 0:
            os.setsid()
            continue
        time.sleep(0.02)
        os._exit(0)


if __name__ == "__main__":
    for number in range(50):
        start_stray(number % 3)
    if "breeds" in sys.argv and os.fork() == 0:
        breed()
    if "waits" in sys.argv:
        pretend.stepped()
        print("ready", flush=True)
        time.sleep(600)
    pretend.report()
    if "quick" in sys.argv:
        # The last thing it does: nobody has had time to see these.
        start_stray(2)
