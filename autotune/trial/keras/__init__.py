"""Sessions of scripts that train by Keras on any engine, or in their own loop with `autotune.step`."""
