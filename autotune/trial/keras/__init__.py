"""Sessions of scripts that train by Keras, on any engine, or in a loop of their own with `autotune.step`."""
