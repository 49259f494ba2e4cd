"""The five most telling scripts."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.sources import EXAMPLES, NANOGPT, TIMM, TRANSFORMERS, VISION
from tests.street.script import DEVICES, PROCESSES, Data, Device, Progress, Script

IMAGENET = Data(
    name="imagenet", make=partial(data.image_folders, pictures_made=2000, classes=1000, train=128_000, val=2000)
)
FEW_IMAGES = Data(
    name="imagenet-few",
    make=partial(data.image_folders, pictures_made=100, classes=10, train=6000, val=80, width=200, height=150),
)
IMAGES: dict[Device, Data] = {"cpu": FEW_IMAGES, "gpu": IMAGENET, "2gpu": IMAGENET}
LANGUAGE = Data(name="language", make=partial(data.language_model, lines=200_000))
FEW_LINES = Data(name="language-few", make=partial(data.language_model, lines=20_000))
TEXTS: dict[Device, Data] = {"cpu": FEW_LINES, "gpu": LANGUAGE, "2gpu": LANGUAGE}
WEB_TOKENS = Data(name="web-tokens", make=partial(data.tokens, vocabulary=50_257, train=20_000_000, val=1_000_000))
LETTER_TOKENS = Data(name="letter-tokens", make=partial(data.tokens, vocabulary=65, train=1_000_000, val=100_000))

TORCHVISION_LINE = r"Epoch: \[(?P<epoch>\d+)\]\s+\[\s*(?P<at>\d+)/(?P<of>\d+)\]"
TRAINER_BAR = r"^\s*\d+%\|[^|]*\| (?P<at>\d+)/(?P<of>\d+) \["
"""The progress bar of Hugging Face's Trainer; bars of further work begin with words."""
CLM_DATA = "--tokenizer_name {data}/tokenizer --train_file {data}/train.txt"
TINY_GPT2 = "--model_type gpt2 --config_overrides n_embd=128,n_layer=2,n_head=2"


def batches(pattern: str, batch: int, cpu: int | None = None) -> dict[Device, Progress]:
    """Progress in batches of `batch` samples per process, on a CPU of `cpu` samples."""
    sizes = {device: batch * PROCESSES[device] for device in DEVICES} | ({"cpu": cpu} if cpu else {})
    return {device: Progress(pattern=pattern, per=sizes[device]) for device in DEVICES}


SCRIPTS = (
    Script(
        name="imagenet_resnet50", kind="pytorch/examples", source=EXAMPLES,
        script="main.py", folder="imagenet", data=IMAGES, packages=("torchvision",),
        arguments={"gpu": "-a resnet50 -b 128 {data}", "cpu": "-a shufflenet_v2_x0_5 -b 8 -j 1 {data}"},
        expert={"gpu": "+ -j {cores}", "cpu": "+ -j {cores}"},
        progress=batches(r"^Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<at>\d+)/(?P<of>\d+)\]", 128, cpu=8),
    ),
    Script(
        name="timm_resnet50", kind="timm", source=TIMM,
        script="train.py", data=IMAGES, packages=("timm", "torchvision"),
        arguments={
            "gpu": "--model resnet50 -b 128 -j 4 --log-interval 10 --data-dir {data}",
            "cpu": "--model resnet18 --img-size 64 -b 16 -j 1 --device cpu --num-classes 10 --log-interval 1 "
            "--data-dir {data}",
        },
        expert={
            "gpu": "+ -j {cores} --amp --amp-dtype bfloat16 --channels-last --pin-mem",
            "cpu": "+ -j {cores} --channels-last",
        },
        progress=batches(r"Train: (?P<epoch>\d+) \[\s*(?P<at>\d+)/(?P<of>\d+)", 128, cpu=16),
    ),
    Script(
        name="torchvision_classification", kind="torchvision references", source=VISION,
        script="train.py", folder="references/classification", data=IMAGES, packages=("torchvision",),
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments={
            **dict.fromkeys(("2gpu", "gpu"), "--model resnet50 --data-path {data}"),
            "cpu": "--model resnet18 --train-crop-size 64 --val-crop-size 64 --val-resize-size 72 -b 16 -j 1 "
            "--device cpu --print-freq 1 --data-path {data}",
        },
        expert={**dict.fromkeys(("2gpu", "gpu"), "+ --amp -j {cores}"), "cpu": "+ -j {cores}"},
        progress=batches(TORCHVISION_LINE, 32, cpu=16),
    ),
    Script(
        name="hf_run_clm_gpt2", kind="HF Trainer", source=TRANSFORMERS,
        script="run_clm.py", folder="examples/pytorch/language-modeling", data=TEXTS,
        packages=("transformers", "datasets", "evaluate", "accelerate"),
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments={
            **dict.fromkeys(
                ("gpu", "2gpu"),
                f"--model_type gpt2 {CLM_DATA} --do_train --per_device_train_batch_size 8 --num_train_epochs 10 "
                "--output_dir {out}",
            ),
            "cpu": f"{TINY_GPT2} {CLM_DATA} --do_train --block_size 128 --use_cpu --output_dir {{out}}",
        },
        expert=dict.fromkeys(("gpu", "2gpu"), "+ --bf16 --dataloader_num_workers 4"),
        no_expert="a CPU of two cores has nothing to gain by workers for text that is tokenized already",
        progress=batches(TRAINER_BAR, 8),
    ),
    Script(
        name="nanogpt", kind="nanoGPT", source=NANOGPT, script="train.py",
        data={"gpu": WEB_TOKENS, "cpu": LETTER_TOKENS},
        links={"data/openwebtext": ".", "data/shakespeare_char": "."},
        arguments={
            "gpu": "--compile=False",
            "cpu": "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 "
            "--block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=20000 "
            "--lr_decay_iters=20000 --dropout=0.0",
        },
        expert={"gpu": "--compile=True"},
        no_expert="compilation on a CPU takes a C++ compiler and minutes",
        progress=batches(r"^iter (?P<at>\d+): loss", 480, cpu=12),
    ),
)  # fmt: skip
