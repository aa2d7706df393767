"""Commands on nodes, with sh in the place of ssh: it too hands one string to a shell."""

import time

import pytest

from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.service.node_command import MAX_OUTPUT_BYTES, TemplateNodeCommand

_LOCAL = TemplateNodeCommand(["sh", "-c", 'echo "$0" >&2; exec sh -c "$1"', "{node}"])


def test_arguments_arrive_as_they_were() -> None:
    words = ["printf", "%s|", "a b", "$(id)", "'", '"', "*", "", "-x;y"]
    result = _LOCAL.run("n-1.rack2", words, 20)
    assert (result.code, result.stdout) == (0, "a b|$(id)|'|\"|*||-x;y|")
    assert result.stderr == "n-1.rack2\n"


def test_the_commands_own_status_is_a_result() -> None:
    assert _LOCAL.run("n1", ["false"], 20).code == 1


def test_an_unreachable_node_is_transient() -> None:
    ssh = TemplateNodeCommand(["sh", "-c", "echo 'connect to host n1: No route' >&2; exit 255", "{node}"])
    with pytest.raises(TransientError, match="No route"):
        ssh.run("n1", ["true"], 20)


def test_a_command_that_is_late_has_no_code() -> None:
    began = time.monotonic()
    result = _LOCAL.run("n1", ["sleep", "30"], 0.3)
    assert result.code is None
    assert "n1" in result.stderr
    assert time.monotonic() - began < 10


def test_output_is_bounded() -> None:
    result = _LOCAL.run("n1", ["head", "-c", str(5 * MAX_OUTPUT_BYTES), "/dev/zero"], 30)
    assert result.code == 0
    assert len(result.stdout) == MAX_OUTPUT_BYTES


def test_bytes_that_are_no_text_do_not_fail() -> None:
    assert _LOCAL.run("n1", ["printf", r"a\377b"], 20).stdout == "a\ufffdb"


@pytest.mark.parametrize("node", ["", "-oProxyCommand=id", "a b", "a;b", "a\nb", "$(id)", "a/b"])
def test_what_is_no_node_name_is_not_run(node: str) -> None:
    with pytest.raises(PermanentError, match="no name of a node"):
        _LOCAL.run(node, ["true"], 5)


def test_without_a_way_it_says_which_setting() -> None:
    with pytest.raises(TransientError, match=r"\[node_command\] argv"):
        TemplateNodeCommand([]).run("n1", ["true"], 5)
    with pytest.raises(TransientError, match="No such file"):
        TemplateNodeCommand(["/nonexistent/ssh", "{node}"]).run("n1", ["true"], 5)
