"""Wrappers over functions that others have imported by name."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from autotune.trial.torch.patching import rebindable, unwrap_all, wrap


def twice(original):
    return lambda value: 2 * original(value)


def test_a_wrapper_reaches_those_who_imported_a_rebindable_function_before():
    module = SimpleNamespace(double=lambda value: 2 * value)
    rebindable(module, "double")
    rebindable(module, "double")
    imported = module.double
    restore = wrap(module, "double", twice)
    assert imported(1) == module.double(1) == 4 and module.double is imported
    restore()
    assert imported(1) == 2


def test_wrappers_lie_over_each_other_and_only_the_outermost_comes_off():
    module = SimpleNamespace(double=lambda value: 2 * value)
    rebindable(module, "double")
    first, second = wrap(module, "double", twice), wrap(module, "double", twice)
    first()
    assert module.double(1) == 8
    second()
    first()
    assert module.double(1) == 2


def test_others_do_not_see_a_wrapper_over_a_plain_function_that_they_imported_before():
    module = SimpleNamespace(double=lambda value: 2 * value)
    imported = module.double
    wrap(module, "double", twice)
    assert (imported(1), module.double(1)) == (2, 4)


def test_all_wrappers_of_a_process_come_off_at_once_and_the_functions_are_the_originals_again():
    def double(value):
        return 2 * value

    module, other = SimpleNamespace(double=double), SimpleNamespace(double=double)
    wrap(module, "double", twice)
    wrap(module, "double", twice)
    taken_off = wrap(other, "double", twice)
    taken_off()
    unwrap_all()
    assert module.double is double and other.double is double
    unwrap_all()
    assert module.double is double


def test_a_lazy_module_goes_through_wrapped_methods_of_tensors():
    """A script with `LazyLinear(10).cuda()` failed in the probe on a GPU, where copies are watched."""
    seen = []

    def noting(original):
        def to(tensor, *args, **kwargs):
            seen.append(tensor.is_pinned())
            return original(tensor, *args, **kwargs)

        return to

    plain = torch.nn.LazyConv2d(2, 3).to(torch.float64)
    wrap(torch.Tensor, "to", noting)
    wrap(torch.Tensor, "to", noting)
    try:
        layer = torch.nn.LazyConv2d(2, 3).to(torch.float64)
        torch.zeros(1).to(torch.float64)
    finally:
        unwrap_all()
    assert type(layer.weight) is type(plain.weight) and seen == [False, False]
    assert layer(torch.zeros(1, 1, 5, 5, dtype=torch.float64)).dtype is torch.float64
