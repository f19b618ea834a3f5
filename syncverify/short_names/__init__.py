"""Short names of our packages in a checkout: `synchronizer` is `syncverify.synchronizer`.

The folders `synchronizer/` and `strategies/` lie at the top of the repository, so Python finds
them there under a short name as well. Such an import runs `__init__.py` with that name, and
`stand_in` puts the package with the long name in its place. So a module exists once, with one
class of each name, however it is imported. A wheel has the long names alone, and our own code
never imports a short one: a user's package of that name comes first.
"""

from syncverify.short_names.aliases import stand_in

__all__ = ["stand_in"]
