from tests.integration.trial.conftest import ground

__all__ = ["ground"]
