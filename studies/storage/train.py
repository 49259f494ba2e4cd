"""Train on one set of JPEG images, stored in one of several ways."""

import argparse
import functools
import io
import itertools
import os
import queue
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
STORAGES = ("folder", "npy", "lmdb", "hdf5", "webdataset", "pt", "decoded", "dali")
NUM_CLASSES, PER_CLASS, SIZE, CROP = 16, 256, (500, 375), 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# The images -----------------------------------------------------------------------------------------------------


def make_class(folder, label, count, size):
    """Soft colours with fine grain: as expensive to decode as a photograph."""
    from PIL import Image

    rng = random.Random(label)
    target = folder / f"{label:03d}"
    target.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        coarse = Image.frombytes("RGB", (20, 15), rng.randbytes(20 * 15 * 3))
        half = (size[0] // 2, size[1] // 2)
        grain = Image.frombytes("RGB", half, rng.randbytes(half[0] * half[1] * 3))
        image = Image.blend(coarse.resize(size, Image.Resampling.BICUBIC), grain.resize(size), 0.15)
        image.save(target / f"{index:05d}.jpg", quality=88)


def make_images(folder, count, size):
    with ProcessPoolExecutor() as pool:
        for label in range(NUM_CLASSES):
            pool.submit(make_class, folder, label, count, size)
    (folder / "complete").touch()


class Files(Dataset):
    """The encoded bytes of each image, and its class."""

    def __init__(self, folder):
        self.files = [str(path) for path in sorted(folder.glob("*/*.jpg"))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = Path(self.files[index])
        return path.read_bytes(), int(path.parent.name)


class Decoded(Files):
    """The decoded and shrunken image as an array of bytes, and its class."""

    def __getitem__(self, index):
        from PIL import Image

        data, label = super().__getitem__(index)
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return torch.from_numpy(np.array(image.resize((320, 240)))), label


class Saved(Dataset):
    """A file of torch.save for each image."""

    def __init__(self, folder):
        self.files = sorted(str(path) for path in folder.glob("*.pt"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.load(self.files[index])


def make_files():
    """For `autotune pack`."""
    return Files(Path(os.environ["STUDY_DATA"]) / "images")


def make_decoded():
    """For `autotune pack`."""
    return Decoded(Path(os.environ["STUDY_DATA"]) / "images")


def stored(data, storage):
    """The dataset of one way to store, made at its first use."""
    images = data / "images"
    if storage in ("folder", "dali"):
        return Files(images)
    folder = data / storage
    if storage == "pt":
        if not (folder / "complete").exists():
            folder.mkdir(exist_ok=True)
            decoded = Decoded(images)
            for index in range(len(decoded)):
                torch.save(decoded[index], folder / f"{index:07d}.pt")
            (folder / "complete").touch()
        return Saved(folder)
    from autotune.storage import Packed

    if not (folder / "packed.json").exists():
        function, form = ("make_decoded", "npy") if storage == "decoded" else ("make_files", storage)
        words = ["pack", f"{__file__}:{function}", "--to", form, "--out", str(folder), "--quiet"]
        environment = {**os.environ, "STUDY_DATA": str(data)}
        subprocess.run([sys.executable, "-m", "autotune", *words], check=True, env=environment, stdout=sys.stderr)
    return Packed(folder)


# Decoding, and the transforms of every epoch --------------------------------------------------------------------


def by_pil(data):
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB")))


def by_opencv(data):
    import cv2

    cv2.setNumThreads(0)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return torch.from_numpy(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))


def by_torchvision(data):
    from torchvision.io import ImageReadMode, decode_image

    return decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB).permute(1, 2, 0)


DECODERS = {"pil": by_pil, "opencv": by_opencv, "torchvision": by_torchvision}


def crop(pixels, generator=None):
    """A random crop of an image of bytes in HWC order, as bytes in CHW order."""
    height, width = pixels.shape[:2]
    top = int(torch.randint(0, height - CROP + 1, (1,), generator=generator))
    left = int(torch.randint(0, width - CROP + 1, (1,), generator=generator))
    return pixels[top : top + CROP, left : left + CROP].permute(2, 0, 1).contiguous()


class Trained(Dataset):
    """Decoded and cut samples over and over: an epoch is as long as a larger data set's."""

    def __init__(self, stored, decode, copies):
        self.stored, self.decode, self.copies = stored, decode, copies

    def __len__(self):
        return len(self.stored) * self.copies

    def __getitem__(self, index):
        data, label = self.stored[index % len(self.stored)]
        if self.decode is None:  # nvJPEG: the device decodes
            return torch.frombuffer(bytearray(data), dtype=torch.uint8), label
        return crop(self.decode(data) if isinstance(data, bytes) else data), label


def encoded(samples):
    """A batch of encoded images, of any lengths: one tensor of bytes, since each tensor takes a file descriptor."""
    images, labels = zip(*samples, strict=True)
    return torch.cat(images), [len(image) for image in images], torch.tensor(labels)


# Training -------------------------------------------------------------------------------------------------------


def small_network():
    def block(num_in, num_out):
        return [nn.Conv2d(num_in, num_out, 3, stride=4, padding=1), nn.ReLU(inplace=True)]

    body = [*block(3, 16), *block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(32, NUM_CLASSES))


def resnet50():
    from torchvision.models import resnet50

    return resnet50(num_classes=NUM_CLASSES)


def cut_on_device(images):
    """Random crops of decoded images in CHW order, as one batch of bytes."""
    cut = []
    for image in images:
        top, left = (random.randint(0, size - CROP) for size in image.shape[1:])
        cut.append(image[:, top : top + CROP, left : left + CROP])
    return torch.stack(cut)


def decoded_ahead(batches, device):
    """Batches decoded by nvJPEG in a thread and a stream of their own, while the device trains."""
    from torchvision.io import ImageReadMode, decode_jpeg

    ready, stream = queue.Queue(2), torch.cuda.Stream(device)

    def decode():
        try:
            decode_all()
        except Exception as error:
            ready.put(error)

    def decode_all():
        for joined, lengths, targets in batches:
            with torch.cuda.stream(stream):
                images = decode_jpeg(list(joined.split(lengths)), mode=ImageReadMode.RGB, device=device)
                inputs = cut_on_device(images)
                is_decoded = stream.record_event()
            is_decoded.synchronize()  # torchvision decodes in a stream of its own, into the memory of earlier images
            ready.put((inputs, targets, is_decoded))

    threading.Thread(target=decode, daemon=True).start()
    while True:
        decoded = ready.get()
        if isinstance(decoded, Exception):
            raise decoded
        inputs, targets, is_decoded = decoded
        torch.cuda.current_stream(device).wait_event(is_decoded)
        inputs.record_stream(torch.cuda.current_stream(device))
        yield inputs, targets


@functools.cache
def normalisation(device):
    """Mean and deviation on the device, once: a copy in every step would wait for the device."""
    return tuple(torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))


def on_device(batch, device, options):
    """Normalised inputs, and targets, on the device."""
    inputs, targets = batch
    mean, std = normalisation(device)
    inputs = (inputs.to(device, non_blocking=True).float() / 255 - mean) / std
    if options.channels_last:
        inputs = inputs.to(memory_format=torch.channels_last)
    return inputs, targets.to(device, non_blocking=True)


def dali_batches(data, options):
    """Endless batches by NVIDIA DALI: its own threads, and on a GPU the device, read, decode and cut the files."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    on_cpu = options.device == "cpu"

    @pipeline_def(batch_size=options.batch_size, num_threads=max(1, options.workers), device_id=None if on_cpu else 0)
    def pipeline():
        files, labels = fn.readers.file(file_root=str(data / "images"), random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(files, device="cpu" if on_cpu else "mixed", random_area=[0.3, 0.6])
        images = fn.resize(images, size=[CROP, CROP])
        return fn.transpose(images, perm=[2, 0, 1]), labels

    iterator = DALIGenericIterator(pipeline(), ["x", "y"], reader_name="files", auto_reset=True)
    while True:
        for [batch] in iterator:
            yield batch["x"], batch["y"].squeeze(1).long()


def loader_batches(data, options):
    """Endless batches of a DataLoader."""
    decode = DECODERS.get(options.decoder)
    dataset = Trained(stored(data, options.storage), decode, options.copies)
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        drop_last=True,
        persistent_workers=options.workers > 0,
        pin_memory=options.device != "cpu" and decode is not None,
        collate_fn=encoded if decode is None else None,
    )
    while True:
        yield from loader


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", choices=STORAGES, default="folder")
    parser.add_argument("--decoder", choices=(*DECODERS, "nvjpeg"), default="pil")
    parser.add_argument("--model", choices=("small", "resnet50"), default="small")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--per-class", type=int, default=PER_CLASS)
    parser.add_argument("--size", default="x".join(map(str, SIZE)), help="of the images, when they are made")
    parser.add_argument("--copies", type=int, default=50, help="how often an epoch passes over the images")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--repeat", action="store_true", help="train on the first batch alone: the device's own rate")
    parser.add_argument("--prepare", action="store_true", help="make the images in every storage, and end")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time; 0 = train on")
    return parser.parse_args()


def main():
    options = parse()
    data = options.data.resolve()
    if not (data / "images" / "complete").exists():
        make_images(data / "images", options.per_class, tuple(map(int, options.size.split("x"))))
    if options.prepare:
        for storage in STORAGES[:-1]:
            print(f"{storage}: {len(stored(data, storage))} samples", flush=True)
        return
    device = torch.device(options.device)
    torch.backends.cudnn.benchmark = True
    model = (resnet50() if options.model == "resnet50" else small_network()).to(device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    batches = dali_batches(data, options) if options.storage == "dali" else loader_batches(data, options)
    if options.decoder == "nvjpeg":
        batches = decoded_ahead(batches, device)
    if options.repeat:
        batches = itertools.repeat(next(iter(batches)))
    began, samples = 0.0, 0
    for step, batch in enumerate(batches):
        inputs, targets = on_device(batch, device, options)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            loss = loss_fn(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step < 8 + 2 * options.workers:  # workers have started by then, and the first queues are empty
            continue
        if not began:
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            continue
        samples += len(targets)
        if options.seconds and step % 8 == 0:
            if device.type == "cuda":
                torch.cuda.synchronize()
            if time.perf_counter() - began >= options.seconds:
                break
    print(f"samples_per_second {samples / (time.perf_counter() - began):.1f}", flush=True)
    if options.decoder == "nvjpeg":
        os._exit(0)  # the decoding thread would use the device while Python shuts down


if __name__ == "__main__":
    main()
