"""Triangle meshes as solids: triangulation, checks and repair, volume; formats/ reads files."""
