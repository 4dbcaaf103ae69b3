"""Triangle meshes as solids: file formats, triangulation, checks and repair, volume."""
