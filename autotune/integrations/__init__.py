"""A tuned config in a framework's Trainer by one line; in a search the same line takes the trial's settings.

Settings are passed as the framework's own arguments, and the trial then overrides nothing of the same groups:
accumulation and autocast are never done twice. A framework is imported by the first call, and is no dependency.
"""

from autotune.integrations import huggingface, lightning

__all__ = ["huggingface", "lightning"]
