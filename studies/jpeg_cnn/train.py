"""Train a small CNN to tell shapes apart in a folder of JPEG photographs."""

import argparse
import math
import os
import random
import shutil
import time
from pathlib import Path

import torch
from PIL import Image, ImageChops, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
CLASSES = ["circle", "cross", "diamond", "frame", "ring", "square", "stripes", "triangle"]
IMAGES_PER_CLASS = 256
IMAGE_SIZE = (400, 300)
CROP_SIZE = 64


def draw_shape(draw, name, x, y, r, colour):
    if name == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif name == "ring":
        draw.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=r // 3)
    elif name == "square":
        draw.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    elif name == "frame":
        draw.rectangle((x - r, y - r, x + r, y + r), outline=colour, width=r // 3)
    elif name == "diamond":
        draw.polygon([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], fill=colour)
    elif name == "triangle":
        draw.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=colour)
    elif name == "cross":
        draw.rectangle((x - r, y - r // 4, x + r, y + r // 4), fill=colour)
        draw.rectangle((x - r // 4, y - r, x + r // 4, y + r), fill=colour)
    else:
        for offset in range(-r, r, max(6, r // 3)):
            draw.line((x - r, y + offset, x + r, y + offset), fill=colour, width=max(2, r // 8))


def random_colour(rng):
    return tuple(rng.randrange(256) for _ in range(3))


def make_noise(rng):
    """A grey image around 128, larger than the photographs, to cut their camera noise from."""
    width, height = 2 * IMAGE_SIZE[0], 2 * IMAGE_SIZE[1]
    return Image.frombytes("L", (width, height), rng.randbytes(width * height)).point(lambda v: 112 + v // 8)


def make_image(name, noise, rng):
    """A soft coloured background, one shape, and camera noise over all of it."""
    width, height = IMAGE_SIZE
    coarse = Image.frombytes("RGB", (8, 6), rng.randbytes(8 * 6 * 3))
    image = coarse.resize(IMAGE_SIZE, Image.Resampling.BICUBIC)
    radius = rng.randrange(40, 110)
    centre = rng.randrange(radius, width - radius), rng.randrange(radius, height - radius)
    draw_shape(ImageDraw.Draw(image), name, *centre, radius, random_colour(rng))
    left, top = rng.randrange(width), rng.randrange(height)
    grain = noise.crop((left, top, left + width, top + height)).convert("RGB")
    return ImageChops.add(image, grain, offset=-128)


def make_images(folder):
    """Write the images beside their final place and rename the folder when it is complete."""
    print(f"making {len(CLASSES) * IMAGES_PER_CLASS} images in {folder} ...", flush=True)
    rng = random.Random(0)
    noise = make_noise(rng)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    for name in CLASSES:
        (unfinished / name).mkdir(parents=True, exist_ok=True)
        for index in range(IMAGES_PER_CLASS):
            make_image(name, noise, rng).save(unfinished / name / f"{index:04d}.jpg", quality=85)
    try:
        os.rename(unfinished, folder)
    except OSError:  # somebody else was faster
        shutil.rmtree(unfinished)
        if not folder.is_dir():
            raise


class Photos(Dataset):
    def __init__(self, folder):
        self.samples = [
            (path, label) for label, name in enumerate(CLASSES) for path in sorted((folder / name).glob("*.jpg"))
        ]
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        image = self.random_resized_crop(image)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        pixels = pixels.view(CROP_SIZE, CROP_SIZE, 3).permute(2, 0, 1).float() / 255
        return (pixels - self.mean) / self.std, label

    def random_resized_crop(self, image):
        width, height = image.size
        side = int(math.sqrt(random.uniform(0.5, 1.0)) * min(width, height))
        left, top = random.randint(0, width - side), random.randint(0, height - side)
        box = (left, top, left + side, top + side)
        return image.resize((CROP_SIZE, CROP_SIZE), Image.Resampling.BILINEAR, box=box)


def block(num_in, num_out, stride):
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(inplace=True),
    )


class SmallCNN(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            block(3, width, 2),
            block(width, 2 * width, 2),
            block(2 * width, 2 * width, 1),
            block(2 * width, 4 * width, 2),
            block(4 * width, 4 * width, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the images, made when missing")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args()


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Photos(args.data)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    model = SmallCNN(args.width, len(CLASSES)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    model.train()
    step = num_samples = 0
    start = time.monotonic()
    for epoch in range(args.epochs):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()

            step += 1
            num_samples += len(labels)
            seconds = time.monotonic() - start
            if step % args.log_every == 0:
                rate = num_samples / seconds
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {rate:.1f} samples/s", flush=True)
            if step == args.steps or 0 < args.seconds <= seconds:
                return num_samples, start
        scheduler.step()
    return num_samples, start


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    if not args.data.is_dir():
        make_images(args.data)
    num_samples, start = train(args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"samples_per_second={num_samples / (time.monotonic() - start):.1f}")


if __name__ == "__main__":
    main()
