"""The loop that the scripts of this benchmark train by."""

import json
import math
import socket
import time

import torch

SPAN_STEPS = 50
"""Steps of one turn."""


class Turns:
    """Trains only while it has the turn, and says what a turn took.

    Args:
        name: Of the abstract socket of who gives the turns.
    """

    def __init__(self, name):
        self._giver = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._giver.connect("\0" + name)
        self._await()

    def next(self):
        """Ends a turn, and waits for another."""
        taken = {"cpu_s": time.thread_time() - self._cpu_s, "wall_s": time.monotonic() - self._wall_s}
        self._giver.send(json.dumps(taken).encode())
        self._await()

    def _await(self):
        if not self._giver.recv(1):
            raise SystemExit
        self._cpu_s, self._wall_s = time.thread_time(), time.monotonic()


def train(model, loader, num_steps):
    """Trains for so many steps, or in turns, epoch after epoch, and says when the first has ended."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    turns = Turns(num_steps) if isinstance(num_steps, str) else None
    done, num_steps = 0, math.inf if turns else num_steps
    while done < num_steps:
        for batch, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
            done += 1
            if done == 1:
                print("first step ended at", time.monotonic())
            if turns and done % SPAN_STEPS == 0:
                turns.next()
            if done >= num_steps:
                break


def steps_asked_for(argument):
    """The number of steps, of which `forever` is more than any trial does; or who gives the turns."""
    if argument.startswith("turns:"):
        return argument.removeprefix("turns:")
    return 10**9 if argument == "forever" else int(argument)
