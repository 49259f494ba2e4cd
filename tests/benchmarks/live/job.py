"""A small training job for the comparison of live and fresh measurements; trains for ever."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("cnn", "gpt"), default="cnn")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--size", type=int, default=16, help="of an image's side, or of a text")
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--work", type=int, default=4, help="passes over a sample in its making")
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Samples(), batch_size=options.batch_size, shuffle=True)
    while True:
        for given, wanted in loader:
            loss = torch.nn.functional.cross_entropy(model(given.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
