"""scripts/run_experiment.sh and report_samples.sh: order, failures, signals, closed terminals.

The scripts get a stand-in for Python that writes what the commands write, in no time.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests import processes

COMMANDS = '''
import json, os, signal, sys, time
from pathlib import Path
name, arguments, env = Path(sys.argv[1]).stem, sys.argv[2:], os.environ
kept = ("SPLIT", "N_TASKS", "TASK_NAMES", "LORA", "OUT", "RESUME", "CONFIG", "STEPS")
with open(env["CALLS"], "a") as calls:
    calls.write(json.dumps([name, arguments, {key: env[key] for key in kept if key in env}]) + "\\n")
named = {"report_samples": "samples", "report": "report", "train_grpo": "training"}
stage = ("check" if "--dry-run" in arguments else "compare" if "--compare" in arguments
         else named.get(name) or Path(env["OUT"]).stem)
if stage == env.get("FAIL"):
    print("no luck", file=sys.stderr)
    sys.exit(7)
if stage == env.get("SLOW"):
    time.sleep(30)
if stage == "compare":
    print("compared", *arguments)
elif stage == "report":
    (Path(arguments[0]) / "report.html").write_text("report")
elif stage == "samples":
    Path(arguments[arguments.index("--out") + 1]).write_text("samples")
elif stage == "training":
    run = Path(env.get("RESUME") or env["OUT"])
    if not env.get("RESUME") and run.exists():
        sys.exit("the folder exists")
    caught, live = [], sys.stdout.isatty()    # looked at once: a terminal that was closed is none any more
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, frame: caught.append(number))
    step = max([int(path.name[5:]) for path in run.glob("checkpoints/step_*")], default=0)
    def save():
        folder = run / f"checkpoints/step_{step:05d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state.json").write_text("{}")
    run.mkdir(exist_ok=True, parents=True)
    (run / "terminal").write_text(str(live))
    (run / "config.yaml").write_text("")
    while step < int(env["STEPS"]):
        step += 1
        if not live:
            print(f"step {step}/{env['STEPS']}  reward", flush=True)
        time.sleep(0.02)
        if caught:
            time.sleep(0.2)     # saving takes a moment, in which a second signal would end it
            save()
            (run / "signals").write_text(str(len(caught)))
            sys.exit(143)
    save()
    print("trained")
elif stage != "check":
    Path(env["OUT"]).write_text("{}")
'''
STAGES = ["check", "baseline-train", "baseline-heldout", "training", "final-train", "final-heldout", "compare", "compare",
          "report", "samples"]
NAMED = {"report_samples": "samples", "report": "report", "train_grpo": "training"}
PROBES = {f"{when}-{split}.json" for when in ("baseline", "final") for split in ("train", "heldout")}


@pytest.fixture
def repo(root, tmp_path):
    """The scripts in a repo whose path a careless script would split or expand, with the stand-in as its Python."""
    folder = tmp_path / "a repo, [with] blanks"
    shutil.copytree(root / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "commands.py").write_text(COMMANDS)
    (folder / ".venv" / "bin").mkdir(parents=True)
    python(folder / ".venv" / "bin" / "python", folder)
    return folder


def python(path, folder):
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{folder}/commands.py' \"$@\"\n")
    path.chmod(0o755)


@pytest.fixture
def out(repo):
    return repo / "runs [x]" / "the experiment"


def environ(repo, out, **more):
    return os.environ | {"OUT": str(out), "STEPS": "3", "CALLS": str(repo / "calls")} | more


def experiment(repo, out, *arguments, **more):
    """run_experiment.sh from start to end, away from the repo."""
    return subprocess.run([repo / "scripts" / "run_experiment.sh", *arguments], cwd=repo.parent, env=environ(repo, out, **more),
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def calls(repo):
    """(stage, settings) of every command that the script has started."""
    found = []
    for line in (repo / "calls").read_text().splitlines():
        name, arguments, env = json.loads(line)
        stage = ("check" if "--dry-run" in arguments else "compare" if "--compare" in arguments
                 else NAMED.get(name) or os.path.basename(env["OUT"])[:-5])
        found.append((stage, env))
    return found


def until(condition, seconds=120):
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_stages_run_in_order_with_their_settings(repo, out):
    """Probes of both splits before and after, the adapter only after; everything lands in OUT and nothing beside it."""
    done = experiment(repo, out)
    found = calls(repo)

    assert done.returncode == 0, done.stderr
    assert [stage for stage, _ in found] == STAGES
    settings = dict(found)
    adapter = str(out / "train" / "checkpoints" / "step_00003")
    assert settings["baseline-train"]["SPLIT"] == settings["final-train"]["SPLIT"] == "train"
    assert settings["final-heldout"]["SPLIT"] == "heldout" and settings["final-train"]["N_TASKS"] == "40"
    assert settings["final-heldout"]["LORA"] == settings["final-train"]["LORA"] == adapter
    assert "LORA" not in settings["baseline-train"] and "N_TASKS" not in settings["training"]
    assert settings["training"]["OUT"] == str(out / "train") and settings["final-heldout"]["N_TASKS"] == "0"
    assert {path.name for path in out.iterdir()} == PROBES | {
        "lock", "adapter", "train", "SAMPLES.md", "report.html", "comparison-train.txt", "comparison-heldout.txt", "asked"}
    assert {path.name for path in repo.parent.iterdir()} == {repo.name}


def test_tasks_that_are_chosen_by_number_or_name(repo, out):
    """N_TASKS goes to training and its probe, HELDOUT_TASKS to the other; names choose training tasks alone."""
    experiment(repo, out, N_TASKS="5", HELDOUT_TASKS="2")
    experiment(repo, out / "named", TASK_NAMES="gcd,lcm")
    first, second = dict(calls(repo)[:9]), dict(calls(repo)[9:])

    assert [first[name]["N_TASKS"] for name in ("training", "baseline-train", "final-heldout")] == ["5", "5", "2"]
    assert second["training"]["TASK_NAMES"] == second["final-train"]["TASK_NAMES"] == "gcd,lcm"
    assert second["final-heldout"]["TASK_NAMES"] == "" and "N_TASKS" not in second["baseline-train"]


def test_a_kill_while_it_writes_its_settings_down_is_no_other_experiment(repo, out):
    """kill -9 in the middle of the very first lines: the next start asks for the same settings and goes on."""
    (repo / "rl").mkdir()
    (repo / "rl" / "settings").mkdir()
    (repo / "rl" / "settings" / "declared.py").write_text("")
    (repo / "bin").mkdir()
    slow = repo / "bin" / "sed"
    slow.write_text(f"#!/bin/sh\n: >'{repo}/reading'\nexec sleep 60\n")
    slow.chmod(0o755)
    process = processes.start([repo / "scripts" / "run_experiment.sh"], cwd=repo.parent,
                              env=environ(repo, out, HELDOUT_TASKS="2", PATH=f"{repo / 'bin'}:{os.environ['PATH']}"))
    until((repo / "reading").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)

    until(lambda: subprocess.run(["flock", "-n", out / "lock", "true"]).returncode == 0)
    done = experiment(repo, out, HELDOUT_TASKS="2")
    assert done.returncode == 0, done.stderr


def test_term_ends_the_comparison_itself(repo, out):
    """Nothing of a stopped stage works on in the folder: started again at once, the chain is not kept out."""
    process = processes.start([repo / "scripts" / "run_experiment.sh"], cwd=repo.parent, text=True, stdout=subprocess.PIPE,
                              env=environ(repo, out, SLOW="compare"))
    until(lambda: (repo / "calls").exists() and calls(repo)[-1][0] == "compare")
    process.terminate()
    assert process.wait(timeout=60) == 143
    done = experiment(repo, out)
    assert done.returncode == 0, done.stderr


def test_started_again_it_does_only_what_is_missing(repo, out):
    """After a whole chain no model is run again; a probe that was deleted is made again."""
    experiment(repo, out)
    (out / "final-heldout.json").unlink()
    (repo / "calls").unlink()
    done = experiment(repo, out)

    assert done.returncode == 0
    assert [stage for stage, _ in calls(repo)] == ["final-heldout", "compare", "compare", "report", "samples"]
    assert "training: " in done.stdout and "step_00003" in done.stdout


def test_started_again_with_other_settings_it_refuses(repo, root, out):
    """Files of one experiment are no answers to another: the difference is named, nothing runs; MAX_HOURS may differ."""
    (repo / "rl").mkdir()
    (repo / "rl" / "settings").mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "rl" / "settings" / "declared.py", repo / "rl" / "settings")
    assert experiment(repo, out, N_TASKS="3").returncode == 0
    (repo / "calls").unlink()
    done = experiment(repo, out, N_TASKS="4", GROUP="2")

    assert done.returncode == 2 and not (repo / "calls").exists()
    assert all(words in done.stderr for words in ("other settings", "then N_TASKS=3", "now N_TASKS=4", "now GROUP=2"))
    assert experiment(repo, out, N_TASKS="3", MAX_HOURS="2").returncode == 0


@pytest.mark.parametrize("stage, name", [("check", "check of the settings"), ("baseline-heldout", "baseline probe, heldout"),
                                         ("training", "training"), *[pytest.param(*pair, marks=pytest.mark.slow) for pair in (
                                             ("final-train", "final probe, train"), ("compare", "comparison, train"),
                                             ("report", "report"), ("samples", "samples"))]])
def test_a_failing_stage_is_named_and_gone_on_from(repo, out, stage, name):
    """The last line names the stage, the exit code is the stage's, later stages do not run; started again it ends well."""
    failed = experiment(repo, out, FAIL=stage)
    words = f"run_experiment.sh: stage '{name}' failed with exit code 7; to continue: OUT="
    assert failed.returncode == 7 and failed.stderr.splitlines()[-1].startswith(words)
    assert "no luck" in failed.stderr and calls(repo)[-1][0] == stage and not (out / "SAMPLES.md").exists()

    before = {found for found, _ in calls(repo)[:-1]}
    (repo / "calls").unlink()
    assert experiment(repo, out).returncode == 0 and (out / "SAMPLES.md").exists()
    assert not {"baseline-train", "training", "final-train"} & before & {found for found, _ in calls(repo)}


def begin(repo, out, **more):
    """run_experiment.sh in its training stage."""
    process = processes.start([repo / "scripts" / "run_experiment.sh"], cwd=repo.parent, text=True, stdin=subprocess.DEVNULL,
                              env=environ(repo, out, STEPS="3000", **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until((out / "train" / "config.yaml").exists)
    return process


def test_term_in_training_saves_and_the_next_start_resumes(repo, out, tmp_path):
    """SIGTERM reaches training once and waits for its checkpoint; the next start resumes, without CONFIG, and ends."""
    config = tmp_path / "settings.yaml"
    config.write_text("")
    process = begin(repo, out, CONFIG=str(config))
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143 and "stopped in stage 'training' by SIGTERM" in err and "OUT=" in err
    assert (out / "train" / "signals").read_text() == "1"

    (repo / "calls").unlink()
    assert experiment(repo, out, CONFIG=str(config), STEPS="5").returncode == 0
    training = [env for stage, env in calls(repo) if stage in ("check", "training")]
    assert [env["RESUME"] for env in training] == [str(out / "train")] * 2
    assert not any({"CONFIG", "OUT"} & env.keys() for env in training)
    assert [stage for stage, _ in calls(repo)] == ["check", *STAGES[3:]]


def test_a_killed_chain_goes_on(repo, out):
    """kill -9 before the first checkpoint: the orphan keeps others out; once it is gone training begins anew."""
    process = begin(repo, out)
    process.kill()
    process.wait(timeout=120)
    refused = experiment(repo, out)
    assert refused.returncode == 2 and "another experiment is running in" in refused.stderr
    for path in os.listdir("/proc"):
        if path.isdigit() and f"{out}/train" in environment(path):
            os.kill(int(path), signal.SIGKILL)
    process.communicate(timeout=120)    # its output ends with the orphan, not before

    until(lambda: subprocess.run(["flock", "-n", out / "lock", "true"]).returncode == 0)
    assert experiment(repo, out).returncode == 0
    assert sorted(path.name.rstrip("0123456789-") for path in out.glob("train*")) == ["train", "train-without-checkpoint"]


def environment(pid):
    """The environment of a process, "" where it cannot be seen."""
    try:
        with open(f"/proc/{pid}/environ", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class Terminal:
    """A script on a terminal of its own."""

    def __init__(self, script, *arguments, cwd, env):
        self.pid, self.fd = processes.on_terminal([script, *arguments], cwd, env)
        self.text = ""

    def read(self, seconds=0.1):
        """What has been written so far."""
        while select.select([self.fd], [], [], seconds)[0]:
            try:
                self.text += os.read(self.fd, 4096).decode()
            except OSError:    # the last process of the terminal has ended
                break
        return self.text

    def ended(self):
        """The script's exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_closed_terminal_does_not_end_it(repo, out):
    """On a terminal the settings are checked there; then the script goes on without it and prints its log and process."""
    terminal = Terminal(repo / "scripts" / "run_experiment.sh", cwd=repo.parent, env=environ(repo, out, STEPS="40"))
    until(lambda: "log: " in terminal.read())
    os.close(terminal.fd)
    assert terminal.ended() == 0
    assert "check of the settings" in terminal.text and f"log: {out}/log.txt" in terminal.text

    until((out / "SAMPLES.md").exists)
    number = terminal.text.split("as process ")[1].split(";")[0]
    until(lambda: "done, " in (out / "log.txt").read_text())
    assert f"process {number}, folder" in (out / "log.txt").read_text()
    assert [stage for stage, _ in calls(repo)] == STAGES


def test_brief_says_the_stages_and_keeps_the_rest(repo, out):
    """--brief: stage lines, and of training every tenth step; whatever the commands print is in log.txt."""
    done = experiment(repo, out, "--brief", STEPS="25")
    assert done.returncode == 0, done.stderr
    lines, log = done.stdout.splitlines(), (out / "log.txt").read_text()
    said = [line for line in lines if not line.startswith("run_experiment.sh: ")]
    assert said == ["step 1/25  reward", "step 10/25  reward", "step 20/25  reward", "trained"], done.stdout
    assert "compared --compare" in log and "step 7/25" in log and len(lines) < 20
    assert [stage for stage, _ in calls(repo)] == STAGES


@pytest.mark.parametrize("stage", ["training", *[pytest.param(stage, marks=pytest.mark.slow) for stage in (
    "check", "baseline-train", "compare")]])
def test_brief_hides_no_failure(repo, out, stage):
    """What a stage that failed has printed is shown, stderr too, then the stage by name and its exit code."""
    done = experiment(repo, out, "--brief", FAIL=stage)
    assert done.returncode == 7 and "no luck" in done.stdout + done.stderr and "failed with exit code 7" in done.stderr


def test_brief_on_a_terminal_leaves_training_its_bar(repo, out):
    """There training has the terminal to itself; Ctrl-C reaches it once, as without --brief."""
    terminal = Terminal(repo / "scripts" / "run_experiment.sh", "--brief", cwd=repo.parent, env=environ(repo, out, STEPS="3000"))
    until((out / "train" / "config.yaml").exists)
    os.write(terminal.fd, b"\x03")
    assert terminal.ended() == 130 and (out / "train" / "signals").read_text() == "1"
    assert (out / "train" / "terminal").read_text() == "True" and "trained" not in (out / "log.txt").read_text()
    os.close(terminal.fd)


def test_bad_settings_are_told_on_the_terminal(repo, out):
    """A check that fails is seen at once: nothing goes on behind the user's back."""
    terminal = Terminal(repo / "scripts" / "run_experiment.sh", cwd=repo.parent, env=environ(repo, out, FAIL="check"))
    assert terminal.ended() == 7 and "no luck" in terminal.read() and not (out / "log.txt").exists()
    os.close(terminal.fd)


@pytest.mark.parametrize("closed, code", [(False, 130), (True, 129)])
def test_ctrl_c_and_closing_in_the_foreground_save_first(repo, out, closed, code):
    """--foreground stays; Ctrl-C, or closing the terminal, reaches training once, which saves; the exit code says which."""
    terminal = Terminal(repo / "scripts" / "run_experiment.sh", "--foreground", cwd=repo.parent,
                        env=environ(repo, out, STEPS="3000"))
    until((out / "train" / "config.yaml").exists)
    if closed:    # told of by the kernel, and by the shell that the script was started from
        os.close(terminal.fd)
        time.sleep(0.1)
        os.kill(terminal.pid, signal.SIGHUP)
    else:
        os.write(terminal.fd, b"\x03")
    assert terminal.ended() == code
    assert closed or "stopped in stage 'training' by SIGINT" in terminal.read()
    assert (out / "train" / "signals").read_text() == "1" and list((out / "train").glob("checkpoints/*/state.json"))


@pytest.mark.parametrize("arguments, more, words", [
    (["--forground"], {}, "unknown argument --forground"),
    (["--foreground", "x"], {}, "one argument at most"),
    ([], {"RESUME": "runs/x"}, "RESUME is set"),
    (["--detached"], {}, "another experiment is running in"),
])
def test_what_cannot_be_meant_is_refused(repo, out, arguments, more, words):
    """One line, exit code 2, and no command started."""
    done = experiment(repo, out, *arguments, **more)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1] and not (repo / "calls").exists()


def test_help_is_the_comment_at_the_top(repo, out):
    """--help of both scripts explains itself and does nothing."""
    done = experiment(repo, out, "--help")
    assert done.returncode == 0 and done.stdout.startswith("A whole experiment") and not out.exists()
    assert samples(repo, "--help").stdout.startswith("Wait for a run")


def test_without_a_venv_python3_is_used(repo, out):
    """Where the repo has no .venv, the python3 of the PATH does the work."""
    (repo / "bin").mkdir()
    (repo / ".venv" / "bin" / "python").rename(repo / "bin" / "python3")
    assert experiment(repo, out, PATH=f"{repo / 'bin'}:{os.environ['PATH']}").returncode == 0
    assert len(calls(repo)) == len(STAGES)


# ---- report_samples.sh -----------------------------------------------------------------------------------------------

def samples(repo, *arguments, cwd=None, **more):
    return subprocess.run([repo / "scripts" / "report_samples.sh", *map(str, arguments)], cwd=cwd or repo.parent, text=True,
                          env=os.environ | {"CALLS": str(repo / "calls")} | more, timeout=300, stdin=subprocess.DEVNULL,
                          capture_output=True)


def test_the_page_is_made_once_the_process_has_ended(repo, out):
    """It waits for a process that is not its child, even one that its parent never reaps; then the run has a page, and the
    repo's own is as it was."""
    out.mkdir(parents=True)
    (repo / "SAMPLES.md").write_text("the repo's own")
    run = processes.start(["sleep", "0.7"])    # ours, and reaped only below: a zombie meanwhile
    done = samples(repo, run.pid, out)

    assert done.returncode == 0, done.stderr
    assert (out / "SAMPLES.md").read_text() == "samples" and run.wait() == 0
    assert json.loads((repo / "calls").read_text())[1] == [str(out), "--out", str(out / "SAMPLES.md")]
    assert (repo / "SAMPLES.md").read_text() == "the repo's own"


def test_the_repos_page_is_remade_where_it_is_named(repo, out):
    """The third argument is the page, relative to where the script is started."""
    out.mkdir(parents=True)
    (repo / "SAMPLES.md").write_text("old")
    done = samples(repo, 2**22 + 1, out, "SAMPLES.md", cwd=repo)
    assert done.returncode == 0 and (repo / "SAMPLES.md").read_text() == "samples" and not (out / "SAMPLES.md").exists()


def test_it_waits_as_long_as_the_process_lives(repo, out):
    """While the process runs no page is made; after SIGTERM to the script none is made at all."""
    out.mkdir(parents=True)
    run = processes.start(["sleep", "60"])
    waiting = processes.start([repo / "scripts" / "report_samples.sh", str(run.pid), out, repo / "page.md"], text=True,
                              env=os.environ | {"CALLS": str(repo / "calls")}, stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert "waiting for process" in waiting.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=1.5)
    waiting.terminate()
    assert "stopped in stage 'waiting for process" in waiting.communicate(timeout=120)[1]
    assert waiting.returncode == 143 and not (repo / "calls").exists() and run.poll() is None
    run.kill()
    run.wait()


def test_the_newest_run_is_taken_where_none_is_named(repo, tmp_path):
    """Of several folders under runs/ the one written to last, a chain's own folder rather than the run inside of it."""
    home = tmp_path / "home"
    for age, name in enumerate(["runs/new chain/train/metrics.jsonl", "runs/old/metrics.jsonl", "runs/older/lock"]):
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_text("")
        os.utime(path, (1e9 - age, 1e9 - age))
    done = samples(repo, 2**22 + 1, cwd=home)    # beyond any process id
    assert done.returncode == 0, done.stderr
    assert f"no process {2**22 + 1}: it has ended or never existed; writing the page of runs/new chain now" in done.stdout
    assert json.loads((repo / "calls").read_text())[1][0] == "runs/new chain"
    assert (home / "runs/new chain/SAMPLES.md").read_text() == "samples"


def test_a_failing_report_is_named(repo, out):
    """The stage and its exit code, as for the chain."""
    out.mkdir(parents=True)
    done = samples(repo, 2**22 + 1, out, FAIL="samples")
    assert done.returncode == 7 and "stage 'samples' failed with exit code 7" in done.stderr


@pytest.mark.parametrize("arguments, words", [
    ([], "give PID"), (["x", "."], "not a process id"), (["0", "."], "not a process id"), (["1"], "no run under runs/"),
    (["1", "nowhere"], "no such folder")])
def test_a_wrong_call_of_the_report_is_refused(repo, arguments, words):
    """One line that says what to give, exit code 2."""
    done = samples(repo, *arguments)
    assert done.returncode == 2 and words in done.stderr


def test_the_report_survives_its_terminal(repo, out):
    """On a terminal it goes on without it; the log is in the run's folder."""
    out.mkdir(parents=True)
    run = processes.start(["sleep", "1"])
    terminal = Terminal(repo / "scripts" / "report_samples.sh", run.pid, out, cwd=repo.parent,
                        env=os.environ | {"CALLS": str(repo / "calls")})
    until(lambda: "log: " in terminal.read())
    os.close(terminal.fd)
    assert terminal.ended() == 0 and run.wait() == 0
    until((out / "SAMPLES.md").exists)
    assert not (repo / "SAMPLES.md").exists()
    until(lambda: "done: " in (out / "samples.log").read_text())
