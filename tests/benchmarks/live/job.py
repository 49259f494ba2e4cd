"""A small training job for the comparison of live and fresh measurements; trains for ever."""

import argparse
import os

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("cnn", "gpt"), default="cnn")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--size", type=int, default=16, help="of an image's side, or of a text")
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--work", type=int, default=4, help="passes over a sample in its making")
options = parser.parse_args()
world_size, local_rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")


class Samples(Dataset):
    """Samples made when they are asked for."""

    def __len__(self):
        return 8192

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        if options.model == "gpt":
            text = torch.randint(256, (options.size + 1,), generator=generator)
            for _ in range(options.work):
                text = text.sort().values.roll(index % 7)
            return text[:-1], text[1:]
        image = torch.randn(3, options.size, options.size, generator=generator)
        for _ in range(options.work):
            image = image * 0.99 + 0.01
        return image, index % 10


class Text(torch.nn.Module):
    """A transformer for bytes."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(options.width * 4, 4, options.width * 8, 0.0, batch_first=True)
        self.table = torch.nn.Embedding(256, options.width * 4)
        self.layers = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = torch.nn.Linear(options.width * 4, 256)

    def forward(self, text):
        return self.head(self.layers(self.table(text))).transpose(1, 2)


def block(num_in, num_out, stride):
    """A convolution with its activation."""
    return torch.nn.Conv2d(num_in, num_out, 3, stride, 1), torch.nn.ReLU()


def main():
    width = options.width
    images = torch.nn.Sequential(
        *block(3, width, 1),
        *block(width, 2 * width, 2),
        *block(2 * width, 4 * width, 2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * width, 10),
    )
    model = (Text() if options.model == "gpt" else images).to(device)
    data, sampler = Samples(), None
    if world_size > 1:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        model, sampler = torch.nn.parallel.DistributedDataParallel(model), DistributedSampler(data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=sampler is None, sampler=sampler)
    while True:
        for given, wanted in loader:
            loss = torch.nn.functional.cross_entropy(model(given.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
