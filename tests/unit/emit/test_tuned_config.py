import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from autotune.emit.tuned_config import MemoryShares, TunedConfig, config_text, read_config
from autotune.emit.writing import check_overwrite, write_config
from autotune.errors import ConfigError
from autotune.protocol.codec import to_plain

from .example import NATURAL, tuned_config, tuned_configs

SUFFIXES = ("yaml", "toml", "json")
quick = hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_text(folder: Path, suffix: str, text: str) -> TunedConfig:
    path = folder / f"read.{suffix}"
    path.write_bytes(text.encode())
    return read_config(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_written_config_reads_back_equal(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"autotune.{suffix}"
    write_config(path, tuned_config(), force=False)
    assert read_config(path) == tuned_config()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name], "a temporary file was left"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_config_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> None:
    folder = tmp_path_factory.mktemp("any")

    @quick
    @given(tuned_configs())
    def reads_back(config: TunedConfig) -> None:
        assert read_text(folder, suffix, config_text(config, suffix)) == config

    reads_back()


@quick
@given(tuned_configs())
def test_every_yaml_reader_sees_the_same_values(config: TunedConfig) -> None:
    assert yaml.safe_load(config_text(config, "yaml")) == to_plain(config)


@quick
@given(tuned_configs())
def test_every_toml_and_json_reader_sees_the_same_values(config: TunedConfig) -> None:
    def without_nulls(value: object) -> object:
        if isinstance(value, dict):
            return {key: without_nulls(item) for key, item in value.items() if item is not None}
        return value

    assert json.loads(config_text(config, "json")) == to_plain(config)
    assert tomllib.loads(config_text(config, "toml")) == without_nulls(to_plain(config))


def test_half_a_surrogate_pair_is_refused_by_toml_and_kept_by_the_others(tmp_path: Path) -> None:
    config = tuned_config(script_path="train\udc80.py")
    assert read_text(tmp_path, "yaml", config_text(config, "yaml")) == config
    assert read_text(tmp_path, "json", config_text(config, "json")) == config
    with pytest.raises(ConfigError, match=r"cannot be written as toml.*not valid Unicode"):
        config_text(config, "toml")


def test_yaml_is_for_people_first_the_claim_then_the_settings() -> None:
    lines = config_text(tuned_config(), "yaml").splitlines()
    assert lines[0].startswith("# Written by autotune 0.1.0 on 2026-11-20T10:30:00+00:00 for train.py: trial 23")
    assert "2.41x [2.35, 2.47]" in lines[1]
    assert "3,118 [3,098, 3,140] samples per second, 1,294 before. The script was bound by: loader." in lines[1]
    assert lines[2].startswith("# Peak memory 11.2 GiB of the cap of 16.0 GiB. With `autotune run --share` ")
    assert lines[2].endswith("the allocator reserves at most 12.9 GiB.")
    values = [line for line in lines if line and not line.startswith("#")]
    assert values[:3] == ["schema: 1", "settings:", "  num_workers: 4"]
    assert "    storage: 'no'" in values
    assert "interval: [3097.5, 3140.0]" in values


def test_rates_that_are_of_steps_are_said_to_be() -> None:
    text = config_text(tuned_config(samples_unit="steps"), "yaml")
    assert "steps per second" in text and "samples per second" not in text
    with pytest.raises(ValueError, match="neither samples nor steps"):
        tuned_config(samples_unit="tokens")


def test_a_config_without_a_gain_says_so() -> None:
    assert "no real gain over the script's own settings (1,294)" in config_text(tuned_config(speedup=None), "yaml")
    own = tuned_config(settings=NATURAL, speedup=(1.01, 0.99, 1.03))
    assert "no real gain" in config_text(own, "yaml"), "the script's own settings are no gain over themselves"
    text = config_text(tuned_config(speedup=None, baseline_samples_per_second=None), "yaml")
    assert "the script's own settings need more memory than the cap" in text


@pytest.mark.parametrize("suffix", ["yaml", "toml"])
def test_a_script_name_with_a_line_break_stays_inside_its_comment(tmp_path: Path, suffix: str) -> None:
    config = tuned_config(script_path="train.py\nsettings: {num_workers: 60}\n", provenance_study="\x85\u2028schema: 2")
    assert read_text(tmp_path, suffix, config_text(config, suffix)) == config


def test_values_that_yaml_1_1_misreads_are_read_as_they_look(tmp_path: Path) -> None:
    text = config_text(tuned_config(), "yaml").replace("storage: 'no'", "storage: off")
    assert read_text(tmp_path, "yaml", text).settings.knobs == (("storage", "off"),)
    with pytest.raises(ConfigError, match=r"precision 'no' is unknown.*It is one of fp32"):
        read_text(tmp_path, "yaml", text.replace("precision: bf16", "precision: no"))
    config = read_text(tmp_path, "yaml", text.replace("memory_fraction: 0.9", "memory_fraction: 9e-1"))
    assert config.settings.memory_fraction == 0.9


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_numbers_and_texts_of_other_libraries_are_written_as_plain_ones(tmp_path: Path, suffix: str) -> None:
    class Version(str):
        """Like torch's."""

    class Float64(float):
        """Like numpy's."""

        def __repr__(self) -> str:
            return f"np.float64({float(self)})"

    class Int(int):
        """Like an IntEnum's."""

        def __repr__(self) -> str:
            return "<one>"

    config = tuned_config(samples_per_second=Float64(2.5), memory_cap_bytes=Int(7), bottleneck=Version("no"))
    assert read_text(tmp_path, suffix, config_text(config, suffix)) == config


@pytest.mark.parametrize("value", ["1.50", "true", "~", "[a]"])
def test_a_knob_that_is_no_text_is_refused_instead_of_reworded(tmp_path: Path, value: str) -> None:
    text = config_text(tuned_config(), "yaml").replace("storage: 'no'", f"storage: {value}")
    with pytest.raises(ConfigError, match=r"the knob storage is .*, not text; write it in quotes"):
        read_text(tmp_path, "yaml", text)


@pytest.mark.parametrize(
    "hostile",
    [
        "!!python/object/apply:os.system ['touch executed']",
        "schema: !!python/object/apply:os.system ['touch executed']",
        "schema: !!python/name:os.system",
        '!!python/object/new:type {args: [z, [], {extend: !!python/name:exec }], listitems: \'open("executed", "w")\'}',
        "schema: !!binary aGVsbG8=",
        "schema: !!int ''",
        "schema: !!bool maybe",
        "schema: !local 1",
        "schema: ! 1",
    ],
)
def test_a_tag_is_refused_and_nothing_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="line 1 has a tag"):
        read_text(tmp_path, "yaml", hostile)
    assert not Path("executed").exists()


def test_an_alias_bomb_is_refused_at_its_first_alias(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 30)]
    bomb = "\n".join(["a0: &a0 [lol]", *levels])
    with pytest.raises(ConfigError, match=r"line 2 has an alias \(\*a0\)"):
        read_text(tmp_path, "yaml", bomb)


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        ("yaml", "[" * 100_000, "nested too deeply"),
        ("yaml", "- " * 3000, "nested too deeply"),
        ("yaml", "a:\n" + "- 1\n" * 50_000, "too many values"),
        ("json", "[" * 100_000, "recursion"),
        ("toml", "a = " + "[" * 100_000, "recursion|nested|depth"),
        ("toml", "a." * 100_000 + "a = 1", "too many dots"),
        ("json", '{"schema": 1, "settings": ' + '{"a":' * 500 + "1" + "}" * 501, "settings has no field 'a'"),
        ("json", '{"schema": 1, "script": ' + '{"facts":' * 500 + "1" + "}" * 501, "has no field"),
        ("json", '{"schema": ' + "9" * 5000 + "}", "digits|newer"),
        ("yaml", "schema: " + "9" * 5000, "digits|newer"),
    ],
)
def test_a_bomb_of_depth_or_size_is_refused(tmp_path: Path, suffix: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_text(tmp_path, suffix, text)


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    with path.open("wb") as stream:
        stream.truncate(4 * 1024**2 + 1)
    with pytest.raises(ConfigError, match=r"is larger than 4\.0 MiB"):
        read_config(path)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("yaml", "schema: 1\n\tsettings: {}"),
        ("yaml", "schema: [1"),
        ("yaml", "schema: 1\n---\nschema: 1"),
        ("yaml", "schema: 1\nschema: 1"),
        ("yaml", "schema: 1\n? [a]\n: 1"),
        ("yaml", "schema: 1\x00"),
        ("yaml", ""),
        ("yaml", "just a text"),
        ("yaml", "- schema"),
        ("yaml", "%YAML 9.9\n---\nschema: 1"),
        ("toml", "schema = "),
        ("toml", "schema = 1\nschema = 1"),
        ("json", "{"),
        ("json", '{"schema": 1, "schema": 1}'),
        ("json", '{"schema": NaN}'),
        ("json", "[1]"),
        ("json", "null"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name(tmp_path: Path, suffix: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"read\.{suffix} is not a tuned config: .+"):
        read_text(tmp_path, suffix, text)


@pytest.mark.parametrize(
    ("suffix", "once", "twice"),
    [
        ("yaml", "  num_workers: 4\n", "  num_workers: 4\n  num_workers: 8\n"),
        ("toml", "num_workers = 4\n", "num_workers = 4\nnum_workers = 8\n"),
        ("json", '"num_workers": 4,', '"num_workers": 4, "num_workers": 8,'),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, suffix: str, once: str, twice: str) -> None:
    text = config_text(tuned_config(), suffix)
    assert text.count(once) == 1
    with pytest.raises(ConfigError, match=r"second time|twice|[Oo]verwrite"):
        read_text(tmp_path, suffix, text.replace(once, twice))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "autotune.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_config(path)


def test_a_newer_schema_is_refused_by_its_number_before_its_fields_are_looked_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"its schema 2 is newer than this release reads \(1\).*Install a newer"):
        read_text(tmp_path, "yaml", "schema: 2\nsomething: else")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", 0, "schema 0 is not 1"),
        ("schema", True, "schema must be int"),
        ("schema", "1", "schema must be int"),
        ("settings", None, "settings must be a mapping"),
        ("settings", {"num_worker": 1}, "settings has no field 'num_worker'"),
        ("settings.num_workers", "4", "num_workers '4' is not a whole number"),
        ("settings.num_workers", -1, "num_workers -1 is not a whole number"),
        ("settings.num_workers", 10**400, "with so many digits|too large|whole number|int too"),
        ("settings.pin_memory", 1, "pin_memory 1 is not true or false"),
        ("settings.precision", ["bf16"], "precision .* is unknown"),
        ("settings.memory_fraction", 1.5, "memory_fraction 1.5 is not a share"),
        ("settings.knobs", ["a"], "knobs .* is not a mapping"),
        ("samples_per_second", "fast", "samples_per_second must be float"),
        ("samples_per_second", 0, "samples_per_second 0.0 .* is not finite and positive"),
        ("interval", [1.0], "interval must have 2 items"),
        ("interval", [2.0, 1.0], r"interval \[2.0, 1.0\] is not finite, positive and in order"),
        ("speedup", [2.0, 2.5, 1.0], "speedup .* in order"),
        ("memory_cap_bytes", 0, "must be positive"),
        ("memory.fraction", 0.0, "fraction 0.0 is not above 0"),
        ("memory.shared_memory_bytes", 0, "shared_memory_bytes 0 is not positive"),
        ("provenance.created_at", "yesterday", "Invalid isoformat"),
        ("provenance.world_size", 0, "is impossible"),
        ("provenance.host.cpu", 7, "cpu must be str"),
        ("script.maps", {"batch_size": "--batch-size"}, "has no {} where the value goes"),
        ("script.maps", ["batch_size"], "maps must be a mapping"),
        ("script.facts.device", None, "device must be str"),
        ("script.facts.loader.keys", "train.py", "keys must be a list"),
        ("script.facts.loss_reduction", "median", "'median' is not a valid LossReduction"),
        ("extra", 1, "has no field 'extra'"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(tmp_path: Path, path: str, value: object, said: str) -> None:
    values = to_plain(tuned_config())
    *parents, name = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[name] = value
    with pytest.raises(ConfigError, match=said):
        read_text(tmp_path, "json", json.dumps(values))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "settings.num_workers",
            10**9,
            "num_workers 1000000000 is more than 1024, which no machine has a use for. Give less.",
        ),
        ("settings.precision", "fp8", "precision 'fp8' is unknown. It is one of fp32, tf32, bf16, fp16."),
        ("provenance.trial", "x", "provenance.trial must be int, not 'x'."),
        ("provenance.created_at", "yesterday", "created_at 'yesterday': Invalid isoformat string: 'yesterday'."),
        ("script.facts.loss_reduction", "median", "loss_reduction: 'median' is not a valid LossReduction."),
        ("memory_cap_bytes", -3, "memory_cap_bytes -3 or peak_memory_bytes "),
        ("extra", 1, "it has no field 'extra'."),
    ],
)
def test_a_tuned_config_with_a_bad_value_is_told_from_a_file_of_something_else(
    tmp_path: Path, path: str, value: object, said: str
) -> None:
    values = to_plain(tuned_config())
    *parents, name = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[name] = value
    with pytest.raises(ConfigError) as caught:
        read_text(tmp_path, "json", json.dumps(values))
    message = caught.value.message
    assert "read.json cannot be used: " in message and said in message
    assert "is not a tuned config" not in message and ".." not in message and "TunedConfig" not in message


def test_a_missing_field_is_refused_unless_it_may_be_null(tmp_path: Path) -> None:
    values = to_plain(tuned_config())
    del values["speedup"], values["script"]["facts"]["loader"]["num_batches"]
    config = read_text(tmp_path, "json", json.dumps(values))
    assert config == tuned_config(speedup=None)
    del values["memory_cap_bytes"]
    with pytest.raises(ConfigError, match="memory_cap_bytes"):
        read_text(tmp_path, "json", json.dumps(values))


def test_a_path_that_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist.*autotune search"):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError, match="is not a regular file"):
        read_config(tmp_path / "folder.yaml")
    with pytest.raises(ConfigError, match=r"ends in \.yaml, \.toml or \.json"):
        read_config(tmp_path / "autotune.ini")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / ("n" * 300 + ".yaml"))


def test_a_config_of_the_same_script_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    write_config(path, tuned_config(), force=False)
    edited = tuned_config(script_digest="cd" * 32, samples_per_second=3120.0)
    write_config(path, edited, force=False)
    moved = tuned_config(script_digest="cd" * 32, script_path="src/train.py")
    write_config(path, moved, force=False)
    assert read_config(path) == moved


def test_a_config_of_another_script_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    write_config(path, tuned_config(), force=False)
    other = tuned_config(script_path="other.py", script_digest="cd" * 32)
    with pytest.raises(ConfigError, match=r"is the tuned config of train\.py, not of other\.py.*--force"):
        write_config(path, other, force=False)
    assert read_config(path) == tuned_config()
    write_config(path, other, force=True)
    assert read_config(path) == other


def test_two_scripts_without_a_digest_are_not_the_same_script(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    write_config(path, tuned_config(script_digest="", script_path="pkg.train"), force=False)
    with pytest.raises(ConfigError, match=r"is the tuned config of pkg\.train"):
        write_config(path, tuned_config(script_digest="", script_path="pkg.other"), force=False)


def test_a_file_of_the_users_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    path.write_text("my: notes\n")
    with pytest.raises(ConfigError, match="is already there, and autotune did not write it"):
        check_overwrite(path, script="train.py", digest="", force=False)
    with pytest.raises(ConfigError, match="autotune did not write it"):
        write_config(path, tuned_config(), force=False)
    assert path.read_text() == "my: notes\n"
    write_config(path, tuned_config(), force=True)
    assert read_config(path) == tuned_config()


def test_a_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "autotune.yaml").mkdir()
    with pytest.raises(ConfigError, match="is already there"):
        write_config(tmp_path / "autotune.yaml", tuned_config(), force=True)


def test_a_link_is_followed_and_missing_folders_are_made(tmp_path: Path) -> None:
    link = tmp_path / "autotune.yaml"
    link.symlink_to(tmp_path / "configs" / "real.yaml")
    write_config(link, tuned_config(), force=False)
    assert link.is_symlink()
    assert read_config(tmp_path / "configs" / "real.yaml") == tuned_config()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "autotune.yaml"
    write_config(path, tuned_config(), force=False)

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        write_config(path, tuned_config(samples_per_second=3120.0), force=False)
    assert read_config(path) == tuned_config()
    assert [entry.name for entry in tmp_path.iterdir()] == ["autotune.yaml"]


def test_an_unknown_suffix_is_refused_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no known suffix"):
        check_overwrite(tmp_path / "autotune.txt", script="train.py", digest="", force=True)


def test_a_circle_of_links_is_refused_before_the_search(tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be reached: Too many levels of symbolic links"):
        check_overwrite(path, script="train.py", digest="", force=True)


def test_a_place_below_a_file_is_refused_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(ConfigError, match="cannot be reached: Not a directory"):
        check_overwrite(tmp_path / "train.py" / "autotune.yaml", script="train.py", digest="", force=True)


def test_a_folder_in_which_nothing_can_be_made_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(ConfigError, match="nothing can be made in"):
        check_overwrite(tmp_path / "new" / "autotune.yaml", script="train.py", digest="", force=False)


def test_impossible_figures_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        tuned_config(samples_per_second=float("nan"))
    with pytest.raises(ValueError, match="interval"):
        tuned_config(interval=(0.0, float("inf")))
    with pytest.raises(dataclasses.FrozenInstanceError):
        tuned_config().schema = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("asked", "share", "expected"), [(1.0, False, 0.9), (0.5, False, 0.5), (1.0, True, 0.25), (0.2, True, 0.2)]
)
def test_the_smallest_of_asked_guard_and_shared_memory_is_in_force(asked: float, share: bool, expected: float) -> None:
    shares = MemoryShares(fraction=0.9, shared_memory_fraction=0.5, shared_memory_bytes=25)
    assert shares.in_force(asked, total_bytes=100, share=share) == expected


def test_sharing_falls_back_on_the_fraction_and_then_on_the_guard() -> None:
    assert MemoryShares(fraction=0.9, shared_memory_fraction=0.5).in_force(1.0, total_bytes=100, share=True) == 0.5
    assert MemoryShares(fraction=0.9).in_force(1.0, total_bytes=100, share=True) == 0.9
    assert MemoryShares().in_force(1.0, total_bytes=100, share=True) == 1.0
