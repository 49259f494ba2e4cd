"""Start of every Python process of a trial, through PYTHONPATH: seeds generators and attaches autotune to torch.

The file chains to the user's own sitecustomize. A process without torch pays for this file and the names of variables.
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
    """A finder that finds no module by itself, and acts once on each watched module after the import."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[ModuleType], None]] = {}
        self._before: dict[str, Callable[[], None]] = {}

    def watch(self, name: str, action: Callable[[ModuleType], None]) -> None:
        if name in sys.modules:
            action(sys.modules[name])
        else:
            self._actions[name] = action

    def before(self, name: str, action: Callable[[], None]) -> None:
        """Acts right before the import of a watched module."""
        self._before[name] = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The answer of the later finders for a watched module. Many callers only ask, and import later or never."""
        if name not in self._actions:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._before.get(name, lambda: None)()
            execute(module)
            action = self._actions.pop(name, None)
            if action is not None:
                action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _environment_names() -> ModuleType:
    """`autotune.protocol.environment`, without an import of autotune: the script may have a package of that name."""
    name = "_autotune_environment"
    path = os.path.join(_PACKAGE_PARENT, "autotune", "protocol", "environment.py")
    module = ModuleType(name)
    importlib.machinery.SourceFileLoader(name, path).exec_module(module)
    return module


def _arm() -> None:
    """Attaches autotune to torch and seeds the other generators, before the script can do so."""
    ready_at = time.monotonic()
    given = {name: value for name, value in os.environ.items() if name.startswith(_names.PREFIX)}

    def restore() -> None:
        for name, value in given.items():
            os.environ.setdefault(name, value)  # The script may have cleared its environment.
        _make_importable()

    def attach(_: ModuleType) -> None:
        restore()
        from autotune.trial.start.bootstrap import install

        install(ready_at)

    def seed(module: ModuleType) -> None:
        if hasattr(module, "seed"):  # The script may have a module of that name.
            module.seed(int(given[_names.SEED]))

    def attach_to_keras(module: ModuleType) -> None:
        restore()
        from autotune.trial.keras.attach import imported

        imported(module.__name__, ready_at)

    watcher = _Watcher()
    watcher.watch("torch", attach)
    for name in ("keras", "tensorflow", "jax"):
        watcher.watch(name, attach_to_keras)
    backend = given.get(_names.KERAS_BACKEND)
    if backend:
        watcher.before("keras", lambda: os.environ.__setitem__(_names.KERAS_VARIABLE, backend))
    if _names.SEED in given:
        watcher.watch("random", seed)
        watcher.watch("numpy.random", seed)
    sys.meta_path.insert(0, watcher)


def _make_importable() -> None:
    """Makes the trial's autotune importable for scripts in an environment without autotune."""
    if importlib.util.find_spec("autotune") is None:
        sys.path.append(_PACKAGE_PARENT)


def _redirect() -> None:
    """Redirects this process's writes away from the user's files, or ends the process."""
    sys.path.append(_PACKAGE_PARENT)
    try:
        from autotune.sandbox.redirect import install

        install()
    except BaseException as error:
        # Python only prints errors of this file, and would run the script without redirection.
        os.write(2, f"autotune: the user's files cannot be kept from this process: {error!r}\n".encode())
        os._exit(70)
    sys.path.pop()


def _chain() -> None:
    """Runs the sitecustomize of the user's, hidden by this file."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_names = _environment_names()
if os.environ.get(_names.REDIRECT):
    _redirect()
if os.environ.get(_names.TRIAL) or os.environ.get(_names.JOB):
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    _arm()
_chain()
