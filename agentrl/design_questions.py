# Generated from notebooks/9_7_design_questions.ipynb by book/tangle.py; edit the notebook.
"""9.7 Design questions in practice."""

# %% [imports]
from agentrl.checks import require, require_count, require_number
from agentrl.training_loop import groups_of, is_informative


# %% [all-equal]
def p_all_equal(p, group_size) -> float:
    """P(all rewards of a group are equal) at pass rate `p`: p^G + (1-p)^G (9.7)."""
    require_number('p', p, 0, 1)
    require_count('group_size', group_size)
    return p ** group_size + (1 - p) ** group_size


def informative_share(trajs, group_size) -> float:
    """Share of contiguous groups whose rewards differ (section 9.7)."""
    require_count('group_size', group_size)
    require(len(trajs) > 0 and len(trajs) % group_size == 0, 'len(trajs)', len(trajs),
            f'a multiple of group_size={group_size}, at least one group')
    groups = groups_of(trajs, group_size)
    return sum(map(is_informative, groups)) / len(groups)


__all__ = [
    "p_all_equal",
    "informative_share",
]
