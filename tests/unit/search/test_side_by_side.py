"""Two tuners that search one study at once: no settings are measured by both, and none waits for the other."""

from __future__ import annotations

import optuna

from autotune.model.outcome import Outcome
from autotune.search.plan import MEMORY_FRACTION_STAGE
from autotune.search.search import Proposal, Search
from autotune.search.walk import PlanLimits
from autotune.space.derive import derive_space
from autotune.units import GIB
from tests.unit.facts import gpu_machine, script_facts, search_spec
from tests.unit.search.test_search import result

CAP_BYTES = 8 * GIB


def test_the_winners_smallest_memory_is_looked_for_by_two_tuners_at_once():
    storage = optuna.storages.InMemoryStorage()
    first, second = (_open(storage) for _ in range(2))
    proposal = first.ask()
    while isinstance(proposal, Proposal) and proposal.stage != MEMORY_FRACTION_STAGE:
        first.tell(proposal.number, result(Outcome.OK, peak=2 * GIB))
        proposal = first.ask()
    assert isinstance(proposal, Proposal)
    num_gated = second.num_gated
    other = second.ask()
    assert isinstance(other, Proposal) and other.stage == MEMORY_FRACTION_STAGE
    assert other.settings.memory_fraction > proposal.settings.memory_fraction
    assert second.num_gated == num_gated


def _open(storage):
    space = derive_space(
        script_facts(device="cuda"), gpu_machine(), search_spec(ranges=(("memory_fraction", "0.4,0.5,0.6,0.9"),))
    )
    limits = PlanLimits(usable_cpus=4.0, cap_bytes=CAP_BYTES)
    return Search(storage, "study", space, limits, seed=3, max_trials=12, spend_all=True)
