"""The five scripts that taught the most."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.script import DEVICES, PROCESSES, Data, Device, Progress, Script, Source

EXAMPLES = Source("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
VISION = Source("pytorch/vision", "acccf86477759b2d3500f1ae1be065f7b1e409ec")
TIMM = Source("huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d")
TRANSFORMERS = Source("huggingface/transformers", "cc041637bc2b3639bba0b8f85672c1653cdb6248")
NANOGPT = Source("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")

IMAGENET = Data(
    name="imagenet", make=partial(data.image_folders, pictures_made=2000, classes=1000, train=128_000, val=2000)
)
SMALL_IMAGENET = Data(
    name="imagenet-small",
    make=partial(data.image_folders, pictures_made=200, classes=10, train=4000, val=80, width=250, height=190),
)
LANGUAGE = Data(name="language", make=partial(data.language_model, lines=200_000))
SMALL_LANGUAGE = Data(name="language-small", make=partial(data.language_model, lines=4_000))
WEB_TOKENS = Data(name="web-tokens", make=partial(data.tokens, vocabulary=50_257, train=20_000_000, val=1_000_000))

TORCHVISION_LINE = r"Epoch: \[(?P<epoch>\d+)\]\s+\[\s*(?P<at>\d+)/(?P<of>\d+)\]"
TRAINER_BAR = r"^\s*\d+%\|[^|]*\| (?P<at>\d+)/(?P<of>\d+) \["
"""The progress bar of Hugging Face's Trainer; bars of other work begin with words."""


def on_one_and_two(pattern: str, batch: int) -> dict[Device, Progress]:
    """Progress in batches of so many samples per process."""
    return {device: Progress(pattern=pattern, per=batch * PROCESSES[device]) for device in DEVICES}


SCRIPTS = (
    Script(
        name="imagenet_resnet50", kind="pytorch/examples", source=EXAMPLES,
        script="main.py", folder="imagenet", data=IMAGENET, packages=("torchvision",),
        arguments={"gpu": "-a resnet50 -b 128 {data}"},
        expert={"gpu": "+ -j {cores}"},
        progress=Progress(pattern=r"^Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<at>\d+)/(?P<of>\d+)\]", per=128),
    ),
    Script(
        name="timm_resnet50", kind="timm", source=TIMM,
        script="train.py", data=IMAGENET, packages=("timm", "torchvision"),
        arguments={"gpu": "--model resnet50 -b 128 -j 4 --log-interval 10 --data-dir {data}"},
        expert={"gpu": "+ -j {cores} --amp --amp-dtype bfloat16 --channels-last --pin-mem"},
        progress=Progress(pattern=r"Train: (?P<epoch>\d+) \[\s*(?P<at>\d+)/(?P<of>\d+)", per=128),
    ),
    Script(
        name="torchvision_classification", kind="torchvision references", source=VISION,
        script="train.py", folder="references/classification", data=IMAGENET, packages=("torchvision",),
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments=dict.fromkeys(("2gpu", "gpu"), "--model resnet50 --data-path {data}"),
        expert=dict.fromkeys(("2gpu", "gpu"), "+ --amp -j {cores}"),
        progress=on_one_and_two(TORCHVISION_LINE, 32),
    ),
    Script(
        name="hf_run_clm_gpt2", kind="HF Trainer", source=TRANSFORMERS,
        script="run_clm.py", folder="examples/pytorch/language-modeling", data=LANGUAGE,
        packages=("transformers", "datasets", "evaluate", "accelerate"),
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments=dict.fromkeys(
            ("gpu", "2gpu"),
            "--model_type gpt2 --tokenizer_name {data}/tokenizer --train_file {data}/train.txt --do_train "
            "--per_device_train_batch_size 8 --num_train_epochs 10 --output_dir {out}",
        ),
        expert=dict.fromkeys(("gpu", "2gpu"), "+ --bf16 --dataloader_num_workers 4"),
        progress=on_one_and_two(TRAINER_BAR, 8),
    ),
    Script(
        name="nanogpt", kind="nanoGPT", source=NANOGPT,
        script="train.py", data=WEB_TOKENS, links={"data/openwebtext": "."},
        arguments={"gpu": "--compile=False"},
        expert={"gpu": "--compile=True"},
        progress=Progress(pattern=r"^iter (?P<at>\d+): loss", per=480),
    ),
)  # fmt: skip
