"""The settings in force: a trial's, a tuned config's, or the defaults in the script's own call."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

from autotune.api import fit
from autotune.api.loaded_config import Config
from autotune.api.own_knobs import split_defaults
from autotune.protocol.environment import TRIAL
from autotune.settings import GROUP_OF_FIELD, Settings, text_of
from autotune.spec import DEFAULT_CONFIG
from autotune.trial.start import active_session


def load(path: str | os.PathLike[str] = DEFAULT_CONFIG, *, share: bool = False, **defaults: Any) -> Config:
    """The settings to train with: the trial's in a trial, otherwise the tuned config's, or the call's without a file.

    Args:
        path: The tuned config: YAML, TOML or JSON by the suffix; not read in a search.
        share: Reserve only as much device memory as the throughput needs, for people who share the device.
        **defaults: Settings in the script as written, by field of `autotune.settings.Settings`; further names are the
            script's own knobs. The defaults hold in the baseline of a search, and without a file.

    Raises:
        ConfigError: The file is not a tuned config, was tuned for another number of processes, or a knob is impossible.
        SearchSpaceError: A default is not a value of its setting.

    Warns:
        UserWarning: The file is missing, was measured on another machine, or cannot be applied in full.

    Example:
        ```python
        cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2)
        model = cfg.prepare(model)
        loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())
        for x, y in autotune.micro_batches(loader):
            with cfg.autocast():
                loss = loss_fn(model(x), y)
            cfg.backward(loss, optimizer, clip_norm=1.0, scheduler=scheduler)
        ```
    """
    call, knobs = split_defaults(defaults)
    given = frozenset(defaults) & GROUP_OF_FIELD.keys()
    session = active_session.session or _session_before_keras()
    if session is not None:
        session.declare_knobs({name: text_of(value) for name, value in knobs.items()})
        if session.settings is None:
            return Config(call, knobs, applied=given)
        return Config(_completed(session.settings, call), knobs)
    if not os.path.lexists(path):
        said = ", ".join(f"{name}={value!r}" for name, value in defaults.items()) or "torch's own"
        warnings.warn(
            f"{os.fspath(path)} does not exist, so the defaults hold ({said}). `autotune search` writes it.",
            UserWarning,
            stacklevel=2,
        )
        return Config(call, knobs, applied=given)
    from autotune.emit.tuned_config import read_config

    tuned = read_config(path)
    fit.check_world_size(tuned, os.fspath(path))
    for doubt in fit.doubts(tuned, call, path=os.fspath(path), share=share):
        warnings.warn(doubt, UserWarning, stacklevel=2)
    return Config(_completed(tuned.settings, call), knobs, tuned=tuned, share=share)


def _session_before_keras() -> active_session.TrialSession | None:
    """The session of a search for a script that asks before it imports Keras; None outside of a search."""
    if TRIAL not in os.environ:
        return None
    from autotune.trial.keras.attach import session_of_process

    session_of_process()
    return active_session.session


def _completed(settings: Settings, call: Settings) -> Settings:
    """The settings, an unknown batch size replaced by the call's."""
    return replace(settings, batch_size=call.batch_size) if settings.batch_size is None else settings
