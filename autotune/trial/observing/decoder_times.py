"""Times the installed image decoders on recorded images of the dataset, to RGB arrays in one thread."""

from __future__ import annotations

import contextlib
import functools
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from autotune.model.what_if import DecoderTime

LIMIT_S = 0.4
"""Seconds for each decoder."""
LEAST_ROUNDS, LEAST_TURNS = 2, 4

Decode = Callable[[bytes], Any]


def decoder_times(images: Sequence[bytes], own: str = "") -> tuple[DecoderTime, ...]:
    """The time of each installed decoder on the CPU; decoders that cannot read the images are left out.

    Args:
        images: Encoded images.
        own: Name of the script's decoder, for the speed-up of all others in the same turns.
    """
    usable: dict[str, Callable[[], None]] = {}
    for name, decode in _decoders():
        with contextlib.suppress(Exception):  # a format unknown to the decoder
            decode(images[0])
            usable[name] = functools.partial(_all, decode, images)
    times = _in_turns(usable)
    found = []
    for name, seconds in times.items():
        ratios = [mine / others for mine, others in zip(times.get(own, ()), seconds, strict=False)]
        found.append(
            DecoderTime(
                name=name,
                image_s=float(np.median(seconds)) / len(images),
                sure_speedup=float(np.quantile(ratios, 0.25)) if ratios and name != own else None,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DeviceDecoder:
    """A decoder for the current CUDA device."""

    alone: DecoderTime
    """Time of an image within the list, while the device does nothing else."""
    run: Callable[[], int]
    """Decodes the list, returns once the device has finished, and gives the bytes of the decoded images."""
    list_bytes: int


def device_decoders(images: Sequence[bytes]) -> list[DeviceDecoder]:
    """Torchvision's nvJPEG, and DALI, each for this list of images; decoders that are missing are left out."""
    found: list[DeviceDecoder] = []
    for name, make in (("nvJPEG", _by_nvjpeg), ("DALI", _by_dali)):
        with contextlib.suppress(Exception):  # not installed, without nvJPEG, or no JPEG
            run = make(images)
            size = run()
            alone = DecoderTime(name=name, image_s=_image_s(run) / len(images), is_on_device=True)
            found.append(DeviceDecoder(alone, run, size))
    return found


def own_name(decoder: str) -> str:
    """Name of a decoder of the script, as in the times: PIL may be Pillow-SIMD."""
    return _pil_name() if decoder == "PIL" else decoder


def _by_nvjpeg(images: Sequence[bytes]) -> Callable[[], int]:
    decode_jpeg: Any = import_module("torchvision.io").decode_jpeg
    encoded = [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in images]

    def run() -> int:
        decoded = decode_jpeg(encoded, device="cuda")
        torch.cuda.current_stream().synchronize()  # not the device: training goes on in another stream
        return sum(image.numel() for image in decoded)

    return run


def _by_dali(images: Sequence[bytes]) -> Callable[[], int]:
    encoded = [np.frombuffer(image, np.uint8) for image in images]
    pipeline = dali_pipeline(lambda: encoded, len(images), torch.cuda.current_device())

    def run() -> int:
        [decoded] = pipeline.run()  # without a stream to join, the call waits for the pipeline's own
        return sum(int(np.prod(shape)) for shape in decoded.shape())

    return run


def dali_pipeline(source: Callable[[], Sequence[Any]], num_images: int, device_id: int | None) -> Any:
    """A pipeline of DALI whose every run decodes one list of images, no more and no less.

    A pipeline that works ahead has a list ready after any pause, and a run then takes 1 ms for 40 ms of work.

    Args:
        source: Gives the encoded images of a run, as arrays of bytes.
        num_images: Length of the list.
        device_id: Number of the CUDA device; None decodes on the CPU.
    """
    dali: Any = import_module("nvidia.dali")
    fn: Any = import_module("nvidia.dali.fn")
    in_turn = {"exec_pipelined": False, "exec_async": False}
    pipeline: Any = dali.Pipeline(batch_size=num_images, num_threads=2, device_id=device_id, **in_turn)
    device = "cpu" if device_id is None else "mixed"
    with pipeline:
        pipeline.set_outputs(fn.decoders.image(fn.external_source(source=source, batch=True), device=device))
    pipeline.build()
    return pipeline


def _all(decode: Decode, images: Sequence[bytes]) -> None:
    for image in images:
        decode(image)


def _in_turns(runs: Mapping[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Seconds of each function in each turn: a disturbance of some seconds meets all functions alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    num_turns = 0
    while runs and (num_turns < LEAST_TURNS or time.perf_counter() - began < LIMIT_S * len(runs)):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(max(time.perf_counter() - start, 1e-9))
        num_turns += 1
    return times


def _image_s(run: Callable[[], object]) -> float:
    """Seconds of the shortest of several runs; a disturbance only lengthens a run."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < LEAST_ROUNDS or time.perf_counter() - began < LIMIT_S:
        start = time.perf_counter()
        run()
        times.append(max(time.perf_counter() - start, 1e-9))
    return min(times)


def _pil_name() -> str:
    with contextlib.suppress(ImportError):
        return "Pillow-SIMD" if "post" in import_module("PIL").__version__ else "PIL"
    return "PIL"


def _decoders() -> list[tuple[str, Decode]]:
    """Name and function of each installed decoder."""
    found: list[tuple[str, Decode]] = []
    with contextlib.suppress(ImportError):
        image: Any = import_module("PIL.Image")
        found.append((_pil_name(), lambda data: np.asarray(image.open(io.BytesIO(data)).convert("RGB"))))
    with contextlib.suppress(ImportError):
        found.append(("OpenCV", _by_opencv(import_module("cv2"))))
    for name, module in (("torchvision", "torchvision.io"), ("torchcodec", "torchcodec.decoders")):
        with contextlib.suppress(ImportError, RuntimeError):
            decode: Any = getattr(import_module(module), "decode_image", None)
            if decode is not None:
                found.append((name, _by_tensor(decode)))
    return found


def _by_opencv(cv2: Any) -> Decode:
    cv2.setNumThreads(1)  # one thread for every decoder; this process ends after the measurement
    return lambda data: cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def _by_tensor(decode: Any) -> Decode:
    return lambda data: decode(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode="RGB")
