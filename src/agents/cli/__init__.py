"""The ``packing`` command, one file per subcommand."""
