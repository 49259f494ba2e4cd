"""Statistics of blocks: rates, intervals, stopping rules, the comparison of settings, and the bottleneck.

Pure, standard library only: the tuner and the user's training process run the same code, and the import must cost the
training process nothing. The room reads no clock and no file; callers pass in the numbers.
"""
