"""Behaviour that every implementation of a room's door must have: one class of tests, run for each of them."""

import pytest

# Their asserts explain themselves as those of test files do.
pytest.register_assert_rewrite(f"{__name__}.lease_contract", f"{__name__}.repository_contract")
