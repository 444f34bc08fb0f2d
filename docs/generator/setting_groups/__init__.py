"""Groups of settings, as a reader searches for them, with an example and related settings each."""

from typing import Final

from generator.setting_groups import models, server
from generator.setting_groups.group import Entry, Group

__all__ = ["GROUPS", "Entry", "Group"]

GROUPS: Final = (*server.GROUPS, *models.GROUPS)
