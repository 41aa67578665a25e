"""Settings: their declarations, how they are read, what is refused or warned of, and the messages."""
import dataclasses
import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rl.settings import config
from rl.settings.config import SettingsError, load
from rl.settings.declared import LEAVES, NAMES, RETIRED, RETIRED_NAMES, SECTIONS, Kwargs, text_of
from rl.settings.help import help_text


def refused(environ, **options):
    """The problems that loading `environ` reports."""
    with pytest.raises(SettingsError) as caught:
        load(environ, **options)
    return caught.value.problems


def yaml_file(folder, text):
    path = folder / "grpo.yaml"
    path.write_text(text)
    return str(path)


def run_folder(tmp_path, **environ):
    """A run whose config.yaml was written from these variables."""
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "config.yaml").write_text(config.dump(load(environ).settings, about={"git": "abc", "jax": "0.10"}))
    return str(folder)


# Declarations

DOCUMENTED = {   # the documented defaults, written out a second time on purpose: changing one is a decision
    "model": "0.5B", "split": "train", "steps": 600, "tasks_per_step": 8, "group": 8, "max_new_tokens": 192,
    "temperature": 1.0, "learning_rate": 2e-5, "lora_rank": 16, "lora_alpha": 32.0, "eps_low": 0.2, "eps_high": 0.28,
    "style_weight": 0.5, "save_every": 25, "n_samples": 8, "warmup_steps": 5, "updates_per_batch": 1, "n_tasks": 0,
    "loss": "dapo", "advantage": "grpo", "overlong": "keep", "entropy_bonus": 0.0, "kl_beta": 0.0, "dynamic_sampling": False,
    "case_seconds": 0.5, "allow_weak_sandbox": False, "out": "", "resume": "", "lora": "", "seed": 0,
}


def test_defaults_are_the_documented_ones():
    """The names scripts rely on exist, with the values the documentation promises."""
    loaded = load({})

    assert {name: config.value_of(loaded.settings, name) for name in DOCUMENTED} == DOCUMENTED
    assert set(loaded.origins.values()) == {"default"} and loaded.warnings == []


def test_leaf_names_and_aliases_are_unique():
    """No name means two settings, nor both a setting and a section other than its own."""
    names = [field.name for kind in SECTIONS.values() for field in dataclasses.fields(kind)]
    names += [alias for leaf in LEAVES.values() for alias in leaf.aliases] + [*RETIRED_NAMES]

    assert len(names) == len(set(names))
    assert all(NAMES[name].section == name for name in set(names) & set(SECTIONS))


def test_every_leaf_is_complete():
    """Type, default, limits and help are all there and agree with each other."""
    for leaf in LEAVES.values():
        assert type(leaf.default) is leaf.type and leaf.help and not leaf.help.endswith("."), leaf
        if leaf.type in (int, float):
            assert leaf.low <= leaf.default <= leaf.high and type(leaf.low) is type(leaf.high) is leaf.type, leaf
        if leaf.choices:
            assert leaf.default in leaf.choices, leaf


def test_settings_cannot_be_changed_after_loading():
    """Settings are immutable."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        load({}).settings.trainer.steps = 3


def test_no_setting_takes_a_name_that_shells_already_use():
    """WSL2 sets NAME to the host's name and every login sets USER; such a variable must never steer a run."""
    taken = {"NAME", "USER", "HOME", "PATH", "SHELL", "TERM", "LANG", "HOST", "HOSTNAME", "PWD", "MAIL", "EDITOR",
             "TMP", "TEMP", "TMPDIR", "PAGER", "DISPLAY", "OS", "TZ", "UID", "COLUMNS", "LINES", "DEBUG", "CI", "MODE"}

    assert not taken & {name.upper() for name in NAMES}


# Reading

def test_precedence_is_default_then_file_then_environment(tmp_path):
    """Each source overrides the one before it, and the origin says which one won."""
    path = yaml_file(tmp_path, "steps: 7\ngroup: 4\n")
    loaded = load({"CONFIG": path, "GROUP": "16"})

    assert (loaded.settings.trainer.steps, loaded.settings.generation.group) == (7, 16)
    assert loaded.settings.trainer.seed == 0
    assert [loaded.origins[name] for name in ("steps", "group", "seed")] == [f"CONFIG {path}", "env GROUP", "default"]


def test_yaml_may_nest_stay_flat_or_mix(tmp_path):
    """The layout of the file does not matter; `model` is both a section and a setting."""
    nested = "model: {model: 1.5B, dtype: float32}\ntrainer:\n  steps: 3\n  learning_rate: 2e-5\ndata:\n"
    flat = "model: 1.5B\ndtype: float32\nsteps: 3\nlearning_rate: 0.00002\n"
    mixed = "model:\n  dtype: float32\n  model: 1.5B\nsteps: '3'\ntrainer: {lr: '2e-5'}\n"
    found = [load({"CONFIG": yaml_file(tmp_path, text)}).settings for text in (nested, flat, mixed)]

    assert found[0] == found[1] == found[2]
    assert found[0].model.model == "1.5B" and found[0].trainer.learning_rate == 2e-5


ALIASES = {"num_generations": "group", "group_size": "group", "max_completion_length": "max_new_tokens",
           "max_prompt_length": "max_prompt_tokens", "lora_r": "lora_rank", "epsilon": "eps_low",
           "epsilon_high": "eps_high", "max_steps": "steps", "save_steps": "save_every", "output_dir": "out",
           "num_iterations": "updates_per_batch", "save_total_limit": "keep_last", "model_name_or_path": "model",
           "beta": "kl_beta", "loss_type": "loss", "scale_rewards": "advantage_scale", "lr_scheduler_type": "scheduler"}


@pytest.mark.parametrize("alias, name", ALIASES.items())
def test_trl_spellings_work_in_both_places(tmp_path, alias, name):
    """A user who knows TRL's names need not learn ours, in the environment or in YAML."""
    leaf = LEAVES[name]
    value = leaf.choices[-1] if leaf.choices else {str: "x", int: 5, float: 0.5}[leaf.type]
    from_env = load({alias.upper(): str(value)})
    from_file = load({"CONFIG": yaml_file(tmp_path, f"{alias}: {value}")})

    assert config.value_of(from_env.settings, name) == config.value_of(from_file.settings, name) == value
    assert from_env.origins[name] == f"env {alias.upper()}"


def test_the_name_that_was_used_is_part_of_the_origin(tmp_path):
    """The origin of a value given under an alias names the alias; under the setting's own name nothing is added."""
    path = yaml_file(tmp_path, "trainer: {lr: 1e-4, steps: 3}\n")
    origins = load({"CONFIG": path, "NUM_GENERATIONS": "4"}).origins

    assert (origins["learning_rate"], origins["steps"], origins["group"]) == (f"CONFIG {path} (lr)", f"CONFIG {path}",
                                                                              "env NUM_GENERATIONS")


@pytest.mark.parametrize("text, value", [("1", True), ("true", True), ("YES", True), ("on", True),
                                         ("0", False), ("False", False), ("no", False), ("off", False)])
def test_switches_take_the_usual_words(tmp_path, text, value):
    """1/0, true/false, yes/no and on/off, in any case, quoted or not."""
    assert load({"STYLE_HINT": text}).settings.data.style_hint is value
    assert load({"CONFIG": yaml_file(tmp_path, f"style_hint: {text}")}).settings.data.style_hint is value
    assert load({"CONFIG": yaml_file(tmp_path, f"style_hint: '{text}'")}).settings.data.style_hint is value


@pytest.mark.parametrize("text, value", [("12", 12), (" 12 ", 12), ("12.0", 12), ("1e3", 1000), ("+7", 7)])
def test_whole_numbers_in_any_spelling(text, value):
    """A whole number may be written in any usual way; an int is stored."""
    steps = load({"STEPS": text}).settings.trainer.steps

    assert steps == value and type(steps) is int


def test_whole_number_for_a_real_setting_becomes_a_float(tmp_path):
    """Types do not depend on how the file spelt the number, so a dumped configuration is stable."""
    assert type(load({"CONFIG": yaml_file(tmp_path, "lora_alpha: 32")}).settings.model.lora_alpha) is float


SPELLINGS = [
    *[("lr_scheduler_type", text, "constant") for text in ("constant", "constant_with_warmup", "CONSTANT_WITH_WARMUP")],
    *[("lr_scheduler", text, "linear") for text in ("linear", "LINEAR", "linear_with_warmup", "Linear-With-Warmup")],
    *[("scheduler", text, "cosine") for text in ("cosine", "Cosine", "cosine_with_warmup")]]


@pytest.mark.parametrize("name, text, value", SPELLINGS)
def test_what_others_call_a_choice_is_known(tmp_path, name, text, value):
    """From the environment and from YAML, in any case and with either dash; a run's config.yaml has our name for it."""
    leaf = NAMES[name].name
    for environ in ({name.upper(): text}, {"CONFIG": yaml_file(tmp_path, f"trainer: {{{name}: {text}}}")}):
        found = load(environ).settings
        assert config.value_of(found, leaf) == value
        assert yaml.safe_load(config.dump(found))["trainer"][leaf] == value


def test_spellings_are_of_choices_and_unlike():
    """No spelling stands for two choices, for a missing choice, or for the choice of the same name."""
    folded = lambda text: text.lower().replace("-", "").replace("_", "")  # noqa: E731
    assert any(leaf.spellings for leaf in LEAVES.values())
    for leaf in LEAVES.values():
        names = [folded(name) for name in (*leaf.choices, *leaf.spellings)]
        assert not leaf.spellings or (set(leaf.spellings.values()) <= set(leaf.choices) and len(names) == len(set(names)))


@pytest.mark.parametrize("value", ["cosine_with_restarts", "polynomial", "inverse_sqrt", "reduce_lr_on_plateau", "no", "3",
                                   "cosine_with_min_lr", "warmup_stable_decay", "[linear]"])
def test_other_schedules_are_refused(tmp_path, value):
    """The message lists all known names, whatever type YAML gave the value."""
    (problem,) = refused({"CONFIG": yaml_file(tmp_path, f"lr_scheduler_type: {value}")})
    assert "one of constant, linear, cosine (also constant_with_warmup, linear_with_warmup, cosine_with_warmup)" in problem


def test_two_spellings_of_one_choice_agree():
    """In one source, and on a resume; two choices do not."""
    assert load({"SCHEDULER": "linear_with_warmup", "LR_SCHEDULER": "LINEAR"}).settings.trainer.scheduler == "linear"
    assert "contradicts" in refused({"SCHEDULER": "linear_with_warmup", "LR_SCHEDULER": "cosine"})[0]


def test_spellings_are_no_change_on_resume(tmp_path):
    """A run keeps its schedule under any of its names, and refuses another."""
    folder = run_folder(tmp_path, LR_SCHEDULER_TYPE="COSINE")
    load({"RESUME": folder, "LR_SCHEDULER": "cosine_with_warmup"})
    (problem,) = refused({"RESUME": folder, "SCHEDULER": "linear"})
    assert problem.startswith("SCHEDULER=linear: the run has SCHEDULER=cosine and ")


# Settings that no longer exist

GONE = {    # name -> spellings of what it is fixed at
    "optimizer": ["adamw", "AdamW", "adamw_torch", "ADAMW-TORCH", "adamw_torch_fused", "adamw_hf", "torch.optim.AdamW", "Adam_W"],
    "optim": ["adamw_torch_fused"], "optimiser": ["adamw"], "adam_beta1": ["0.9", "9e-1", ".90"], "adam_beta2": ["0.999"],
    "adam_eps": ["1e-8", "0.00000001"], "adam_epsilon": ["1.0e-08"], "hf_token_env": ["HF_TOKEN"],
    "wandb_key_env": ["WANDB_API_KEY"]}


@pytest.mark.parametrize("name, text", [(name, text) for name, texts in GONE.items() for text in texts])
def test_a_retired_name_is_accepted_at_its_constant(tmp_path, name, text):
    """From the environment, flat and nested YAML: silently, and without changing anything."""
    section = "auth" if name.endswith("env") else "trainer"
    for environ in ({name.upper(): text}, {"CONFIG": yaml_file(tmp_path, f"{name}: {text}")},
                    {"CONFIG": yaml_file(tmp_path, f"{section}: {{{name}: '{text}'}}")}):
        loaded = load(environ, training=True)
        assert loaded.settings == load({}).settings and loaded.warnings == [] and set(loaded.origins.values()) == {"default"}
    assert load({name.upper(): " "}).settings == load({"CONFIG": yaml_file(tmp_path, f"{section}:\n  {name}: null\n")}).settings
    assert load({"CONFIG": yaml_file(tmp_path, f"{section}:\n")}).settings == load({}).settings


@pytest.mark.parametrize("name, value, words", [
    *[("OPTIM", value, r"OPTIMIZER is fixed at adamw \(.* Adam while WEIGHT_DECAY is 0\); remove it")
      for value in ("sgd", "adam", "Adam", "adafactor", "adamw_8bit", "paged_adamw_32bit", "lion", "torch.optim.SGD",
                    "torch.optim.Adam", "galore_adamw", "adamw sgd")],
    ("ADAM_BETA1", "0.8", "ADAM_BETA1 is fixed at 0.9 .*; remove it"), ("ADAM_BETA2", "nan", "ADAM_BETA2 is fixed at 0.999 "),
    ("ADAM_BETA2", "fast", ".* fixed at 0.999 "), ("ADAM_EPSILON", "1e-6", "ADAM_EPS is fixed at 1e-08 "),
    ("HF_TOKEN_ENV", "MINE", ".* fixed at HF_TOKEN .* is read from the variable HF_TOKEN.; remove it"),
    ("HF_TOKEN_ENV", "hf_token", ".* fixed at HF_TOKEN "),
    ("WANDB_KEY_ENV", "MINE", ".* fixed at WANDB_API_KEY .* read from the variable WANDB_API_KEY.; remove it")])
def test_a_retired_name_is_refused_at_another_value(tmp_path, name, value, words):
    """One line with the name as it was used, the constant and what to do."""
    for environ in ({name: value}, {"CONFIG": yaml_file(tmp_path, f"{name.lower()}: {value}")}):
        (problem,) = refused(environ)
        assert re.search(rf"{name}[=:] ?{re.escape(value)}: {words}", problem, re.IGNORECASE if "CONFIG" in environ else 0)


def test_a_retired_name_in_the_wrong_section_is_refused(tmp_path):
    """Like any other setting; and its section accepts no unknown names."""
    assert "adam_beta1 is in section trainer" in refused({"CONFIG": yaml_file(tmp_path, "data: {adam_beta1: 0.9}")})[0]
    assert "auth.token: unknown setting" in refused({"CONFIG": yaml_file(tmp_path, "auth: {token: x}")})[0]
    assert "auth is a section" in refused({"CONFIG": yaml_file(tmp_path, "auth: HF_TOKEN")})[0]


OLD = """trainer: {steps: 3, optimizer: adamw, adam_beta1: 0.9, adam_beta2: 0.999, adam_eps: 1.0e-08}
auth: {hf_token_env: HF_TOKEN, wandb_key_env: WANDB_API_KEY}
origins: {optimizer: env OPTIM, steps: env STEPS}
about: {git: abc}
"""


def test_old_runs_are_read_and_resumed(tmp_path):
    """A config.yaml with the retired names at their constants; with another value the error names the file."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(OLD)
    for loaded in (load({"RESUME": str(run), "OPTIM": "adamw_torch", "ADAM_BETA2": "0.999"}, training=True),
                   load({"CONFIG": str(run / "config.yaml")})):
        assert loaded.settings.trainer.steps == 3 and not loaded.warnings
        assert loaded.settings.reward.style_depth == "written", "as such runs were paid"
    assert config.provenance(load({"RESUME": str(run)})) == {"steps": "env STEPS", "style_depth": "not recorded"}
    (run / "config.yaml").write_text(f"{OLD}reward: {{style_depth: bearing}}")
    assert load({"RESUME": str(run)}).settings.reward.style_depth == "bearing"
    (run / "config.yaml").write_text(OLD.replace("optimizer: adamw", "optimizer: sgd"))
    (problem,) = refused({"RESUME": str(run)})
    assert problem.startswith(f"{run / 'config.yaml'}: trainer.optimizer: sgd: OPTIMIZER is fixed at adamw")


# Numbers

@pytest.mark.parametrize("text", ["2e-5", "'2e-5'", "2E-5", "+2e-5", "0.00002", "'0.00002'", "2.0e-5", "' 2e-5 '", "20e-6"])
def test_numbers_that_yaml_takes_for_text(tmp_path, text):
    """YAML 1.1 reads 2e-5 as text; a numeric setting converts it."""
    assert load({"CONFIG": yaml_file(tmp_path, f"trainer: {{lr: {text}}}")}).settings.trainer.learning_rate == 2e-5


@pytest.mark.parametrize("text", ["1000", "'1000'", "1e3", "'1e3'", "1_000", "'1_000'", "1000.0", "'1000.0'", "+1000"])
def test_whole_numbers_that_yaml_takes_for_text(tmp_path, text):
    """Quoted, with an exponent, or with Python's underscores: an int."""
    steps = load({"CONFIG": yaml_file(tmp_path, f"max_steps: {text}")}).settings.trainer.steps
    assert steps == 1000 and type(steps) is int


@pytest.mark.parametrize("line", ["lr: '2e-5x'", "lr: 2e", "lr: '2,5e-5'", "steps: '1e-3'", "steps: '12 steps'", "steps: '1__0'",
                                  "lr: '1e999'", "steps: '1e999'", "lr: 'nan'", "lr: ''"])
def test_text_that_is_not_a_number_is_refused(tmp_path, line):
    """The message has the key as it was written."""
    (problem,) = refused({"CONFIG": yaml_file(tmp_path, line)})
    assert f": {line.split(':')[0]}: " in problem and "number from" in problem


def test_blank_means_unset_except_where_blank_is_a_value(tmp_path):
    """`STEPS= ` changes nothing; `LORA=` asks for no adapter over a file that names one; null in YAML is unset."""
    path = yaml_file(tmp_path, "lora: some/adapter\nsteps: 9\nmodel: null\n")
    loaded = load({"CONFIG": path, "STEPS": " ", "LORA": "", "MODEL": ""})

    assert (loaded.settings.trainer.steps, loaded.settings.model.lora) == (9, "")
    assert loaded.settings.model.model == "0.5B" and loaded.origins["model"] == "default"


def test_empty_file_is_no_settings(tmp_path):
    """A file of comments alone is legal."""
    assert load({"CONFIG": yaml_file(tmp_path, "# nothing yet\n")}).settings == load({}).settings


@pytest.mark.parametrize("text, yaml_text", [
    ("v_proj,q_proj", "v_proj,q_proj"), (" v_proj , q_proj ", "[v_proj, q_proj]"), ("q_proj,v_proj", "'q_proj, v_proj'")])
def test_a_list_of_names_in_any_spelling(tmp_path, text, yaml_text):
    """Order and spaces do not matter, and YAML may use a list; it is stored as text in the declared order."""
    found = [load({"LORA_TARGETS": text}), load({"CONFIG": yaml_file(tmp_path, f"lora_target_modules: {yaml_text}")})]
    assert [loaded.settings.model.lora_targets for loaded in found] == ["q_proj,v_proj"] * 2
    again = load({"CONFIG": yaml_file(tmp_path, config.dump(found[0].settings))})
    assert again.settings == found[0].settings


@pytest.mark.parametrize("text", ["q_prj", "q_proj,q_proj", "q_proj,,v_proj", ",", "all", "lm_head", "Q_PROJ"])
def test_unknown_and_repeated_names_are_refused(tmp_path, text):
    """One problem that lists the known names, from the environment and from a list in YAML."""
    for environ in ({"LORA_TARGETS": text}, {"CONFIG": yaml_file(tmp_path, f"lora_targets: ['{text}']")},
                    {"CONFIG": yaml_file(tmp_path, "lora_targets: 3")}):
        (problem,) = refused(environ)
        assert "a comma-separated list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj" in problem
        assert problem.startswith("LORA_TARGETS=") or "lora_targets: " in problem


# Refusing

@pytest.mark.known_bug(6)
def test_every_problem_is_reported_at_once(tmp_path):
    """File and environment problems come together, each with name, value and limit."""
    path = yaml_file(tmp_path, "stepz: 3\nlearning_rate: fast\n")
    problems = refused({"CONFIG": path, "NUM_GENERATIONS": "1", "DTYPE": "int4", "TEMPERATURE": "0"}, training=True)
    text = "\n".join(problems)

    assert len(problems) == 5
    assert f"{path}: stepz: unknown setting; the nearest name is steps" in text
    assert f"{path}: learning_rate: fast: LEARNING_RATE takes a number from 0.0 to 1.0" in text
    assert "NUM_GENERATIONS=1: GROUP takes a whole number from 2 to 1024" in text
    assert "DTYPE=int4: DTYPE takes one of auto, float32, bfloat16, float16" in text
    assert "TEMPERATURE=0: " in text and "above 0" in text


@pytest.mark.parametrize("name, value", [
    ("GROUP", "1"), ("GROUP", "1025"), ("GROUP", "8.5"), ("GROUP", "eight"), ("GROUP", "nan"), ("GROUP", "inf"),
    ("GROUP", "9" * 5000), ("GROUP", "true"), ("STEPS", "0"), ("STEPS", "-1"), ("TEMPERATURE", "-0.1"),
    ("TEMPERATURE", "nan"), ("LEARNING_RATE", "inf"), ("TOP_P", "0"), ("TOP_P", "1.01"), ("STYLE_WEIGHT", "-1"),
    ("STYLE_WEIGHT", "10.5"), ("STYLE_HINT", "maybe"), ("SPLIT", "test"), ("REMAT", "FULL"), ("RUN_NAME", "../up"),
    ("LEARNING_RATE", "1.5"), ("KEEP_LAST", "0"), ("SEED", "-1"), ("SEED", str(2**31)),
])
def test_values_beyond_the_limits_are_refused_with_their_name(name, value):
    """The message starts with what the user typed and is of readable length."""
    (problem,) = refused({name: value})

    assert problem.startswith(f"{name}={value[:57]}") and len(problem) < 300


@pytest.mark.parametrize("line", ["steps: true", "temperature: no", "group: [8]", "group: {a: 1}", "steps: 3.5", "lora: [no]",
                                  "run_name: {a: b}", "style_hint: 2", "learning_rate: 2024-01-01", "case_seconds: .inf",
                                  "steps: 1:30", "learning_rate: 0:0:1", "seed: 0x10", "seed: 0b11", "seed: 0o17", "top_p: .NaN",
                                  "seed: !!int 0x10", "model: !!binary aGk=", "run_name: !!timestamp 2024-01-01"])
def test_yaml_values_of_the_wrong_kind_are_refused(tmp_path, line):
    """Switches, dates, lists and YAML 1.1's numbers never slip into a setting of another type."""
    (problem,) = refused({"CONFIG": yaml_file(tmp_path, line)})

    assert f": {line.split(':')[0]}: " in problem or "not valid YAML: '0x10'" in problem


AS_WRITTEN = [("steps", "0600"), ("seed", "010"), ("seed", "08"), ("seed", "1_000"), ("seed", "-0"), ("lora", "no"),
              ("lora", "7"), ("lora", "1:30"), ("run_name", "2024-01-01"),
              ("run_name", "on"), ("run_name", "007"), ("run_name", "1e5"),
              ("task_names", "0x1F"), ("style_hint", "yes"), ("style_hint", "Off"), ("style_hint", "1"), ("tracker", "none"),
              ("learning_rate", "1e-5"), ("learning_rate", ".5"), ("learning_rate", "0_0.1"), ("max_hours", "012.50"),
              ("model", "Null-Model"), ("thinking_tag", "y")]


@pytest.mark.parametrize("name, text", AS_WRITTEN)
@pytest.mark.parametrize("tag", ["", "!!str "])
def test_a_value_means_the_same_in_yaml_and_in_the_environment(tmp_path, name, text, tag):
    """YAML 1.1 would read 0600 as 384, 010 as 8, 1:30 as 90 and no as false."""
    from_file = load({"CONFIG": yaml_file(tmp_path, f"{name}: {tag}{text}  # as written")}).settings

    assert from_file == load({name.upper(): text}).settings


def test_a_tagged_number_is_read_as_written(tmp_path):
    """!!int and !!float promise a number; they do not change how it is read."""
    path = yaml_file(tmp_path, "steps: !!int 0600\nlearning_rate: !!float 1e-5\nstyle_hint: !!bool yes\n")
    found = load({"CONFIG": path}).settings
    assert (found.trainer.steps, found.trainer.learning_rate, found.data.style_hint) == (600, 1e-5, True)


KWARGS = "{a: 0600, b: 1:30, c: 1_000, d: 1e-5, e: yes, f: 'yes', g: '010', h: [08, ~], i: {j: 2024-01-01, k: 0x1}, l: '', m: .5}"


def test_entries_of_a_mapping_are_read_alike(tmp_path):
    """From the environment and from YAML, nested too; quotes keep text, and numbers are decimal."""
    from_file = load({"CONFIG": yaml_file(tmp_path, f"combine_kwargs: {KWARGS}")}).settings
    assert from_file == load({"COMBINE_KWARGS": KWARGS}).settings
    assert json.loads(from_file.objective.combine_kwargs) == {
        "a": 600, "b": "1:30", "c": 1000, "d": 1e-5, "e": True, "f": "yes", "g": "010", "h": [8, None],
        "i": {"j": "2024-01-01", "k": "0x1"}, "l": "", "m": 0.5}
    for value in (".inf", "-.INF", ".nan", "1e999"):
        assert "COMBINE_KWARGS takes a mapping" in refused({"COMBINE_KWARGS": f"{{a: {value}}}"})[0]


def test_a_setting_in_the_wrong_section_is_refused(tmp_path):
    """Names are unique, so the message can name the right section."""
    (problem,) = refused({"CONFIG": yaml_file(tmp_path, "trainer:\n  group: 4\n")})

    assert "trainer.group" in problem and "section generation" in problem


@pytest.mark.known_bug(26)
@pytest.mark.parametrize("text, words", [
    ("steps: 3\nsteps: 4\n", "the key steps is given twice"),
    ("trainer: 3\n", "trainer is a section"),
    ("- steps\n", "holds a list"),
    ("steps: [\n", "'<stream end>' at line 2, column 1"), 
    ("seed: 1\nsteps: !!timestamp 2026-13-45\n", "not valid YAML: '2026-13-45': month must be in 1..12 at line 2, column 8"),
    ("seed: 1\n  \nrun_name: a\x01b\n", "not valid YAML: character 0x01 is not allowed in YAML, at line 3, column 12"),
    ("steps: !!int ''\n", "at line 1, column 8"), ("steps: !!bool x\n", "at line 1, column 8"),
    ("seed: 1\ntrainer: !!map x\n", "at line 2, column 10"),
    ("steps: " + "[" * 3000, "not valid YAML"),
    ("zzzzqqqq: 1\n", "--help lists the settings"), ("foo: 1\n", "foo: unknown setting; --help lists the settings"),
    ("trainer: {stepss: 1}\n", "trainer.stepss: unknown setting; the nearest name is steps"),
    ("trainer: {temprature: 1}\n", "trainer.temprature: unknown setting; the nearest name is temperature"),
    ("objective: {length_penalty_lambda: .5, combine_kwargs: {length_penalty_lambda: 1}}\n", "contradicts"),
    ("objective: {length_penalty_lambda: .5}\nlength_penalty_lambda: 1\n", "contradicts"),
    ("trainer: {length_penalty_lambda: .5}\n", "trainer.length_penalty_lambda: unknown setting"),
    ("rewards: {length_penalty_reward: {tag: x}}\n", "of a reward go below reward_kwargs: {length_penalty_reward: ...}"),
    ("rewards: {policy: last}\n", "put it below reward_kwargs: {gsm8k_correctness_reward: ...}"),
    ("objective: {name: additive}\n", "objective.name: unknown setting; objective has loss, "),
    ("objective: {losstype: grpo}\n", "the nearest name is loss_type"), ("objective: {penalty: 1}\n", "is overlong_penalty"),
])
def test_files_that_cannot_mean_what_they_say_are_refused(tmp_path, text, words):
    """No part of a settings file is silently dropped."""
    assert words in refused({"CONFIG": yaml_file(tmp_path, text)})[0]


def test_switches_of_the_objective_may_stand_beside_it(tmp_path):
    """In the objective's section, among the rewards or flat; the same as in combine_kwargs, which may hold others."""
    text = """objective: {combine: weighted_length_penalty, strict_format_gate: yes, correctness_weight: 2,
                          length_penalty_lambda: 5e-1, combine_kwargs: {non_strict_penalty: -2, correctness_weight: 2}}
rewards: {enable_length_penalty: true, style_weight: 0.25}
length_penalty_interaction: correctness_length_format
"""
    found = load({"CONFIG": yaml_file(tmp_path, text)})
    assert found.settings.reward.style_weight == 0.25 and json.loads(found.settings.objective.combine_kwargs) == {
        "strict_format_gate": True, "correctness_weight": 2, "length_penalty_lambda": 0.5, "non_strict_penalty": -2,
        "enable_length_penalty": True, "length_penalty_interaction": "correctness_length_format"}
    assert load({"CONFIG": yaml_file(tmp_path, text), "COMBINE_KWARGS": "{}"}).settings.objective.combine_kwargs == "{}"


def test_missing_or_unreadable_file_is_named(tmp_path):
    """A wrong CONFIG path, a folder and a binary file are one-line errors."""
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00steps")

    assert "none.yaml: No such file" in refused({"CONFIG": str(tmp_path / "none.yaml")})[0]
    assert "Is a directory" in refused({"CONFIG": str(tmp_path)})[0]
    assert refused({"CONFIG": str(tmp_path / "binary.yaml")})[0].endswith(
        "binary.yaml: not valid YAML: byte 0xff is not UTF-8, at line 1, column 1")
    (tmp_path / "latin.yaml").write_bytes("# gr\u00fc\u00dfe\nrun_name: \u00e4".encode() + b"h\xe4\n")
    assert "latin.yaml: not valid YAML: byte 0xe4 is not UTF-8, at line 2, column 13" in refused(
        {"CONFIG": str(tmp_path / "latin.yaml")})[0]


def test_two_names_of_one_setting_must_agree(tmp_path):
    """Equal values are fine; unequal ones within one source have no right answer."""
    assert load({"GROUP": "4", "NUM_GENERATIONS": "4.0"}).settings.generation.group == 4
    assert "contradicts GROUP=4" in refused({"GROUP": "4", "NUM_GENERATIONS": "8"})[0]
    path = yaml_file(tmp_path, "generation: {group: 4}\ngroup_size: 8\n")
    assert "contradicts" in refused({"CONFIG": path})[0]
    assert load({"CONFIG": yaml_file(tmp_path, "group: 4"), "GROUP_SIZE": "8"}).settings.generation.group == 8


@pytest.mark.known_bug(10)
def test_training_refuses_samples_that_cannot_differ(tmp_path):
    """Greedy decoding is fine for a probe and refused for training, new or resumed, all reasons at once."""
    greedy = {"TEMPERATURE": "0", "TOP_K": "1"}
    for environ in (greedy, {"RESUME": run_folder(tmp_path, **greedy)}):
        problems = refused(environ, training=True)
        assert len(problems) == 2 and "TEMPERATURE=0" in problems[0] and "TOP_K=1" in problems[1]
    load(greedy)


MEANINGLESS = [
    ({"ADVANTAGE": "passk", "GROUP": "4"}, "PASS_K=4 with GROUP=4"),
    ({"ADVANTAGE": "passk", "UPDATE_GROUP": "4"}, "PASS_K=4 with UPDATE_GROUP=4"),
    ({"ADVANTAGE": "passk", "ADVANTAGE_SCALE": "batch"}, "ADVANTAGE=passk with ADVANTAGE_SCALE=batch"),
    ({"UPDATE_GROUP": "1"}, "UPDATE_GROUP=1: one sample"), ({"UPDATE_GROUP": "9"}, "UPDATE_GROUP=9 with GROUP=8"),
    ({"OVERLONG": "penalise", "MAX_NEW_TOKENS": "20"}, "OVERLONG_TOKENS=32: .*MAX_NEW_TOKENS=20"),
    ({"DYNAMIC_SAMPLING": "1", "TASKS_PER_STEP": "32"}, "MAX_SAMPLED_GROUPS=32 .*TASKS_PER_STEP=32"),
    ({"DYNAMIC_SAMPLING": "1", "SHUFFLE_REWARDS": "1"}, "SHUFFLE_REWARDS=true with DYNAMIC_SAMPLING=true"),
    ({"EVAL_EVERY": "5", "SPLIT": "all"}, "EVAL_EVERY=5 with SPLIT=all: held-out tasks would be trained on"),
    ({"EVAL_EVERY": "5", "SPLIT": "heldout"}, "EVAL_EVERY=5 with SPLIT=heldout"),
    ({"EVAL_EVERY": "5", "EVAL_SAMPLES": "9", "GROUP": "4", "TASKS_PER_STEP": "2"}, "EVAL_SAMPLES=9.*TASKS_PER_STEP x GROUP = 8"),
]


@pytest.mark.parametrize("environ, words", MEANINGLESS, ids=lambda value: str(value)[:40])
def test_training_refuses_what_makes_it_meaningless(environ, words):
    """One line that names both settings; a probe, which reads none of them, goes on."""
    (problem,) = refused(environ, training=True)

    assert re.search(words, problem) and "\n" not in problem
    load(environ)


def test_all_that_makes_training_meaningless_is_reported_at_once():
    """Three mistakes, three lines."""
    wrong = {"ADVANTAGE": "passk", "PASS_K": "9", "TOP_K": "1", "DYNAMIC_SAMPLING": "1", "TASKS_PER_STEP": "64"}

    assert len(refused(wrong, training=True)) == 3


IDLE = [
    ({"PASS_K": "2"}, "PASS_K=2 has no effect: it needs ADVANTAGE=passk"),
    ({"LORA_SCALE": "0.5"}, "LORA_SCALE=0.5 has no effect: training goes on from LORA as it is"),
    ({"SFT_FILE": "a.jsonl"}, "SFT_FILE=a.jsonl has no effect: only train_sft.py reads it"),
    ({"OVERLONG_TOKENS": "9", "OVERLONG": "mask"}, "OVERLONG_TOKENS=9 has no effect: it needs OVERLONG=penalise"),
    ({"OVERLONG_PENALTY": "1"}, "OVERLONG_PENALTY=1.0 has no effect: it needs OVERLONG=penalise"),
    ({"MAX_SAMPLED_GROUPS": "99"}, "MAX_SAMPLED_GROUPS=99 has no effect: it needs DYNAMIC_SAMPLING=true"),
    ({"GSPO_EPS_LOW": "0.1"}, "GSPO_EPS_LOW=0.1 has no effect: it needs LOSS=gspo"),
    ({"GSPO_EPS_HIGH": "0.1", "LOSS": "cispo"}, "GSPO_EPS_HIGH=0.1 has no effect: it needs LOSS=gspo"),
    ({"EPS_LOW": "0.1", "LOSS": "gspo"}, "EPS_LOW=0.1 has no effect: LOSS=gspo .* GSPO_EPS_LOW"),
    ({"EPS_HIGH": "0.1", "LOSS": "gspo"}, "EPS_HIGH=0.1 has no effect: LOSS=gspo .* GSPO_EPS_HIGH"),
    ({"EVAL_SAMPLES": "4"}, "EVAL_SAMPLES=4 has no effect: it needs EVAL_EVERY above 0"),
    ({"EVAL_TASKS": "4"}, "EVAL_TASKS=4 has no effect: it needs EVAL_EVERY above 0"),
    ({"SCHEDULER": "linear", "STEPS": "5"}, "SCHEDULER=linear has no effect: the run ends within WARMUP_STEPS=5"),
    ({"THINKING_TAG": "t"}, "THINKING_TAG=t has no effect: answers to TASKS=lc_easy are not in words"),
    ({"THINKING_TAG": "t", "TASKS": "reasoning_gym", "COMBINE": "reasoning_gym"}, "THINKING_TAG=t .*TASKS=reasoning_gym"),
    ({"FORM_EXAMPLE": "1", "TASKS": "mbpp"}, "FORM_EXAMPLE=true .*TASKS=mbpp"),
    ({"FORM_EXAMPLE": "1", "COMBINE": "mine.py:Mine"}, "FORM_EXAMPLE=true .*TASKS=lc_easy"),
    ({"STYLE_WEIGHT": "0.2", "COMBINE": "additive", "TASKS": "gsm8k"}, "STYLE_WEIGHT=0.2 .* lisp_reward .*COMBINE=additive"),
    ({"RECHECK_SHARE": "0", "COMBINE": "latent", "TASKS": "gsm8k"}, "RECHECK_SHARE=0.0 has no effect: only lisp_reward reads it"),
    ({"RECHECK_SHARE": "0", "COMBINE": "reasoning_gym", "TASKS": "reasoning_gym"}, "RECHECK_SHARE=0.0 .*only lisp_reward"),
    ({"SCORE_SECONDS": "9"}, "SCORE_SECONDS=9.0 .*only reasoning_gym_reward reads it, .*COMBINE=lisp"),
    *[({name: value}, f"{name}=.* has no effect: only grpo_proof.py reads it") for name, value in (
        ("FAMILIES", "gcd"), ("EVAL_N", "9"), ("PREDICT_TASKS", "9"), ("CONTROL_ARM", "0"), ("PREDICTIONS", "x"))],
    *[({"COMBINE": "weighted_length_penalty", "TASKS": "gsm8k", "COMBINE_KWARGS": kwargs}, words) for kwargs, words in (
        ("{non_strict_penalty: -2}", "non_strict_penalty: -2 has no effect: it needs strict_format_gate: true"),
        ("{length_penalty_lambda: .5, enable_length_penalty: false}", "length_penalty_lambda: 0.5 .* enable_length_penalty"),
        ("{utilisation: mine}", "utilisation: mine has no effect: it needs enable_token_utilisation: true"))],
]


@pytest.mark.parametrize("environ, words", IDLE, ids=lambda value: str(value)[:40])
def test_training_warns_of_settings_without_effect(environ, words):
    """One line with setting, value and reason; the settings are the same, and a probe is not warned."""
    loaded = load(environ, training=True)
    (warning,) = loaded.warnings

    assert re.search(words, warning) and "\n" not in warning
    assert load(environ) == loaded._replace(warnings=[])


def test_a_resumed_run_is_warned_again(tmp_path):
    """Every idle setting has its line, and errors are still raised."""
    wrong = {"EVAL_N": "9", "STYLE_WEIGHT": "1", "COMBINE": "additive", "TASKS": "gsm8k"}
    loaded = load({"RESUME": run_folder(tmp_path, **wrong)}, training=True)

    assert loaded.settings.proof.eval_n == 9 and [line.split("=")[0] for line in loaded.warnings] == ["EVAL_N", "STYLE_WEIGHT"]
    assert len(refused(wrong | {"TOP_K": "1"}, training=True)) == 1


@pytest.mark.parametrize("environ", [
    {"ADVANTAGE": "passk", "PASS_K": "7"}, {"OVERLONG": "penalise", "OVERLONG_TOKENS": "192"}, {"DYNAMIC_SAMPLING": "1"},
    {"LOSS": "gspo", "GSPO_EPS_HIGH": "0.1"}, {"LOSS": "cispo", "EPS_LOW": "1"}, {"DYNAMIC_SAMPLING": "1", "KL_BETA": "0.01"},
    {"SCHEDULER": "cosine", "STEPS": "6"}, {"STEPS": "3"}, {"EVAL_EVERY": "1", "EVAL_TASKS": "3", "EVAL_SAMPLES": "4"},
    {"WEIGHT_DECAY": "0.1", "LEARNING_RATE": "1"}, {"STYLE_WEIGHT": "0.2", "RECHECK_SHARE": "0"},
    {"THINKING_TAG": "t", "FORM_EXAMPLE": "1", "TASKS": "gsm8k", "COMBINE": "additive"},
    {"THINKING_TAG": "t", "STYLE_WEIGHT": "1", "SCORE_SECONDS": "9", "RECHECK_SHARE": "0", "COMBINE": "mine.py:Mine"},
    {"FORM_EXAMPLE": "1", "THINKING_TAG": "t", "TASKS": "mine", "PLUGINS": "mine.py"},
    {"THINKING_TAG": "t", "STYLE_WEIGHT": "1", "COMBINE": "additive", "COMBINE_KWARGS": "{correctness: lisp_reward}"},
    {"SCORE_SECONDS": "9", "COMBINE": "reasoning_gym", "TASKS": "reasoning_gym"},
    {"COMBINE": "additive", "COMBINE_KWARGS": "{non_strict_penalty: -2, strict_format_gate: true}"},
    {"COMBINE": "additive", "COMBINE_KWARGS": "{non_strict_penalty: -1, length: mine}"},
    {"COMBINE": "mine.py:Mine", "COMBINE_KWARGS": "{non_strict_penalty: -2}"},
    {"COMBINE": "additive", "COMBINE_KWARGS": "{no_such: 1}", "STYLE_WEIGHT": "1"}])
def test_training_says_nothing_of_what_acts(environ):
    """No warning for settings that act, up to the limits of their options, nor for what outside code may read."""
    assert load(environ, training=True).warnings == []


def test_the_proof_reads_its_own_settings():
    """A command with defaults of its own is grpo_proof.py."""
    assert load({"EVAL_N": "9", "CONTROL_ARM": "0"}, training=True, defaults={"combine": "reasoning_gym"}).warnings == []


# Near misses

@pytest.mark.known_bug(26)
@pytest.mark.parametrize("name, meant", [("STEP", "STEPS"), ("LEARNING_RATES", "LEARNING_RATE"), ("TOPK", "TOP_K"),
                                         ("MAX_TOKENS", "MAX_NEW_TOKENS"), ("N_TASK", "N_TASKS"), ("steps", "STEPS"),
                                         ("LEARNIG_RATE", "LEARNING_RATE"), ("TRAIN_STEPS", "STEPS"),
                                         ("GENERATION_GRUOP", "GROUP"), ("model_dtype", "DTYPE"),
                                         ("LORA_RANKS", "LORA_RANK"), ("CONFIGS", "CONFIG"), ("NUM_GENERATION",
                                                                                              "NUM_GENERATIONS")])
def test_near_miss_variables_are_warned_of(name, meant):
    """A typo is reported; its value, which may be a secret, is not."""
    (warning,) = load({name: "s3cret"}).warnings

    assert name in warning and f"did you mean {meant}?" in warning and "s3cret" not in warning


def test_ordinary_variables_are_not_warned_of():
    """Variables of login shells, WSL2, tmux, ssh, CI, CUDA and Python cause no warning."""
    ordinary = """
        HOME PATH SHELL TERM LANG LC_ALL USER LOGNAME PWD OLDPWD SHLVL MAIL EDITOR VISUAL PAGER DISPLAY HOSTNAME
        HOSTTYPE OSTYPE MACHTYPE NAME WSL_DISTRO_NAME WSL_INTEROP WSLENV TMUX TMUX_PANE TERM_PROGRAM SSH_TTY SSH_CLIENT
        SSH_AUTH_SOCK XDG_RUNTIME_DIR XDG_SESSION_ID XDG_DATA_DIRS DBUS_SESSION_BUS_ADDRESS LS_COLORS LESSOPEN TMPDIR
        TEMP TMP CI GITHUB_ACTIONS RUNNER_OS VIRTUAL_ENV PYTHONPATH PYTHONHASHSEED CONDA_PREFIX CONDA_DEFAULT_ENV
        CUDA_VISIBLE_DEVICES CUDA_HOME LD_LIBRARY_PATH JAX_PLATFORMS XLA_FLAGS XLA_PYTHON_CLIENT_MEM_FRACTION HF_HOME
        HF_HUB_CACHE HF_HUB_OFFLINE HF_TOKEN OMP_NUM_THREADS SLURM_JOB_ID SLURM_NTASKS SLURM_STEP_ID COLUMNS LINES TZ
        DEBIAN_FRONTEND COLORTERM INVOCATION_ID JOURNAL_STREAM MANPATH GROUPS_FILE MODULEPATH
        RUN_ID RUN_URL MODEL_DIR DATA_DIR TRAIN_DIR RUNNER_TEMP REWARD_URL TRAINING_JOB_NAME PS1 UID EUID _ WINDOWID"""

    assert load(dict.fromkeys(ordinary.split(), "x")).warnings == []


# Writing and resuming

@given(st.fixed_dictionaries({}, optional={
    "steps": st.integers(1, 10_000_000), "learning_rate": st.floats(0, 1), "overlong_penalty": st.floats(0.001, 1),
    "lora": st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8).map(str.strip),
    "task_names": st.sampled_from(["gcd", "no", "1e5", "0.5", "null", "~", "a: b", "#x", "2024-01-01"]),
    "style_hint": st.booleans()}))
def test_what_is_dumped_is_read_back(tmp_path_factory, values):
    """A dumped configuration gives exactly the same settings, whatever YAML makes of the text."""
    before = load({name.upper(): str(value) for name, value in values.items()}).settings
    path = tmp_path_factory.mktemp("dump") / "config.yaml"
    path.write_text(config.dump(before, about={"git": "abc"}), encoding="utf-8")

    assert load({"CONFIG": str(path)}).settings == before


def test_dump_records_about_and_not_the_folder(tmp_path):
    """`about` is recorded; the run's folder is not, since it may be moved."""
    tree = yaml.safe_load(config.dump(load({"OUT": "x", "STEPS": "3"}).settings, about={"git": "abc"}))

    assert tree["about"] == {"git": "abc"} and tree["trainer"]["steps"] == 3
    assert not {"out", "resume"} & set(tree["run"])


def test_resume_takes_every_setting_from_the_run(tmp_path):
    """A new shell without the run's variables continues the same run, in place."""
    folder = run_folder(tmp_path, STEPS="3", GROUP="4", LORA="old", SEED="7", SPLIT="all", STYLE_HINT="1")
    loaded = load({"RESUME": folder})

    assert config.dump(loaded.settings) == config.dump(load({"STEPS": "3", "GROUP": "4", "LORA": "old", "SEED": "7",
                                                             "SPLIT": "all", "STYLE_HINT": "1"}).settings)
    assert loaded.settings.run.out == loaded.settings.run.resume == folder
    assert loaded.origins["group"] == f"run {folder}" and loaded.origins["resume"] == "env RESUME"


@pytest.mark.parametrize("name", ["STEPS", "MAX_STEPS", "SAVE_EVERY", "KEEP_LAST", "MAX_HOURS", "EVAL_EVERY"])
def test_resume_lets_these_change(tmp_path, name):
    """Length of the run, checkpoints and evaluations do not change what is computed."""
    loaded = load({"RESUME": run_folder(tmp_path), name: "77"})
    leaf = NAMES[name.lower()].name

    assert config.value_of(loaded.settings, leaf) == 77 and loaded.origins[leaf] == f"env {name}"


@pytest.mark.parametrize("scheduler", ["linear", "cosine"])
def test_resume_keeps_steps_where_a_schedule_ends_there(tmp_path, scheduler):
    """Other STEPS would change the learning rates; equal STEPS are fine, and other settings may still change."""
    folder = run_folder(tmp_path, SCHEDULER=scheduler, STEPS="50")
    (problem,) = refused({"RESUME": folder, "MAX_STEPS": "60"})

    assert problem.startswith(f"MAX_STEPS=60: the run has STEPS=50 and keeps it when resumed, because SCHEDULER={scheduler} ends")
    found = load({"RESUME": folder, "STEPS": "50", "SAVE_EVERY": "7", "MAX_HOURS": "1"}).settings
    assert (found.trainer.steps, found.run.save_every, found.trainer.max_hours) == (50, 7, 1)


def another_value(leaf):
    """A legal value that is not the default."""
    if leaf.type is bool:
        return not leaf.default
    if leaf.type is str:
        return leaf.names[0] if leaf.names else leaf.choices[-1] if leaf.choices else "other"
    if leaf.type is Kwargs:
        return '{"other": 1}'
    return leaf.type((leaf.low + leaf.high) / 2)


FIXED = [leaf for leaf in LEAVES.values() if not leaf.on_resume and leaf.name not in config.PLACES]


def test_resume_refuses_any_other_change(tmp_path):
    """A differing variable is an error that names both values; an equal one is fine."""
    folder = run_folder(tmp_path)
    assert len(FIXED) > 50
    for leaf in FIXED:
        name, default, other = leaf.name.upper(), text_of(leaf.default), text_of(another_value(leaf))
        (problem,) = refused({"RESUME": folder, name: other})

        assert problem.startswith(f"{name}={other}: the run has {name}={default} ")
        assert load({"RESUME": folder, name: default}).settings.run.resume == folder, name


def test_resume_checks_place_and_config(tmp_path):
    """OUT may only repeat the run's folder, CONFIG is refused, and a folder without a run is named."""
    folder = run_folder(tmp_path)
    inside = tmp_path / "a run" / "checkpoints" / "step3"
    inside.mkdir(parents=True)

    assert load({"RESUME": folder, "OUT": folder + "/"}).settings.run.out == folder
    assert "OUT=elsewhere" in refused({"RESUME": folder, "OUT": "elsewhere"})[0]
    path = yaml_file(tmp_path, "steps: 3")
    assert f"CONFIG={path}" in refused({"RESUME": folder, "CONFIG": path})[0]
    assert "give the folder of a run" in refused({"RESUME": str(tmp_path / "none")})[0]
    assert f"such as {folder}" in refused({"RESUME": str(inside)})[0]


def test_resume_reports_all_problems_at_once(tmp_path):
    """Differing, illegal and misplaced variables come in one message."""
    problems = refused({"RESUME": run_folder(tmp_path), "GROUP": "4", "SEED": "x", "OUT": "elsewhere"})

    assert len(problems) == 3


# Where values came from

def saved(loaded, folder):
    """Write a run's config.yaml as commands do; returns the recorded origins."""
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(config.dump(loaded.settings, {"git": "abc"}, config.provenance(loaded)))
    return config.recorded(folder, config.ORIGINS)


def test_origins_are_recorded_and_outlive_resumes(tmp_path):
    """Variable, file or alias of every given setting; a resumed run keeps them and adds its changes, also twice."""
    path, run = yaml_file(tmp_path, "group_size: 4\nseed: 0\n"), tmp_path / "run"
    first = saved(load({"CONFIG": path, "MAX_STEPS": "6", "OUT": str(run), "RUN_NAME": "x"}), run)
    assert first == {"group": f"CONFIG {path} (group_size)", "seed": f"CONFIG {path}", "steps": "env MAX_STEPS",
                     "run_name": "env RUN_NAME"}
    second = saved(load({"RESUME": str(run), "SAVE_EVERY": "2"}), run)
    assert second == first | {"save_every": "env SAVE_EVERY, on resume"}
    third = saved(load({"RESUME": str(run), "STEPS": "9", "GROUP": "4"}), run)
    assert third == second | {"steps": "env STEPS, on resume"}
    assert load({"CONFIG": str(run / "config.yaml")}).settings.trainer.steps == 9, "the record is no setting"


def test_settings_that_a_person_gave_are_listed(tmp_path):
    """Without defaults, a command's own included, and without what "auto" chose; a resume lists its changes first."""
    run = tmp_path / "run"
    own = config.load({"STEPS": "6", "MAX_HOURS": "2", "OUT": str(run)}, defaults={"group": 4, "seed": 5})
    assert config.chosen(own) == ["STEPS=6", "MAX_HOURS=2.0", f"OUT={run}"]
    saved(config.decide(own, "remat", "full", "it fits"), run)
    assert config.chosen(load({"RESUME": str(run)})) == ["STEPS=6", "MAX_HOURS=2.0"]
    resumed = load({"RESUME": str(run), "MAX_HOURS": "3", "STEPS": "6", "SAVE_EVERY": "7"})
    assert config.chosen(resumed) == ["MAX_HOURS=3.0 (was 2.0)", "SAVE_EVERY=7 (was 25)", "STEPS=6"]
    saved(resumed, run)
    assert config.chosen(load({"RESUME": str(run)})) == ["STEPS=6", "MAX_HOURS=3.0", "SAVE_EVERY=7"], "it is the run's own now"


def test_a_run_older_than_the_record_says_so(tmp_path):
    """Values other than the default are marked, defaults are left out."""
    folder = run_folder(tmp_path, STEPS="3")
    assert config.provenance(load({"RESUME": folder})) == {"steps": "not recorded"}
    assert config.chosen(load({"RESUME": folder, "SAVE_EVERY": "7"})) == ["SAVE_EVERY=7 (was 25)", "STEPS=3"]


def test_an_adapter_brings_its_rank_and_alpha():
    """They replace the defaults, with the adapter as origin; a different value, or one out of limits, is refused."""
    brought = {"lora_rank": 4, "lora_alpha": 6.0}
    loaded = config.adopt(load({"LORA_ALPHA": "6"}), brought, "LORA x")
    assert (loaded.settings.model.lora_rank, loaded.settings.model.lora_alpha) == (4, 6.0)
    assert (loaded.origins["lora_rank"], loaded.origins["lora_alpha"]) == ("LORA x", "LORA x")
    with pytest.raises(SettingsError) as caught:
        config.adopt(load({"LORA_R": "8", "LORA_ALPHA": "7"}), brought, "LORA x")
    assert [line.split(":")[0] for line in caught.value.problems] == ["LORA_RANK=8 (env LORA_R)",
                                                                      "LORA_ALPHA=7.0 (env LORA_ALPHA)"]
    assert "LORA x has LORA_RANK=4" in caught.value.problems[0]
    loaded = config.adopt(load({"LORA_TARGETS": "up_proj,q_proj"}), {"lora_targets": "up_proj,q_proj"}, "LORA x")
    assert loaded.settings.model.lora_targets == "q_proj,up_proj"
    with pytest.raises(SettingsError, match="LORA_TARGETS=v_proj .* LORA x has LORA_TARGETS=q_proj,up_proj and keeps it"):
        config.adopt(load({"LORA_TARGETS": "v_proj"}), {"lora_targets": "up_proj,q_proj"}, "LORA x")
    with pytest.raises(SettingsError, match="LORA x has LORA_TARGETS=lm_head,q_proj; this program takes .*gate_proj"):
        config.adopt(load({}), {"lora_targets": "lm_head,q_proj"}, "LORA x")
    with pytest.raises(SettingsError, match="LORA x has LORA_RANK=1000; this program takes a whole number from 1 to 512"):
        config.adopt(load({}), {"lora_rank": 1000}, "LORA x")


# Showing

def test_help_shows_every_setting_with_default_limits_and_aliases():
    """`--help` is complete because it is printed from the declarations."""
    text = " ".join(help_text(width=90).split())

    for leaf in LEAVES.values():
        assert f" {leaf.name.upper()}={text_of(leaf.default)} {leaf.help} [{leaf.limits}" in text
        assert all(alias.upper() in text for alias in leaf.aliases)
    assert all(f"{old.name.upper()}={old.fixed}" in text for old in RETIRED.values())
    assert all(len(line) <= 90 for line in help_text(width=90).splitlines() if not re.match("  [A-Z]", line))


def test_listing_shows_value_and_origin():
    """`--dry-run` can say where each value came from."""
    lines = config.listing(load({"NUM_GENERATIONS": "4"})).splitlines()

    assert ["GROUP", "4", "env", "NUM_GENERATIONS"] in [line.split() for line in lines]
    assert ["STEPS", "600", "default"] in [line.split() for line in lines]
    assert len(lines) == len(LEAVES) + len(SECTIONS)
