"""`compile`: the model runs through torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.settings.setting import Arguments, Features, Group, Memory, OwnLine, Setting, switched

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase


def _refused(case: ScriptCase) -> str:
    facts = case.facts
    if facts.own_compile:
        return "the script compiles by itself"
    if facts.num_root_modules == 0:
        return "no module was seen to train"
    if facts.num_root_modules > 1:
        return f"the script calls {facts.num_root_modules} modules side by side, and only one could be compiled"
    return ""


def _pointless(case: SearchCase) -> str:
    if not case.is_cpu or "compile" in case.asked or "compile" in case.mapped or case.is_claimed(Group.KERNELS):
        return ""
    return "on a CPU it builds for minutes with a C++ compiler; ask with --set"


LONGEST_BUILD_S = 120.0
"""Large models take a minute or two on a busy host."""


SETTING = Setting(
    name="compile",
    group=Group.KERNELS,
    default=False,
    takes_effect="once, before the first step",
    left_alone="the script compiles by itself, or trains several models; on a CPU, unless asked for",
    domain=(False, True),
    own=lambda facts: bool(facts.own_compile),
    refused=_refused,
    pointless=_pointless,
    cpu_turn=1,
    memory=Memory.KIND,
    moves_batch=True,
    changes_graph=True,
    features=Features(large=switched("compile")),
    arguments=Arguments(switches={"compile": "true", "torch_compile": "true"}),
    frameworks={
        "hf": lambda own, _: {"torch_compile": True} if own.compile else {},
        "accelerate": lambda own, _: {"dynamo_plugin": {"backend": "inductor"}} if own.compile else {},
    },
    longest_build_s=lambda own: LONGEST_BUILD_S if own.compile else 0.0,
    own_lines=(OwnLine.PREPARE,),
    by_hand="call model.compile()",
    by_hand_off="leave out model.compile()",
)
