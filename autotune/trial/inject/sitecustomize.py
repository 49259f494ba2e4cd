"""Found by every Python process of a trial through PYTHONPATH: seeds generators and attaches autotune at their imports.

It chains to the user's own sitecustomize, and costs a process that never imports torch nothing but this file.
"""

import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))


class _Watcher:
    """A finder that steps aside for every module, and acts once on those it watches, as soon as they are there."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[ModuleType], None]] = {}

    def watch(self, name: str, action: Callable[[ModuleType], None]) -> None:
        if name in sys.modules:
            action(sys.modules[name])
        else:
            self._actions[name] = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the finders after this one know of a watched module. Many only ask, and import it later or never."""
        if name not in self._actions:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action = self._actions.pop(name, None)
            if action is not None:
                action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _arm() -> None:
    """Has autotune attached to torch, and the other generators seeded: before the script can do that itself."""
    ready_at = time.monotonic()
    given = {name: value for name, value in os.environ.items() if name.startswith("AUTOTUNE_")}

    def attach(_: ModuleType) -> None:
        for name, value in given.items():
            os.environ.setdefault(name, value)  # The script may have cleared its environment.
        _make_importable()
        from autotune.trial.start.bootstrap import install

        install(ready_at)

    def seed(module: ModuleType) -> None:
        if hasattr(module, "seed"):  # The script may have a module of that name.
            module.seed(int(given["AUTOTUNE_SEED"]))

    watcher = _Watcher()
    watcher.watch("torch", attach)
    if "AUTOTUNE_SEED" in given:
        watcher.watch("random", seed)
        watcher.watch("numpy.random", seed)
    sys.meta_path.insert(0, watcher)


def _make_importable() -> None:
    """Lets this process import the autotune that runs the trial, even when the script's environment has none."""
    if importlib.util.find_spec("autotune") is None:
        sys.path.append(_PACKAGE_PARENT)


def _redirect() -> None:
    """Keeps what this process writes from the user's files, where the system has no better way; or ends it."""
    sys.path.append(_PACKAGE_PARENT)
    try:
        from autotune.sandbox.redirect import install

        install()
    except BaseException as error:
        # An error in this file would only be printed, and the script would run on without.
        os.write(2, f"autotune: the user's files cannot be kept from this process: {error!r}\n".encode())
        os._exit(70)
    sys.path.pop()


def _chain() -> None:
    """Runs the sitecustomize that this one hides."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("AUTOTUNE_REDIRECT"):
    _redirect()
if os.environ.get("AUTOTUNE_TRIAL") or os.environ.get("AUTOTUNE_JOB"):
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    _arm()
_chain()
