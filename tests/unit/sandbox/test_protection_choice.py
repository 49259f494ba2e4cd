"""Which protection a search gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.protocol.protection import Protection, ProtectionWish
from autotune.sandbox import protection_choice
from autotune.sandbox.protection_choice import choose
from autotune.sandbox.sandbox_error import SandboxError

WHERE = Path("/nowhere")


@pytest.fixture
def permits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    has_layers, has_landlock = request.param
    monkeypatch.setattr(protection_choice.layer_permission, "is_permitted", lambda *_: has_layers)
    monkeypatch.setattr(protection_choice, "is_landlock_permitted", lambda: has_landlock)


@pytest.mark.parametrize(
    ("permits", "expected"),
    [((True, True), Protection.LAYERS), ((True, False), Protection.LAYERS), ((False, True), Protection.LANDLOCK)],
    indirect=["permits"],
)
def test_the_best_that_is_permitted_is_taken(permits: None, expected: Protection) -> None:
    assert choose(ProtectionWish(), WHERE) is expected
    assert choose(ProtectionWish(is_unprotected=True), WHERE) is expected


@pytest.mark.parametrize("permits", [(False, False)], indirect=True)
def test_where_nothing_is_permitted_the_search_is_refused_with_what_to_do(permits: None) -> None:
    with pytest.raises(SandboxError, match="neither overlay mounts nor Landlock") as refused:
        choose(ProtectionWish(), WHERE)
    assert "docker run --security-opt seccomp=unconfined" in refused.value.hint
    assert "--unprotected" in refused.value.hint


@pytest.mark.parametrize("permits", [(False, False)], indirect=True)
def test_the_user_can_go_on_without_protection(permits: None) -> None:
    assert choose(ProtectionWish(is_unprotected=True), WHERE) is Protection.NONE


@pytest.mark.parametrize("permits", [(True, True)], indirect=True)
@pytest.mark.parametrize("mode", list(Protection))
def test_a_protection_can_be_asked_for(permits: None, mode: Protection) -> None:
    assert choose(ProtectionWish(mode=mode), WHERE) is mode


@pytest.mark.parametrize("permits", [(False, False)], indirect=True)
@pytest.mark.parametrize("mode", ["layers", "landlock"])
def test_one_that_is_asked_for_and_not_permitted_is_an_error_though_others_would_do(permits: None, mode: str) -> None:
    with pytest.raises(SandboxError, match=f"--protection {mode}"):
        choose(ProtectionWish(mode=mode, is_unprotected=True), WHERE)
