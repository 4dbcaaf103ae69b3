"""Rules that hold for cuboids only: integer boxes, empty maximal spaces, whole cells."""
