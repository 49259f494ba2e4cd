"""The script's own, by the name of an installed package that torch imports."""

WHOSE = "the script's"
