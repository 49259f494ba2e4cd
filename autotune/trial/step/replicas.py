"""Finds the CUDA devices of a process, from parameters and from replicas of `torch.nn.DataParallel`."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def num_replicas(root: torch.nn.Module) -> int:
    """The number of replicas of a model that compute side by side in this process, at least 1."""
    return max((len(part.device_ids) for part in _data_parallels(root)), default=0) or 1


def device_numbers(roots: Iterable[torch.nn.Module], parameters: Iterable[torch.Tensor]) -> tuple[int, ...]:
    """Numbers of the CUDA devices in use, in rising order; empty on a CPU."""
    of_parameters = {parameter.device.index or 0 for parameter in parameters if parameter.device.type == "cuda"}
    of_replicas = {int(number) for root in roots for part in _data_parallels(root) for number in part.device_ids}
    return tuple(sorted(of_parameters | of_replicas))


def _data_parallels(root: torch.nn.Module) -> Iterable[torch.nn.DataParallel[torch.nn.Module]]:
    return (part for part in root.modules() if isinstance(part, torch.nn.DataParallel))
