"""`static_graph`: the ranks are told that every step uses the same parameters in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.ddp_group import NOT_LIVE, ddp_argument, of_ddp, read_by, why_no_ddp
from autotune.settings.setting import Arguments, Features, Group, Memory, OwnLine, Setting, switched

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase


def _refused(case: ScriptCase) -> str:
    facts = case.facts
    if dict(facts.own_ddp).get("find_unused_parameters"):
        return "the script expects steps that leave some parameters out"
    if facts.num_micro_batches_per_step > 1 or facts.num_backwards_per_step > 1:
        return "several backward passes make a step, and the ranks would take the first for the whole graph"
    if facts.num_root_modules > 1:
        return f"the script calls {facts.num_root_modules} modules side by side, which may take turns"
    return why_no_ddp(case)


SETTING = Setting(
    name="static_graph",
    group=Group.RANKS,
    default=False,
    takes_effect="DistributedDataParallel, as the script wraps its model",
    left_alone="no rank trains by DistributedDataParallel; unused parameters; several backward passes; several models",
    domain=(False, True),
    is_foreign=lambda case: bool(why_no_ddp(case)),
    own=of_ddp("static_graph"),
    refused=_refused,
    memory=Memory.EITHER,
    features=Features(compute=switched("static_graph")),
    arguments=Arguments(switches={"static_graph": "true"}),
    not_live=NOT_LIVE,
    read_of_module=read_by(lambda ddp: bool(ddp.static_graph)),
    frameworks=ddp_argument("static_graph", of_trainer="ddp_static_graph"),
    own_lines=(OwnLine.RANKS,),
    by_hand="pass it to DistributedDataParallel",
)
