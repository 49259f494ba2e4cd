"""Detection, segmentation and classification of pictures."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.examples import MNIST, NO_FLAGS
from tests.street.rows.first import TORCHVISION_LINE, batches
from tests.street.rows.sources import ACCELERATE, DOMAINS, TUTORIAL, UNET, VISION, VISION_0_21, YOLOV5, YOLOX
from tests.street.script import Data, Progress, Script

COCO = Data(name="coco", make=partial(data.coco, pictures_made=600, train=6000, val=100))
YOLO = Data(name="yolo", make=partial(data.yolo, pictures_made=400, train=3200, val=64))
FEW_YOLO = Data(name="yolo-few", make=partial(data.yolo, pictures_made=32, train=320, val=16))
CARS = Data(name="cars", make=partial(data.masks, count=1600, width=960, height=640))
FEW_CARS = Data(name="cars-few", make=partial(data.masks, count=300, width=240, height=160))
PETS = Data(name="pets-again", make=partial(data.pets_and_weights, count=4000, copies=4))
TWO_DOMAINS = Data(name="two-domains", make=partial(data.two_domains, count=100))
FEW_PETS = Data(name="pets-few", make=partial(data.pets_and_weights, count=160))

SCRIPTS = (
    Script(
        name="torchvision_detection", kind="torchvision references", source=VISION,
        script="train.py", folder="references/detection", data=COCO, packages=("torchvision", "pycocotools"),
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments=dict.fromkeys(("gpu", "2gpu"), "--model fasterrcnn_resnet50_fpn --data-path {data} --lr 0.002"),
        expert=dict.fromkeys(("gpu", "2gpu"), "+ --amp -j {cores}"), progress=batches(TORCHVISION_LINE, 2),
    ),
    Script(
        name="torchvision_segmentation", kind="torchvision references", source=VISION_0_21,
        script="train.py", folder="references/segmentation", data=COCO, packages=("torchvision", "pycocotools"),
        arguments={"gpu": "--model fcn_resnet50 --aux-loss --data-path {data}"},
        expert={"gpu": "+ --amp -j {cores}"}, progress=batches(TORCHVISION_LINE, 8),
    ),
    Script(
        name="yolov5", kind="YOLO family", source=YOLOV5, script="train.py",
        data={"gpu": YOLO, "cpu": FEW_YOLO},
        packages=("cv2", "pandas", "seaborn", "torchvision", "ultralytics"),
        environment={"YOLOV5_CONFIG_DIR": "{data}/config"},
        arguments={
            "gpu": "--img 640 --batch 16 --epochs 20 --data {data}/data.yaml --weights '' --cfg yolov5s.yaml",
            "cpu": "--img 160 --batch 8 --epochs 20 --data {data}/data.yaml --weights '' --cfg yolov5n.yaml "
            "--device cpu",
        },
        expert={"gpu": "+ --workers {cores} --cache ram", "cpu": "+ --workers {cores} --cache ram"},
        progress=batches(r"^\s*(?P<epoch>\d+)/\d+\s.*\s\d+:\s+\d+%.*?\s(?P<at>\d+)/(?P<of>\d+)\s", 16, cpu=8),
    ),
    Script(
        name="yolox", kind="CUDA-stream prefetcher", source=YOLOX, script="tools/train.py", data=COCO,
        packages=("cv2", "loguru", "pycocotools", "tabulate", "psutil", "tensorboard"),
        environment={"PYTHONPATH": "{repository}"},
        links={"datasets/COCO": "."},
        arguments={"gpu": "-f exps/default/yolox_s.py -d 1 -b 16 print_interval 5"},
        expert={"gpu": "-f exps/default/yolox_s.py -d 1 -b 16 --fp16 print_interval 5 data_num_workers {cores}"},
        # cuDNN searches kernels for each of its sizes: 10 s each on an H200. Five steps take about 1 s.
        progress=Progress(
            pattern=r"epoch: (?P<epoch>\d+)/\d+, iter: (?P<at>\d+)/(?P<of>\d+)", per=16, longest_step_s=2.0
        ),
        window_s=100.0,
    ),
    Script(
        name="pytorch_unet", kind="hand-written AMP and GradScaler", source=UNET, script="train.py",
        data={"gpu": CARS, "cpu": FEW_CARS},
        links={"data": "."}, packages=("torchvision",), environment={"PYTHONPATH": "{stand_ins}"},
        arguments={
            "gpu": "--amp --batch-size 4 --epochs 5",
            "cpu": "--batch-size 2 --epochs 5 --scale 0.25",
        },
        no_expert="it takes as many workers as cores, pins, and is channels_last by itself",
        progress=Progress(pattern=r"^Epoch (?P<epoch>\d+)/\d+:\s+\d+%\|[^|]*\| (?P<at>\d+)/(?P<of>\d+) \["),
    ),
    Script(
        name="accelerate_cv", kind="accelerate examples", source=ACCELERATE,
        script="cv_example.py", folder="examples",
        data={"gpu": PETS, "2gpu": PETS, "cpu": FEW_PETS},
        packages=("accelerate", "timm", "torchvision", "safetensors"), environment={"HF_HOME": "{data}/hf"},
        launcher={
            "gpu": "accelerate launch --num_processes 1",
            "2gpu": "accelerate launch --multi_gpu --num_processes 2",
        },
        arguments={
            **dict.fromkeys(("gpu", "2gpu"), "--data_dir {data}/images"), "cpu": "--data_dir {data}/images --cpu",
        },
        expert=dict.fromkeys(("gpu", "2gpu"), "+ --mixed_precision bf16"),
        no_expert="the script has no argument for workers",
        progress={
            device: Progress(pattern=r"^epoch (?P<at>\d+): [\d.]+$", per=per, ends_epoch=True)  # four fifths train
            for device, per in (("gpu", 12800), ("2gpu", 12800), ("cpu", 128))
        },
    ),
    Script(
        name="tutorial_cnn", kind="guide", source=TUTORIAL,
        script="main.py", folder="tutorials/02-intermediate/convolutional_neural_network",
        data=MNIST, links={"data": ".", "tutorials/data": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""}, no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^Epoch \[(?P<epoch>\d+)/\d+\], Step \[(?P<at>\d+)/(?P<of>\d+)\]", per=100),
    ),
    Script(
        name="revgrad", kind="several loaders side by side", source=DOMAINS, script="revgrad.py", data=TWO_DOMAINS,
        packages=("cv2", "torchvision", "tqdm"),
        links={"config.py": "config.py"},
        arguments=dict.fromkeys(("cpu", "gpu"), "{data}/source.pt --epochs 1000"), no_expert=NO_FLAGS,
        progress=Progress(pattern=r"^\s*\d+%\|[^|]*\| (?P<at>\d+)/(?P<of>\d+) \[", per=64),
    ),
)  # fmt: skip
