"""Scripts in the folder `group`: of another user, and of a group with the user as a member."""

from __future__ import annotations

from tests.sandbox.situations.situation import Situation

GROUPS = (
    Situation(
        "writes to a folder of its group",
        r"""
group = user + '/group'
open(group + '/kept.txt', 'a').write('more')
assert open(group + '/kept.txt').read() == 'keptmore'
open(group + '/new.txt', 'w').write('new')
os.makedirs(group + '/runs/1')
os.remove(group + '/removed.txt')
assert sorted(os.listdir(group)) == ['kept.txt', 'new.txt', 'runs']
""",
    ),
)
"""What a user does in the folder `group`, whose files are of another user and of a group that the user is in."""
