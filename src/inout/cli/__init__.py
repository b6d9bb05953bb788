"""The `inout` command."""

from inout.cli.app import main as main
