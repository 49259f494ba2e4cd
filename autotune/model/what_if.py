"""Times that a diagnosis measured on the user's samples: other formats, decoders, caches and ways to fetch."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.checks import check_figures


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRead:
    """Samples read back from a packed copy in scratch, in the run's own order, by as many processes as load."""

    format: str
    warm_s: float
    """Time of one process for a sample in the page cache."""
    cold_s: float | None
    """Time of one process for a sample dropped from the page cache; None where scratch lies in memory."""
    sample_bytes: int
    """Bytes of the packed files per sample."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)

    def read_s(self, cold_share: float) -> float:
        """Time for a sample when this share of the bytes is outside the page cache."""
        cold_s = self.warm_s if self.cold_s is None else max(self.cold_s, self.warm_s)
        return cold_share * cold_s + (1 - cold_share) * self.warm_s


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderTime:
    """One decoder on recorded images of the dataset."""

    name: str
    image_s: float
    """Time from encoded bytes to an RGB array, in one thread; on a device the time of an image within a list."""
    is_on_device: bool = False
    sure_speedup: float | None = None
    """Time of the script's decoder over this decoder's, exceeded in three of four turns; None when not compared."""
    beside_step_s: float | None = None
    """Time of a step on a cached batch while the device decodes the images of a step; None when not measured."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedWork:
    """The first part of building a sample, with the same result in every epoch."""

    where: str
    """`file:line` of the first statement or transform with another result; empty when the whole sample repeats."""
    first_random: str
    """The statement or transform itself; empty when the whole sample repeats."""
    seconds_s: float
    """Time of the part per sample."""
    rest_s: float
    """Time of the remaining work per sample, collation included, on the part's results."""
    packed: tuple[PackedRead, ...]
    """The part's results, packed and read back."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageTimes:
    """Times of building the dataset's samples in one process, and times of all alternatives."""

    num_samples: int
    sample_s: float
    """Time of a sample in the run's own order, collation included."""
    read_s: float
    """Part of `sample_s` for opening and reading."""
    decode_s: float
    """Part of `sample_s` inside image decoders."""
    num_reads: float
    """Files opened, or datasets of HDF5 read, per sample."""
    read_bytes: int
    """Bytes read per sample."""
    reader: str = ""
    """`files` or `HDF5`, with the most reads; empty without a read."""
    chunk_samples: int = 1
    """Rows in one chunk of the HDF5 dataset that is read row by row."""
    cold_share: float = 0.0
    """Share of the files' bytes outside the page cache before the first read, 0 to 1."""
    cold_read_bytes_per_s: float | None = None
    """Rate of reading the same files from a cold page cache; None without files."""
    example: str = ""
    """A file of the dataset; tells the mount."""
    scratch_free_bytes: int = 0
    """Free bytes of the file system with scratch."""
    memory_available_bytes: int = 0
    """Memory of the host for pages of files."""
    packed: tuple[PackedRead, ...] = ()
    """The read bytes, packed and read back; empty where reading is cheap."""
    decoder: str = ""
    """The script's decoder; empty without images."""
    images_per_sample: float = 0.0
    decoders: tuple[DecoderTime, ...] = ()
    repeated: RepeatedWork | None = None
    batched_s: float | None = None
    """Time of a sample when the dataset is indexed with a whole batch at once; None when impossible."""
    hand_over_s: float | None = None
    """Time from batch to batch where as many workers only hand over; None when not measured."""
    take_s: float | None = None
    """Time of the training process to take a batch that lies ready; None when not measured."""
    sample_times_s: tuple[float, ...] = ()
    """Time of each sample, in order."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)
        if self.num_samples < 1 or self.sample_s <= 0 or not 0 <= self.cold_share <= 1:
            raise ValueError("times of storage are of at least one sample")
        if any(not 0 <= seconds < 1e6 for seconds in self.sample_times_s):
            raise ValueError("the time of a sample is no time")
