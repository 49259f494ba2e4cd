"""Train a small GroupNorm CNN with a loop of its own that takes its settings from autotune.

Compare with ../jpeg_cnn/train.py, which knows nothing of autotune. The lines that differ are marked with (autotune).
"""

import argparse
import io
import random
import time

import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

import autotune  # (autotune)

NUM_CLASSES = 8
NUM_DISTINCT = 256  # images made at the start; each is seen several times an epoch, under another crop
NUM_SAMPLES = 2048
IMAGE_SIZE = (400, 300)
CROP_SIZE = 64


def make_jpeg(label, rng):
    """JPEG bytes of a polygon with label + 3 corners on a grainy coloured background."""
    coarse = Image.frombytes("RGB", (40, 30), rng.randbytes(40 * 30 * 3))
    image = coarse.resize(IMAGE_SIZE, Image.Resampling.BICUBIC)
    radius = rng.randrange(60, 120)
    centre = rng.randrange(radius, IMAGE_SIZE[0] - radius), rng.randrange(radius, IMAGE_SIZE[1] - radius)
    colour = tuple(rng.randbytes(3))
    ImageDraw.Draw(image).regular_polygon((*centre, radius), label + 3, rotation=rng.randrange(360), fill=colour)
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=92)
    return file.getvalue()


class Shapes(Dataset):
    def __init__(self):
        rng = random.Random(0)
        self.files = [make_jpeg(index % NUM_CLASSES, rng) for index in range(NUM_DISTINCT)]

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        index %= NUM_DISTINCT
        with Image.open(io.BytesIO(self.files[index])) as file:
            image = file.convert("RGB")
        side = random.randint(200, 300)
        left, top = random.randint(0, image.width - side), random.randint(0, image.height - side)
        box = (left, top, left + side, top + side)
        image = image.resize((CROP_SIZE, CROP_SIZE), Image.Resampling.BILINEAR, box=box)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.view(CROP_SIZE, CROP_SIZE, 3).permute(2, 0, 1).float() / 127.5 - 1, index % NUM_CLASSES


def block(num_in, num_out, stride):
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(8, num_out),  # unlike BatchNorm it sees one sample at a time, so a batch may be split
        nn.ReLU(inplace=True),
    )


def make_model(width):
    return nn.Sequential(
        block(3, width, 2),
        block(width, 2 * width, 2),
        block(2 * width, 2 * width, 1),
        block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, NUM_CLASSES),
    )


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="autotune.yaml", help="the tuned config; the defaults when it is missing")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=64, help="the default of an untuned run")
    parser.add_argument("--workers", type=int, default=0, help="the default of an untuned run")
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args()


class Progress:
    """What really happened: optimizer steps are counted by torch's own hook, not derived from the settings."""

    def __init__(self, optimizer):
        self.num_steps = self.num_micro_steps = self.num_samples = 0
        self.start = time.monotonic()
        optimizer.register_step_post_hook(self.count_step)

    def count_step(self, *_):
        self.num_steps += 1

    def count_micro_step(self, num_samples):
        self.num_micro_steps += 1
        self.num_samples += num_samples

    def samples_per_second(self):
        return self.num_samples / (time.monotonic() - self.start)

    def is_over(self, args):
        elapsed = time.monotonic() - self.start
        return self.num_steps > 0 and (self.num_steps == args.steps or 0 < args.seconds <= elapsed)


def autocast_dtype(device):
    """What autocast does at the place of the call, as torch sees it."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def train(args, device, cfg, loader):
    """Train until something is over; returns the progress and the autocast dtype that the last forward saw."""
    model = make_model(args.width).to(device)
    model = cfg.prepare(model)  # (autotune)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    num_steps_planned = args.epochs * NUM_SAMPLES // args.batch_size
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_steps_planned)

    model.train()
    progress = Progress(optimizer)
    dtype = None
    for epoch in range(args.epochs):
        for x, y in autotune.micro_batches(loader):  # (autotune)
            x, y = x.to(device), y.to(device)
            with cfg.autocast():  # (autotune)
                dtype = autocast_dtype(device)
                loss = criterion(model(x), y)
            num_steps_before = progress.num_steps
            cfg.backward(loss, optimizer, clip_norm=1.0, scheduler=scheduler)  # (autotune)

            progress.count_micro_step(len(y))
            if progress.num_steps > num_steps_before and progress.num_steps % args.log_every == 0:
                rate = progress.samples_per_second()
                print(
                    f"epoch {epoch} step {progress.num_steps} loss {loss.item():.4f} {rate:.1f} samples/s", flush=True
                )
            if progress.is_over(args):
                return progress, dtype
    return progress, dtype


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg = autotune.load(args.config, batch_size=args.batch_size, num_workers=args.workers)  # (autotune)
    loader = DataLoader(Shapes(), shuffle=True, **cfg.loader_kwargs())  # (autotune)
    progress, dtype = train(args, device, cfg, loader)
    if device.type == "cuda":
        torch.cuda.synchronize()
    rate = progress.samples_per_second()
    print(
        f"num_workers={loader.num_workers} batch_size={loader.batch_size}"
        f" grad_accum_steps={progress.num_micro_steps / max(1, progress.num_steps):.2f}"
        f" autocast_dtype={dtype} intra_op_threads={torch.get_num_threads()}"
    )
    print(f"samples_per_second={rate:.1f}")


if __name__ == "__main__":
    main()
