"""A tuned config as a search of a small script on a GPU would write it, and hypothesis strategies for any other."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from autotune.emit.tuned_config import MemoryShares, Provenance, TunedConfig, TunedScript
from autotune.host import HostFingerprint
from autotune.settings import Group, OmpWaitPolicy, Precision, Settings

from ..facts import loader_facts, script_facts

HOST = HostFingerprint(
    cpu="AMD EPYC 9654",
    usable_cpus=7.5,
    memory_bytes=68_719_476_736,
    system="linux",
    device="NVIDIA H200",
    driver="570.86",
    torch="2.13.0",
    python="3.11",
)
LOADER = loader_facts(num_batches=None)
FACTS = script_facts(
    device="cuda", loader=LOADER, claims=(Group.LOADER,), knobs=(("storage", "jpeg"),), modules=("numpy", "torch")
)
NATURAL = Settings(batch_size=64, intra_op_threads=4, knobs=(("storage", "jpeg"),))
TUNED = Settings(
    num_workers=4,
    prefetch_factor=4,
    pin_memory=True,
    persistent_workers=True,
    batch_size=16,
    grad_accum_steps=4,
    precision=Precision.BF16,
    memory_fraction=0.9,
    intra_op_threads=4,
    omp_wait_policy=OmpWaitPolicy.PASSIVE,
    knobs=(("storage", "no"),),
)


def tuned_config(**changes: Any) -> TunedConfig:
    """The example with some fields changed; `script_*` and `provenance_*` change the parts."""
    parts: dict[str, dict[str, Any]] = {"script": {}, "provenance": {}}
    for name in list(changes):
        part, _, field = name.partition("_")
        if part in parts and field:
            parts[part][field] = changes.pop(name)
    example = TunedConfig(
        settings=TUNED,
        samples_per_second=3118.25,
        interval=(3097.5, 3140.0),
        baseline_samples_per_second=1294.0,
        speedup=(2.41, 2.35, 2.47),
        peak_memory_bytes=12_025_908_429,
        memory_cap_bytes=17_179_869_184,
        bottleneck="loader",
        memory=MemoryShares(fraction=0.9, shared_memory_fraction=0.1, shared_memory_bytes=13_829_794_693),
        provenance=Provenance(
            study="train-7f3a", trial=23, host=HOST, created_at="2026-11-20T10:30:00+00:00", autotune="0.1.0"
        ),
        script=TunedScript(
            path="train.py",
            digest="ab" * 32,
            natural=NATURAL,
            maps={"batch_size": "--batch-size={}"},
            facts=FACTS,
        ),
    )
    return replace(
        example,
        script=replace(example.script, **parts["script"]),
        provenance=replace(example.provenance, **parts["provenance"]),
        **changes,
    )


# Texts that YAML 1.1, YAML 1.2 or TOML would take for something else, and texts that break lines or quoting.
TREACHEROUS = (
    *(
        "no",
        "On",
        "yes",
        "null",
        "~",
        "",
        "true",
        "1e-3",
        "1_000",
        "010",
        "08",
        "0x1F",
        "0o17",
        "1:30",
        ".5",
        "1.",
        "+1",
    ),
    *(
        ".inf",
        ".nan",
        "2026-11-20",
        "<<",
        "=",
        "-",
        "- a",
        "a: b",
        "a #b",
        "#",
        "&a",
        "*a",
        "!t",
        "%x",
        "@",
        "`",
        "{",
        "[",
    ),
    *(
        " a",
        "a ",
        "a\n",
        "\na: 1",
        "a\r\nb",
        "\t",
        "'",
        '"',
        "\\",
        '"""',
        "\x00",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "é",
        "😀",
    ),
)
texts = st.sampled_from(TREACHEROUS) | st.text(max_size=300)
numbers = st.floats(min_value=1e-12, max_value=1e300)
shares = st.floats(min_value=0, max_value=1, exclude_min=True)


def settings() -> st.SearchStrategy[Settings]:
    """Any settings that can be built."""
    names = texts.filter(lambda name: name not in Settings.from_dict({}).to_dict())
    return st.builds(
        Settings,
        num_workers=st.integers(0, 64),
        pin_memory=st.booleans(),
        batch_size=st.none() | st.integers(1, 10**8),
        precision=st.sampled_from(Precision),
        memory_fraction=shares,
        omp_wait_policy=st.sampled_from(OmpWaitPolicy),
        knobs=st.dictionaries(names, texts, max_size=3).map(lambda knobs: tuple(knobs.items())),
    )


def tuned_configs() -> st.SearchStrategy[TunedConfig]:
    """Any tuned config that can be built, with and without its optional parts."""
    return st.builds(
        tuned_config,
        settings=settings(),
        samples_per_second=numbers,
        interval=st.tuples(numbers, numbers).map(lambda ends: (min(ends), max(ends))),
        baseline_samples_per_second=st.none() | numbers,
        speedup=st.none() | numbers.map(lambda ratio: (ratio, ratio / 2, ratio)),
        peak_memory_bytes=st.none() | st.integers(0, 2**50),
        bottleneck=texts,
        memory=st.builds(
            MemoryShares, fraction=st.none() | shares, shared_memory_bytes=st.none() | st.integers(1, 2**50)
        ),
        provenance_study=texts,
        script_path=texts,
        script_natural=settings(),
        script_maps=st.dictionaries(texts, texts.map(lambda text: text + "{}"), max_size=3),
        script_facts=st.none()
        | st.builds(
            replace, st.just(FACTS), loader=st.none() | st.just(LOADER), modules=st.lists(texts, max_size=30).map(tuple)
        ),
    )
