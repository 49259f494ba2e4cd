"""What holds for all tests."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder(tmp_path_factory):
    """No test reads or writes the state folder of whoever runs it; the processes that it starts neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
