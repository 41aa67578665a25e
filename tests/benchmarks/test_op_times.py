"""benchmarks/op_times.py: time by hand, the text of a program, and real programs of known kinds."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import op_times
from benchmarks.op_times import Run, Span
from rl.training.sampler import SamplingParams, generate, row_keys, step_key
from tests import small_model

A, B, C, W = (("kind", "a"), ("kind", "b"), ("kind", "c"), (None, "w"))


def seconds(*rows):
    return {purpose[1]: spent for purpose, spent in op_times.seconds_of(spans(rows)).items()}


def spans(rows):
    return [Span(thread, float(start), float(end), purpose) for thread, start, end, purpose in rows]


def ns(**spent):
    return {name: pytest.approx(value / 1e9) for name, value in spent.items()}


def test_time_belongs_to_the_innermost_operation():
    """a from 0 to 10 contains b from 2 to 5 and c from 5 to 6, so a has 6; the pause afterwards does not count."""
    assert seconds((0, 0, 10, A), (0, 2, 5, B), (0, 5, 6, C), (0, 20, 21, A)) == ns(a=7, b=3, c=1)


def test_threads_share_time():
    """a from 0 to 10 on one thread and b from 4 to 8 on another share 4 nanoseconds."""
    assert seconds((0, 0, 10, A), (1, 4, 8, B)) == ns(a=8, b=2)
    assert seconds((0, 0, 10, A), (1, 0, 10, A)) == ns(a=10)


def test_a_loop_has_no_time_of_its_own():
    """w contains a and waits while b runs on another thread: its pauses do not count, and b keeps all its time."""
    assert seconds((0, 0, 10, W), (0, 1, 3, A), (1, 5, 9, B)) == ns(a=2, b=4)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 20), st.sampled_from([A, B, C])), max_size=12))
def test_the_parts_add_up_to_the_time_in_which_anything_runs(rows):
    """For any nested operations the sum is the length of their union."""
    ends = {}  # of open operations by thread: the next one must lie inside of or after them
    kept = []
    for thread, start, length, op in sorted(rows, key=lambda row: (row[0], row[1], -row[2])):
        stack = [end for end in ends.get(thread, []) if end > start]
        end = min([start + length, *stack])
        ends[thread] = [*stack, end]
        kept.append((thread, start, end, op))
    moments = {moment for _, start, end, _ in kept for moment in range(start, end)}
    assert op_times.seconds_of(spans(kept)).total() == pytest.approx(len(moments) / 1e9)


TEXT = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,8]{1,0})->f32[8,8]{1,0}}

FileNames
1 "/a/jax/numpy.py"
2 "/b/qwen2_jax.py"
3 "/b/attention.py"

FunctionNames
1 "matmul"
2 "head_logits"
3 "project"
4 "attend"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=5 end_line=5 column=1 end_column=2}
3 {file_name_id=2 function_name_id=3 line=5 end_line=5 column=1 end_column=2}
4 {file_name_id=3 function_name_id=4 line=5 end_line=5 column=1 end_column=2}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=3}
4 {file_location_id=4 parent_frame_id=3}

%fused (p: f32[8,8], q: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  %q = f32[8,8]{1,0} parameter(1)
  %dot.1 = f32[8,8]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={stack_frame_id=2}
  ROOT %add.1 = f32[8,8]{1,0} add(%dot.1, %p), metadata={stack_frame_id=4}
}

%turned (p.1: f32[8,8]) -> f32[8,8] {
  %p.1 = f32[8,8]{1,0} parameter(0)
  ROOT %transpose.1 = f32[8,8]{0,1} transpose(%p.1), dimensions={1,0}, metadata={stack_frame_id=4}
}

%body (t: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %t = (s32[], /*index=1*/f32[8,8]{1,0}) parameter(0)
  ROOT %tuple.1 = (s32[], f32[8,8]{1,0}) tuple(%t, %t)
}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0)
  %fusion.1 = f32[8,8]{1,0} fusion(%x, %x), kind=kCustom, calls=%fused, metadata={stack_frame_id=4}
  %fusion.2 = f32[8,8]{1,0} fusion(%fusion.1), kind=kLoop, calls=%turned
  %dot.2 = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={stack_frame_id=3}
  %dot.3 = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={stack_frame_id=4}
  %dot.4 = f32[8,8]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %exponential.1 = f32[8,8]{1,0} exponential(%x), metadata={stack_frame_id=4}
  %negate.1 = f32[8,8]{1,0} negate(%x)
  ROOT %while.1 = (s32[], f32[8,8]{1,0}) while(%x), condition=%body, body=%body
}
"""


def test_the_files_that_give_operations_their_kind_exist(root):
    """A file that was moved would count all its operations as unknown."""
    assert all((root / name).is_file() for name in op_times.OWN)


def test_a_program_is_read_and_sorted():
    """A fusion with the head's product; one that only transposes; products by function; operations without a frame."""
    kinds = op_times.kinds_in(op_times.read_program(TEXT))
    assert {name: kinds[name] for name in (
        "fusion.1", "fusion.2", "dot.2", "dot.3", "dot.4", "exponential.1", "negate.1", "while.1")} == {
        "fusion.1": op_times.HEAD, "fusion.2": op_times.MOVED, "dot.2": op_times.LAYERS, "dot.3": op_times.ATTENTION,
        "dot.4": op_times.UNKNOWN, "exponential.1": op_times.MIXING, "negate.1": op_times.UNKNOWN, "while.1": None}


def test_programs_of_one_name_are_told_apart_by_their_operations():
    """If two programs of a name disagree on an operation, its kind is known only if the execution has another operation that
    one of them lacks; what they agree on is known."""
    other = TEXT.replace("exponential(%x), metadata={stack_frame_id=4}", "exponential(%x), metadata={stack_frame_id=3}")
    programs = [op_times.read_program(text) for text in (TEXT, other.replace("%negate.1", "%negate.2"))]
    ran = {"1": ("exponential.1", "dot.2"), "2": ("exponential.1", "negate.1"), "3": ("exponential.1", "negate.2")}
    rows = [Run(0, 0, 1, op, ("jit_f", run)) for run, ops in ran.items() for op in ops] + [Run(0, 0, 1, "dot.2", ("jit_g", "4"))]
    unknown = op_times.UNKNOWN
    assert [span.purpose[0] for span in op_times.spans_of(rows, programs)] == [
        unknown, op_times.LAYERS, op_times.MIXING, unknown, op_times.TOKENWISE, unknown, unknown]


@pytest.mark.slow
def test_a_large_product_is_most_of_its_time():
    """A real trace of a program with three products: nearly all time is of their kind, which is unknown for code of a test."""
    x = jnp.ones((1024, 1024))
    work = jax.jit(lambda x: x @ x @ x @ x)
    jax.block_until_ready(work(x))
    found = op_times.profile(lambda: work(x))
    assert sum(found.by_kind.values()) == pytest.approx(found.wall)
    ops = sum(seconds for op, seconds in found.by_op.items())
    assert found.by_kind[op_times.UNKNOWN] == pytest.approx(ops) and ops > 0, "a product of the test is not the model's"


@pytest.mark.slow
def test_decoding_is_recognised():
    """The small model's sampler has all its kinds, none of the update's, and little unknown."""
    model, prompts = small_model.model(stop_ids=()), [small_model.prompt(n) for n in (20, 30)]
    adapter, sampling = small_model.adapter(), SamplingParams(max_new_tokens=32)
    work = lambda: generate(model, adapter, prompts, 4, sampling, row_keys(step_key(0, 0), ["a", "b"], 4))  # noqa: E731
    work()
    ours = [kind for kind in op_times.KINDS if kind not in (op_times.UNKNOWN, op_times.HOST, op_times.LOSS)]
    # The best of three: a busy machine may interrupt a short operation for as long as many of them take.
    found = min((op_times.profile(work).by_kind for _ in range(3)), key=lambda by_kind: by_kind[op_times.UNKNOWN])
    assert all(found[kind] > 0 for kind in ours), found
    all_of_ours = sum(found[kind] for kind in ours)
    assert found[op_times.LOSS] < 0.01 * all_of_ours, "at most names that the update shares, if it ran before"
    assert found[op_times.UNKNOWN] < 0.1 * all_of_ours, found
