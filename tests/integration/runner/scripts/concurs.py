"""Handles signals, forks, runs threads and coroutines, logs, and ends with things still going on."""

import asyncio
import atexit
import concurrent.futures
import faulthandler
import logging
import os
import signal
import sys
import threading
import time

import pretend
import torch


async def coroutine(number):
    await asyncio.sleep(0.01)
    return number


async def gathers():
    process = await asyncio.create_subprocess_exec("echo", "sub", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    loop = asyncio.get_running_loop()
    in_thread = await loop.run_in_executor(None, lambda: (torch.ones(300, 300) @ torch.ones(300, 300)).sum().item())
    return await asyncio.gather(*[coroutine(number) for number in range(3)]), said, in_thread


def trains(number):
    weight = torch.ones(200, 200, requires_grad=True)
    (weight @ weight).sum().backward()
    return number


os.chdir("pkg/..")
faulthandler.enable()
print(faulthandler.is_enabled())
got = []
signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
os.kill(os.getpid(), signal.SIGTERM)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
except KeyboardInterrupt:
    print("interrupted", got)
atexit.register(print, "exit of the script")
for status in (0, 6):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        print("child", torch.ones(300, 300).exp().sum().isfinite().item())
        sys.exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(asyncio.run(gathers()))
pool = concurrent.futures.ThreadPoolExecutor(4)
print(list(pool.map(trains, range(8))))
threading.Thread(target=lambda: (time.sleep(0.2), print("late thread"))).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
logging.warning("a warning")
print("an error", file=sys.stderr)
try:
    input("name? ")
except EOFError as error:
    print(error)
pretend.report()
print("the end of the script")
