"""In memory: a table of tensors, taken row by row and joined again."""

import torch
from common import options, train
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

NUM_SAMPLES, NUM_FEATURES = 200_000, 32

if __name__ == "__main__":
    chosen = options()
    data = TensorDataset(torch.randn(NUM_SAMPLES, NUM_FEATURES), torch.randint(0, 10, (NUM_SAMPLES,)))
    if chosen.cured:
        sampler = BatchSampler(RandomSampler(data), 512, False)
        loader = DataLoader(data, batch_size=None, sampler=sampler)
    else:
        loader = DataLoader(data, batch_size=512, shuffle=True)
    train(loader, NUM_FEATURES, width=16)
