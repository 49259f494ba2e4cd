"""A tuned config in a framework's Trainer by one line; in a search the same line takes the trial's settings.

What the framework has an argument for is set through that argument, and its seams stand down: accumulation and autocast
are never done twice. A framework is imported by the call that needs it; none is a dependency of this package.
"""

from autotune.integrations import huggingface, lightning

__all__ = ["huggingface", "lightning"]
