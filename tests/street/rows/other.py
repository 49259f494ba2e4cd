"""Lightning, diffusion, GANs, sound, graphs, tables, series and games."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.examples import MNIST, NO_FLAGS
from tests.street.rows.first import IMAGES, batches
from tests.street.rows.sources import (
    CLEANRL,
    DIFFUSERS,
    DIFFUSION_MNIST,
    DLRM,
    GAN,
    GEOMETRIC,
    LIGHTNING,
    SERIES,
    VOXCELEB,
)
from tests.street.script import Data, Device, Progress, Script

BAR = r"Epoch (?P<epoch>\d+)(?:/\S+)?:?\s+\S.*?\s(?P<at>\d+)/(?P<of>\d+)\s+[\[\d]"
"""Lightning's progress bars, by tqdm and by rich, and diffusers'."""
FLOWERS: dict[Device, Data] = {
    "gpu": Data(name="flowers", make=partial(data.flat_pictures, count=3000)),
    "cpu": Data(name="flowers-few", make=partial(data.flat_pictures, count=60, width=80, height=80)),
}
VOICES = Data(name="voices-again", make=partial(data.sounds, speakers=400, per_speaker=6, listed=20))
GRAPHS = Data(name="graphs", make=partial(data.molecules, graphs=4000))
DLRM_WORDS = (
    "--arch-sparse-feature-size=16 --arch-mlp-bot=13-512-256-64-16 --arch-mlp-top=512-256-1 "
    "--arch-embedding-size=10000-10000-10000-10000-10000-10000-10000-10000 --data-generation=random "
    "--num-batches=100000 --print-freq=10 --print-time --num-indices-per-lookup=10"
)
SERIES_WINDOWS = 12 * 30 * 24 - 96 - 96 + 1
"""Windows of 96 hours and 96 to forecast in the year of hours that trains."""
SERIES_WORDS = (
    "--task_name long_term_forecast --is_training 1 --root_path {data}/ --data_path ETTh1.csv --model_id ETTh1_96_96 "
    "--model DLinear --data ETTh1 --features M --seq_len 96 --label_len 48 --pred_len 96 --enc_in 7 --dec_in 7 "
    "--c_out 7 --des Exp --itr 1 --patience 100 --train_epochs 100"
)

SCRIPTS = (
    Script(
        name="lightning_imagenet", kind="LightningCLI", source=LIGHTNING,
        script="imagenet.py", folder="examples/pytorch/domain_templates", data=IMAGES,
        packages=("lightning", "jsonargparse", "torchvision"),
        arguments={
            "gpu": "fit --model.data_path {data} --model.arch resnet50 --model.batch_size 128",
            "cpu": "fit --model.data_path {data} --model.arch shufflenet_v2_x0_5 --model.batch_size 8 "
            "--model.workers 1 --trainer.accelerator cpu",
        },
        expert={
            "gpu": "+ --model.workers {cores} --trainer.precision bf16-mixed", "cpu": "+ --model.workers {cores}",
        },
        progress=batches(BAR, 128, cpu=8),
    ),
    Script(
        name="lightning_imagenet_auto", kind="LightningCLI", source=LIGHTNING,
        script="imagenet.py", folder="examples/pytorch/domain_templates", data=IMAGES,
        packages=("lightning", "jsonargparse", "torchvision"),
        arguments={
            "2gpu": "fit --model.data_path {data} --model.arch resnet50 --model.batch_size 256 --trainer.devices auto",
        },
        expert={"2gpu": "+ --model.workers 32 --trainer.precision bf16-mixed"},
        progress=Progress(pattern=BAR, per=256),
    ),
    Script(
        name="lightning_autoencoder", kind="LightningCLI", source=LIGHTNING,
        script="autoencoder.py", folder="examples/pytorch/basics", data=MNIST,
        links={"examples/Datasets": ".", "examples/pytorch/basics/data": "."},
        packages=("lightning", "jsonargparse", "torchvision"),
        arguments={"cpu": "--trainer.max_epochs=50 --trainer.accelerator=cpu", "gpu": "--trainer.max_epochs=50"},
        expert={"gpu": "+ --trainer.precision bf16-mixed"}, no_expert=NO_FLAGS, progress=batches(BAR, 32),
    ),
    Script(
        name="lightning_gan", kind="Lightning", source=LIGHTNING,
        script="generative_adversarial_net.py", folder="examples/pytorch/domain_templates",
        data=MNIST, links={"examples/pytorch/domain_templates/data": "."},
        packages=("lightning", "torchvision"),
        arguments={"gpu": ""}, no_expert=NO_FLAGS, progress=batches(BAR, 32),
    ),
    Script(
        name="lightning_transformer", kind="Lightning", source=LIGHTNING,
        script="transformer.py", folder="examples/pytorch/basics",
        data=Data(name="small-wikitext", make=partial(data.text, lines=30_000, names=("wikitext-2.txt",))),
        links={"examples/pytorch/basics/data": "."}, packages=("lightning",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS, progress=batches(BAR, 20),
    ),
    Script(
        name="lightning_fabric_mnist", kind="Lightning", source=LIGHTNING,
        script="train_fabric.py", folder="examples/fabric/image_classifier",
        data=MNIST, links={"Datasets": "."},
        packages=("lightning", "torchvision", "torchmetrics"), arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"Train Epoch: (?P<epoch>\d+) \[(?P<at>\d+)/(?P<of>\d+)"),
    ),
    Script(
        name="diffusers_unconditional", kind="diffusion", source=DIFFUSERS,
        script="train_unconditional.py", folder="examples/unconditional_image_generation", data=FLOWERS,
        packages=("diffusers", "datasets", "accelerate", "torchvision"),
        arguments={
            "gpu": "--train_data_dir {data}/images --resolution 64 --train_batch_size 16 --num_epochs 50 "
            "--save_images_epochs 1000 --save_model_epochs 1000 --output_dir {out}",
            "cpu": "--train_data_dir {data}/images --resolution 32 --train_batch_size 2 --num_epochs 50 "
            "--save_images_epochs 1000 --save_model_epochs 1000 --output_dir {out}",
        },
        expert={
            "gpu": "+ --mixed_precision bf16 --dataloader_num_workers {cores}", "cpu": "+ --dataloader_num_workers 2",
        },
        progress=batches(BAR, 16, cpu=2),
    ),
    Script(
        name="diffusion_mnist", kind="diffusion", source=DIFFUSION_MNIST, script="script.py",
        data=MNIST, links={"data": "."}, folders=("data/diffusion_outputs10",),
        packages=("torchvision", "matplotlib", "tqdm"),
        arguments={"gpu": ""}, no_expert=NO_FLAGS,
        # cuDNN searches kernels for the smaller last batch once: 3.9 s on an H200.
        progress=Progress(
            pattern=r"loss: [\d.]+:\s+\d+%\|[^|]*\| (?P<at>\d+)/(?P<of>\d+) \[", per=256, longest_step_s=1.0
        ),
        settle_s=2.0,  # an epoch takes 5 to 7 s on an H200, and the drawing of samples after it a minute and more
        window_s=60.0,  # holds a whole epoch, wherever the settling has ended
    ),
    Script(
        name="wgan_gp", kind="GAN", source=GAN, script="wgan_gp.py", folder="implementations/wgan_gp",
        data=MNIST, links={"data/mnist": ".", "implementations/data/mnist": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^\[Epoch (?P<epoch>\d+)/\d+\] \[Batch (?P<at>\d+)/(?P<of>\d+)\]", per=64),
    ),
    Script(
        name="gan_dcgan", kind="GAN", source=GAN, script="dcgan.py", folder="implementations/dcgan",
        data=MNIST, links={"data/mnist": ".", "implementations/data/mnist": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^\[Epoch (?P<epoch>\d+)/\d+\] \[Batch (?P<at>\d+)/(?P<of>\d+)\]", per=64),
    ),
    Script(
        name="voxceleb", kind="speech", source=VOXCELEB, script="trainSpeakerNet.py", data=VOICES,
        packages=("soundfile", "scipy", "sklearn", "torchaudio", "yaml"),
        arguments={
            "gpu": "--model ResNetSE34L --log_input --encoder_type SAP --trainfunc amsoftmax --nClasses 400 "
            "--batch_size 100 --test_interval 1000 --save_path {out} --gpu_id {gpu} --train_list {data}/train_list.txt "
            "--train_path {data}/wav --test_list {data}/test_list.txt --test_path {data}/wav",
        },
        expert={"gpu": "+ --nDataLoaderThread {cores} --mixedprec"},
        progress=Progress(pattern=r"\| (?P<at>\d+)/(?P<of>\d+) \[", per=100),
    ),
    Script(
        name="geometric_mutag_gin", kind="GNN", source=GEOMETRIC, script="mutag_gin.py", folder="examples",
        data=GRAPHS, links={"data/TU": "."}, packages=("torch_geometric",),
        arguments={"cpu": "--epochs 1000", "gpu": "--epochs 1000"}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^Epoch: 0*(?P<at>\d+), ", per=3600),
    ),
    Script(
        name="dlrm", kind="recommender", source=DLRM, script="dlrm_s_pytorch.py", no_data="it makes up its own numbers",
        packages=("sklearn", "tensorboard", "tqdm"),
        arguments={
            "cpu": f"{DLRM_WORDS} --mini-batch-size=128", "gpu": f"{DLRM_WORDS} --mini-batch-size=2048 --use-gpu",
        },
        expert={"cpu": "+ --num-workers {cores}", "gpu": "+ --num-workers {cores}"},
        progress=batches(r"^Finished training it (?P<at>\d+)/(?P<of>\d+) of epoch (?P<epoch>\d+)", 2048, cpu=128),
    ),
    Script(
        name="series_dlinear", kind="time series", source=SERIES, script="run.py",
        data=Data(name="series", make=data.series), packages=("sklearn", "pandas", "sktime", "einops"),
        arguments={"cpu": f"{SERIES_WORDS} --no_use_gpu"}, no_expert="ten workers are its default",
        progress=Progress(pattern=r"^Epoch: (?P<at>\d+) cost time: (?P<seconds>[\d.]+)", per=SERIES_WINDOWS),
    ),
    Script(
        name="cleanrl_ppo", kind="reinforcement learning", source=CLEANRL, script="ppo.py", folder="cleanrl",
        no_data="it plays", packages=("gymnasium", "tyro", "tensorboard"),
        arguments={"cpu": "--no-cuda"}, no_expert=NO_FLAGS, progress=Progress(pattern=r"^SPS: \d+", per=512),
        refusal=r"(?i)reinforcement|no DataLoader|environment|simulat",
    ),
)  # fmt: skip
