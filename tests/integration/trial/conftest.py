from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.trial.ground import Ground


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("ground"))
    yield made
    made.close()
