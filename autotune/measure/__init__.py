"""Statistics of blocks: rates, intervals, when to stop, who won, and what was the bottleneck.

Pure and of the standard library only: the same code runs in the tuner and inside the user's training process, which
must not pay for it. No clock, no input or output; whoever measures passes the numbers in.
"""
