"""A script that works for some seconds before it trains: it makes up a text, counts its words, and numbers them.

Arguments: the number of steps to do, or `forever`; it says when the first has ended.
"""

import random
import sys
from collections import Counter

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset
from training import steps_asked_for, train

NUM_WORDS = 4_000_000
LENGTH = 32
"""Words of a sample."""


def words(generator):
    """Short words, a few thousand of them different."""
    letters = "abcdefghijklmno"
    return ["".join(generator.choices(letters, k=8))[:3] for _ in range(NUM_WORDS)]


def main(num_steps):
    torch.manual_seed(7)
    text = words(random.Random(7))
    numbers = {word: number for number, (word, _) in enumerate(Counter(text).most_common(1023), 1)}
    tokens = torch.from_numpy(numpy.fromiter((numbers.get(word, 0) for word in text), dtype=numpy.int64))
    samples = tokens[: len(tokens) // LENGTH * LENGTH].view(-1, LENGTH)
    model = torch.nn.Sequential(torch.nn.Embedding(1024, 32), torch.nn.Flatten(), torch.nn.Linear(32 * LENGTH, 8))
    loader = DataLoader(TensorDataset(samples, samples[:, 0] % 8), batch_size=64, shuffle=True)
    train(model, loader, num_steps)


if __name__ == "__main__":
    main(steps_asked_for(sys.argv[1]))
