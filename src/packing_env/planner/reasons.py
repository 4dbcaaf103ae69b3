"""The words for why parts are left over."""

FALLS = "stands in no pose"
OFF_CELLS = "fits only beyond the cells of the grid; give a smaller cell"
OTHER_FACE = "fits only with a face up that is not allowed"
OTHER_TURN = "fits only turned about z, which is not allowed"
TOO_LARGE = "fits in no orientation"
TOO_HEAVY = "too heavy for any container that it fits into (weight_limit)"
NEVER = (FALLS, OFF_CELLS, OTHER_FACE, OTHER_TURN, TOO_LARGE)
"""Reasons of parts that are never packed. If containers differ, the first in this list counts."""
NO_ROOM = "no room found"
NOT_TRIED = "no room found in time; with more seconds, constraints are lifted to find the cause"
CAUSES = {
    "no_stacking": "nothing may rest on what is below",
    "max_load": "what is below would bear too much",
    "fragile": "it would follow or rest on fragile parts",
    "lifo": "it would be above a group that is unloaded earlier",
    "weight_limit": "the container would be too heavy",
    "balance": "the centre of mass would be too far off the middle",
    "clearance": "too close to other parts or walls",
    "wall_clearance": "too close to a wall",
    "preplaced": "pre-placed boxes are in its place",
    "support": "too little of its base would be supported",
    "door": "other boxes are in its way in",
    "together": "no container was found with room for all of its set",
    "overhang": "too little of it would be over the deck",
    "cut": "it would be where an edge of the container is cut off",
}
"""The explanation of each constraint as the reason of a left-over part."""


class OutOfTimeError(Exception):
    """The deadline has passed."""
