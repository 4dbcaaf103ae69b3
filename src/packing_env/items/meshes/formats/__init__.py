"""Readers of mesh files, one file per format; `readers` chooses, and reads STL, OBJ and OFF."""
