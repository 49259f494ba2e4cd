from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.model.outcome import Outcome
from autotune.spec import SearchSpec
from autotune.store.secrets import (
    allowed_environment,
    is_secret_name,
    mask_arguments,
    mask_known,
    mask_plain,
    mask_text,
    masked_command,
    remember_arguments,
)

SECRET_NAMES = (
    *("--token", "--hf-token", "HF_TOKEN", "--auth_token", "--password", "PGPASSWORD", "sslpassword", "--db-pass"),
    *("-pwd", "--api-key", "--apikey", "apiKey", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "wandb.key"),
    *("--client-secret", "hub.private_key", "--credentials", "Authorization", "X-Amz-Signature", "sig"),
)
OTHER_NAMES = (
    *("--tokenizer", "--max-tokens", "--num_tokens", "--token-dim", "--pad-token", "--eos_token", "--sort-key"),
    *("--image-key", "--key", "--lr", "--single-pass", "--batch-size", "--passes", "", "--", "monkey", "--keyboard"),
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_that_only_sound_like_secrets_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--token", "abc"], ["--token", "***"]),
        (["--api-key=abc", "--lr", "0.1"], ["--api-key=***", "--lr", "0.1"]),
        (["--api_key", "-abc=="], ["--api_key", "***"]),
        (["--use-auth-token", "--lr", "0.1"], ["--use-auth-token", "--lr", "0.1"]),
        (["wandb.api_key=abc", "+hub.token=abc"], ["wandb.api_key=***", "+hub.token=***"]),
        (["env", "HF_TOKEN=abc", "python"], ["env", "HF_TOKEN=***", "python"]),
        (["--model", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz123456"], ["--model", "hf_***"]),
        (["sk-proj-AbCd1234EfGh5678", "ghp_1234567890abcdef"], ["sk-***", "ghp_***"]),
        (["--data", "s3://ada:s3cret@bucket/x"], ["--data", "s3://ada:***@bucket/x"]),
        (["--data=https://host/x?X-Amz-Signature=abc&part=1"], ["--data=https://host/x?X-Amz-Signature=***&part=1"]),
        (["--header", "Authorization: Bearer abcdefgh"], ["--header", "Authorization: ***"]),
        (["Bearer", "abc"], ["Bearer", "***"]),
        (["HF_TOKEN=abc def --lr 1"], ["HF_TOKEN=***"]),
        (["export HF_TOKEN=abc; t.py --password abc -v"], ["export HF_TOKEN=***; t.py --password *** -v"]),
        (["--password"], ["--password"]),
        (
            ["--tokenizer", "gpt2", "hf_dataset", "sk-learn-model"],
            ["--tokenizer", "gpt2", "hf_dataset", "sk-learn-model"],
        ),
        (["http://localhost:8080/a@b", "--lr=1e-3", "a/b.py"], ["http://localhost:8080/a@b", "--lr=1e-3", "a/b.py"]),
    ],
)
def test_arguments_are_shown_without_their_secrets(argv: list[str], shown: list[str]) -> None:
    masked = mask_arguments(argv)
    assert masked == tuple(shown)
    assert mask_arguments(masked) == masked


@given(st.lists(st.text(max_size=40), max_size=8))
def test_there_are_as_many_arguments_after_masking(argv: list[str]) -> None:
    assert len(mask_arguments(argv)) == len(argv)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Namespace(lr=0.1, token='abc', seed=0)", "Namespace(lr=0.1, token='***', seed=0)"),
        ('{"password": "abc", "user": "ada"}', '{"password": "***", "user": "ada"}'),
        ("login to https://ada:s3cret@host/x\nstep 1", "login to https://ada:***@host/x\nstep 1"),
        ("header eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def", "header ***"),
        ("args: token=abc, url: https://host/x?sig=abc#1", "args: token=***, url: https://host/x?sig=***#1"),
        ("line\nhf_abcd1234efgh5678", "line\nhf_***"),
        ("step 10: loss 0.5, tokens: 512, key: value", "step 10: loss 0.5, tokens: 512, key: value"),
    ],
)
def test_text_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert mask_text(text) == shown
    assert mask_text(shown) == shown


PIECES = ("a", "-", "hf_", "sk-", "a=", "a:", "://", "a://b:", "--a ", "eyJ.", "eyJ-", "bearer ", " ", "%", "\n@")


@pytest.mark.parametrize("piece", PIECES)
def test_masking_a_long_text_takes_time_in_proportion(piece: str) -> None:
    began_s = time.process_time()
    mask_text(piece * 50_000)
    mask_text(f"token{piece * 50_000}")
    assert time.process_time() - began_s < 5  # in proportion it takes some milliseconds, by the square minutes


def test_plain_data_is_masked_at_every_depth_and_keeps_its_numbers() -> None:
    plain = {"log": ["ok", "hf_abcd1234efgh"], "deep": {"rate": 1.5, "none": None, "note": "token=abc"}}
    assert mask_plain(plain) == {"log": ["ok", "hf_***"], "deep": {"rate": 1.5, "none": None, "note": "token=***"}}


def test_the_command_of_a_search_is_shown_masked_and_kept_whole() -> None:
    spec = SearchSpec(command=("python", "t.py", "--token", "abc"), script="/t.py", cwd="/", study="s")
    assert masked_command(spec) == ("python", "t.py", "--token", "***")
    assert spec.command[-1] == "abc"


def test_of_the_environment_only_what_changes_speed_is_let_through() -> None:
    kept = {
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "MKL_NUM_THREADS": "2",
        "KMP_BLOCKTIME": "0",
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512",
        "TORCH_CUDNN_V8_API_ENABLED": "1",
        "SLURM_JOB_ID": "77",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
    }
    dropped = {
        "HOME": "/home/ada",
        "HF_TOKEN": "abc",
        "TORCH_HUB_TOKEN": "abc",
        "TORCH_API_KEY": "abc",
        "NCCL_AUTH_SECRET": "abc",
        "SLURM_JWT": "abc",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "LANGUAGE": "de",
        "XOMP_NUM_THREADS": "1",
    }
    assert allowed_environment({**kept, **dropped}) == kept
    assert allowed_environment({"TORCH_HUB_URL": "https://ada:s3cret@host"}) == {
        "TORCH_HUB_URL": "https://ada:***@host"
    }


def test_values_of_secret_arguments_are_hidden_wherever_they_occur_afterwards() -> None:
    argv = ("t.py", "--api-key", "kept-under-a-stone", "--lr", "0.1", "--store=s3://ada:of-the-store@host/x")
    remember_arguments((*argv, "--token=abc"))
    text = "printed kept-under-a-stone and of-the-store and abc at lr 0.1"
    assert mask_known(text) == "printed *** and *** and abc at lr 0.1"


def test_a_password_like_a_word_of_our_own_hides_the_word_in_text_and_no_outcome() -> None:
    remember_arguments(("t.py", "--password", Outcome.CRASHED.value))
    plain = {"outcome": Outcome.CRASHED.value, "reason": "it crashed with the login crashed"}
    assert mask_plain(plain) == {"outcome": "crashed", "reason": "it *** with the login ***"}
