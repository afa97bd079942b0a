"""What a repository may look like, and who may name which."""

import pytest

from gateway.workflow.addresses import Refusal, Trust, allowed, check_repository

OPERATOR = Trust(local=True)
PERSON = Trust(local=False, allow_repos=("https://github.com/acme/*", "git@code.example:team/**"))


@pytest.mark.parametrize(
    "repository",
    [
        "https://github.com/acme/engine",
        "https://github.com/acme/engine.git",
        "http://git.example:8080/a/b",
        "ssh://git@git.example/a/b.git",
        "ssh://git.example:2222/a/b",
        "git://git.example/a",
        "git@github.com:acme/engine.git",
        "git.example:a/b",
        "https://[2001:db8::1]/a",
        "/srv/git/engine",
        "/srv/git/it's here",
    ],
)
def test_git_addresses_are_taken_from_operators(repository: str) -> None:
    assert check_repository(repository, OPERATOR) == repository


@pytest.mark.parametrize(
    "repository",
    [
        "--upload-pack=touch /tmp/owned",
        "-u",
        "ext::sh -c 'touch /tmp/owned'",
        "EXT::sh",
        "fd::17",
        "::x",
        "https://github.com/acme/engine\n--upload-pack=x",
        "https://github.com/acme/a b",
        'https://github.com/acme/"a"',
        "https://github.com/acme/$(id)",
        "https://github.com/acme/`id`",
        "https://github.com/a;id",
        "ssh://-oProxyCommand=id/x",
        "ssh://git@-oProxyCommand=id/x",
        "-oProxyCommand=id:x",
        "git@-host:x",
        "git@host:-x",
        "https://token@github.com/acme/engine",
        "https://me:token@github.com/acme/engine",
        "ssh://git:token@github.com/acme/engine",
        "ftp://github.com/acme/engine",
        "https://",
        "https://github.com",
        "https://github.com:0/x",
        "acme/engine",
        "engine",
        "",
        "   ",
        "\x1b[31mhttps://github.com/acme/x",
        "https://github.com/acme/\u202ex",
        "https://github.com/" + "a" * 2000,
    ],
)
@pytest.mark.parametrize("trust", [OPERATOR, PERSON], ids=["operator", "person"])
def test_case_56_what_git_could_take_for_an_option_or_a_command_is_refused_from_anybody(repository: str, trust: Trust) -> None:
    with pytest.raises(Refusal):
        check_repository(repository, trust)


@pytest.mark.parametrize("repository", ["ext::sh -c x", "EXT::sh", "fd::17", "::x"])
def test_a_transport_that_could_run_commands_is_refused_as_that(repository: str) -> None:
    with pytest.raises(Refusal, match="param_transport"):
        check_repository(repository, OPERATOR)


@pytest.mark.parametrize("repository", ["/etc", "./here", "../up", "~/engine", "file:///etc", ".", "..", "file:x"])
def test_local_paths_are_for_operators_only(repository: str) -> None:
    with pytest.raises(Refusal, match="param_repo_local"):
        check_repository(repository, PERSON)
    assert check_repository(repository, OPERATOR).startswith("/")


@pytest.mark.parametrize(
    "repository",
    [
        "https://github.com/acme/engine",
        "https://GitHub.com/acme/engine.git",
        "https://github.com/acme/engine/",
        "git@code.example:team/a/b",
    ],
)
def test_people_may_name_what_the_list_covers(repository: str) -> None:
    assert check_repository(repository, PERSON) == repository


@pytest.mark.parametrize(
    "repository",
    [
        "https://github.com/other/engine",
        "https://github.com/acme/engine/deeper",
        "https://github.com/acme/../other/engine",
        "https://github.com/acme/./engine",
        "https://github.com/acme/%2e%2e/engine",
        "https://github.com/acme/engine?x=https://github.com/acme/y",
        "https://github.com/acme/engine#y",
        "https://github.com.evil.example/acme/engine",
        "https://evil.example/https://github.com/acme/engine",
        "http://github.com/acme/engine",
        "https://github.com:8443/acme/engine",
        "git@code.example:other/a",
        "git@code.example:team/../other/a",
    ],
)
def test_people_may_name_nothing_else(repository: str) -> None:
    with pytest.raises(Refusal, match="param_repo_unlisted"):
        check_repository(repository, PERSON)


def test_without_a_list_people_have_the_default_only() -> None:
    with pytest.raises(Refusal, match="param_repo_default_only"):
        check_repository("https://github.com/acme/engine", Trust(local=False))


def test_a_star_stays_between_slashes_and_two_do_not() -> None:
    assert allowed("https://git.example/a/b/c", ("https://git.example/**",))
    assert not allowed("https://git.example/a/b/c", ("https://git.example/*",))
    assert allowed("https://code.git.example/a", ("https://*.git.example/a",))
    assert not allowed("https://evil.example/x.git.example/a", ("https://*.git.example/a",))
    assert allowed("https://git.example/a1", ("https://git.example/a[0-9]",))
    assert not allowed("https://git.example/axb", ("https://git.example/a.b",))
