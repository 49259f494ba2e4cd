import sys
from dataclasses import fields

import pytest

from autotune.errors import ConfigError, UsageError
from autotune.spec import DEFAULT_BUDGET_S, SearchSpec
from autotune.study_file.resolve import resolve
from autotune.study_file.sources import Origin

FULL = """
script = "train.py"
args = ["--epochs", "3"]
study = "photos"
storage = "studies/a.db"
memory_cap = "16GiB"
trials = 12
time = "10m"
effective_batch = "64..1024"
samples_per_step = 32
take_over = "last-week"
out = "tuned/autotune.toml"
force = true
seed = 7
spend_all = true
start = "live"
device = "cuda:1"
require_gain = true
share_gpu = true
protection = "landlock"
unprotected = true
network = true
allow_batchnorm_accumulation = true
writable = ["runs", "/data/out"]
nproc_per_node = 2
set = { num_workers = "0..4", prefetch_factor = [2, 4], storage = "jpeg,npy" }
fix = { precision = "fp32", pin_memory = true }
map = { storage = "--storage={}" }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "other.py").write_text("")
    return tmp_path


def resolved(folder, flags=None, tail=None, environ=None, text=None):
    if text is not None:
        (folder / "study.toml").write_text(text)
    return resolve(flags or {}, tail, environ=environ or {}, cwd=folder)


def spec_of(folder, flags=None, tail=None, environ=None, text=None):
    return resolved(folder, flags, tail, environ, text).spec


def test_without_a_word_everything_has_its_default(folder):
    found = resolved(folder, {"script": "train.py"})
    assert found.spec == SearchSpec(
        command=(sys.executable, "train.py"), script=str(folder / "train.py"), cwd=str(folder), study="train"
    )
    assert found.file is None
    assert {key for key, origin in found.origins.items() if origin is Origin.FLAG} == {"script"}


def test_a_file_can_say_everything(folder):
    spec = spec_of(folder, text=FULL)
    assert spec.command[-5:] == ("--nproc_per_node=2", "--max-restarts=0", "train.py", "--epochs", "3")
    assert spec == SearchSpec(
        command=spec.command,
        script=str(folder / "train.py"),
        cwd=str(folder),
        study="photos",
        storage="studies/a.db",
        memory_cap="16GiB",
        max_trials=12,
        budget_s=600.0,
        effective_batch="64..1024",
        ranges=(("num_workers", "0..4"), ("prefetch_factor", "2,4"), ("storage", "jpeg,npy")),
        fixed=(("precision", "fp32"), ("pin_memory", "true")),
        maps=(("storage", "--storage={}"),),
        samples_per_step=32.0,
        take_over="last-week",
        out="tuned/autotune.toml",
        force=True,
        seed=7,
        device="cuda:1",
        num_processes_per_node=2,
        require_gain=True,
        share_gpu=True,
        protection="landlock",
        unprotected=True,
        network=True,
        spend_all=True,
        start="live",
        allow_batchnorm_accumulation=True,
        writable=(str(folder / "runs"), "/data/out"),
    )


def test_no_field_of_a_spec_is_beyond_the_file(folder):
    default, full = spec_of(folder, {"script": "train.py"}), spec_of(folder, text=FULL)
    same = {field.name for field in fields(SearchSpec) if getattr(default, field.name) == getattr(full, field.name)}
    assert same == {"script", "cwd"}


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(folder):
    text = 'script = "train.py"\ntrials = 3\nseed = 3\ntime = "3m"\n'
    environ = {"AUTOTUNE_TRIALS": "2", "AUTOTUNE_SEED": "2"}
    found = resolved(folder, {"trials": "1"}, environ=environ, text=text)
    assert (found.spec.max_trials, found.spec.seed, found.spec.budget_s, found.spec.device) == (1, 2, 180.0, "auto")
    origins = [found.origins[key] for key in ("trials", "seed", "time", "device", "script")]
    assert origins == [Origin.FLAG, Origin.ENVIRONMENT, Origin.FILE, Origin.DEFAULT, Origin.FILE]


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("AUTOTUNE_STORAGE", "postgresql://h/d", "storage", "postgresql://h/d"),
        ("AUTOTUNE_MEMORY_CAP", "80%", "memory_cap", "80%"),
        ("AUTOTUNE_TIME", "90s", "budget_s", 90.0),
        ("AUTOTUNE_TRIALS", "5", "max_trials", 5),
        ("AUTOTUNE_SEED", "9", "seed", 9),
        ("AUTOTUNE_DEVICE", "cpu", "device", "cpu"),
        ("AUTOTUNE_OUT", "x.json", "out", "x.json"),
        ("AUTOTUNE_STUDY", "mine", "study", "mine"),
        ("AUTOTUNE_EFFECTIVE_BATCH", "free", "effective_batch", "free"),
        ("AUTOTUNE_SAMPLES_PER_STEP", "2.5", "samples_per_step", 2.5),
        ("AUTOTUNE_FORCE", "1", "force", True),
        ("AUTOTUNE_REQUIRE_GAIN", "true", "require_gain", True),
        ("AUTOTUNE_SHARE_GPU", "no", "share_gpu", False),
        ("AUTOTUNE_PROTECTION", "none", "protection", "none"),
        ("AUTOTUNE_UNPROTECTED", "1", "unprotected", True),
        ("AUTOTUNE_ALLOW_BATCHNORM_ACCUMULATION", "yes", "allow_batchnorm_accumulation", True),
        ("AUTOTUNE_NPROC_PER_NODE", "2", "num_processes_per_node", 2),
    ],
)
def test_a_variable_says_what_its_option_says(folder, name, text, field, value):
    assert getattr(spec_of(folder, {"script": "train.py"}, environ={name: text}), field) == value


@pytest.mark.parametrize(
    "environ",
    [{"AUTOTUNE_TRIAL": "x", "AUTOTUNE_STARTED_AT": "1"}, {"AUTOTUNE_TIME": ""}, {"AUTOTUNE_SCRIPT": "other.py"}],
)
def test_variables_that_are_not_options_or_are_empty_are_ignored(folder, environ):
    spec = spec_of(folder, {"script": "train.py"}, environ=environ)
    assert (spec.script, spec.budget_s) == (str(folder / "train.py"), DEFAULT_BUDGET_S)


def test_all_problems_of_all_sources_are_told_at_once(folder):
    text = 'script = "train.py"\ntrails = 3\nseed = "x"\nset = { num_workers = "a" }\nargs = "one two"\n'
    with pytest.raises(ConfigError) as caught:
        resolved(folder, {"trials": "many", "set": ["no"]}, environ={"AUTOTUNE_TIME": "soon"}, text=text)
    message = caught.value.message
    for words in (
        "--trials 'many' is not a whole number",
        "--set 'no' is not of the form KEY=VALUE",
        "AUTOTUNE_TIME 'soon' is not a time",
        "study.toml: trails is no key of a study; did you mean trials?",
        "study.toml: seed 'x' is not a whole number",
        "study.toml: set.num_workers 'a'",
        "study.toml: args 'one two' is not a list",
    ):
        assert words in message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trials = 0", "trials 0 is not at least 1"),
        ("trials = true", "trials True is not a whole number"),
        ("trials = 1.5", "trials 1.5 is not a whole number"),
        ("time = 0", r"time 0 is not above 0"),
        ("time = nan", "time nan"),
        ("memory_cap = 16", "memory_cap 16 is not text"),
        ("memory_cap = '120%'", "memory_cap '120%' is not a share"),
        ("memory_cap = '{0}'", r"memory_cap '\{0\}' is not an amount"),
        ("effective_batch = '8..4'", "The range '8..4' of batch_size is empty"),
        ("effective_batch = '8-4'", "effective_batch '8-4' is none of"),
        ("effective_batch = '1..99999999999'", "batch_size 99999999999 is more than 100000000"),
        ("device = 'gpu'", "device 'gpu' is none of"),
        ("seed = -1", "seed -1 is not at least 0"),
        ("'a.b' = 1", "a.b is no key of a study"),
        ("'[key]' = 1", "is no key of a study"),
        ("seed = 4294967296", "seed 4294967296 is not at most 4294967295"),
        ("samples_per_step = 0", "samples_per_step 0 is not above 0"),
        ("force = 'yes'", "force 'yes' is not true or false"),
        ("study = ''", "study is empty"),
        ("study = 3", "study 3 is not text"),
        ("args = [1]", "args.0 1 is not text"),
        ("command = ['']\nargs = []", "script and command exclude each other"),
        ("out = 3", "out 3 is not text"),
        ("set = 3", "set 3 is not a table"),
        ("set = { num_workers = '4..1' }", "range '4..1' of num_workers is empty"),
        ("set = { precision = 'fp8' }", "precision 'fp8' is unknown"),
        ("set = { num_workers = {} }", "set.num_workers {} is not text"),
        ("fix = { num_workers = -1 }", "num_workers -1 is not a whole number of at least 0"),
        ("set = { num_workers = '1' }\nfix = { num_workers = 1 }", "set.num_workers is also in fix"),
        ("map = { a = '--a' }", "map.a '--a' has no {} where the value goes"),
        ("module = 'pkg.train'", "script and module exclude each other"),
        ("nproc_per_node = 0", "nproc_per_node 0 is not at least 1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_file_and_key(folder, line, words):
    with pytest.raises(ConfigError, match=f"study.toml: .*{words}"):
        resolved(folder, text=f"script = 'train.py'\n{line}\n")


def test_a_command_in_the_file_says_its_processes_itself(folder):
    text = f"command = ['{sys.executable}', '-u', 'train.py']\n"
    assert spec_of(folder, text=text).command == (sys.executable, "-u", "train.py")
    with pytest.raises(ConfigError, match="nproc_per_node goes with a script"):
        resolved(folder, text=text + "nproc_per_node = 2\n")


def test_wrong_flags_alone_are_no_fault_of_a_file(folder):
    with pytest.raises(UsageError, match="--seed 'x' is not a whole number") as caught:
        resolved(folder, {"script": "train.py", "seed": "x"})
    assert not isinstance(caught.value, ConfigError)


def test_a_key_that_is_given_twice_is_refused(folder):
    with pytest.raises(UsageError, match="--fix names seed twice"):
        resolved(folder, {"script": "train.py", "fix": ["seed=1", "seed=2"]})


def test_tables_are_merged_by_key_and_the_narrower_source_wins(folder):
    text = "script = 'train.py'\nset = { num_workers = '0..4', prefetch_factor = '2' }\nfix = { pin_memory = true }\n"
    found = resolved(folder, {"fix": ["num_workers=2"], "set": ["pin_memory=true,false"]}, text=text)
    assert found.spec.ranges == (("pin_memory", "true,false"), ("prefetch_factor", "2"))
    assert found.spec.fixed == (("num_workers", "2"),)
    assert found.origins["fix.num_workers"] is Origin.FLAG
    assert found.origins["set.prefetch_factor"] is Origin.FILE
    assert "set.num_workers" not in found.origins


def test_a_value_may_hold_equals_signs(folder):
    spec = spec_of(folder, {"script": "train.py", "map": ["storage=--storage={}"], "set": ["storage=a=1,b=2"]})
    assert (spec.maps, spec.ranges) == ((("storage", "--storage={}"),), (("storage", "a=1,b=2"),))


def test_words_after_the_dashes_are_the_arguments_of_the_script(folder):
    assert spec_of(folder, {"script": "train.py"}, ["--", "-x"]).command[1:] == ("train.py", "--", "-x")
    assert spec_of(folder, {"module": "pkg.train"}, ["x"]).command[1:] == ("-m", "pkg.train", "x")


def test_without_a_script_they_are_a_whole_command(folder):
    spec = spec_of(folder, {}, [sys.executable, "-u", "train.py", "x"])
    assert spec.command == (sys.executable, "-u", "train.py", "x")
    assert spec.script == str(folder / "train.py")


def test_after_a_file_that_names_the_script_dashes_alone_replace_its_arguments(folder):
    text = "script = 'train.py'\nargs = ['a', 'b']\n"
    assert spec_of(folder, text=text).command[1:] == ("train.py", "a", "b")
    assert spec_of(folder, {}, ["--c"], text=text).command[1:] == ("train.py", "--c")
    assert spec_of(folder, {}, [], text=text).command[1:] == ("train.py",)


def test_the_script_of_the_file_keeps_the_files_words_when_it_is_typed(folder):
    text = "script = 'train.py'\nargs = ['a']\nstudy = 'photos'\n"
    spec = spec_of(folder, {"script": "./train.py"}, text=text)
    assert (spec.command[1:], spec.study) == (("./train.py", "a"), "photos")
    whole = spec_of(folder, {}, [sys.executable, "-u", "train.py"], text=text)
    assert (whole.command[1:], whole.study) == (("-u", "train.py"), "photos")


def test_what_a_file_says_of_its_script_does_not_hold_for_another(folder):
    spec = spec_of(folder, {"script": "other.py"}, text=FULL)
    assert spec.command == (sys.executable, "other.py")
    assert (spec.study, spec.maps, spec.samples_per_step, spec.num_processes_per_node) == ("other", (), None, 1)
    assert (spec.storage, spec.max_trials) == ("studies/a.db", 12)


def test_a_file_without_a_script_holds_for_every_script(folder):
    spec = spec_of(folder, {"script": "train.py"}, text="args = ['a']\nstudy = 'photos'\n")
    assert (spec.command[1:], spec.study) == (("train.py", "a"), "photos")


def test_paths_in_a_file_are_relative_to_its_folder(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "study.toml").write_text("script = 'a.py'\nout = 'b.yaml'\nstorage = 'sqlite:///c.db'\n")
    spec = spec_of(folder, {"study_file": "inner/study.toml"})
    assert spec.script == str(folder / "inner" / "a.py")
    assert spec.command[1:] == (str(folder / "inner" / "a.py"),)
    assert spec.out == str(folder / "inner" / "b.yaml")
    assert spec.storage == f"sqlite:///{folder / 'inner' / 'c.db'}"
    assert spec.cwd == str(folder)


def test_pyproject_serves_as_a_study_file(folder):
    (folder / "pyproject.toml").write_text("[tool.autotune]\nscript = 'train.py'\nseed = 4\n")
    found = resolved(folder)
    assert found.file is not None
    assert (found.spec.seed, found.file.path) == (4, folder / "pyproject.toml")
    (folder / "pyproject.toml").write_text("[tool.autotune]\nsead = 4\n")
    with pytest.raises(ConfigError, match=r"\[tool.autotune\] of pyproject.toml: sead is no key of a study; .* seed\?"):
        resolved(folder)


def test_without_a_script_anywhere_it_is_said_where_to_name_one(folder):
    with pytest.raises(UsageError, match="There is no script to run") as caught:
        resolved(folder)
    assert "study.toml" in caught.value.hint


def test_a_script_and_a_module_exclude_each_other(folder):
    with pytest.raises(UsageError, match="--module and SCRIPT exclude each other"):
        resolved(folder, {"script": "train.py", "module": "pkg.train"})


def test_a_whole_command_says_its_processes_itself(folder):
    with pytest.raises(UsageError, match="--nproc-per-node goes with a script"):
        resolved(folder, {"nproc_per_node": "2"}, [sys.executable, "train.py"])


def test_a_name_that_is_no_text_is_refused(folder):
    assert spec_of(folder, {"script": "train.py", "study": "\N{SNOWMAN}"}).study == "\N{SNOWMAN}"
    with pytest.raises(UsageError, match=r"'\\udcff' cannot be the name of a study"):
        resolved(folder, {"script": "train.py", "study": "\udcff"})


def test_arguments_and_paths_may_hold_any_bytes(folder):
    odd = b"\xff.py".decode("utf-8", "surrogateescape")
    spec = spec_of(folder, {"script": odd, "study": "odd", "out": odd, "storage": odd}, [odd])
    assert spec.command[1:] == (odd, odd)
    assert (spec.out, spec.storage) == (odd, odd)
