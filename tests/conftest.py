"""What holds for all tests."""

import os
import signal

import pytest

from autotune.store import secrets

# Idle threads of OpenMP wait in a busy loop. Beside other tests on few cores, everybody would wait for these loops:
# trials took two to four times as long. The variable must be there before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "0")


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder(tmp_path_factory):
    """No test reads or writes the state folder of whoever runs it; the processes that it starts neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _environment_as_before():
    """No test leaves variables to the next one in its process: a compiler sets the folders of its caches."""
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # set during imports too
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _secrets_as_before(monkeypatch):
    """No test has the secrets of another hidden from its own text: hypothesis draws passwords such as `python`."""
    monkeypatch.setattr(secrets, "_remembered", set())


@pytest.fixture
def heard():
    """Signals are heard, although whoever started the tests may ignore some, as `nohup` and a shell's `&` do."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
