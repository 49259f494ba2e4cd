"""`autotune workers ray`: one actor on each slot node of a Ray cluster, watched until the end.

Ray only places workers. Leases, retries and quarantine stay in the service's database, so Ray never restarts an actor
or retries a call.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune import __version__
from autotune.errors import HostError, UsageError
from autotune.service.engines.ray_checklist import SLOT, START
from autotune.service.engines.ray_node import RayNode

LOOK_S = 1.0
"""Time between two looks at the actors, in seconds."""
DRAIN_S = 900.0
"""Longest wait for running trials at the end, in seconds."""
QUICK_S = 60.0
MAX_QUICK_ENDS = 3
"""Workers that end within `QUICK_S`, one after another, before a node is given up."""
PREPARE_S = 120.0
"""Longest wait for an actor's first answer, in seconds."""


@dataclass(slots=True)
class _Placed:
    """An actor on a node."""

    actor: Any
    run: Any
    """Reference to the running `run`."""
    machine: str
    began_at: float


@dataclass(slots=True)
class RayPlacement:
    """Keeps workers on the nodes of a cluster.

    Args:
        ray: The module, connected to the cluster.
        number: Number of workers; 0 = one on every slot node.
        words: Arguments of `autotune worker`.
        say: Tells the user a line.
    """

    ray: Any
    number: int
    words: Sequence[str]
    say: Callable[[str], None]
    _placed: dict[str, _Placed] = field(default_factory=dict)
    _quick_ends: dict[str, int] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Places workers, and replaces those of lost nodes, until `stop` is set; then drains all.

        Raises:
            HostError: The cluster has no slot node, or a node lacks something that trials need.
        """
        if not self._slot_nodes():
            raise HostError(f"No node of the cluster has the resource {SLOT}.", f"Start each node so: {START}")
        try:
            while not stop.is_set():
                self._place_missing()
                self._look()
                if not self._placed and not self._open_nodes():
                    raise HostError("Every worker ended soon after its start.", "The lines above say why.")
                stop.wait(LOOK_S)
        finally:
            self._drain_all()

    def _slot_nodes(self) -> dict[str, Mapping[str, float]]:
        """Resources of each living node with a slot, by the node's id."""
        return {
            node["NodeID"]: node["Resources"]
            for node in self.ray.nodes()
            if node["Alive"] and node["Resources"].get(SLOT, 0) >= 1
        }

    def _open_nodes(self) -> dict[str, Mapping[str, float]]:
        return {
            node_id: resources
            for node_id, resources in self._slot_nodes().items()
            if node_id not in self._placed and self._quick_ends.get(node_id, 0) < MAX_QUICK_ENDS
        }

    def _place_missing(self) -> None:
        for node_id, resources in self._open_nodes().items():
            if self.number and len(self._placed) >= self.number:
                return
            self._place(node_id, resources)

    def _place(self, node_id: str, resources: Mapping[str, float]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # All processors and devices of the node: no other actor may disturb a measurement.
        options = {
            "num_cpus": resources.get("CPU", 0),
            "num_gpus": resources.get("GPU", 0),
            "resources": {SLOT: 1},
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": 4,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        }
        actor = self.ray.remote(RayNode).options(**options).remote(tuple(self.words), node_id[:8])
        try:
            machine, version, fatal, others = self.ray.get(actor.describe.remote(), timeout=PREPARE_S)
        except self.ray.exceptions.RayError as error:
            self.ray.kill(actor)
            self._quick_ends[node_id] = self._quick_ends.get(node_id, 0) + 1
            self.say(f"node {node_id[:8]}: takes no worker now: {_first_line(error)}")
            return
        if fatal or version != __version__:
            self.ray.kill(actor)
            why = fatal[0] if fatal else f"The node has autotune {version}, and this machine has {__version__}."
            raise HostError(f"Node {machine} cannot measure trials. {why}", f"Start the node so: {START}")
        for gap in others:
            self.say(f"node {machine}: warning: {gap}")
        self._placed[node_id] = _Placed(actor, actor.run.remote(), machine, time.monotonic())
        self.say(f"node {machine} ({node_id[:8]}): worker placed")

    def _look(self) -> None:
        """Forgets workers that have ended; a node with quick ends is given up."""
        for node_id, placed in list(self._placed.items()):
            ready, _ = self.ray.wait([placed.run], timeout=0)
            if not ready:
                continue
            del self._placed[node_id]
            is_quick = time.monotonic() - placed.began_at < QUICK_S
            self._quick_ends[node_id] = self._quick_ends.get(node_id, 0) + 1 if is_quick else 0
            self.say(f"node {placed.machine} ({node_id[:8]}): {self._ending(placed)}")
            self.ray.kill(placed.actor)

    def _ending(self, placed: _Placed) -> str:
        try:
            return f"worker ended with exit code {self.ray.get(placed.run)}"
        except self.ray.exceptions.RayError as error:
            return f"worker lost: {_first_line(error)}"

    def _drain_all(self) -> None:
        if not self._placed:
            return
        self.say(f"draining {len(self._placed)} {'worker' if len(self._placed) == 1 else 'workers'}")
        for placed in self._placed.values():
            placed.actor.drain.remote()
        runs = [placed.run for placed in self._placed.values()]
        self.ray.wait(runs, num_returns=len(runs), timeout=DRAIN_S)
        for placed in self._placed.values():
            self.ray.kill(placed.actor)
        self._placed.clear()


def place_by_ray(address: str, number: int, words: Sequence[str], *, say: Callable[[str], None]) -> None:
    """Keeps workers on the nodes of a Ray cluster until SIGTERM or SIGINT.

    Args:
        address: Address of the cluster, or `auto` for the cluster of this machine.
        number: Number of workers; 0 = one on every slot node.
        words: Arguments of `autotune worker`; paths in there hold on every node.
        say: Tells the user a line.

    Raises:
        UsageError: The package ray is not installed.
        HostError: The cluster cannot be reached, or cannot take workers.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError("The package ray is not installed.", "Install it: pip install ray") from error
    try:
        ray.init(address=address, namespace="autotune", log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise HostError(
            f"The Ray cluster {address} cannot be reached: {_first_line(error)}", "Start it, or name it with --address."
        ) from error
    stop = threading.Event()
    for number_of_signal in (signal.SIGTERM, signal.SIGINT):
        # After the connection, since Ray sets a handler of its own for SIGTERM.
        signal.signal(number_of_signal, lambda *_: stop.set())
    try:
        RayPlacement(ray, number, words, say).run(stop)
    finally:
        ray.shutdown()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
