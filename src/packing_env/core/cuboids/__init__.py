"""Rules that apply to cuboids only: integer boxes, empty maximal spaces, whole cells."""
