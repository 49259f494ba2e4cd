"""The stages of a tf.data dataset with their times, from the statistics that tf.data keeps for its own tuning."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.model.observation import DatasetStage

NUMBERED = re.compile(r"(V\d+|Impl|Dataset)+$")
"""End of the name of an operation that tells its release."""
PARALLELISM = "parallelism"
NS_PER_S = 1e9


def stages_of(iterator: Any) -> tuple[DatasetStage, ...]:
    """The stages that work, the slowest first; empty without statistics, as with autotune switched off.

    Args:
        iterator: The iterator of a tf.data dataset with some batches taken.
    """
    tensorflow = sys.modules.get("tensorflow")
    try:
        model = tensorflow.data.experimental.get_model_proto(iterator)  # type: ignore[union-attr]
        stages = list(_stages(model.nodes, model.output, 1.0))
    except Exception:  # TensorFlow has errors of its own for an iterator without statistics.
        return ()
    return tuple(sorted((stage for stage in stages if stage.batch_s > 0), key=lambda stage: -stage.batch_s))


def _stages(nodes: Mapping[int, Any], number: int, num_per_batch: float) -> Iterator[DatasetStage]:
    """The stages from a node of tf.data's model on, up to the source.

    Full buffers hold elements that no batch has got yet: a shuffle took ten thousand for the first batch. So the time
    on a batch is the time on an element, times the elements that a batch takes once the buffers are full.

    Args:
        nodes: All nodes by number.
        number: Of the node.
        num_per_batch: Elements of the node that a batch takes.
    """
    node = nodes.get(number)
    if node is None:
        return
    inputs = [nodes[one] for one in node.inputs if one in nodes]
    taken = [one.num_elements / node.ratio for one in inputs] if node.ratio > 0 else []
    num_worked_on = max(node.num_elements, *taken) if taken else node.num_elements
    if num_worked_on > 0:
        yield _stage(node, node.processing_time / num_worked_on * num_per_batch)
    for one in node.inputs:
        known = node.ratio or (nodes[one].num_elements / node.num_elements if one in nodes and node.num_elements else 0)
        yield from _stages(nodes, one, num_per_batch * known)


def _stage(node: Any, batch_ns: float) -> DatasetStage:
    """A node of tf.data's model; its own time, without that of the stages before."""
    values = [parameter.value for parameter in node.parameters if parameter.name == PARALLELISM]
    return DatasetStage(
        name=NUMBERED.sub("", re.sub(r"\W.*", "", node.name.rpartition(":")[2])) or "Unnamed",
        busy_s=max(0.0, batch_ns / NS_PER_S),
        parallelism=max(1, int(values[0])) if values else 1,
    )
