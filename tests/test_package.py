"""The names of the package, and the order of its imports."""

import ast
from pathlib import Path

import pytest

import agentrl as arl

# Those of the public interface, room by room.
NAMES = """
    claim picture_slider
    Task FAMILIES make_tasks FIX_OPS EDIT_OPS FIX_OP compact_source run_tests parse_call
    MESSAGES BugFixEnv
    Tokenizer build_tokenizer make_base_agent Trajectory MAX_CALL_TOKENS rollout_batch
    collate
    selected_log_probs entropy_from_logits masked_mean aggregate_loss group_advantages
    rloo_advantages ppo_policy_loss
    RLConfig make_env EditBudgetEnv FN_NAMES randomize_names sample_groups
    behavior_stats compute_advantages kl_penalty policy_loss gspo_policy_loss
    cispo_policy_loss rl_update sample_step train_rl evaluate make_rl_base VARIANTS
    compare blind_pass_rate read_then_edit
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_every_public_name_is_there(name):
    assert name in arl.__all__
    assert hasattr(arl, name)


def test_all_is_complete_and_without_repeats():
    assert len(set(arl.__all__)) == len(arl.__all__)
    public = {
        name
        for name, value in vars(arl).items()
        if not name.startswith("_") and type(value) is not type(arl)
    }
    assert public == set(arl.__all__)


def test_every_function_and_class_says_what_it_is_for():
    for name in arl.__all__:
        thing = getattr(arl, name)
        if callable(thing):
            assert thing.__doc__, name


def test_the_order_of_imports_has_no_cycle():
    """Each module imports only modules that the package has imported before it."""
    folder = Path(arl.__file__).parent
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    order = [n.module for n in tree.body if isinstance(n, ast.ImportFrom)]
    for i, module in enumerate(order):
        path = folder / f"{module.split('.')[1]}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("agentrl"):
                assert node.module in order[:i]
