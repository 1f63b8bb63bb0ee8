"""The subcommands of `parity`: each module adds its options to a parser and runs what they ask for."""
