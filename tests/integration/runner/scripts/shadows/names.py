"""Imports a module of its own that is called like an installed one."""

import os
import sys

import mpmath

sys.path.append(os.getcwd())
import pretend

print(mpmath.WHOSE)
pretend.report()
