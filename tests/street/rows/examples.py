"""pytorch/examples: all training scripts without dead packages or forced downloads."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.first import IMAGENET, batches
from tests.street.rows.sources import EXAMPLES
from tests.street.script import Data, Progress, Script

MNIST = Data(name="mnist", make=data.mnist)
WIKITEXT = Data(name="wikitext", make=partial(data.text, lines=60_000))
BSDS = Data(name="bsds", make=partial(data.bsds, count=200))
CORA = Data(name="cora", make=data.citations)
STYLE = Data(name="style", make=partial(data.styled_pictures, count=400))
MNIST_LINE = r"Train Epoch: (?P<epoch>\d+) \[(?P<at>\d+)/(?P<of>\d+)"
NO_FLAGS = "the script has no argument for workers, pinning or a number format"
KIND = "pytorch/examples"
IMAGENET_LINE = r"^Epoch: \[(?P<epoch>\d+)\]\[\s*(?P<at>\d+)/(?P<of>\d+)\]"

SCRIPTS = (
    Script(
        name="mnist", kind=KIND, source=EXAMPLES,
        script="main.py", folder="mnist", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS, progress=Progress(pattern=MNIST_LINE),
    ),
    Script(
        name="mnist_rnn", kind=KIND, source=EXAMPLES,
        script="main.py", folder="mnist_rnn", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": "--accel"}, no_expert=NO_FLAGS, progress=Progress(pattern=MNIST_LINE),
    ),
    Script(
        name="mnist_hogwild", kind=KIND, source=EXAMPLES,
        script="main.py", folder="mnist_hogwild", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": ""}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"Train Epoch: \d+ \[\d+/", per=640), refusal=r"in shared memory",
    ),
    Script(
        name="mnist_forward_forward", kind=KIND, source=EXAMPLES,
        script="main.py", folder="mnist_forward_forward", data=MNIST, packages=("torchvision",),
        links={"mnist_forward_forward/data": "."},
        arguments={"cpu": "--train_size 2000 --log-interval 1", "gpu": "--log-interval 1"}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^Loss: "),
    ),
    Script(
        name="siamese_network", kind=KIND, source=EXAMPLES,
        script="main.py", folder="siamese_network", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": "--batch-size 16", "gpu": ""}, no_expert=NO_FLAGS, progress=Progress(pattern=MNIST_LINE),
    ),
    Script(
        name="vae", kind=KIND, source=EXAMPLES,
        script="main.py", folder="vae", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS, progress=Progress(pattern=MNIST_LINE),
    ),
    Script(
        name="dcgan", kind="GAN", source=EXAMPLES,
        script="main.py", folder="dcgan", no_data="it makes up its own pictures", packages=("torchvision",),
        arguments={
            "cpu": "--dataset fake --outf {out} --batchSize 16 --ngf 16 --ndf 16",
            "gpu": "--dataset fake --outf {out} --accel",
        },
        expert={"gpu": "+ --workers {cores}"}, no_expert="two workers are its default",
        progress=batches(r"^\[(?P<epoch>\d+)/\d+\]\[(?P<at>\d+)/(?P<of>\d+)\] Loss_D", 64, cpu=16),
    ),
    Script(
        name="super_resolution", kind=KIND, source=EXAMPLES,
        script="main.py", folder="super_resolution", data=BSDS, links={"super_resolution/dataset": "."},
        arguments={
            "cpu": "--upscale_factor 3 --batchSize 4 --testBatchSize 100 --nEpochs 30 --lr 0.001",
            "gpu": "--upscale_factor 3 --batchSize 4 --testBatchSize 100 --nEpochs 30 --lr 0.001 --accel",
        },
        packages=("torchvision", "PIL"),
        expert={"cpu": "+ --threads {cores}", "gpu": "+ --threads {cores}"},
        progress=Progress(pattern=r"Epoch\[(?P<epoch>\d+)\]\((?P<at>\d+)/(?P<of>\d+)\)", per=4),
    ),
    Script(
        name="word_language_model", kind=KIND, source=EXAMPLES,
        script="main.py", folder="word_language_model", data=WIKITEXT,
        links={"word_language_model/data/wikitext-2": "."},
        arguments={"cpu": "--log-interval 10", "gpu": "--accel"}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"\| epoch\s+(?P<epoch>\d+) \|\s+(?P<at>\d+)/\s*(?P<of>\d+) batches", per=20),
    ),
    Script(
        name="word_language_model_transformer", kind=KIND, source=EXAMPLES,
        script="main.py", folder="word_language_model", data=WIKITEXT,
        links={"word_language_model/data/wikitext-2": "."},
        arguments={
            "cpu": "--model Transformer --lr 5 --log-interval 10",
            "gpu": "--model Transformer --lr 5 --accel",
        },
        no_expert=NO_FLAGS,
        progress=Progress(pattern=r"\| epoch\s+(?P<epoch>\d+) \|\s+(?P<at>\d+)/\s*(?P<of>\d+) batches", per=20),
    ),
    Script(
        name="time_sequence_prediction", kind=KIND, source=EXAMPLES,
        script="train.py", folder="time_sequence_prediction", data=Data(name="sines", make=data.sines),
        links={"time_sequence_prediction/traindata.pt": "traindata.pt"}, packages=("matplotlib",),
        environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=Progress(pattern=r"^loss: "),
    ),
    Script(
        name="regression", kind=KIND, source=EXAMPLES,
        script="main.py", folder="regression", no_data="it makes up its own numbers",
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=None, no_progress="it prints at the end alone",
        refusal=r"script ended before enough was measured",
    ),
    Script(
        name="gat", kind="GNN", source=EXAMPLES,
        script="main.py", folder="gat", data=CORA, links={"gat/cora": "cora"}, packages=("requests",),
        arguments={
            "cpu": "--epochs 3000 --val-every 1 --hidden-dim 8 --num-heads 2",
            "gpu": "--epochs 30000 --val-every 10",
        },
        no_expert=NO_FLAGS, progress=Progress(pattern=r"^Epoch: 0*(?P<at>\d+) \("),
    ),
    Script(
        name="fast_neural_style", kind=KIND, source=EXAMPLES,
        script="neural_style/neural_style.py", folder="fast_neural_style", data=STYLE, packages=("torchvision",),
        environment={"TORCH_HOME": "{data}/torch"},
        arguments={
            "gpu": "train --dataset {data}/images --style-image {data}/style.jpg --save-model-dir {out} --epochs 20 "
            "--log-interval 10 --accel",
        },
        no_expert=NO_FLAGS, progress=Progress(pattern=r"Epoch (?P<epoch>\d+):\s+\[(?P<at>\d+)/(?P<of>\d+)\]"),
    ),
    Script(
        name="actor_critic", kind="reinforcement learning", source=EXAMPLES,
        script="actor_critic.py", folder="reinforcement_learning", no_data="it plays", packages=("gymnasium",),
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=None, no_progress="its steps depend on how well it plays",
        refusal=r"(?i)reinforcement|no DataLoader|environment|simulat",
    ),
    Script(
        name="imagenet_dataparallel", kind="DataParallel", source=EXAMPLES,
        script="main.py", folder="imagenet", data=IMAGENET, packages=("torchvision",),
        arguments={"2gpu": "-a resnet50 -b 256 {data}"}, expert={"2gpu": "-a resnet50 -b 256 -j 32 {data}"},
        progress=Progress(pattern=IMAGENET_LINE, per=256), refusal=r"DataParallel",
    ),
    Script(
        name="imagenet_spawn", kind="DDP by mp.spawn", source=EXAMPLES,
        script="main.py", folder="imagenet", data=IMAGENET, packages=("torchvision",),
        arguments={
            "2gpu": "-a resnet50 -b 256 --dist-url tcp://127.0.0.1:23456 --multiprocessing-distributed --world-size 1 "
            "--rank 0 {data}",
        },
        expert={"2gpu": "+ -j 32"}, progress=Progress(pattern=IMAGENET_LINE, per=256),
    ),
    Script(
        name="ddp_tutorial", kind="DDP by torchrun", source=EXAMPLES,
        script="multigpu_torchrun.py", folder="distributed/ddp-tutorial-series", no_data="it makes up its own numbers",
        launcher={"2gpu": "torchrun --standalone --nproc_per_node=2"}, arguments={"2gpu": "5000 1000"},
        no_expert=NO_FLAGS, progress=Progress(pattern=r"\[GPU0\] Epoch (?P<at>\d+) \|", per=2048),
    ),
    Script(
        name="fsdp2", kind="FSDP", source=EXAMPLES,
        script="example.py", folder="distributed/FSDP2", no_data="it makes up its own numbers",
        launcher={"2gpu": "torchrun --nproc-per-node=2"}, arguments={"2gpu": ""},
        expert={"2gpu": "--mixed-precision"}, progress=None, no_progress="it does ten steps in silence",
        refusal=r"(?i)fsdp|shard",
    ),
)  # fmt: skip
