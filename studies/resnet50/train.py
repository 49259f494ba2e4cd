"""Train a ResNet-50 on a folder of JPEG photographs, as the usual ImageNet script does."""

import argparse
import random
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
NUM_CLASSES = 16
IMAGES_PER_CLASS = 128
IMAGE_SIZE = (500, 375)  # the usual size of an ImageNet photograph
CROP_SIZE = 224


def make_class(folder, label):
    """Soft colours with fine grain: as expensive to decode as a photograph."""
    rng = random.Random(label)
    target = folder / f"{label:03d}"
    target.mkdir(parents=True, exist_ok=True)
    for index in range(IMAGES_PER_CLASS):
        coarse = Image.frombytes("RGB", (20, 15), rng.randbytes(20 * 15 * 3))
        grain = Image.frombytes("RGB", (250, 188), rng.randbytes(250 * 188 * 3))
        image = Image.blend(coarse.resize(IMAGE_SIZE, Image.Resampling.BICUBIC), grain.resize(IMAGE_SIZE), 0.15)
        image.save(target / f"{index:04d}.jpg", quality=88)


def make_images(folder):
    print(f"making {NUM_CLASSES * IMAGES_PER_CLASS} images in {folder} ...", flush=True)
    with ProcessPoolExecutor() as pool:
        list(pool.map(make_class, [folder] * NUM_CLASSES, range(NUM_CLASSES)))
    (folder / "complete").touch()


class Photos(Dataset):
    """The images of a folder, over and over: an epoch is as long as a larger data set's."""

    def __init__(self, folder, num_copies):
        files = sorted(folder.glob("*/*.jpg"))
        self.samples = [(path, int(path.parent.name)) for path in files] * num_copies
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        width, height = image.size
        side = random.randint(min(width, height) // 2, min(width, height))
        left, top = random.randint(0, width - side), random.randint(0, height - side)
        box = (left, top, left + side, top + side)
        image = image.resize((CROP_SIZE, CROP_SIZE), Image.Resampling.BILINEAR, box=box)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        pixels = pixels.view(CROP_SIZE, CROP_SIZE, 3).permute(2, 0, 1).float() / 255
        return (pixels - self.mean) / self.std, label


class Bottleneck(nn.Module):
    def __init__(self, num_in, width, stride):
        super().__init__()
        num_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(num_in, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, num_out, 1, bias=False),
            nn.BatchNorm2d(num_out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or num_in != num_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_in, num_out, 1, stride=stride, bias=False), nn.BatchNorm2d(num_out)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50(num_classes):
    layers = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    num_in = 64
    for stage, num_blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(num_blocks):
            layers.append(Bottleneck(num_in, width, 2 if stage and not block else 1))
            num_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_in, num_classes))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the images, made when missing")
    parser.add_argument("--copies", type=int, default=25, help="how often an epoch runs through the images")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pin-memory", action="store_true")
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds; 0: no limit")
    parser.add_argument("--log-every", type=int, default=20)
    return parser.parse_args()


def train(args, device):
    loader = DataLoader(
        Photos(args.data, args.copies),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=args.pin_memory,
        persistent_workers=args.persistent_workers,
        drop_last=True,
    )
    model = resnet50(NUM_CLASSES).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)

    model.train()
    step = num_samples = 0
    start = None
    for epoch in range(args.epochs):
        for images, labels in loader:
            images = images.to(device, non_blocking=args.pin_memory)
            labels = labels.to(device, non_blocking=args.pin_memory)
            optimizer.zero_grad()
            if args.bf16:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = criterion(model(images), labels)
            else:
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()

            step += 1
            if step == 10:  # the first steps load kernels and fill queues
                start = time.monotonic()
            if step > 10:
                num_samples += len(labels)
            if step > 10 and step % args.log_every == 0:
                rate = num_samples / (time.monotonic() - start)
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {rate:.1f} samples/s", flush=True)
            if start is not None and 0 < args.seconds <= time.monotonic() - start:
                return num_samples, start
        scheduler.step()
    return num_samples, start


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    if not (args.data / "complete").exists():
        make_images(args.data)
    num_samples, start = train(args, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"samples_per_second={num_samples / (time.monotonic() - start):.1f}")


if __name__ == "__main__":
    main()
