"""Names of providers, rewards and objectives, what they take, and code from outside."""
import sys
from collections.abc import Sequence

import pytest

from rl import registry
from rl.errors import InputError
from rl.registry import (
    build_data_provider,
    build_objective,
    build_reward,
    load_class_path,
    load_plugins,
    register_data_provider,
    register_objective,
    register_reward,
    registered,
)
from rl.rewards.base import TrainingSample


@pytest.fixture(autouse=True)
def names_of_its_own(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_REGISTERED", {kind: dict(known) for kind, known in registry._REGISTERED.items()})


def sample(tokens=3):
    return TrainingSample("2 + 2?", "4", "4", tokens, "stop", {})


def test_a_reward_is_bound_once_and_called_often():
    """The kwargs of YAML are bound when it is built; each call gets samples alone."""
    @register_reward("short")
    def short(samples, limit=100, *, scale: float):
        return [scale * (one.tokens <= limit) for one in samples]

    assert build_reward("short", limit=2, scale=3.0)([sample(2), sample(3)]) == [3.0, 0.0]
    assert short([sample()], scale=1.0) == [1.0], "the decorator leaves the function as it was"


def test_a_class_may_be_a_reward():
    """State such as an opened file belongs to an instance, which is made once."""
    @register_reward("counting")
    class Counting:
        def __init__(self, start):
            self.n = start

        def __call__(self, samples):
            self.n += 1
            return [float(self.n)] * len(samples)

    reward = build_reward("counting", start=5)

    assert reward([sample()]) == [6.0] and reward([sample()]) == [7.0]
    with pytest.raises(InputError, match="needs 'start'"):
        build_reward("counting")


def test_providers_and_objectives():
    """A provider is called for its tasks with the file that it reads; an objective is there at once."""
    register_data_provider("range")(lambda tasks_file, stop=3: list(range(int(tasks_file), stop)))
    register_objective("fixed")(lambda value: value)

    assert build_data_provider("range", stop=4)("1") == [1, 2, 3] and build_objective("fixed", value=7) == 7


@pytest.mark.parametrize(("build", "kind"), [(build_data_provider, "data provider"), (build_reward, "reward"),
                                             (build_objective, "objective")])
def test_an_unknown_name_lists_the_known_ones(build, kind):
    """With the nearest of them."""
    registry._REGISTERED[kind].update(weather_of_today=registry.Registered(lambda: 1), tides=registry.Registered(lambda: 2))

    with pytest.raises(InputError) as caught:
        build("weather_of_todya")
    assert f"no {kind} is called 'weather_of_todya' (did you mean weather_of_today?)" in str(caught.value)
    assert "tides" in str(caught.value) and {"tides", "weather_of_today"} <= set(registered(kind))


def test_kwargs_are_checked_before_anything_runs():
    """All that do not fit are named together: those it does not take, with the nearest, and those it lacks."""
    register_reward("strict")(lambda samples, limit, weight=1.0: [])

    with pytest.raises(InputError, match=r"the reward strict takes no 'wieght' \(did you mean weight\?\), needs 'limit'; "
                                         "it takes limit, weight"):
        build_reward("strict", wieght=2)
    with pytest.raises(InputError, match="takes no 'samples'"):
        build_reward("strict", limit=1, samples=[])
    register_reward("open")(lambda samples, **anything: [])
    build_reward("open", whatever=1)
    register_objective("named")(lambda name, what, called: [name, what, called])
    assert build_objective("named", name=1, what=2, called=3) == [1, 2, 3], "words of ours are no words taken"


def test_numbers_may_stand_as_text():
    """YAML leaves 5e-1 a text: where an annotation or a default says number it becomes one, elsewhere it stays text."""
    @register_objective("all_kinds")
    def all_kinds(a: float, b: int = 1, c=1.0, d=3, e: str = "x", f=None, g: "float" = 0.0, h: tuple[int, ...] = (), i="1"):
        return [a, b, c, d, e, f, g, h, i]

    text = dict(a="5e-1", b="1e2", c="2e-1", d="4", e="1e5", f="7", g=".5", h=["1", 2, "3"], i="2")
    found = build_objective("all_kinds", **text)
    assert found == [0.5, 100, 0.2, 4, "1e5", "7", 0.5, [1, 2, 3], "2"]
    assert [type(found[at]) for at in (0, 1, 3)] == [float, int, int]
    assert build_objective("all_kinds", a=1, d="0.5", c="auto")[:4] == [1, 1, "auto", 0.5], "a default says less"

    register_reward("later")(lambda samples, limit=1, **more: [limit, more])
    assert build_reward("later", limit="3", other="3")([]) == [3, {"other": "3"}], "samples come with the call, more is anything"


@pytest.mark.parametrize("kwargs, named", [({"a": "half"}, "a number for 'a', not 'half'"), ({"b": "0.5"}, "for 'b', not '0.5'"),
                                           ({"a": "nan"}, "'nan'"), ({"a": "1e999"}, "'1e999'"), ({"h": ["1", "x"]}, "for 'h'"),
                                           ({"b": ""}, "for 'b', not ''")])
def test_text_that_is_no_number(kwargs, named):
    """Said beside all else that is wrong with the kwargs, before anything is built."""
    register_objective("of_numbers")(of_numbers)
    with pytest.raises(InputError, match=f"the objective of_numbers takes no 'z', wants .*{named}"):
        build_objective("of_numbers", z=1, **kwargs)


def of_numbers(a: float = 1.0, b: int = 1, h: tuple[int, ...] = ()):
    pytest.fail("it was built")


def test_a_name_stands_for_one_thing():
    """Two functions cannot share a name; the same function may come twice, as when its module is loaded again."""
    def first(samples):
        return []

    register_reward("taken")(first)
    register_reward("taken")(first)
    with pytest.raises(InputError, match=r"the reward taken is registered already, by .*test_registry.py:\d+ .*first; .*lambda"):
        register_reward("taken")(lambda samples: [])
    register_reward("unnamed")(lambda samples: [1])
    with pytest.raises(InputError, match="registered already"):
        register_reward("unnamed")(lambda samples: [2])
    register_objective("taken")(first)    # of another kind


def test_a_decorator_without_a_name():
    """It would be called with the function, register nothing and put itself in the function's place."""
    with pytest.raises(InputError, match=r'a data provider is registered under a name: @register_data_provider\("a_name"\)'):
        register_data_provider(lambda tasks_file: ([], ()))


def test_what_cannot_be_called_with_samples():
    """A reward without an argument, and a class whose instances cannot be called, are found when they are built."""
    register_reward("deaf")(lambda *, limit=1: [])
    register_reward("positional")(lambda samples, /, limit=1: [limit])
    register_reward("still")(type("Still", (), {}))

    with pytest.raises(InputError, match="the reward deaf takes no argument, and is called with 1"):
        build_reward("deaf")
    with pytest.raises(InputError, match="still is a class without __call__"):
        build_reward("still")
    assert build_reward("positional", limit=3)([sample()]) == [3]


class Broken:
    def __init__(self, how="raise"):
        sys.exit(0) if how == "exit" else [][0]


@pytest.mark.parametrize(("how", "said"), [("raise", "IndexError: list index out of range"), ("exit", "SystemExit: 0")])
def test_code_from_outside_that_raises(how, said):
    """An objective or a reward that cannot be made: a line that says what was raised and where, and no exit of the command."""
    register_objective("broken")(Broken)
    register_reward("broken")(Broken)

    for build, kind in ((build_objective, "objective"), (build_reward, "reward")):
        with pytest.raises(InputError, match=rf"the {kind} broken raised {said} \(.*test_registry.py, line \d+\)"):
            build("broken", how=how)


@pytest.mark.parametrize("kwargs, named", [
    ({"n": [1]}, r"wants a whole number for 'n', not \[1\]"), ({"n": True}, "a whole number for 'n', not True"),
    ({"n": 1.5}, "a whole number for 'n', not 1.5"), ({"x": {}}, r"a number for 'x', not \{\}"), ({"text": 3}, "text for 'text'"),
    ({"flag": 1}, "true or false for 'flag', not 1"), ({"levels": 2}, "a list of whole numbers for 'levels', not 2"),
    ({"levels": "ab"}, "a list of whole numbers for 'levels'"), ({"levels": [[1]]}, "a list of whole numbers for 'levels'"),
    ({"names": ["a", 3]}, "a list of texts for 'names'"), ({"n": [1], "text": 3}, "for 'n', .*, wants text for 'text'")])
def test_a_value_of_another_type(kwargs, named):
    """Annotations of plain values are held to, all that is wrong together, before anything is built."""
    register_objective("of_types")(of_types)
    with pytest.raises(InputError, match=named):
        build_objective("of_types", **kwargs)


def of_types(n: int = 1, x: "float" = 1.0, text: str = None, flag: bool = False, levels: tuple[int, ...] = (),
             either: str | int = "", names: Sequence[str] = (), what: dict = None):
    return n, x, text, flag, levels, either, names, what


def test_types_that_fit():
    """Whole numbers are numbers, lists are tuples, the default itself is always good, and what annotations leave open too."""
    register_objective("of_types")(of_types)
    assert build_objective("of_types", x=2, text=None, flag=True, levels=[1, "2"], either=3, names=["a"], what=[1]) == (
        1, 2, None, True, [1, 2], 3, ["a"], [1])


OUTSIDE = """
from dataclasses import dataclass
from rl.registry import register_reward

@dataclass(frozen=True)
class Mine:
    weight: float = 1.0

@register_reward("from_outside")
def from_outside(samples):
    return [0.5 for _ in samples]
"""


def test_code_from_a_file_outside(tmp_path, capsys):
    """A class from a user's file, whose rewards are registered with it; it is said that outside code runs; twice is fine."""
    file = tmp_path / "mine.py"
    file.write_text(OUTSIDE)

    for _ in range(2):
        assert load_class_path(f"{file}:Mine")(weight=2.0).weight == 2.0
    assert build_reward("from_outside")([sample()] * 2) == [0.5, 0.5]
    assert "runs code from outside" in capsys.readouterr().err


def test_code_from_a_module(tmp_path, monkeypatch):
    """A module that can be imported serves as well."""
    (tmp_path / "of_mine_alone.py").write_text("class Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert load_class_path("of_mine_alone:Thing").__name__ == "Thing"


@pytest.mark.parametrize(("path", "source", "message"), [
    ("Mine", None, "should be 'module:Class'"), ("a:b:", None, "should be"), (":Mine", None, "should be"),
    ("no_such_module_here:Mine", None, "there is no module no_such_module_here"), ("{file}:Mine", None, "there is no file"),
    ("{file}:Mina", "class Mine: pass", r"has no Mina \(did you mean Mine\?\)"),
    ("{file}:Mine", "1 / 0", "raised ZeroDivisionError"), ("{file}:Mine", "def", "raised SyntaxError"),
    ("{file}:Mine", "import no_such_package_here", "raised ModuleNotFoundError"),
    ("{file}:Mine", "import sys; sys.exit(0)", "raised SystemExit: 0"), ("{file}:Mine", "x = 1\n1 / 0", "mine.py, line 2"),
    ("{file}:Mine", "Mine = 3", "has no reward_names and no combine_rewards"),
    ("{file}:mine", "class Mine:\n reward_names = combine_rewards = lambda self: []\nmine = Mine()", "is a Mine, not a class")])
def test_outside_code_that_cannot_be_had(tmp_path, path, source, message):
    """Shape, file, module, name and the code's own failure: each is said in a line."""
    file = tmp_path / "mine.py"
    if source is not None:
        file.write_text(source)

    with pytest.raises(InputError, match=message):
        build_objective(path.format(file=file)) if ":" in path else load_class_path(path)


def test_a_plugin_that_is_no_python_file(tmp_path):
    """Named with the setting that it stands in; the same for one that raises."""
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "fails.py").write_text("1 / 0\n")

    with pytest.raises(InputError, match="PLUGINS: .*rows.jsonl: code is read from files that end in .py"):
        load_plugins(str(tmp_path / "rows.jsonl"))
    with pytest.raises(InputError, match="PLUGINS: .*fails.py raised ZeroDivisionError: division by zero .*fails.py, line 1"):
        load_plugins(str(tmp_path / "fails.py"))
