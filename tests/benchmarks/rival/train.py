"""Train a ResNet-50, a ResNet-18 for small images, or a Transformer on made-up data, as the usual guides teach it."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZES = {"resnet50": 64, "resnet18": 128, "transformer": 32}
NUM_CLASSES = 100
NUM_WORDS = 10_000
NUM_STORED = 512
WARM_UP_STEPS = 25
"""Steps before the clock starts: compilation, CUDA graphs and queues settle."""


class Images(Dataset):
    """Some stored images, over and over: an epoch is as long as a larger data set's."""

    def __init__(self, side):
        self.pixels = torch.randint(0, 256, (NUM_STORED, 3, side, side), dtype=torch.uint8)
        self.labels = torch.randint(0, NUM_CLASSES, (NUM_STORED,))

    def __len__(self):
        return 200 * NUM_STORED

    def __getitem__(self, index):
        number = index % NUM_STORED
        return self.pixels[number].float().div_(255), self.labels[number]


class Sentences(Dataset):
    """Some stored sentences, over and over."""

    def __init__(self, length):
        self.words = torch.randint(0, NUM_WORDS, (NUM_STORED, length))
        self.labels = torch.randint(0, NUM_CLASSES, (NUM_STORED,))

    def __len__(self):
        return 200 * NUM_STORED

    def __getitem__(self, index):
        return self.words[index % NUM_STORED], self.labels[index % NUM_STORED]


class Block(nn.Module):
    """A residual block: two convolutions of 3 pixels, or three with a bottleneck."""

    def __init__(self, num_in, width, stride, is_bottleneck):
        super().__init__()
        self.num_out = width * (4 if is_bottleneck else 1)
        shape = [(1, 1), (3, stride), (1, 1)] if is_bottleneck else [(3, stride), (3, 1)]
        widths = [num_in, *[width] * (len(shape) - 1), self.num_out]
        layers = []
        for number, (side, step) in enumerate(shape):
            layers += [
                nn.Conv2d(widths[number], widths[number + 1], side, stride=step, padding=side // 2, bias=False),
                nn.BatchNorm2d(widths[number + 1]),
                nn.ReLU(inplace=True),
            ]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity()
        if stride != 1 or num_in != self.num_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_in, self.num_out, 1, stride=stride, bias=False), nn.BatchNorm2d(self.num_out)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, depths, is_bottleneck, width):
        super().__init__()
        layers = [nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
        num_in = width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stride = 2 if stage and not number else 1
                layers.append(Block(num_in, width * 2**stage, stride, is_bottleneck))
                num_in = layers[-1].num_out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(num_in, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.features(x))


class Transformer(nn.Module):
    def __init__(self, num_layers, width, length):
        super().__init__()
        self.words, self.places = nn.Embedding(NUM_WORDS, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, words):
        return self.head(self.layers(self.words(words) + self.places).mean(dim=1))


def parse_args(parser):
    parser.add_argument("--model", choices=BATCH_SIZES, default="resnet18")
    parser.add_argument("--batch-size", type=int, default=0, help="0: the model's usual one")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pin-memory", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0, help="of training after the warm-up; 0: no end")
    parser.add_argument("--tiny", action="store_true", help="a small model, for a CPU")
    args = parser.parse_args()
    args.batch_size = args.batch_size or (8 if args.tiny else BATCH_SIZES[args.model])
    return args


def make(args):
    """The model and the loader."""
    if args.model == "transformer":
        num_layers, width, length = (2, 32, 16) if args.tiny else (6, 512, 128)
        model, data = Transformer(num_layers, width, length), Sentences(length)
    else:
        is_large = args.model == "resnet50"
        depths, width = ((3, 4, 6, 3) if is_large else (2, 2, 2, 2)), (8 if args.tiny else 64)
        model = ResNet((1, 1, 1, 1) if args.tiny else depths, is_large, width)
        data = Images(224 if is_large and not args.tiny else 32)
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=args.pin_memory,
    )
    return model, loader


def train(args, loader, device, step):
    """Steps until the time is over, and prints the rate."""
    num_steps, start = 0, None
    while True:
        for inputs, labels in loader:
            inputs, labels = inputs.to(device), labels.to(device)
            step(inputs, labels)
            num_steps += 1
            if num_steps == WARM_UP_STEPS:
                synchronize(device)
                start = time.monotonic()
            if start is not None and 0 < args.seconds <= time.monotonic() - start:
                synchronize(device)
                rate = (num_steps - WARM_UP_STEPS) * args.batch_size / (time.monotonic() - start)
                print(f"samples_per_second={rate:.1f}", flush=True)
                return


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def main():
    args = parse_args(argparse.ArgumentParser(description=__doc__))
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, loader = make(args)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    run = torch.compile(model) if args.compile else model

    def step(inputs, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(run(inputs), labels)
        loss.backward()
        optimizer.step()

    train(args, loader, device, step)


if __name__ == "__main__":
    main()
