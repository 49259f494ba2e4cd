"""The descriptor of one setting.

A file of this room describes one setting by one `Setting`. Loops over `registry.SETTINGS` take the place of tables: a
new setting needs a file here and a field of `Settings`. Descriptions are named tuples, because every trial imports
them: a dataclass takes twice as long to define.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings

Value = bool | int | float | str
Numbers = tuple[float, ...]
"""Features of settings for a regression."""


class Group(StrEnum):
    """Settings that take effect at one place and are claimed or refused together."""

    LOADER = "loader"
    DATA = "data"
    BATCH = "batch"
    PRECISION = "precision"
    MEMORY = "memory"
    KERNELS = "kernels"
    TRANSFER = "transfer"
    OPTIMIZER = "optimizer"
    THREADS = "threads"
    RANKS = "ranks"
    OWN = "own"


class Effect(StrEnum):
    """The part of the training whose rate a setting changes."""

    LOADER = "loader"
    COMPUTE = "compute"
    NONE = "none"


class Memory(StrEnum):
    """How a larger value, or switching on, changes the peak memory of a trial."""

    MORE = "more"
    """The peak never shrinks."""
    EITHER = "either"
    """The peak may grow or shrink."""
    KIND = "kind"
    """The peak follows a law per value, so trials with different values are not compared."""
    NONE = "none"


class OwnLine(StrEnum):
    """Lines of a script that applies settings itself, in place of our seams; in the order of a script."""

    KERAS_VARIABLES = "# start Python with the variables of `autotune export --to keras-env`"
    KERAS_BACKEND = 'os.environ["KERAS_BACKEND"] = cfg.settings.keras_backend.value  # before keras is imported'
    KERAS_PREPARE = "cfg.prepare_keras()  # before the model is built"
    KERAS_COMPILE = "model.compile(loss=..., **cfg.compile_kwargs(optimizer))"
    KERAS_FIT = "model.fit(y=y, **cfg.fit_kwargs(x))"
    PREPARE = "model = cfg.prepare(model)"
    RANKS = "model = DistributedDataParallel(model, **cfg.ddp_kwargs())"
    OPTIMIZER = "optimizer = cfg.optimizer(optimizer)"
    LOADER = "loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())"
    ON_DEVICE = "loader = cfg.on_device(loader, device)"
    BATCHES = "for x, y in loader:"
    MICRO_BATCHES = "for x, y in autotune.micro_batches(loader):"
    AUTOCAST = "    with cfg.autocast():"
    LOSS = "        loss = ..."
    BACKWARD = "    cfg.backward(loss, optimizer)  # in place of backward, step and zero_grad"


class Features(NamedTuple):
    """Features of a setting for the regressions of the forecast."""

    trends: Callable[[Settings], Numbers] = lambda _: ()
    """Of the compute-only rate, with effects in proportion to the feature."""
    large: Callable[[Settings], Numbers] = lambda _: ()
    """Of the compute-only rate, with effects that halve or double the rate."""
    compute: Callable[[Settings], Numbers] = lambda _: ()
    """Of the compute-only rate, with smaller effects."""
    loader: Callable[[Settings], Numbers] = lambda _: ()
    """Of the share of the compute-only rate that the loader lets through."""


class Arguments(NamedTuple):
    """Arguments of scripts that stand for a setting, with underscores for dashes."""

    numbers: Collection[str] = ()
    """Arguments with the number as their value."""
    switches: Mapping[str, str] = MappingProxyType({})
    """Arguments without a value, by name, with the value of the setting."""
    choices: Collection[str] = ()
    """Arguments with the name of a value."""
    spellings: Mapping[str, Collection[str]] = MappingProxyType({})
    """Names of values in `choices`, by value of the setting."""
    of_trainer: str = ""
    """Argument that the Trainer of Hugging Face hands on unchanged."""


class UsualGain(NamedTuple):
    """A value that usually makes an accelerator train faster."""

    value: Value
    is_small: bool = False
    """The gain is a few percent at most."""
    slows_start: bool = False
    """The value costs seconds at the start of every trial."""


class KerasSeams(NamedTuple):
    """How a setting reaches a script that trains by Keras, and how its value is read back."""

    at_import: Callable[[Any], None] | None = None
    """Puts a value in force right after the import of Keras."""
    at_compile: Callable[[Any, dict[str, Any]], None] | None = None
    """Changes the arguments of `Model.compile`, by name."""
    at_fit: Callable[[Any, dict[str, Any]], None] | None = None
    """Changes the arguments of `Model.fit`, by name."""
    read: Callable[[Any, Mapping[str, Any]], Value | None] = lambda model, fit: None
    """The value in force, by the model that trains and the arguments of `fit`; None = not to be seen."""


class PeakFactor(NamedTuple):
    """The prior of a factor on memory, as logarithms."""

    mean: float
    deviation: float
    """Standard deviation."""


class Setting(NamedTuple):
    """All that is known of one setting."""

    name: str
    group: Group
    default: Value | None
    """Value of a plain torch script; None = unknown."""
    takes_effect: str
    """For the README: where the setting takes effect."""
    left_alone: str
    """For the README: when a search leaves the setting at the script's own value."""

    frameworks_of_scripts: Collection[str] = ("torch",)
    """Frameworks whose scripts have the setting: `torch`, `keras`."""

    # Values
    domain: tuple[Value, ...] = ()
    """All values for searches, the same on every host; empty when the script's batch decides."""
    bounds: tuple[int, int] | None = None
    """Least and largest possible whole number."""
    most_searched: int | None = None
    """Largest value that a search takes from the user; more would be a slip of the hand."""
    needs_accelerator: bool = False
    """The setting does nothing on a CPU."""
    needs_workers: bool = False
    """The setting does nothing without workers, and torch refuses the setting without workers."""
    is_inert: Callable[[Settings], bool] | None = None
    """Whether the setting has no effect beside the rest; None = never without effect."""

    # What a search tries
    own: Callable[[Any], Value | None] = lambda facts: None
    """The script's own value by facts of the probe; None = the default until a trial shows the value."""
    refused: Callable[[ScriptCase], str] = lambda case: ""
    """Why no trial can change the setting soundly on an unedited script; empty when trials can."""
    refused_value: Callable[[ScriptCase, Any], str] = lambda case, value: ""
    """Why no trial can put a single value in force; empty when trials can."""
    pointless: Callable[[SearchCase], str] = lambda case: ""
    """Why a search leaves the setting alone on this machine; empty when a search tries it."""
    is_foreign: Callable[[SearchCase], bool] = lambda case: False
    """Whether the script has nothing for the setting to change: such a setting is left alone without a message, unless
    the user names the setting."""
    dropped: Callable[[SearchCase], Iterable[tuple[Value, str]]] = lambda case: ()
    """Single values that cannot be had, each with the reason."""
    is_tried: Callable[[SearchCase, Value], bool] = lambda case, value: True
    """Whether the machine has a use for a value; useless values are left out without a message."""
    is_sampled: bool = True
    """Trials after the plan vary the setting."""
    usual: UsualGain | None = None
    cpu_turn: int | None = None
    """Place in the order of settings tried one by one on a CPU; None = not tried so."""

    # What a change means
    effect: Effect = Effect.COMPUTE
    memory: Memory = Memory.NONE
    peak_factor: PeakFactor | None = None
    """Factor of a switch on the whole peak; None = no factor is known."""
    is_memory_of_host: bool = False
    """The memory is the host's alone."""
    moves_batch: bool = False
    """The largest micro-batch that fits depends on the setting."""
    changes_graph: bool = False
    """Another value needs another compiled model."""
    decides_training: bool = False
    """Another value in force is another training."""
    is_capped: bool = False
    """The value in force is the smaller of the setting's and the memory cap's."""
    helps_beside_load: Callable[[Any, Any], bool] = lambda value, own: False
    """Whether a value may be faster than the script's own value only while other programs keep cores busy."""
    features: Features = Features()

    # How it reaches a script
    arguments: Arguments = Arguments()
    environment: Callable[[Any, Mapping[str, str]], Mapping[str, str]] | None = None
    """Variables for a value before Python starts, given the variables of the user."""
    is_set_before_start: bool = False
    """The setting is in force before the script's first line."""
    read_tolerance: float = 0.0
    """Largest difference of a number read back from the number asked for, where a reading is rounded."""
    not_live: str = ""
    """Why no running process can change the setting; empty when every step's end suffices."""
    not_live_in_own_graph: str = ""
    """Why no running process can change the setting where the script compiles its model by itself."""
    not_live_in_ddp: str = ""
    """Why no running process can change the setting of a model in DistributedDataParallel."""
    write: Callable[[Any], None] | None = None
    """Puts a value in force in this process."""
    is_written_again: bool = False
    """Scripts set the switch before the first call of their model, so trials write the value again at the call."""
    read: Callable[[], Value | None] | None = None
    """The value in force in this process; None = not to be seen."""
    put_in_loader: Callable[[Any, dict[str, Any]], None] | None = None
    """Puts a value into the arguments of a DataLoader; None for settings with the name of an argument."""
    read_of_loader: Callable[[Any], Value | None] | None = None
    """The value of a DataLoader."""
    read_of_module: Callable[[Any], Value | None] | None = None
    """The value of a root module; None = no value of the setting."""
    write_to_optimizer: Callable[[Any, Any], None] | None = None
    """Puts a value in force in an optimizer, between two steps."""
    read_of_optimizer: Callable[[Any], Value | None] | None = None
    """The value of an optimizer; None = no value of the setting."""
    longest_build_s: Callable[[Settings], float] = lambda own: 0.0
    """Most seconds before the first step in which these settings build code."""
    keras: KerasSeams | None = None
    """Seams for scripts that train by Keras; None for a setting of torch alone."""
    own_lines: tuple[OwnLine, ...] = ()
    """Lines of a script that applies the setting itself."""
    unseen: str = ""
    """Why the setting cannot be read back from a script; empty when it can."""
    frameworks: Mapping[str, Callable[[Settings, bool], Mapping[str, Any] | None]] = MappingProxyType({})
    """Arguments of frameworks by framework, from settings and whether a CPU trains; None = the value has none."""
    by_hand: str = ""
    """How a person puts the setting in force."""
    by_hand_off: str = ""
    """How a person switches off a setting of the script's own; empty = as `by_hand` says."""

    def reading(self, seen: object) -> Value | None:
        """A value read back, in the setting's type; None for text of no value.

        Results of older versions hold text: `True`, `4`, `0.9000`. The count of micro-batches per step is a mean, so a
        whole number may come as a fraction.
        """
        if isinstance(self.default, bool):
            return {"true": True, "false": False}.get(str(seen).lower())
        if isinstance(self.default, StrEnum):
            return str(seen) if str(seen) in self.domain else None
        if isinstance(seen, bool):
            return None
        try:
            number = float(str(seen))
        except ValueError:
            return None
        if not math.isfinite(number):
            return None
        is_whole = number.is_integer() and not isinstance(self.default, float)
        return int(number) if is_whole else number


def switched(name: str) -> Callable[[Settings], Numbers]:
    """One feature, 1 where a setting is on."""
    return lambda settings: (1.0 * getattr(settings, name),)


def chosen(name: str, *values: Value) -> Callable[[Settings], Numbers]:
    """One feature for each value, 1 where a setting has the value."""
    return lambda settings: tuple(1.0 * (getattr(settings, name) == value) for value in values)


def at_most_per_core(num: int) -> Callable[[SearchCase, Value], bool]:
    """Tries numbers up to `num` for each whole core of a rank; the number 1 on every machine."""
    return lambda case, value: int(value) <= max(1, num * int(case.cpus))
