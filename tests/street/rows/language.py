"""Language models, with a Trainer and without."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.first import CLM_DATA, TEXTS, TRAINER_BAR, batches
from tests.street.rows.sources import MAKEMORE, MINGPT, TRANSFORMERS
from tests.street.script import Data, Device, Progress, Script

HF = ("transformers", "datasets", "evaluate", "accelerate")
LETTERS = Data(name="letters", make=partial(data.letters, count=1_000_000))
NAMES = Data(name="names", make=partial(data.names, count=32_000))
LABELLED: dict[Device, Data] = {
    "gpu": Data(name="labelled", make=partial(data.classified_sentences, count=40_000, size="base")),
    "2gpu": Data(name="labelled", make=partial(data.classified_sentences, count=40_000, size="base")),
    "cpu": Data(name="labelled-few", make=partial(data.classified_sentences, count=4_000, size="tiny")),
}
PICTURES: dict[Device, Data] = {
    "gpu": Data(name="pictures-vit", make=partial(data.classified_pictures, train=20_000, size="base")),
    "cpu": Data(name="pictures-vit-few", make=partial(data.classified_pictures, train=400, size="tiny")),
}
FOLDER = "examples/pytorch/language-modeling"
CLM = (
    f"--model_type gpt2 {CLM_DATA} --num_train_epochs 10 --output_dir {{out}} --do_train "
    "--per_device_train_batch_size 8"
)
CPU_BERT = "--config_overrides hidden_size=128,num_hidden_layers=2,num_attention_heads=2,intermediate_size=256"
NO_WAITS = "nothing waits for the data on two cores"
VIT = "--model_name_or_path {data}/model --train_dir {data}/train --label_column_name label --output_dir {out}"
VIT_TRAINER = f"{VIT} --do_train --remove_unused_columns False"
GLUE_FILES = (
    "--model_name_or_path {data}/model --train_file {data}/train.csv --validation_file {data}/valid.csv "
    "--output_dir {out}"
)
GLUE = f"{GLUE_FILES} --do_train"

SCRIPTS = (
    Script(
        name="hf_run_glue_no_trainer", kind="HF without Trainer", source=TRANSFORMERS,
        script="run_glue_no_trainer.py", folder="examples/pytorch/text-classification", data=LABELLED, packages=HF,
        links={"examples/pytorch/text-classification/accuracy": "accuracy"},
        launcher={"2gpu": "accelerate launch --multi_gpu --num_processes 2"},
        arguments={
            **dict.fromkeys(("gpu", "2gpu"), f"{GLUE_FILES} --max_length 128 --per_device_train_batch_size 32"),
            "cpu": f"{GLUE_FILES} --max_length 64",
        },
        no_expert="the script has no argument for a number format or workers",
        progress=batches(TRAINER_BAR, 32, cpu=8),
    ),
    Script(
        name="hf_run_mlm_bert", kind="HF Trainer", source=TRANSFORMERS,
        script="run_mlm.py", folder=FOLDER, data=TEXTS, packages=HF,
        arguments={
            "gpu": f"--model_type bert {CLM_DATA} --do_train --line_by_line --max_seq_length 128 "
            "--per_device_train_batch_size 32 --output_dir {out}",
            "cpu": f"--model_type bert {CPU_BERT} {CLM_DATA} --do_train --line_by_line --max_seq_length 64 --use_cpu "
            "--output_dir {out}",
        },
        expert={"gpu": "+ --bf16 --dataloader_num_workers {cores}"}, no_expert=NO_WAITS,
        progress=batches(TRAINER_BAR, 32, cpu=8),
    ),
    Script(
        name="hf_run_glue_bert", kind="HF Trainer", source=TRANSFORMERS,
        script="run_glue.py", folder="examples/pytorch/text-classification", data=LABELLED, packages=HF,
        links={"examples/pytorch/text-classification/accuracy": "accuracy"},
        arguments={
            "gpu": f"{GLUE} --max_seq_length 128 --per_device_train_batch_size 32",
            "cpu": f"{GLUE} --max_seq_length 64 --use_cpu",
        },
        expert={"gpu": "+ --bf16 --dataloader_num_workers {cores}"}, no_expert=NO_WAITS,
        progress=batches(TRAINER_BAR, 32, cpu=8),
    ),
    Script(
        name="hf_run_image_classification", kind="HF Trainer", source=TRANSFORMERS,
        script="run_image_classification.py", folder="examples/pytorch/image-classification", data=PICTURES,
        packages=(*HF, "torchvision"), links={"examples/pytorch/image-classification/accuracy": "accuracy"},
        arguments={"gpu": f"{VIT_TRAINER} --per_device_train_batch_size 32", "cpu": f"{VIT_TRAINER} --use_cpu"},
        expert={
            "gpu": "+ --bf16 --dataloader_num_workers {cores}", "cpu": "+ --dataloader_num_workers {cores}",
        },
        progress=batches(TRAINER_BAR, 32, cpu=8),
    ),
    Script(
        name="hf_run_image_classification_no_trainer", kind="HF without Trainer", source=TRANSFORMERS,
        script="run_image_classification_no_trainer.py", folder="examples/pytorch/image-classification", data=PICTURES,
        packages=(*HF, "torchvision"), links={"examples/pytorch/image-classification/accuracy": "accuracy"},
        arguments={"gpu": f"{VIT} --per_device_train_batch_size 32", "cpu": VIT},
        no_expert="the script has no argument for workers or a number format",
        progress=batches(TRAINER_BAR, 32, cpu=8),
    ),
    Script(
        name="hf_run_clm_dataparallel", kind="DataParallel", source=TRANSFORMERS,
        script="run_clm.py", folder=FOLDER, data=TEXTS, packages=HF,
        arguments={"2gpu": CLM}, expert={"2gpu": "+ --bf16 --dataloader_num_workers 4"},
        progress=batches(TRAINER_BAR, 8), refusal=r"DataParallel",
    ),
    Script(
        name="hf_run_clm_fsdp", kind="FSDP", source=TRANSFORMERS,
        script="run_clm.py", folder=FOLDER, data=TEXTS, packages=HF,
        launcher={"2gpu": "torchrun --nproc-per-node=2"},
        arguments={"2gpu": f'{CLM} --fsdp "full_shard auto_wrap"'},
        expert={"2gpu": "+ --bf16 --dataloader_num_workers 4"},
        progress=batches(TRAINER_BAR, 8), refusal=r"(?i)fsdp|shard",
    ),
    Script(
        name="hf_run_clm_deepspeed", kind="DeepSpeed", source=TRANSFORMERS,
        script="run_clm.py", folder=FOLDER, data=TEXTS, packages=(*HF, "deepspeed"),
        launcher={"2gpu": "torchrun --nproc-per-node=2", "gpu": "torchrun --nproc-per-node=1"},
        arguments=dict.fromkeys(("gpu", "2gpu"), f"{CLM} --deepspeed {{data}}/deepspeed.json"),
        expert=dict.fromkeys(("gpu", "2gpu"), "+ --bf16 --dataloader_num_workers 4"),
        progress=batches(TRAINER_BAR, 8), refusal=r"(?i)deepspeed",
    ),
    Script(
        name="mingpt_chargpt", kind="minGPT", source=MINGPT,
        script="chargpt.py", folder="projects/chargpt", data=LETTERS, links={"projects/chargpt/input.txt": "input.txt"},
        environment={"PYTHONPATH": "{repository}"},
        arguments={"cpu": "--model.model_type=gpt-nano --trainer.batch_size=16", "gpu": ""},
        expert={"gpu": "--trainer.num_workers={cores}"}, no_expert="four workers are its default",
        progress=batches(r"^iter_dt .*; iter (?P<at>\d+):", 64, cpu=16),
    ),
    Script(
        name="mingpt_adder", kind="minGPT", source=MINGPT,
        script="adder.py", folder="projects/adder", no_data="it adds numbers",
        environment={"PYTHONPATH": "{repository}"},
        arguments={"cpu": "--data.ndigit=3"}, no_expert="four workers are its default",
        progress=Progress(pattern=r"^iter_dt .*; iter (?P<at>\d+):", per=64),
    ),
    Script(
        name="makemore", kind="guide", source=MAKEMORE, script="makemore.py", data=NAMES,
        packages=("tensorboard",),
        arguments={"cpu": "-i {data}/names.txt -o {out}", "gpu": "-i {data}/names.txt -o {out} --device cuda"},
        expert={"gpu": "+ -n {cores}"}, no_expert="four workers are its default",
        progress=Progress(pattern=r"^step (?P<at>\d+) \| loss", per=32),
    ),
)  # fmt: skip
