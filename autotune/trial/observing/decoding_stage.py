"""Times training steps on the cached batch while a thread decodes images on the device, a list for every batch."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from autotune.model.what_if import DecoderTime
from autotune.trial.observing.decoder_times import device_decoders
from autotune.trial.torch import torch_names

LISTS_AHEAD = 2
"""Decoded lists that wait for a step, at most, as in the queue of a script with a decoder on the device."""
LISTS_ALIVE = LISTS_AHEAD + 2
"""Decoded lists that need memory at the same time, with the list being decoded and the decoder's own buffers."""
WAIT_LIMIT_S = 5.0
"""Seconds after which a list that never comes is given up."""


class DecodingStage:
    """Times steps on the cached batch; each step waits for as many decoded lists as the step has batches.

    Args:
        decode: Decodes one list of images, and returns once the device has finished.
        lists_per_step: Batches of one step.
        give: Makes the loader give a batch from now on; None returns to real batches.
        batch: The cached batch.
        finish_device: Waits for the device.
    """

    least_steps, least_s, longest_s = 1, 0.0, 8.0
    num_ramp = LISTS_AHEAD + 2
    """Steps before the clock starts: the lists decoded ahead are used up by then."""
    num_timed, timed_s = 8, 1.5
    """Least timed steps, and least seconds."""

    def __init__(
        self,
        decode: Callable[[], object],
        lists_per_step: int,
        give: Callable[[Any], None],
        batch: Any,
        finish_device: Callable[[], None],
    ) -> None:
        self._decode, self._lists_per_step = decode, lists_per_step
        self._give, self._batch, self._finish_device = give, batch, finish_device
        self._decoded: queue.Queue[bool] = queue.Queue(LISTS_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._decode_all, name="autotune-decoding", daemon=True)
        self._num_steps, self._began = 0, 0.0
        self._has_failed = False
        self.step_s: float | None = None
        """Mean seconds of a step beside the decoding; None after a failure, or before enough steps."""

    @property
    def is_over(self) -> bool:
        """Whether the steps are timed, or the decoder has failed."""
        return self.step_s is not None or self._has_failed

    def begin(self) -> None:
        """Starts the thread, and gives the script the cached batch."""
        self._give(self._batch)
        self._thread.start()

    def stepped(self) -> None:
        """Notes a step, and waits for the lists of the next step."""
        self._num_steps += 1
        for _ in range(self._lists_per_step):
            if not self._take():
                self._has_failed = True
                return
        num_timed = self._num_steps - self.num_ramp
        if num_timed == 0:
            self._finish_device()
            self._began = time.perf_counter()
        elif num_timed >= self.num_timed and time.perf_counter() - self._began >= self.timed_s:
            self._finish_device()
            self.step_s = max(time.perf_counter() - self._began, 1e-9) / num_timed

    def end(self, num_steps: int, wall_s: float) -> None:
        """Ends the thread, and returns to real batches."""
        self._stop.set()
        while self._thread.is_alive():
            self._take(limit_s=0.05)
        self._give(None)

    def _take(self, limit_s: float = WAIT_LIMIT_S) -> bool:
        """Whether one more list was decoded."""
        try:
            return self._decoded.get(timeout=limit_s)
        except queue.Empty:
            return False

    def _decode_all(self) -> None:
        try:
            with _own_stream():
                while not self._stop.is_set():
                    self._decode()
                    self._decoded.put(True)
        except Exception:  # out of memory, or an image that this decoder refuses
            self._decoded.put(False)


def _own_stream() -> Any:
    """A stream beside the training stream, for the calling thread."""
    cuda: Any = torch.cuda
    return cuda.stream(cuda.Stream()) if torch_names.is_cuda_on() else contextlib.nullcontext()


class DecodersOnDevice:
    """Times the decoders for a CUDA device on recorded images: alone, then beside training.

    Args:
        images: Encoded images of the dataset.
        list_size: Images of one batch.
        room_bytes: Free device memory.
        stage: Makes the stage for a function that decodes one list.
    """

    def __init__(
        self,
        images: Sequence[bytes],
        list_size: int,
        room_bytes: float,
        stage: Callable[[Callable[[], object]], DecodingStage],
    ) -> None:
        size = max(1, list_size)
        self._images = list(itertools.islice(itertools.cycle(images), size)) if images else []
        self._room_bytes, self._stage = room_bytes, stage
        self.times: tuple[DecoderTime, ...] = ()
        """The times so far."""

    def stages(self) -> Iterator[DecodingStage]:
        """A stage for each installed decoder with enough memory; times of decoders without a stage are from alone."""
        known = device_decoders(self._images) if self._images else []
        self.times = tuple(each.alone for each in known)
        for position, decoder in enumerate(known):
            if LISTS_ALIVE * decoder.list_bytes > self._room_bytes:
                continue
            stage = self._stage(decoder.run)
            yield stage
            beside = replace(decoder.alone, beside_step_s=stage.step_s)
            self.times = (*self.times[:position], beside, *self.times[position + 1 :])
