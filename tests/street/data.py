"""Made-up data in the formats of training scripts, without a download.

Every function fills one folder within seconds. Contents are random, formats are real.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import shutil
import struct
import tarfile
import wave
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

WORDS = tuple(a + b + c for a in "bdfghklmnprst" for b in "aeiou" for c in ("", "n", "r", "st", "ld"))
"""Made-up words."""


def picture(seed: int, width: int, height: int, quality: int = 90) -> bytes:
    """A JPEG of smooth colours and some grain, about as large as a photo of equal width and height."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 25 + 2, width // 25 + 2, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    grain = rng.integers(-16, 17, (height, width, 1), dtype=np.int16)
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def _write_pictures(job: tuple[str, range, int, int]) -> None:
    """Writes the pictures of a range of seeds."""
    folder, seeds, width, height = job
    for seed in seeds:
        Path(folder, f"{seed:06d}.jpg").write_bytes(picture(seed, width, height))


def pictures(folder: Path, count: int, width: int = 500, height: int = 375) -> list[Path]:
    """Paths of `count` JPEGs, written into the folder by all usable cores."""
    folder.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    share = -(-count // (cores * 4))
    jobs = [(str(folder), range(low, min(low + share, count)), width, height) for low in range(0, count, share)]
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(_write_pictures, jobs))
    return sorted(folder.glob("*.jpg"))


def image_folders(
    folder: Path, *, pictures_made: int, classes: int, train: int, val: int, width: int = 500, height: int = 375
) -> None:
    """An ImageNet-like tree: `train` and `val`, one folder per class, full of links to a few JPEGs.

    Links make an epoch long without making the data large.
    """
    made = pictures(folder / "made", pictures_made, width, height)
    for part, count in (("train", train), ("val", val)):
        for label in range(classes):
            (folder / part / f"n{label:08d}").mkdir(parents=True)
        for number in range(count):
            place = folder / part / f"n{number % classes:08d}" / f"{number:07d}.jpg"
            place.symlink_to(made[number % len(made)])


def flat_pictures(folder: Path, *, count: int, width: int = 256, height: int = 256, inside: str = "images/all") -> None:
    """JPEGs in one folder, two levels down, for `ImageFolder`."""
    pictures(folder / inside, count, width, height)


COCO_SIZES = ((640, 480), (640, 427), (480, 640), (640, 426), (427, 640), (500, 375))
"""Width and height of the pictures of COCO's training set, the most frequent first."""
MOST_OBJECTS = 14
"""Half of COCO's pictures show up to five objects, and few more than fourteen."""


def coco(folder: Path, *, pictures_made: int, train: int, val: int) -> None:
    """A COCO-like tree: pictures of several sizes, and annotations with boxes and polygons of some objects each."""
    of_size = [pictures(folder / f"made-{w}x{h}", pictures_made // len(COCO_SIZES), w, h) for w, h in COCO_SIZES]
    (folder / "annotations").mkdir()
    categories = [{"id": number, "name": f"thing{number}", "supercategory": "thing"} for number in range(1, 91)]
    for part, count in (("train2017", train), ("val2017", val)):
        (folder / part).mkdir()
        images: list[dict[str, object]] = []
        annotations: list[dict[str, object]] = []
        rng = np.random.default_rng(len(part))
        for number in range(1, count + 1):
            name, (width, height) = f"{number:012d}.jpg", COCO_SIZES[number % len(COCO_SIZES)]
            made = of_size[number % len(COCO_SIZES)]
            (folder / part / name).symlink_to(made[number // len(COCO_SIZES) % len(made)])
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            for _ in range(int(rng.integers(1, MOST_OBJECTS + 1))):
                annotations.append(_annotation(rng, number, len(annotations) + 1, width, height))
        text = json.dumps({"images": images, "annotations": annotations, "categories": categories, "info": {}})
        (folder / "annotations" / f"instances_{part}.json").write_text(text)


def _annotation(rng: np.random.Generator, image: int, number: int, width: int, height: int) -> dict[str, object]:
    """An object of a picture: a box, as a polygon too."""
    w, h = float(rng.integers(60, width // 2)), float(rng.integers(60, height // 2))
    x, y = float(rng.integers(0, width - int(w))), float(rng.integers(0, height - int(h)))
    return {
        "id": number, "image_id": image, "category_id": int(rng.integers(1, 21)), "bbox": [x, y, w, h],
        "area": w * h, "iscrowd": 0, "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
    }  # fmt: skip


def yolo(folder: Path, *, pictures_made: int, train: int, val: int) -> None:
    """YOLO's tree: pictures, a text file of boxes for each, the file of the classes, and the font of its plots."""
    from matplotlib import get_data_path

    (folder / "config").mkdir()
    shutil.copyfile(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), folder / "config" / "Arial.ttf")
    made = pictures(folder / "made", pictures_made, 640, 480)
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True)
        for number in range(count):
            shutil.copyfile(made[number % len(made)], folder / "images" / part / f"{number:06d}.jpg")
            boxes = np.column_stack([rng.uniform(0.3, 0.7, (5, 2)), rng.uniform(0.1, 0.4, (5, 2))])
            lines = (f"{rng.integers(80)} " + " ".join(f"{value:.5f}" for value in box) for box in boxes)
            (folder / "labels" / part / f"{number:06d}.txt").write_text("\n".join(lines) + "\n")
    names = "\n".join(f"  {number}: thing{number}" for number in range(80))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}\n")


def masks(folder: Path, *, count: int, width: int = 480, height: int = 320) -> None:
    """Pictures in `imgs`, and in `masks` a mask of two classes for each, as the car masks of a well-known contest."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "masks").mkdir()
    for path in pictures(folder / "imgs", count, width, height):
        coarse = Image.fromarray((rng.random((6, 8)) > 0.5).astype(np.uint8))
        mask = coarse.resize((width, height), Image.Resampling.NEAREST)
        mask.save(folder / "masks" / f"{path.stem}_mask.gif")


def bsds(folder: Path, *, count: int) -> None:
    """Pictures in the tree of BSDS300, for an example of super-resolution."""
    for part in ("train", "test"):
        pictures(folder / "BSDS300" / "images" / part, count, 481, 321)


def _idx(path: Path, values: np.ndarray) -> None:
    """Writes bytes as an IDX file, plain and zipped."""
    head = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(head + values.tobytes())
    with gzip.open(f"{path}.gz", "wb", compresslevel=1) as zipped:
        zipped.write(head + values.tobytes())


def mnist(folder: Path, *, train: int = 60_000, test: int = 10_000, name: str = "MNIST") -> None:
    """MNIST's files in torchvision's raw format."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        images = rng.integers(0, 96, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), labels * 2 + 4, :] = 255
        _idx(raw / f"{part}-images-idx3-ubyte", images)
        _idx(raw / f"{part}-labels-idx1-ubyte", labels)


def two_domains(folder: Path, *, count: int) -> None:
    """MNIST, photos of BSDS500 to blend it with, a first model, and the file that names the folder of the data."""
    import torch

    mnist(folder / "mnist")
    pictures(folder / "BSR" / "BSDS500" / "data" / "images" / "train", count, 481, 321)
    shapes = {
        "feature_extractor.0": (10, 3, 5, 5), "feature_extractor.3": (20, 10, 5, 5),
        "classifier.0": (50, 320), "classifier.3": (10, 50),
    }  # fmt: skip
    weights = {f"{layer}.weight": torch.randn(shape) * 0.1 for layer, shape in shapes.items()}
    biases = {f"{layer}.bias": torch.zeros(shape[0]) for layer, shape in shapes.items()}
    torch.save(weights | biases, folder / "source.pt")
    (folder / "config.py").write_text(f"from pathlib import Path\n\nDATA_DIR = Path({str(folder)!r})\n")


def tokens(folder: Path, *, vocabulary: int, train: int, val: int) -> None:
    """Token files of two bytes a token, in nanoGPT's format."""
    rng = np.random.default_rng(0)
    for name, count in (("train.bin", train), ("val.bin", val)):
        rng.integers(0, vocabulary, count, dtype=np.uint16).tofile(folder / name)
    letters = [chr(33 + n) for n in range(min(vocabulary, 90))]
    meta = {"vocab_size": vocabulary, "itos": dict(enumerate(letters)), "stoi": {c: n for n, c in enumerate(letters)}}
    if vocabulary < 256:
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def sentences(seed: int, count: int, words: int = 16) -> list[str]:
    """Sentences of made-up words."""
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(WORDS), (count, words))
    return [" ".join(WORDS[number] for number in row) for row in picks]


def text(folder: Path, *, lines: int, names: Sequence[str] = ("train.txt", "valid.txt", "test.txt")) -> None:
    """Text files: the first of `lines` lines, the rest of a twentieth."""
    for number, name in enumerate(names):
        body = sentences(number, lines if number == 0 else max(lines // 20, 200))
        (folder / name).write_text("\n".join(body) + "\n")


def letters(folder: Path, *, count: int) -> None:
    """The text file `input.txt` of about `count` characters, with the words of minGPT's samples."""
    (folder / "input.txt").write_text("O God, O God!\n" + "\n".join(sentences(0, count // 60)))


def names(folder: Path, *, count: int) -> None:
    """The text file `names.txt` of `count` made-up names."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(WORDS), (count, 3))
    (folder / "names.txt").write_text("\n".join("".join(WORDS[number] for number in row) for row in picks) + "\n")


def word_tokenizer(folder: Path, special: Sequence[str] = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")) -> None:
    """A fast tokenizer of made-up words, in the format of `save_pretrained`."""
    model = {"type": "WordLevel", "unk_token": special[0], "vocab": {w: n for n, w in enumerate([*special, *WORDS])}}
    added = [
        dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        | {"id": n, "content": w, "special": True}
        for n, w in enumerate(special)
    ]
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    keys = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")
    config: dict[str, object] = dict(zip(keys, special, strict=True))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1024}
    config |= {"bos_token": special[1], "eos_token": special[2]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def language_model(folder: Path, *, lines: int) -> None:
    """Text files, a tokenizer, and a configuration of DeepSpeed."""
    text(folder, lines=lines)
    word_tokenizer(folder / "tokenizer")
    auto = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    config = {**auto, "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}
    (folder / "deepspeed.json").write_text(json.dumps(config))


METRIC = """import datasets
import evaluate


class Accuracy(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int32")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
"""
"""The metric `accuracy` for Hugging Face's scripts: a folder of this name takes the hub's place."""


def _metric(folder: Path) -> None:
    """Writes the metric."""
    (folder / "accuracy").mkdir()
    (folder / "accuracy" / "accuracy.py").write_text(METRIC)


def classified_sentences(folder: Path, *, count: int, size: str) -> None:
    """Sentences with labels in CSV files, a tokenizer, and a BERT of random weights.

    The size is `base`, as published, or `tiny`.
    """
    from transformers import BertConfig, BertForSequenceClassification

    for number, (name, rows_made) in enumerate((("train.csv", count), ("valid.csv", count // 20))):
        with (folder / name).open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow(["sentence1", "label"])
            rows.writerows([line, ("no", "yes")[n % 2]] for n, line in enumerate(sentences(number, rows_made, 40)))
    tiny = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    config = BertConfig(vocab_size=len(WORDS) + 5, **(tiny if size == "tiny" else {}))
    BertForSequenceClassification(config).save_pretrained(folder / "model")
    word_tokenizer(folder / "model")
    _metric(folder)


def classified_pictures(folder: Path, *, train: int, size: str) -> None:
    """Pictures in a folder per class, and a vision transformer of random weights.

    The size is `base`, as published, or `tiny`.
    """
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    edge = 64 if size == "tiny" else 224
    made = min(train, 1000 if size == "base" else 100)
    image_folders(folder, pictures_made=made, classes=10, train=train, val=20, width=500 if size == "base" else 100)
    tiny = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    config = ViTConfig(image_size=edge, num_labels=10, **(tiny if size == "tiny" else {}))
    ViTForImageClassification(config).save_pretrained(folder / "model")
    ViTImageProcessor(size={"height": edge, "width": edge}).save_pretrained(folder / "model")
    _metric(folder)


def styled_pictures(folder: Path, *, count: int) -> None:
    """Pictures, a style's picture, and random weights of VGG16 in the place of torch's cache."""
    import torch
    from torchvision.models import vgg16

    flat_pictures(folder, count=count)
    (folder / "style.jpg").write_bytes(picture(1, 400, 300))
    (folder / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(vgg16(weights=None).state_dict(), folder / "torch" / "hub" / "checkpoints" / "vgg16-397923af.pth")


def pets_and_weights(folder: Path, *, count: int, breeds: int = 37, copies: int = 1) -> None:
    """Pictures named by breed in a folder, and random weights of a ResNet in the place of the hub's cache.

    Each picture occurs `copies` times, under names of its own.
    """
    from safetensors.torch import save_file
    from timm import create_model

    for number, path in enumerate(pictures(folder / "images", count)):
        for again in range(copies):
            (folder / "images" / f"breed{number % breeds}_{number + again * count}.jpg").hardlink_to(path)
        path.unlink()
    model = create_model("resnet50d", pretrained=False)
    cache = folder / "hf" / "hub" / f"models--{model.default_cfg['hf_hub_id'].replace('/', '--')}"
    (cache / "snapshots" / "made").mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("made")
    save_file(model.state_dict(), cache / "snapshots" / "made" / "model.safetensors")


def sounds(folder: Path, *, speakers: int, per_speaker: int, seconds: float = 4.0, listed: int = 1) -> None:
    """WAV files of 16 kHz in a folder per speaker, with lists for a trainer of speaker models.

    The list for the training has each file `listed` times: an epoch as long as real ones, of few files.
    """
    rng = np.random.default_rng(0)
    lines = []
    for speaker in range(speakers):
        name = f"id{speaker:05d}"
        (folder / "wav" / name).mkdir(parents=True)
        for number in range(per_speaker):
            relative = f"{name}/{number:03d}.wav"
            _sound(folder / "wav" / relative, rng, 100.0 + 20 * speaker, seconds)
            lines.append(f"{name} {relative}\n")
    (folder / "train_list.txt").write_text("".join(lines * listed))
    pairs = [f"{n % 2} {lines[n].split()[1]} {lines[-1 - n].split()[1]}\n" for n in range(min(40, len(lines)))]
    (folder / "test_list.txt").write_text("".join(pairs))


def _sound(path: Path, rng: np.random.Generator, pitch: float, seconds: float) -> None:
    """Writes a tone with noise as a WAV file."""
    times = np.arange(int(16_000 * seconds)) / 16_000
    values = 0.4 * np.sin(2 * np.pi * pitch * times) + 0.1 * rng.standard_normal(len(times))
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes((np.clip(values, -1, 1) * 32_000).astype("<i2").tobytes())


def molecules(folder: Path, *, graphs: int, name: str = "MUTAG") -> None:
    """A data set of small graphs in the text format of TU Dortmund, in PyTorch Geometric's tree."""
    rng = np.random.default_rng(0)
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    edges: list[str] = []
    owner: list[int] = []
    nodes: list[int] = []
    kinds: list[int] = []
    for graph in range(1, graphs + 1):
        first, size = len(owner) + 1, int(rng.integers(12, 28))
        owner += [graph] * size
        nodes += rng.integers(0, 7, size).tolist()
        ring = [(first + n, first + (n + 1) % size) for n in range(size)]
        for a, b in ring:
            edges += [f"{a}, {b}", f"{b}, {a}"]
            kinds += [int(rng.integers(0, 4))] * 2
    labels = [1 if graph % 2 else -1 for graph in range(graphs)]
    parts: dict[str, Sequence[object]] = {"A": edges, "graph_indicator": owner, "graph_labels": labels}
    parts |= {"node_labels": nodes, "edge_labels": kinds}
    for part, values in parts.items():
        (raw / f"{name}_{part}.txt").write_text("".join(f"{value}\n" for value in values))


def citations(folder: Path, *, papers: int = 2708, words: int = 1433, classes: int = 7) -> None:
    """A citation graph in Cora's text format."""
    rng = np.random.default_rng(0)
    topics = ["Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Reinforcement_Learning"]
    topics += ["Rule_Learning", "Theory"]
    (folder / "cora").mkdir()
    features = (rng.random((papers, words)) < 0.013).astype(np.uint8)
    with (folder / "cora" / "cora.content").open("w") as out:
        for paper in range(papers):
            out.write(f"{paper}\t" + "\t".join(map(str, features[paper])) + f"\t{topics[paper % classes]}\n")
    pairs = rng.integers(0, papers, (5429, 2))
    (folder / "cora" / "cora.cites").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))


def sines(folder: Path) -> None:
    """A hundred sine waves, in the file of an example of sequence prediction."""
    import torch

    rng = np.random.RandomState(2)
    times = np.arange(1000) + rng.randint(-80, 80, 100).reshape(100, 1)
    torch.save(np.sin(times / 20.0).astype("float64"), folder / "traindata.pt")


def series(folder: Path, *, rows: int = 17_420) -> None:
    """A CSV file of seven hourly series, with the columns of the electricity transformers' data."""
    values = np.cumsum(np.random.default_rng(0).standard_normal((rows, 7)), axis=0)
    start = np.datetime64("2016-07-01T00:00:00")
    with (folder / "ETTh1.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["date", "HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"])
        for row in range(rows):
            date = str(start + np.timedelta64(row, "h")).replace("T", " ")
            table.writerow([date, *(f"{value:.4f}" for value in values[row])])


def _zipped(path: Path, name: str, content: str) -> None:
    """An archive of one text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


def weather(folder: Path, *, rows: int = 60_000) -> None:
    """A download of Keras: ten-minute records of 14 sensors, in a zip."""
    columns = ("p (mbar)", "T (degC)", "Tpot (K)", "Tdew (degC)", "rh (%)", "VPmax (mbar)", "VPact (mbar)",
               "VPdef (mbar)", "sh (g/kg)", "H2OC (mmol/mol)", "rho (g/m**3)", "wv (m/s)", "max. wv (m/s)",
               "wd (deg)")  # fmt: skip
    walks = np.random.default_rng(0).normal(size=(rows, len(columns))).cumsum(axis=0)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("Date Time", *columns))
    for row, values in enumerate(walks):
        minutes = 10 * row
        date = f"{1 + minutes // 1440 % 28:02d}.{1 + minutes // 40320 % 12:02d}.{2009 + minutes // 483840}"
        writer.writerow((f"{date} {minutes // 60 % 24:02d}:{minutes % 60:02d}:00", *(f"{v:.2f}" for v in values)))
    _zipped(folder / "datasets" / "jena_climate_2009_2016.csv.zip", "jena_climate_2009_2016.csv", out.getvalue())


def reviews(folder: Path, *, per_class: int = 1000) -> None:
    """A download of Keras: texts in folders by opinion, in a tar."""
    where = folder / "datasets"
    where.mkdir(parents=True)
    with tarfile.open(where / "aclImdb_v1.tar.gz", "w:gz", compresslevel=1) as archive:
        for seed, part in enumerate(f"{split}/{kind}" for split in ("train", "test") for kind in ("pos", "neg")):
            for number, content in enumerate(sentences(seed, per_class, words=230)):
                entry = tarfile.TarInfo(f"aclImdb/{part}/{number}_7.txt")
                encoded = content.encode()
                entry.size = len(encoded)
                archive.addfile(entry, io.BytesIO(encoded))


def translations(folder: Path, *, count: int = 10_000) -> None:
    """A download of Keras: pairs of short sentences and a source, by tabs, in a zip."""
    pairs = zip(sentences(0, count, words=3), sentences(1, count, words=6), strict=True)
    lines = "".join(f"{one[:16]}\t{other[:58]}\tmade up\n" for one, other in pairs)
    _zipped(folder / "datasets" / "fra-eng.zip", "fra.txt", lines)


def ratings(folder: Path, *, users: int = 610, movies: int = 9700, count: int = 100_800) -> None:
    """A download of Keras: ratings of movies by users, in a zip with a folder."""
    rng = np.random.default_rng(0)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("userId", "movieId", "rating", "timestamp"))
    stars = rng.integers(1, 11, count) / 2
    for user, movie, star in zip(rng.integers(1, users, count), rng.integers(1, movies, count), stars, strict=True):
        writer.writerow((user, movie, star, 964_982_703))
    _zipped(folder / "datasets" / "ml-latest-small.zip", "ml-latest-small/ratings.csv", out.getvalue())


def long_text(folder: Path, *, letters: int = 600_000) -> None:
    """A download of Keras: one long text."""
    path = folder / "datasets" / "nietzsche.txt"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(sentences(0, letters // 60, words=12)))
