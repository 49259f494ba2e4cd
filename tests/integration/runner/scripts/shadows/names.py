"""Imports a module of its own that is called like an installed one."""

import mpmath
import pretend

print(mpmath.WHOSE)
pretend.report()
